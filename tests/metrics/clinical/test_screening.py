import json

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics.clinical import screening_table
from retinabench.metrics.clinical.decision_curve import best_simple_rule, net_benefit
from retinabench.metrics.clinical.screening import clinic, ungradable_images
from retinabench.metrics.clinical.screening_table import likelihood_ratios, referral_view_intervals, two_by_two
from retinabench.metrics.image_sets import FrozenThreshold, ReferralRule
from retinabench.metrics.intervals import Interval, clustered_proportion
from retinabench.predictions.table import Predictions
from support.screened import two_domains
from support.shared_inputs import answers, most_uncertain


def test_counting_them_by_hand():
    y = np.array([1, 1, 1, 1, 0, 0, 0, 0, 0, 0], bool)
    said = np.array([1, 1, 0, 0, 1, 0, 0, 0, 0, 0], bool)
    good = np.array([1, 1, 1, 0, 1, 1, 1, 1, 0, 0], bool)
    found = ungradable_images(y, said, good, np.arange(10))
    assert found.images == 3
    assert found.imageability.value == pytest.approx(0.7)
    assert (found.among_referable.value, found.among_healthy.value) == (1 / 4, 2 / 6)
    assert [one.value for one in found.excluded.values()] == [2 / 3, 3 / 4]
    assert [one.value for one in found.as_referred.values()] == [3 / 4, 3 / 6]


def test_the_clinic_leaves_them_out_and_counts_them():
    n = 60
    label = np.arange(n) % 3 == 0
    prob = np.where(label, 0.8, 0.2)
    gradable = np.where(np.arange(n) % 10 == 0, "no", "yes")
    found = rb.clinic(rb.Predictions(np.arange(n), label, prob, subgroups={"gradable": gradable}))["in_domain"]
    assert found.ungradable.images == 6
    table = found.images.table
    assert table.tp + table.fp + table.fn + table.tn == 54
    assert found.ungradable.excluded["sensitivity"].value == found.images.sensitivity.value == 1
    assert found.ungradable.as_referred["specificity"].value == pytest.approx(36 / 40)
    with pytest.raises(InputError, match="not 0 or 1"):
        rb.clinic(rb.Predictions(["a", "b"], [0, 1], [0.1, 0.8], subgroups={"gradable": ["yes", "perhaps"]}))
    with pytest.raises(InputError, match="gradable"):
        rb.clinic(rb.Predictions(["a", "b"], [0, 1], [0.1, 0.8], subgroups={"gradable": [0, 0]}))


def test_golden_readings(data):
    views = answers("referral_views")
    names = {
        "retained_only": "retained_only", "screen_positive": "referral_counts_as_screen_positive",
        "expert": "oracle_expert", "reader": "expert_sens0_90_spec0_95",
    }  # fmt: skip
    rates = {
        "sens": "sensitivity", "spec": "specificity", "acc": "accuracy", "prevalence": "prevalence",
        "screen_positive_rate": "positive_rate",
    }  # fmt: skip
    for key, want in views.items():
        sent = most_uncertain(data, float(key.split("_")[1]))
        ours = referral_view_intervals(data["y"], data["p"] >= 0.5, sent, data["patient"])
        for reading, theirs in names.items():
            for name, value in want[theirs].items():
                found = ours[reading][rates[name]]
                assert found.value == pytest.approx(value, abs=1e-12)
                assert found.low <= found.value <= found.high


def test_golden_patients(data, golden):
    ids = np.arange(len(data["y"])).astype(str)
    people = rb.by_patient(Predictions(ids, data["y"], data["p"], patient_id=np.asarray(data["patient"]).astype(str)))
    want = golden["patient_level_n200"]
    assert len(people) == 200
    assert people.label.mean() == pytest.approx(want["prevalence"])
    assert roc_auc_score(people.label, people.prob) == pytest.approx(want["auc"], abs=1e-12)


def any_eye(label, said, sent, patient):
    """Patients one by one: diseased, called by an eye that is not read, read where another eye is and none is called."""
    rows = []
    for one in np.unique(patient):
        eyes = np.asarray(patient) == one
        called = (said & ~sent)[eyes].any()
        rows.append((np.asarray(label)[eyes].any(), called, sent[eyes].any() and not called))
    return np.array(rows).T


