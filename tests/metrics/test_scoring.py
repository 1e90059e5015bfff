import copy
import json
import pickle

import numpy as np
import pytest

import retinabench as rb
from metrics.test_classification import predictions
from retinabench.core.errors import InputError
from retinabench.metrics import referral_curves
from retinabench.metrics.arrays import Arrays, evaluate, predict
from retinabench.metrics.image_sets import SetEvaluator, image_sets
from retinabench.metrics.registry import ON_REQUEST, SCORES, ScoreSpec
from retinabench.metrics.weighted_images import cluster_bootstrap
from support.shared_inputs import CONTRACT


def test_only_sets_that_exist():
    p = predictions()
    for domain in ("in_domain", "shifted"):
        assert set(rb.score(p.select(domain=domain), bootstrap=0).sets) == {domain}


def test_scores_are_of_the_test_split():
    p = predictions()
    split = np.where(np.arange(len(p)) % 3 == 0, "validation", "test")
    mixed = predictions(split=split)
    a = rb.score(mixed, bootstrap=10).to_dict()["sets"]
    b = rb.score(mixed.select(split="test"), bootstrap=10).to_dict()["sets"]
    for one in (one for found in (a, b) for name, one in found.items() if name != "balanced"):
        del one["baseline"]["corrected"]  # validation images correct the prior, where there are any
    assert a == b
    with pytest.raises(InputError, match="test split"):
        rb.score(mixed.select(split="validation"))


@pytest.mark.parametrize("rules", ["corrected", "published"])
def test_every_number_is_found_again(rules):
    p = predictions()
    assert rb.score(p, rules, bootstrap=20, seed=5).to_dict() == rb.score(p, rules, bootstrap=20, seed=5).to_dict()


def test_notes_say_it_aloud():
    p = rb.Predictions(["a", "b", "c"], [0, 1, 1], [0.0, 1.0, 0.4])
    notes = " ".join(rb.score(p, bootstrap=0, uncertainty="epistemic").notes)
    assert "own cluster" in notes
    assert "epistemic" in notes
    assert "one sample" in notes
    assert "probability 0 or 1" in notes


