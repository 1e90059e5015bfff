from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics.guarantees import transfer as threshold
from retinabench.metrics.guarantees.goals import TARGETS, Goal, ReferralCases, as_goals, ratio_interval
from retinabench.metrics.guarantees.transfer import choose_threshold, notes_on, on_sets, realised, validation_and_test

GRADES = [0, 2, 3, 0, 4, 0]


def cases(per="image", grade=GRADES):
    return ReferralCases.of(
        rb.Predictions(
            list("abcdef"), [0, 1, 1, 0, 1, 0], [0.2, 0.3, 0.9, 0.8, 0.4, 0.1],
            patient_id=["p", "p", "p", "q", "q", "r"], uncertainty=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6], grade=grade,
        ),
        per=per,
    )  # fmt: skip


def predictions(split, domain=None, patient=None):
    n = len(split)
    label, prob = np.arange(n) % 2, np.full(n, 0.3)
    return rb.Predictions(np.arange(n), label, prob, split=split, domain=domain, patient_id=patient)


@pytest.mark.parametrize(
    ("split", "patient", "message"),
    [
        (["test", "test"], None, "no in-domain image of the validation split"),
        (["validation", "validation"], None, "no image of the test split"),
        (["validation", "test", "test"], ["p", "p", "q"], r"1 patients are in .* such as 'p'.*Split by patient"),
    ],
)
def test_what_cannot_choose_a_threshold_is_refused(split, patient, message):
    with pytest.raises(InputError, match=message):
        validation_and_test(predictions(split, patient=patient), certifying=False)


def test_a_patient_of_validation_is_refused_among_the_shifted_too():
    leaking = predictions(["validation", "test"], ["in_domain", "shifted"], ["p", "p"])
    with pytest.raises(InputError, match=r"1 patients are in the validation and in the shifted test split.*the site"):
        validation_and_test(leaking, certifying=False)


def sets(n=60):
    """The same images under three names, of which those of `shifted` are wrong twice as often."""
    rng = np.random.default_rng(0)
    u, label = rng.random(n), np.arange(n) % 2 == 1
    wrong = {name: u > limit for name, limit in (("validation", 0.8), ("in_domain", 0.8), ("shifted", 0.4))}
    return {name: ReferralCases(label, label ^ w, u, np.arange(n), np.ones(n)) for name, w in wrong.items()}


def test_goals_that_are_not_certified_are_judged_too_unless_they_bound_nothing():
    cases = sets()
    features = {name: one.uncertainty[:, None] for name, one in cases.items()}
    goals = [Goal("selective_risk", 0.3), Goal("accuracy", 1.0)]
    parts = dict.fromkeys(cases, predictions(["test"]))
    found = on_sets(cases, parts, 0.9, goals, features, (1.0, 1.0), 10, 0, certified=False)
    assert [len(one.verdicts) for one in found.values()] == [0, 1, 1]
    assert found["shifted"].judged == "broken"
    assert found["shifted"].guarantee == "none"
    assert found["validation"].judged is None


def test_notes_count_what_is_missed_and_name_absent_patients():
    part = predictions(["validation", "test"])
    cases = sets()
    never = np.zeros(60, bool)
    quiet = {name: replace(one, positive=never) for name, one in cases.items()}
    features = {name: one.uncertainty[:, None] for name, one in cases.items()}
    realised = on_sets(quiet, dict.fromkeys(quiet, part), 2.0, [], features, (1.0, 1.0), 10, 0, certified=False)
    notes = notes_on({"validation": part}, {}, {"in_domain": realised["in_domain"]}, [], "missed")
    assert any("every image is its own cluster" in note for note in notes)
    assert notes[-1] == "in-domain: 30 of 30 referable images are missed; ask for --goal sensitivity=0.9"


CASES = st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 6)), min_size=1, max_size=30)


def images(label, positive, uncertainty):
    n = len(label)
    label, positive = np.asarray(label, bool), np.asarray(positive, bool)
    return ReferralCases(label, positive, np.asarray(uncertainty, float), np.arange(n), np.ones(n))


@given(CASES, st.sampled_from(["accuracy", "selective_risk", "sensitivity", "referral_rate", "npv"]), st.floats(0, 1))
@settings(deadline=None)
def test_the_choice_by_brute_force(cases, target, value):
    seen = images(*zip(*cases, strict=True))
    goal = Goal(target, value)
    best = None
    for t in (-np.inf, *np.unique(seen.uncertainty)):
        num, den = goal.spec.sums(seen, t)
        risk = num.sum() / den.sum() if den.sum() else np.nan
        if risk <= goal.max_risk + threshold.ROUNDING and (best is None or target != "referral_rate"):
            best = (t, 1 - risk if goal.spec.at_least else risk)
    choice = choose_threshold(seen, [goal])
    assert choice.threshold == (None if best is None else best[0])
    if best is None:
        assert choice.why
    else:
        assert choice.values[0] == pytest.approx(best[1], abs=1e-15)
        assert choice.referral_rate == pytest.approx(np.mean(seen.uncertainty > choice.threshold), abs=1e-15)


