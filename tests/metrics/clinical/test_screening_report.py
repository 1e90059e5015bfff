import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics.clinical.screening import clinic
from retinabench.metrics.intervals import Interval
from retinabench.metrics.scoring import judge
from support.screened import drawn, two_domains


def judged(found, name="in_domain"):
    one = found[name]
    return judge(
        sensitivity=one.sensitivity, specificity=one.specificity, auroc=one.auroc,
        net_benefit_gain=one.baseline.net_benefit_gain, brier_skill=one.baseline.brier_skill,
    )  # fmt: skip


def test_skill_and_gain_by_hand():
    found = rb.score(rb.Predictions(["a", "b", "c", "d"], [0, 0, 0, 1], [0.1, 0.2, 0.6, 0.9]), bootstrap=0)
    baseline = found["in_domain"].baseline
    assert (baseline.answer, baseline.accuracy, baseline.net_benefit_gain.value) == ("not referable", 0.75, 0)
    assert baseline.brier_skill.value == pytest.approx(1 - (0.01 + 0.04 + 0.36 + 0.01) / 4 / (0.25 * 0.75))
    assert baseline.brier_skill.value == pytest.approx(found["in_domain"].calibration.brier.skill)


def test_networks_worse_than_never_referable_are_not_useful():
    """AUROC near .57, accuracy far below .8: such models were said to work in part, for referral beat chance."""
    found = rb.score(drawn(0.25, shift=4.2, scale=3, n=1500), bootstrap=100)["in_domain"]
    assert 0.5 < found.auroc.value < 0.62
    assert found.accuracy.value < found.baseline.accuracy - 0.1
    assert found.baseline.brier_skill.value < -0.1
    assert judged({"in_domain": found}) == "not useful"


def test_class_weights_spoil_probabilities_and_the_correction_of_the_prior_restores_them():
    split = np.where(np.arange(3000) < 1500, "validation", "test")
    weighted = drawn(shift=3, n=3000, split=split)
    found = rb.score(weighted, bootstrap=100)["in_domain"]
    assert judged({"in_domain": found}) == "probabilities"
    assert found.ece_positive_class.value > 0.15
    corrected = found.baseline.corrected
    assert corrected.chosen_on == "validation"
    assert corrected.offset == pytest.approx(-3, abs=0.35)  # standard error of the prior's log odds: about .1
    assert corrected.brier_skill > 0.3
    assert corrected.ece_positive_class < 0.06
    fair = rb.score(drawn(n=3000, split=split), bootstrap=0)["in_domain"]
    assert corrected.brier_skill == pytest.approx(fair.baseline.brier_skill.value, abs=0.02)


def test_a_threshold_is_judged_by_the_net_benefit_at_its_own_price():
    """At .1 a missed disease weighs as much as 9 false alarms: worth more than calling all or none, though less accurate than never."""
    found = rb.score(drawn(n=600), bootstrap=100, threshold=0.1)["in_domain"]
    assert found.accuracy.value < found.baseline.accuracy
    assert judged({"in_domain": found}) == "useful"
    p = drawn(n=600)
    called = p.prob >= 0.1
    net = (np.sum(called & (p.label == 1)) - np.sum(called & (p.label == 0)) / 9) / 600
    default = (np.sum(p.label == 1) - np.sum(p.label == 0) / 9) / 600
    assert found.baseline.net_benefit_gain.value == pytest.approx(net - max(0, default))


def test_each_replicate_is_compared_with_its_own_better_default():
    """A model that refers nobody equals the better default where half are diseased, and loses in samples with more of them."""
    p = drawn(n=600)
    half = np.concatenate([np.flatnonzero(p.label == 1)[:100], np.flatnonzero(p.label == 0)[:100]])
    never = rb.Predictions(p.image_id[half], p.label[half], p.prob[half] / 2.1)
    gain = rb.score(never, bootstrap=200)["in_domain"].baseline.net_benefit_gain
    assert gain.value == 0
    assert gain.low < 0


def test_a_weak_calibrated_model_has_informative_probabilities():
    """AUROC near .7 with hardly any decision above one half: once headed "Useful." in a third of such studies."""
    kinds = [judged(rb.score(drawn(0.75, n=600, seed=k), bootstrap=100)) for k in range(12)]
    assert kinds.count("useful") <= 1
    assert kinds.count("informative") >= 9


def test_always_positive_one_class_and_no_evidence_show_nothing():
    label, prob = [0, 0, 0, 1], [0.7, 0.6, 0.8, 0.9]
    assert judged(rb.score(rb.Predictions(["a", "b", "c", "d"], label, prob), bootstrap=0)) == "always positive"
    found = rb.score(rb.Predictions(["a", "b"], [0, 0], [0.1, 0.2]), bootstrap=0)
    assert judged(found) == "one class"
    assert found["in_domain"].baseline.corrected is None
    nothing = Interval(0.8, 0.7, 0.9)
    kind = judge(
        sensitivity=nothing, specificity=nothing, auroc=nothing, net_benefit_gain=Interval(0.01, -0.02, 0.04),
        brier_skill=Interval(0.02, -0.01, 0.05),
    )  # fmt: skip
    assert kind == "not shown"


def test_the_default_threshold_is_that_of_accuracy():
    given = rb.Predictions(["a", "b", "c"], [0, 1, 1], [0.5, 0.5, 0.6], patient_id=["p", "q", "q"])
    found = clinic(given).to_dict()["sets"]["in_domain"]
    assert found["images"]["tp"] == 1
    assert found["images"]["fp"] == 0
    assert (found["patients"]["tp"], found["patients"]["tn"]) == (1, 1)


def test_thresholds_are_chosen_on_validation_and_named():
    n = 300
    split = np.where(np.arange(n) % 3 == 0, "validation", "test")
    given = two_domains(domain=["in_domain"] * n, split=split, patient_id=None)
    found = clinic(given, "sensitivity=0.9@validation", referral_rate=0.2)
    part = given.select(split="validation")
    assert np.mean(part.prob[part.label == 1] >= found.threshold.value) >= 0.9
    assert (found.threshold.chosen_on, found.referral.chosen_on) == ("validation", "validation")
    assert any("sensitivity=0.9" in note for note in found.notes)
    assert any("no patient_id" in note for note in found.notes)
    own = clinic(given.select(split="test"), referral_rate=0.2)
    assert any("no validation split" in note for note in own.notes)


@pytest.mark.parametrize(
    "values", [{"referral_cost": -1}, {"images_per_hour": 0}, {"prevalences": [1.0]}, {"reader": (0.9, 1.2)}]
)
def test_what_cannot_be_is_refused(values):
    with pytest.raises(InputError):
        clinic(two_domains(), **values)