def test_intervals_use_patients():
    """Both eyes of a patient alike: resampling images would be too sure by the square root of two."""
    rng = np.random.default_rng(0)
    n = 400
    y = np.repeat(rng.random(n // 2) < 0.4, 2)
    p = np.repeat(rng.random(n // 2), 2)
    base = {"image_id": [f"i{k}" for k in range(n)], "label": y, "probs": p}
    eyes = rb.score(rb.Predictions(**base), bootstrap=400).to_dict()["sets"]["in_domain"]["scores"]["accuracy"]
    patients = rb.score(rb.Predictions(**base, patient_id=[f"p{k // 2}" for k in range(n)]), bootstrap=400).to_dict()[
        "sets"
    ]["in_domain"]["scores"]["accuracy"]
    ratio = (patients["high"] - patients["low"]) / (eyes["high"] - eyes["low"])
    assert ratio == pytest.approx(np.sqrt(2), abs=0.2)


def test_unknown_arguments():
    p = predictions()
    with pytest.raises(InputError, match="corrected"):
        rb.score(p, rules="correct")
    with pytest.raises(InputError, match="bootstrap"):
        rb.score(p, bootstrap=-1)
    for level in (95, 0, 1, float("nan")):
        for rules in ("corrected", "published"):
            with pytest.raises(InputError, match=r"the level is .*such as 0\.95"):
                rb.score(p, rules, bootstrap=0, level=level)


def test_controls_are_on_the_same_axes():
    part = rb.score(predictions(), bootstrap=0).to_dict()["sets"]["balanced"]
    random, oracle = part["controls"]["random"], part["controls"]["oracle"]
    accuracy, err = part["scores"]["accuracy"]["value"], 1 - part["scores"]["accuracy"]["value"]
    assert random["referral_accuracy_area"] == pytest.approx(accuracy, abs=1e-12)
    assert random["augrc"] == pytest.approx(err / 2, abs=1e-12)
    assert oracle["augrc"] == pytest.approx(err**2 / 2, abs=1e-12)
    assert random["aurc"] == pytest.approx(err, abs=1e-12)
    assert part["retained"]["0.5"]["positives"] + part["retained"]["0.5"]["negatives"] == pytest.approx(240)


def test_undefined_is_null_with_the_counts():
    p = predictions()
    severe = p.take(np.flatnonzero(p.label == 1))
    entry = rb.score(severe, bootstrap=10).to_dict()["sets"]["in_domain"]["scores"]
    assert entry["auroc"]["value"] is None
    assert "0 negative" in entry["auroc"]["why"]
    assert entry["referral_auroc_area"]["value"] is None
    assert "both classes where 50 %" in entry["referral_auroc_area"]["why"]
    assert entry["specificity"]["value"] is None
    assert entry["accuracy"]["value"] == entry["sensitivity"]["value"]


def test_an_interval_of_a_rarely_defined_score_is_withheld():
    label, prob = [1] + [0] * 19, np.linspace(0.9, 0.1, 20)
    p = rb.Predictions([f"i{k}" for k in range(20)], label, prob, uncertainty=np.arange(20))
    entry = rb.score(p, bootstrap=200).to_dict()["sets"]["in_domain"]["scores"]
    assert entry["auroc"]["value"] == 1
    assert entry["auroc"]["low"] is None
    assert "single patient" in entry["auroc"]["why"]
    scores = rb.compare(p, p, bootstrap=200, scores=["auprc"])
    assert "5 %" in scores["in_domain"]["auprc"].why


def test_no_interval_is_without_width():
    """The hand-made cases of the audit: no error at all, hardly any positive, and every answer alike."""
    rng = np.random.default_rng(0)
    n, eyes = (120, {"image_id": [f"i{k}" for k in range(120)], "patient_id": [f"p{k // 2}" for k in range(120)]})
    label = (np.arange(n) < 12).astype(int)
    cases = {
        "perfect": np.where(label == 1, 0.9, 0.1) + rng.uniform(-0.05, 0.05, n),
        "one of twelve": np.where(np.arange(n) == 0, 0.9, 0.1) + rng.uniform(-0.05, 0.05, n),
        "never": np.full(n, 0.1),
    }
    for name, prob in cases.items():
        scores = rb.score(rb.Predictions(**eyes, label=label, probs=prob), bootstrap=50)["in_domain"].scores
        for key, one in scores.items():
            if np.isfinite(one.low):
                assert one.low < one.high, (name, key)
                assert one.low <= one.value <= one.high, (name, key)
            else:
                assert one.why, (name, key)
        if name == "perfect":
            assert scores["sensitivity"].low == pytest.approx(0.025 ** (1 / 6))  # six diseased patients
            assert scores["accuracy"].low == pytest.approx(0.025 ** (1 / 60))
            assert scores["auroc"].low == pytest.approx(0.025 ** (1 / 6))


def test_a_single_patient_has_no_interval():
    p = rb.Predictions(["a", "b"], [1, 0], [0.7, 0.2], patient_id=["x", "x"])
    entry = rb.score(p, bootstrap=10).to_dict()["sets"]["in_domain"]["scores"]["accuracy"]
    assert entry["value"] == 1
    assert entry["low"] is None
    assert "single patient" in entry["why"]


def test_ece_has_a_reason_and_the_debiased_error_an_interval():
    rng = np.random.default_rng(5)
    prob = rng.random(400)
    found = rb.score(rb.Predictions(np.arange(400), rng.random(400) < prob, prob), bootstrap=5)["in_domain"]
    for of in ("top_label", "positive_class"):
        assert np.isnan(found[f"ece_{of}"].low)
        assert "debiased" in found[f"ece_{of}"].why
        error = getattr(found.calibration, f"calibration_error_{of}")
        assert error.low == 0  # calibrated
        assert error.low <= error.value <= error.high
    assert found.calibration.line_slope.low < 1 < found.calibration.line_slope.high


def test_replicates_of_the_auprc_area_are_those_of_every_count():
    """They see 25 counts and are moved by the whole set's difference: their
    root mean square distance from the exact ones is below 5 % of the spread, which widens an interval by 0.1 %."""
    rng = np.random.default_rng(3)
    severity = np.repeat(rng.normal(-0.6, 1.2, 200), 2) + rng.normal(0, 0.3, 400)
    prob = 1 / (1 + np.exp(-(2 * severity + rng.normal(0, 1.5, 400))))
    p = rb.Predictions(np.arange(400), severity > 0, prob, patient_id=np.arange(400) // 2)
    (images,) = image_sets(p, -np.abs(prob - 0.5))
    quick = cluster_bootstrap(SetEvaluator(images, [SCORES["referral_auprc_area"]]), images.cluster, replicates=40)

    def exact_area(w):
        return referral_curves.area_of(images.weigh(w)[0], "auprc")[:, None]

    exact = cluster_bootstrap(exact_area, images.cluster, replicates=40)
    assert np.sqrt(np.mean((quick - exact) ** 2)) < 0.05 * exact.std()


def test_a_moved_coarse_area_never_passes_1():
    """With an exact value of 1, half of the moved replicates would lie above it."""
    rng = np.random.default_rng(0)
    label = (rng.random(300) < 0.3).astype(int)
    prob = 1 / (1 + np.exp(-(2 * label - 1 + rng.normal(0, 1.5, 300))))
    test = rb.Predictions([f"i{k}" for k in range(300)], label, prob)
    evaluator = SetEvaluator(image_sets(test, prob * (1 - prob))[0], [SCORES["referral_auprc_area"]], np.ones(1))
    draws = evaluator(rng.multinomial(300, np.full(300, 1 / 300), 40).astype(float))
    assert draws.max() == 1
    assert draws.min() < 1


def mean_prob(w):
    return w.mean(w.cases.prob)


@pytest.mark.parametrize("number", range(4))
def test_many_weightings_at_once_are_one_after_the_other(number):
    """In every set, also for a plug-in's score of one weighting; the balanced set may lose a domain."""
    p = predictions()
    images = image_sets(p, -np.round(np.abs(p.prob - 0.5), 2))[number]
    plain = ScoreSpec("mean_prob", "Mean probability", "", "", 1, mean_prob)
    evaluator = SetEvaluator(images, [*images.scores, plain])
    n = len(images)
    weight = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), 4).astype(float)
    weight[1, images.shifted] = 0 if number == 3 else weight[1, images.shifted]
    one_by_one = np.concatenate([evaluator(row[None]) for row in weight])
    np.testing.assert_allclose(evaluator(weight), one_by_one, rtol=1e-12, atol=1e-12)
    assert np.isnan(one_by_one[1]).all() == (number == 3)


def test_the_table_is_complete():
    assert {name for name, s in SCORES.items() if s.sets != ON_REQUEST} == {*CONTRACT, "ood_auroc", "ood_auprc"}
    for name, s in SCORES.items():
        assert s.name == name
        assert s.direction in ("higher", "lower") or s.sets == ON_REQUEST
        assert s.version >= 1
        assert s.label
    for metric in ("accuracy", "nll", "auroc", "auprc"):
        assert metric in referral_curves.METRICS


def test_a_plug_in_score_is_in_scores_and_comparisons():
    """An entry point gives the registry such an entry; `add` does the same for this process."""
    spec = ScoreSpec("mean_prob", "Mean probability", "higher", "", 1, lambda w: w.mean(w.cases.prob))
    SCORES.add(spec.name, spec)
    try:
        model = rb.Predictions(["a", "b"], [0, 1], [0.2, 0.6])
        assert rb.score(model, bootstrap=0)["in_domain"].mean_prob.value == pytest.approx(0.4)
        found = rb.compare(model, model, bootstrap=0, scores=["mean_prob", "accuracy_at_50"])
        assert list(found["in_domain"].scores) == ["accuracy_at_50", "mean_prob"]
    finally:
        SCORES.remove(spec.name)
    assert "mean_prob" not in SCORES


def test_the_json_contract():
    p = predictions()
    found = rb.score(p, bootstrap=40).to_dict()
    assert found == json.loads(json.dumps(found, allow_nan=False))
    assert found["schema"] == "retinabench.scores/1"
    assert found["rules"] == "corrected"
    assert found["uncertainty"] == "total"
    assert (found["bootstrap"], found["seed"]) == (40, 0)
    assert set(found["sets"]) == {"in_domain", "shifted", "joint", "balanced"}
    for name, part in found["sets"].items():
        assert {"images", "patients", "positives", "scores", "referral"} <= set(part)
        expected = [*CONTRACT, "ood_auroc", "ood_auprc"] if name == "joint" else CONTRACT
        assert list(part["scores"]) == expected
        for entry in part["scores"].values():
            assert {"value", "low", "high", "version"} <= set(entry)
        assert set(part["referral"]["auroc"]) == {"0", "0.5", "0.7"}
    near = found["sets"]["in_domain"]
    assert near["images"] == 240
    assert near["patients"] == 120
    assert near["scores"]["accuracy"]["low"] < near["scores"]["accuracy"]["value"]
    assert near["scores"]["accuracy"]["value"] < near["scores"]["accuracy"]["high"]


def test_any_metadata_is_valid_json():
    p = rb.Predictions(["a"], [1], [0.7], metadata={"lr": float("nan"), "when": np.float32(1), "x": object()})
    found = rb.score(p, bootstrap=0).to_dict()
    json.dumps(found, allow_nan=False)
    assert found["metadata"]["lr"] is None


def test_scores_by_attribute_and_by_name():
    found = rb.score(predictions(), bootstrap=20)
    one = found["shifted"]
    assert one.auroc is one["auroc"]
    assert one.auroc.value == found.value("auroc", "shifted")
    assert one.auroc.low <= one.auroc.value <= one.auroc.high
    assert list(found) == list(found.sets)
    assert {"auroc", "images"} <= set(dir(one))
    with pytest.raises(KeyError, match="auroc"):
        one["auroq"]
    with pytest.raises(AttributeError, match="auroq"):
        _ = one.auroq
    with pytest.raises(KeyError, match="in_domain"):
        found["indomain"]


def test_results_can_be_copied_and_pickled():
    found = rb.score(predictions(), bootstrap=0)
    assert pickle.loads(pickle.dumps(found)).to_dict() == copy.deepcopy(found).to_dict() == found.to_dict()


RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (150, 4, 4, 3), dtype=np.uint8)
LABEL = (IMAGES.mean((1, 2, 3)) + RNG.normal(0, 10, 150) > 127).astype(int)


def estimator(images):
    assert images.dtype == np.float32
    assert images.max() <= 1
    mean = 1 / (1 + np.exp(-20 * (images.mean((1, 2, 3)) - 0.5)))
    return mean, np.sqrt(mean * (1 - mean))


def test_it_is_score_of_the_predictions():
    patient = np.arange(150) // 2
    split = Arrays(IMAGES, LABEL, patient_id=patient, batch_size=64)
    mean, spread = estimator(IMAGES.astype(np.float32) / np.float32(255))
    mean, spread = mean.astype(np.float64), spread.astype(np.float64)
    by_hand = rb.Predictions(np.arange(150), LABEL, mean, patient_id=patient, uncertainty=spread)
    found = evaluate(estimator, split, bootstrap=50)
    assert found.to_dict() == rb.score(by_hand, bootstrap=50).to_dict()
    assert found.uncertainty == "own"
    assert found.value("auroc") > 0.6


def test_a_split_of_ones_own():
    class Mine:
        image_id = ("a", "b", "c")
        label = (0, 1, 1)
        domain = ("in_domain", "shifted", "shifted")

        def batches(self):
            yield np.zeros((2, 1, 1, 3))
            yield [[[[1.0, 1.0, 1.0]]]]

    found = predict(lambda x: (x.mean((1, 2, 3))[:, None], np.arange(len(x))), Mine())
    assert found.prob.tolist() == [0, 0, 1]
    assert found.uncertainty.tolist() == [0, 1, 0]
    assert found.domain.tolist() == ["in_domain", "shifted", "shifted"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda x: x.mean((1, 2, 3)), "returned ndarray for batch 1.*mean, uncertainty"),
        (lambda x: (np.zeros((len(x), 2)), np.zeros(len(x))), r"mean has shape \(64, 2\) for batch 1 of 64 images"),
        (lambda x: (np.zeros(len(x)), 0.0), r"uncertainty has shape \(\) for batch 1"),
        (lambda x: (np.full(len(x), 3.0), np.zeros(len(x))), "outside"),
        (lambda x: (np.full(len(x), 0.5), np.full(len(x), np.nan)), "column 'uncertainty': is nan"),
    ],
)
def test_wrong_estimators(wrong, message):
    with pytest.raises(InputError, match=message):
        evaluate(wrong, Arrays(IMAGES, LABEL))


def test_batches_and_labels_must_fit():
    with pytest.raises(InputError, match="hold 150 images, the split has 149 labels"):
        evaluate(estimator, Arrays(IMAGES, LABEL[:-1]))
    with pytest.raises(InputError, match="no images"):
        evaluate(estimator, Arrays(IMAGES[:0], []))