def test_patients_are_what_a_rule_does_to_their_images():
    """At every threshold of the uncertainty: exact, for 200 patients with one to four eyes, in two domains, with ties; seed 3."""
    rng = np.random.default_rng(3)
    patient = np.repeat(np.arange(200), rng.integers(1, 5, 200)).astype(str)
    n = len(patient)
    prob, u = rng.random(n).round(2), rng.random(n).round(1)
    given = Predictions(np.arange(n).astype(str), rng.random(n) < 0.3, prob, patient_id=patient, uncertainty=u)
    people = rb.by_patient(given, "own", 0.4)
    for t in np.arange(0, 1.05, 0.1):
        label, called, read = any_eye(given.label, prob >= 0.4, u > t, patient)
        assert (people.label == label).all()
        assert ((people.uncertainty > t) == read).all()
        assert (((people.prob >= 0.4) & (people.uncertainty <= t)) == called).all()
    domain = ["in_domain", "shifted", "shifted"]
    both = Predictions(["a", "b", "c"], [0, 1, 1], [0.1, 0.9, 0.2], patient_id=["p"] * 3, domain=domain)
    assert rb.by_patient(both).image_id.tolist() == ["p, in_domain test", "p, shifted test"]
    with pytest.raises(InputError, match="is missing"):
        rb.by_patient(Predictions(["a"], [0], [0.1]))


def test_readings_by_hand():
    """Retained: one right positive, one missed, one right negative, one false alarm; referred: two positives, one negative."""
    label = [1, 1, 0, 0, 1, 1, 0]
    positive = [1, 0, 0, 1, 0, 1, 1]
    referred = [0, 0, 0, 0, 1, 1, 1]
    views = referral_view_intervals(label, positive, referred, np.arange(7), reader=(0.9, 0.8))
    found = {name: (view["sensitivity"].value, view["specificity"].value) for name, view in views.items()}
    assert found["retained_only"] == pytest.approx((1 / 2, 1 / 2))
    assert found["screen_positive"] == pytest.approx((3 / 4, 1 / 3))
    assert found["expert"] == pytest.approx((3 / 4, 2 / 3))
    assert found["reader"] == pytest.approx((2.8 / 4, 1.8 / 3))


def test_it_gathers_what_the_functions_say():
    given = two_domains()
    found = clinic(given, 0.4, 0.6, uncertainty="total").to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    for name in ("in_domain", "shifted"):
        part, one = given.select(domain=name), found["sets"][name]
        said = part.prob >= 0.4
        entropy = -(part.prob * np.log(part.prob) + (1 - part.prob) * np.log(1 - part.prob))
        sent = entropy > 0.6
        table = two_by_two(part.label, said)
        assert one["images"]["sensitivity"]["value"] == table.sensitivity
        assert one["images"]["goals"]["nhs"] == screening_table.judge_goals(part.label, said, part.patient_id)["nhs"]
        label, called, _ = any_eye(part.label, said, np.zeros(len(part), bool), part.patient_id)
        assert one["patients"]["tp"] == (label & called).sum()
        assert one["read_by_expert"] == sent.sum()
        for reading, rates in referral_view_intervals(part.label, said, sent, part.patient_id).items():
            assert one["readings"][reading]["specificity"]["value"] == rates["specificity"].value
        label, called, read = any_eye(part.label, said, sent, part.patient_id)
        views = referral_view_intervals(label, called, read, np.arange(len(label)))
        value = one["patient_readings"]["reader"]["sensitivity"]["value"]
        assert value == pytest.approx(views["reader"]["sensitivity"].value)
        ppv = screening_table.predictive_values(table.sensitivity, table.specificity, 0.05)[0]
        assert one["predictive_values"]["0.05"]["ppv"]["value"] == pytest.approx(ppv)
        assert one["decision_curve"]["model"] == net_benefit(part.label, part.prob).model.tolist()
        assert one["pathway"]["sensitivity"]["value"] == pytest.approx((said | sent)[part.label == 1].mean())
        missed = (part.label == 1) & ~said & ~sent
        assert {row["image_id"] for row in one["missed"]["images"]} == set(part.image_id[missed])


def test_a_perfect_model_of_few_patients_has_bounds():
    """60 patients with two eyes, 6 diseased, no error: sensitivity's lower bound is that of 6 of 6, about 0.54."""
    label = np.repeat(np.arange(60) < 6, 2)
    given = rb.Predictions(np.arange(120), label, np.where(label, 0.65, 0.3), patient_id=np.repeat(np.arange(60), 2))
    found = clinic(given)["in_domain"]
    assert found.images.sensitivity.value == 1
    assert found.images.sensitivity.low == pytest.approx(0.025 ** (1 / 6))
    assert [found.images.goals["stated"][f"{kind}_met"] for kind in ("estimate", "bound")] == [True, False]
    assert found.to_dict()["predictive_values"]["0.1"]["ppv"]["low"] < 0.9


