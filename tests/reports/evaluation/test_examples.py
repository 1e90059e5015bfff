import numpy as np

from retinabench.predictions.table import Predictions
from retinabench.reports.evaluation.evaluation import EvaluationSettings, evaluate_methods
from retinabench.reports.evaluation.facts import example_groups
from retinabench.reports.toolkit.figures import MOST_BYTES, SIDE, data_uri


def test_images_lose_their_black_border():
    image = np.zeros((400, 900, 3), np.uint8)
    image[50:350, 250:650] = 120
    uri, width, height = data_uri(image)
    assert uri.startswith("data:image/jpeg;base64,")
    assert (width, height) == (SIDE, SIDE * 3 // 4)
    assert data_uri(np.zeros((8, 8, 3), np.uint8))[1:] == (8, 8)
    assert data_uri(np.full((8, 8), 99, np.uint8))[1:] == (8, 8)


def test_an_image_that_does_not_compress_is_stored_with_less_quality():
    noise = np.random.default_rng(0).integers(30, 255, (600, 600, 3)).astype(np.uint8)
    uri, width, height = data_uri(noise)
    assert (width, height) == (SIDE, SIDE)
    assert len(uri) < 1.34 * MOST_BYTES + 30  # base64


def test_missed_disease_comes_first_the_retained_and_most_severe_before_the_others():
    rows = [  # image, grade, P(referable), uncertainty
        ("alarm", 0, 0.9, 0.1), ("fine", 0, 0.1, 0.2), ("severe", 4, 0.2, 0.3), ("mild", 2, 0.3, 0.25),
        ("referred", 3, 0.4, 0.9), ("found", 2, 0.8, 0.8),
    ]  # fmt: skip
    ids, grade, prob, uncertainty = zip(*rows, strict=True)
    label = (np.array(grade) >= 2).astype(int)
    predictions = Predictions(list(ids), label, prob, grade=grade, uncertainty=uncertainty)
    found = evaluate_methods({"m": predictions}, EvaluationSettings(bootstrap=0, referred=1 / 3))
    shown = example_groups(found, None)
    assert [group["kind"] for group in shown] == ["missed", "alarm", "uncertain", "right"]
    assert [card["id"].partition(",")[0] for card in shown[0]["cards"]] == ["severe", "mild", "referred"]
    words = [card["uncertainty"].rpartition(" ")[2] for card in shown[0]["cards"]]
    assert words == ["retained", "retained", "referred"]
    assert [card["id"].partition(",")[0] for card in shown[1]["cards"]] == ["alarm"]
    assert [group["images"] for group in shown] == [3, 1, 6, 2]