def test_several_goals_at_once_and_everything_referred_is_undefined_and_not_zero():
    seen = images([0, 1, 1, 0], [0, 1, 0, 0], [0.1, 0.2, 0.3, 0.4])
    assert choose_threshold(seen, [Goal("accuracy", 1), Goal("sensitivity", 1)]).threshold == 0.2
    assert choose_threshold(seen, [Goal("accuracy", 0.5), Goal("workload", 0.5)]).threshold == 0.4
    both = [Goal("accuracy", 1), Goal("workload", 0.25)]
    assert choose_threshold(seen, both).why == "no threshold reaches all goals at once"
    assert "the best value is 1.000" in choose_threshold(images([1], [0], [0.1]), [Goal("selective_risk", 0.5)]).why
    found = realised(images([0, 1], [0, 1], [1.0, 2.0]), 0.5).to_dict()
    assert found["referral_rate"]["value"] == 1
    assert found["selective_risk"]["value"] is None
    assert found["readings"]["expert"]["sensitivity"]["value"] == 1
    assert found["missed_referable"] == {"images": 0, "of": 1}


def test_goals_are_read_and_wrong_ones_refused():
    assert as_goals("accuracy", 0.9, ()) == (Goal("accuracy", 0.9),)
    assert as_goals("npv", 0.5, ["0.99", "workload=.5"]) == (Goal("npv", 0.99), Goal("referral_rate", 0.5))
    assert Goal("sensitivity", 0.9).max_risk == pytest.approx(0.1)
    with pytest.raises(InputError, match="two goals"):
        as_goals("npv", 0.5, ["npv=.9", "npv=.8"])
    with pytest.raises(InputError, match="Did you mean 'accuracy'"):
        Goal("acuracy", 0.9)
    with pytest.raises(InputError, match="between 0 and 1"):
        Goal.parse("sensitivity=90")
    with pytest.raises(InputError, match="unknown goal"):
        Goal.parse("sensitivity=high")
    with pytest.raises(InputError, match="grade"):
        TARGETS["missed_severe"].estimate(cases(grade=None), 0.5)
    with pytest.raises(InputError, match="unknown estimand"):
        cases("eye")


# Retained at 0.5: a (right, negative), b (missed), c (found), d (false alarm), e (missed, severe); f is referred.
PER_IMAGE = {
    "selective_risk": 3 / 5, "accuracy": 2 / 5, "sensitivity": 1 / 3, "missed_referable": 2 / 3, "severe_sensitivity": 1 / 2,
    "missed_severe": 1 / 2, "specificity": 2 / 3, "npv": 1 / 3, "ppv": 1 / 2, "referral_rate": 1 / 6,
}  # fmt: skip
# Weights: a, b, c 1/3; d, e 1/2; f 1.
PER_PATIENT = {
    "selective_risk": (4 / 3) / 2, "accuracy": 1 / 3, "sensitivity": 1 - (1 / 3 + 1 / 2) / (2 / 3 + 1 / 2),
    "missed_severe": (1 / 2) / (1 / 3 + 1 / 2), "npv": 1 - (5 / 6) / (2 / 3 + 1 / 2), "referral_rate": 1 / 3,
}  # fmt: skip


@pytest.mark.parametrize(("per", "values"), [("image", PER_IMAGE), ("patient-image", PER_PATIENT)])
def test_targets_by_hand(per, values):
    for name, value in values.items():
        found = TARGETS[name].estimate(cases(per), 0.5)
        assert found.value == pytest.approx(value), name
        assert 0 <= found.low <= found.value <= found.high <= 1


def test_an_empty_denominator_is_undefined_and_no_interval_collapses():
    assert np.isnan(TARGETS["selective_risk"].estimate(cases(), 0.0).value)
    perfect = ratio_interval(np.zeros(6), np.ones(6), np.arange(6))
    assert perfect.high == pytest.approx(1 - 0.025 ** (1 / 6))
    one = ratio_interval(np.array([0.0, 1.0]), np.ones(2), np.zeros(2, int))
    assert (one.low, one.high) == (0, 1)
