import csv
import json
import shutil

import numpy as np
import pytest

import retinabench as rb
from retinabench.cli.main import run as command
from retinabench.core.errors import InputError
from retinabench.experiments.exporting.frozen_rule import attach
from retinabench.experiments.exporting.model import export_run
from retinabench.experiments.exporting.predict_images import predict_images
from retinabench.metrics.image_sets import referral_uncertainty
from retinabench.predictions.io import read_predictions


@pytest.fixture(scope="module")
def trained(raw, finished, tmp_path_factory):
    """The raw images, the predictions of a run, those of another seed, and the exported model of the first."""
    runs = [finished("method=mfvi", "method.samples=3", f"seed={seed}") for seed in (0, 1)]
    files = [run / "predictions.parquet" for run in runs]
    return raw, *files, export_run(runs[0], tmp_path_factory.mktemp("attached") / "model", scores=False)


def listed(model, raw, folder):
    found = predict_images(rb.load_model(model), raw, folder / "p.parquet", labels="labels.csv")
    with open(found.referral_list) as handle:
        return read_predictions(found.predictions), {row["image_id"]: row for row in csv.DictReader(handle)}


def test_an_attached_threshold_refers_the_images_that_transfer_refers(trained, tmp_path, capsys):
    raw, file, _, model = trained
    words = [
        "transfer", str(file), "--goal", "selective_risk=.6", "--uncertainty", "epistemic", "--threshold",
        "0.4", "-q",
    ]  # fmt: skip
    own = read_predictions(file).select(split="test")
    median = float(np.median(referral_uncertainty(own, "epistemic")[0]))
    assert command([*words, "--attach", str(model)]) == 0
    assert f"attached: {model / 'threshold.json'}" in capsys.readouterr().err.replace("\n", " ")
    (model / "SHA256SUMS").unlink()
    content = json.loads((model / "threshold.json").read_text())
    (model / "threshold.json").write_text(json.dumps(content | {"threshold": median}))  # one that refers some
    predictions, rows = listed(model, raw, tmp_path)
    decided = {name: row["read_by_expert"] for name, row in rows.items()}
    values = referral_uncertainty(own, "epistemic")[0]
    sure = np.abs(values - median) > 1e-6  # batches of other sizes round convolutions in another order
    expected = np.where(values > median, "yes", "no")
    assert [decided[name] for name in own.image_id[sure]] == expected[sure].tolist()
    assert {"yes", "no"} == set(decided.values())
    words = np.where(predictions.prob >= 0.4, "referable", "not referable")
    calls = dict(zip(predictions.image_id, words, strict=True))
    assert all(row["call"] == calls[name] for name, row in rows.items())
    order = [float(row["uncertainty"]) for row in rows.values()]
    assert order == sorted(order, reverse=True)
    card = (model / "README.md").read_text()
    assert "Not certified: chosen by plain estimates of selective_risk <= 0.6." in card
    assert "(`epistemic`)" in card


def test_attached_zones_replace_the_threshold_and_decide_by_probability(trained, tmp_path):
    raw, file, _, model = trained
    predictions = read_predictions(file)
    found = rb.triage(predictions, ["npv=.5", "ppv=.5"], bootstrap=20)
    attach(found, predictions, model)
    attach(found, predictions, model)
    card = (model / "README.md").read_text()
    assert card.count("## Referral") == 1
    assert "npv >= 0.5" in card
    below, above = found.thresholds
    predicted, rows = listed(model, raw, tmp_path)
    for name, p in zip(predicted.image_id, predicted.prob, strict=True):
        side = (
            "no referral"
            if below is not None and p <= below
            else "refer to hospital"
            if above is not None and p >= above
            else "expert reads"
        )
        assert rows[name]["action"] == side


def test_the_certificate_of_other_weights_is_refused(trained, tmp_path, capsys):
    _, file, other, model = trained
    words = ["--goal", "selective_risk=.6", "-q", "--attach", str(model)]
    cases = (other, "was predicted of another run than the model"), (tmp_path / "p.csv", "does not say which weights")
    for wrong, says in cases:
        if wrong.suffix == ".csv":
            rb.write_predictions(read_predictions(file), wrong)
        assert command(["transfer", str(wrong), *words]) == 2
        line = capsys.readouterr().err.splitlines()[-1]  # after notes on the images
        assert says in line
    predictions = read_predictions(file)
    found = rb.transfer(predictions, goals=["selective_risk=.6"], bootstrap=20)
    cases = ({"weights": "0" * 16}, "by other weights"), ({"referable_from": 3}, "from grade 3 on, the model from 2")
    for change, says in cases:
        changed = rb.Predictions(
            predictions.image_id, predictions.label, predictions.probs, grade=predictions.grade,
            metadata=predictions.metadata | change,
        )  # fmt: skip
        with pytest.raises(InputError, match=says):
            attach(found, changed, model)


def test_what_the_labels_refute_or_no_threshold_reaches_is_not_attached(trained, capsys):
    _, file, _, model = trained
    before = (model / "README.md").read_text()
    words = ["--goal", "selective_risk=.001", "--confidence", ".99", "-q", "--attach", str(model)]
    assert command(["transfer", str(file), *words]) == 3
    assert "nothing is attached" in capsys.readouterr().err
    assert (model / "README.md").read_text() == before


def test_a_card_that_links_to_a_file_elsewhere_is_not_copied_into_the_model(trained, tmp_path):
    _, file, _, model = trained
    (tmp_path / "secret").write_text("the key")
    shutil.copytree(model, tmp_path / "model")
    (tmp_path / "model" / "README.md").unlink()
    (tmp_path / "model" / "README.md").symlink_to(tmp_path / "secret")
    predictions = read_predictions(file)
    with pytest.raises(InputError, match="leads out of its folder"):
        attach(rb.transfer(predictions, goals=["selective_risk=.6"], bootstrap=20), predictions, tmp_path / "model")
    assert (tmp_path / "secret").read_text() == "the key"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"threshold": "nan"}, "not a number"), ({"threshold": "many"}, "is damaged"),
        ({"uncertainty": "mood"}, "is damaged"), ({"decision_threshold": {"value": None}}, "is damaged"),
        ({"model": {"config_hash": "0", "weights": "1"}}, "was chosen for other weights"),
        ({"schema": "other/1"}, "neither a threshold nor zones"), ({"uncertainty": "own"}, "it states none"),
    ],
)  # fmt: skip
def test_a_damaged_threshold_is_named_in_one_line(trained, tmp_path, change, says):
    raw, file, _, model = trained
    predictions = read_predictions(file)
    attach(rb.transfer(predictions, goals=["selective_risk=.6"], bootstrap=20), predictions, model)
    path = model / "threshold.json"
    (model / "SHA256SUMS").unlink()
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InputError, match=says) as error:
        predict_images(rb.load_model(model), raw, tmp_path / "p.csv")
    assert "\n" not in str(error.value)


def test_predictions_of_the_exported_model_itself_may_choose(trained, tmp_path):
    raw, model = shutil.copytree(trained[0], tmp_path / "raw"), trained[3]
    (model / "threshold.json").unlink(missing_ok=True)
    table = (raw / "labels.csv").read_text().replace("train", "validation")
    (raw / "local.csv").write_text(table)
    found = predict_images(rb.load_model(model), raw, tmp_path / "p.parquet", labels="local.csv")
    predictions = read_predictions(found.predictions)
    assert set(predictions.split) == {"validation", "test"}
    chosen = rb.transfer(predictions, goals=["selective_risk=.6"], bootstrap=20)
    assert rb.load_model(attach(chosen, predictions, model).parent).rule.rule.threshold == chosen.threshold