def test_a_model_that_never_says_yes_misses_all():
    rng = np.random.default_rng(1)
    label = rng.random(1000) < 0.03
    given = rb.Predictions(np.arange(1000), label, 0.1 + 0.2 * rng.random(1000))
    found = clinic(given, referral_rate=0)["in_domain"]
    assert found.images.sensitivity.value == 0
    assert found.missed.referable.value == 1
    assert len(found.missed.images) == label.sum()


def test_likelihood_ratios_by_hand_and_their_coverage():
    """Of independent images; 300 studies: 95 % covered, 2.5 points less by chance (seed 4)."""
    found = likelihood_ratios(Interval(0.9, 0.8, 0.95), Interval(0.8, 0.7, 0.85))
    assert (found["positive"].value, found["negative"].value) == pytest.approx((4.5, 0.125))
    assert found["positive"].low < 4.5 < found["positive"].high
    assert np.isinf(likelihood_ratios(Interval(0.9, 0.8, 0.95), Interval(1.0, 0.9, 1.0))["positive"].value)
    rng, held = np.random.default_rng(4), []
    for _ in range(300):
        parts = (60, 0.85), (200, 0.9)
        rates = [clustered_proportion(rng.random(n) < rate, np.ones(n), np.arange(n)) for n, rate in parts]
        truths = zip(likelihood_ratios(*rates).values(), (8.5, 0.15 / 0.9), strict=True)
        held.append([one.low <= truth <= one.high for one, truth in truths])
    assert np.mean(held, axis=0).min() >= 0.925


Y = np.array([1, 1, 1, 0, 0, 0, 0, 0], bool)
P = np.array([0.05, 0.45, 0.9, 0.02, 0.3, 0.48, 0.54, 0.7])


def rule(sent, cut=0.5, reader=(1.0, 1.0), harm=None, weight=1.0):
    stated = screening_table.Screened(FrozenThreshold(cut), ReferralRule(), (), reader, 0.0, 60.0, None, harm=harm)
    return best_simple_rule(Y, P, cut <= P, np.array(sent, bool), np.arange(len(Y)), np.ones(len(Y)) * weight, stated)


def test_the_same_images_are_no_gain():
    found = rule([0, 0, 0, 0, 0, 1, 1, 0])  # 0.48 and 0.54 are nearest to one half
    assert (found.name, found.same, found.gain.value) == ("around", True, 0.0)


def test_the_better_of_the_two_is_the_opponent():
    """Reading 0.48 and 0.45, just below the threshold, finds one; around it, 0.48 and 0.54, it mends one false alarm."""
    found = rule([1, 1, 0, 0, 0, 0, 0, 0])
    assert found.name == "around"  # both mend one image: the first of equals
    assert found.missed.value == pytest.approx(2 / 3)
    assert found.gain.value == pytest.approx((2 - 1) / 8)
    low = rule([1, 0, 0, 0, 1, 0, 0, 0], cut=0.2)  # at 0.2 a false alarm counts a quarter
    assert low.price == pytest.approx(0.25)
    assert low.name == "below"
    # below: 0.05 and 0.02 are read, one is found; by uncertainty: 0.05 and 0.3, which is a false alarm less
    assert low.gain.value == pytest.approx(0.25 / 8)


def test_the_misses_of_the_reader_count():
    found = rule([1, 1, 0, 0, 0, 0, 0, 0], reader=(0.5, 1.0))
    assert found.gain.value == pytest.approx((2 * 0.5 - 1) / 8)
    assert found.missed.value == pytest.approx(2 / 3)


def test_a_population_and_a_price_of_its_own():
    """Images that count twice are images that stand twice, and a false alarm costs what is said."""
    weight = np.where(Y, 1.0, 2.0)
    found = rule([1, 1, 0, 0, 0, 0, 0, 0], harm=10.0, weight=weight)
    # "around" reads 0.48 alone, which counts 2: nothing is mended. By uncertainty both missed images are found.
    assert (found.name, found.price) == ("around", 0.1)
    assert found.gain.value == pytest.approx(2 / weight.sum())
