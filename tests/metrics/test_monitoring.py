import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics.actions import FrozenRule, read_rule
from retinabench.metrics.follow_up import log_wealth
from retinabench.metrics.guarantees.goals import Goal
from retinabench.metrics.monitoring import goal_sums, read_by_expert
from retinabench.metrics.monitoring import watch as monitor
from support.follow_ups import FIRST, certificate, follow_up, predictions_of


def written(tmp_path, content):
    path = tmp_path / "transfer.json"
    path.write_text(json.dumps(content))
    return path


def test_a_plain_choice_is_not_watched():
    with pytest.raises(InputError, match="holds no certified threshold"):
        monitor(follow_up(np.random.default_rng(0), 20), replace(certified(), goals=()))


def test_only_known_labels_count(tmp_path):
    images = follow_up(np.random.default_rng(0), 100, unlabelled_from=180)
    found = read_rule(written(tmp_path, certificate()))
    kept, called = images.uncertainty <= 0.2, images.prob > 0.5
    num, den = goal_sums(found, Goal("selective_risk", 0.08), images)
    np.testing.assert_array_equal(den, kept & images.labelled)
    np.testing.assert_array_equal(num, kept & images.labelled & (called != images.label))
    num, den = goal_sums(found, Goal("sensitivity", 0.8), images)
    np.testing.assert_array_equal(den, images.label)
    np.testing.assert_array_equal(num, images.label & kept & ~called)
    num, den = goal_sums(found, Goal("workload", 0.3), images)
    assert den.all()
    np.testing.assert_array_equal(num, ~kept)


@pytest.mark.parametrize("per", ["image", "patient-image"])
def test_the_json_of_transfer_is_read(tmp_path, per):
    rng = np.random.default_rng(1)
    parts = [predictions_of(follow_up(rng, 300, name=one[0]), one) for one in ("validation", "test")]
    names = "image_id", "label", "prob", "patient_id", "split"
    columns = {name: np.concatenate([getattr(one, name) for one in parts]) for name in names}
    both = rb.Predictions(probs=columns.pop("prob"), **columns)
    made = rb.transfer(both, goals=["selective_risk=0.12", "sensitivity=0.6"], delta=0.1, per=per, bootstrap=20)
    found = read_rule(written(tmp_path, made.to_dict()))
    assert (found.threshold, found.uncertainty, found.per) == (made.threshold, "total", per)
    assert [str(one) for one in found.goals] == ["selective_risk <= 0.12", "sensitivity >= 0.6"]
    assert found.most_images == 2


THRESHOLD = 0.2


def certified(*goals, per="image"):
    return FrozenRule("max_probability", THRESHOLD, goals=tuple(map(Goal.parse, goals)), per=per, most_images=2)


@cache
def true_risk():
    """Error of the retained, from 300,000 patients: standard error 0.0005."""
    many = follow_up(np.random.default_rng(9), 300_000)
    kept = many.uncertainty <= THRESHOLD
    return np.mean((many.label != (many.prob > 0.5))[kept])


@pytest.mark.parametrize("per", ["image", "patient-image"])
def test_the_path_is_that_of_the_patient_sums(per):
    images = follow_up(np.random.default_rng(0), 200)
    found = monitor(images, certified("selective_risk=0.1", per=per)).risks[0]
    kept = (images.uncertainty <= THRESHOLD).reshape(-1, 2)
    wrong = kept & (images.label != (images.prob > 0.5)).reshape(-1, 2)
    x = (wrong.sum(1) - 0.1 * kept.sum(1)) / (0.1 * 2)  # two images each: both estimands bet alike
    path = log_wealth(x) - np.log(2)  # the second half of the level is for later visits
    day = images.day[::2]
    last = [np.flatnonzero(day == one)[-1] for one in np.unique(day)]
    np.testing.assert_allclose(found.log_wealth, path[last], atol=1e-12)
    assert found.visits == int(kept.any(1).sum())


def test_the_path_per_patient_is_that_of_whole_patients():
    """Any eye: decided where one called eye is retained, or both are; the label is open where that of one eye is. A visit that
    counted where its one label is referable, and not where it is healthy, would raise false alarms."""
    images = follow_up(np.random.default_rng(0), 200)
    found = monitor(images, certified("selective_risk=0.1", per="patient")).risks[0]
    eyes = {name: getattr(images, name).reshape(-1, 2) for name in ("uncertainty", "label", "prob")}
    kept, called, ill = eyes["uncertainty"] <= THRESHOLD, eyes["prob"] > 0.5, eyes["label"].astype(bool)
    decided = (kept & called).any(1) | (kept.all(1) & ~called.any(1))
    wrong = decided & (called.any(1) != ill.any(1))
    x = (wrong - 0.1 * decided) / (0.1 * 2)  # the certificate allows two images, though a patient counts once
    last = [np.flatnonzero(images.day[::2] == one)[-1] for one in np.unique(images.day)]
    np.testing.assert_allclose(found.log_wealth, (log_wealth(x) - np.log(2))[last], atol=1e-12)
    assert found.visits == decided.sum()
    some = np.random.default_rng(1).random(400) < 0.7
    part = monitor(replace(images, labelled=some), certified("selective_risk=0.1", per="patient")).risks[0]
    assert part.visits == (decided & some.reshape(-1, 2).all(1)).sum()


def test_a_patient_with_more_images_than_certified_counts_as_so_many():
    images = follow_up(np.random.default_rng(0), 200)
    found = monitor(images, replace(certified("selective_risk=0.1"), most_images=1)).risks[0]
    kept = (images.uncertainty <= THRESHOLD).reshape(-1, 2)
    wrong = kept & (images.label != (images.prob > 0.5)).reshape(-1, 2)
    shares = wrong.sum(1) / np.maximum(kept.sum(1), 1)
    path = log_wealth((shares - 0.1) / 0.1 * kept.any(1)) - np.log(2)
    assert found.log_wealth[-1] == pytest.approx(path[-1])


def test_each_of_two_goals_needs_twice_the_evidence_of_their_mean():
    images = follow_up(np.random.default_rng(0), 50)
    found = monitor(images, certified("selective_risk=0.05", "sensitivity=0.8"), level=0.1)
    assert [one.needed for one in found.risks] == pytest.approx([20, 20])
    assert found.combined.needed == pytest.approx(10)


def test_more_days_continue_the_history():
    images = follow_up(np.random.default_rng(1), 300, sure_errors=0.2, change=100)
    early = images.take(images.day < FIRST + 200)
    goals = certified("selective_risk=0.05", "sensitivity=0.8")
    whole, part = monitor(images, goals), monitor(early, goals)
    for a, b in ((whole.combined, part.combined), (whole.drift, part.drift)):
        np.testing.assert_allclose(a.log_wealth[: len(b.log_wealth)], b.log_wealth, atol=1e-12)
        assert b.alarm is None or a.alarm == b.alarm


def test_alarms_are_rare_at_the_goal_and_come_when_the_risk_doubles():
    """30 follow-ups of 400 patients at level 10 %: the standard error of a share of 10 % is 5.5 points."""
    goals = certified(f"selective_risk={true_risk():.4f}")
    false = found = drifted = 0
    for study in range(30):
        rng = np.random.default_rng([2, study])
        still = monitor(follow_up(rng, 400), goals, level=0.1)
        false += still.combined.alarm is not None
        drifted += still.drift.alarm is not None
        if study < 10:
            bad = monitor(follow_up(rng, 800, sure_errors=0.15, change=120), goals, level=0.1)
            found += bad.combined.alarm is not None and bad.combined.alarm >= FIRST + 120
            assert bool(bad.broken) == (bad.combined.alarm is not None)
    assert false / 30 <= 0.1 + 3 * 0.055
    assert drifted / 30 <= 0.1 + 3 * 0.055
    assert found >= 9


def independent_eyes(rng, images):
    """Deal the rows anew, so that a mean over two eyes varies much less than one eye."""
    order = rng.permutation(len(images))
    return replace(images, prob=images.prob[order], uncertainty=images.uncertainty[order], label=images.label[order])


def test_the_images_of_a_patient_on_two_days_are_no_drift():
    """10 follow-ups at level 10 %: the standard error of a share of 10 % is 9.5 points; with the means of visits all have an alarm."""
    goals, alarms = certified("selective_risk=0.1"), 0
    for study in range(10):
        rng = np.random.default_rng([5, study])
        reference = independent_eyes(rng, follow_up(rng, 300, name="v"))  # both eyes of each patient
        images = independent_eyes(rng, follow_up(rng, 400))
        second = np.arange(len(images)) % 2 == 1
        apart = replace(images, day=images.day + np.where(second, 30, 0))
        alarms += monitor(apart, goals, reference=reference, level=0.1).drift.alarm is not None
    assert alarms / 10 <= 0.1 + 3 * 0.095


def test_drift_is_seen_without_labels_and_sure_errors_are_not():
    rng = np.random.default_rng(3)
    reference = follow_up(rng, 400, name="v")
    goals = certified("selective_risk=0.1")
    washed = monitor(follow_up(rng, 800, washed_out=0.4, change=150, unlabelled_from=0), goals, reference=reference)
    assert washed.drift.alarm is not None
    assert washed.drift.alarm >= FIRST + 150
    assert washed.combined.alarm is None
    assert (washed.labelled, washed.combined.visits, washed.reference) == (0, 0, 400)
    assert any("no labels" in note for note in washed.notes)
    sure = monitor(follow_up(rng, 800, sure_errors=0.2, change=150), goals, reference=reference)
    assert sure.drift.alarm is None
    assert sure.combined.alarm is not None


def test_patients_without_labels_change_nothing():
    images = follow_up(np.random.default_rng(4), 300, unlabelled_from=200)
    found = monitor(images, certified("selective_risk=0.05"))
    path, day = found.combined.log_wealth, found.combined.day
    assert len(set(path[day >= FIRST + 200].round(12))) <= 1
    assert found.windows[-1].labelled == 0
    assert np.isnan(found.windows[-1].calibration.value)


def returning(rng, patients, **second):
    """The same patients a year later, another day each; `second` changes their images."""
    first = follow_up(rng, patients)
    again = replace(first, image_id=np.array([f"{one}-again" for one in first.image_id]), day=first.day + 366)
    return type(first).together([first, replace(again, **{name: change(again) for name, change in second.items()})])


def test_total_failure_in_returning_patients_raises_the_alarm():
    """Second visits are called healthy with P = .01: all disease is missed, with certainty."""
    images = returning(
        np.random.default_rng(4), 400,
        prob=lambda one: np.full(len(one), 0.01), uncertainty=lambda one: np.full(len(one), 0.01),
    )  # fmt: skip
    reference = follow_up(np.random.default_rng(5), 400, name="v")
    found = monitor(images, certified(f"selective_risk={1.3 * true_risk():.3f}"), reference=reference)
    assert found.combined.alarm >= FIRST + 366
    assert found.drift.alarm >= FIRST + 366


def test_patients_who_are_misjudged_again_and_again_raise_no_false_alarm():
    """Every visit repeats the images of the first, at the goal; 20 follow-ups of 30 patients and 30 visits at level 10 %: the
    standard error of a share of 10 % is 6.7 points. (One of them has an alarm; 9 where all visits are one sequence.)"""
    goals, false, drifted = certified(f"selective_risk={true_risk():.4f}"), 0, 0
    for study in range(20):
        rng = np.random.default_rng([8, study])
        visits = [follow_up(rng, 30, days=20)]
        for k in range(1, 30):
            names = np.array([f"{one}-{k}" for one in visits[0].image_id])
            visits.append(replace(visits[0], image_id=names, day=visits[0].day + 21 * k))
        found = monitor(type(visits[0]).together(visits), goals, level=0.1)
        false += found.combined.alarm is not None
        drifted += found.drift.alarm is not None
    assert false / 20 <= 0.1 + 3 * 0.067
    assert drifted / 20 <= 0.1 + 3 * 0.067


def test_visits_with_more_images_than_the_certificate_covers_are_said():
    images = follow_up(np.random.default_rng(0), 40)
    found = monitor(images, replace(certified("selective_risk=0.1"), most_images=1))
    (note,) = found.notes
    assert note == "40 visits have more images than the 1 of a patient that the certificate covers: they count as 1"


def test_images_without_patients_are_refused_where_patients_have_several():
    images = follow_up(np.random.default_rng(0), 30)
    goals = certified("selective_risk=0.1")
    with pytest.raises(InputError, match=r"column 'patient_id': is missing, and the certificate is of patients with"):
        monitor(replace(images, patient=images.image_id), goals)
    some = np.where(np.arange(len(images)) < 3, images.image_id, images.patient)
    assert "3 of 60 images have a patient of their own name" in monitor(replace(images, patient=some), goals).notes[0]
    one_each = replace(goals, most_images=1)
    assert not monitor(replace(images, patient=images.image_id), one_each).notes


def test_patients_of_validation_are_left_out():
    images = follow_up(np.random.default_rng(5), 60)
    reference = images.take(images.day < FIRST + 50)
    found = monitor(images, certified("selective_risk=0.2"), reference=reference)
    assert found.images == len(images) - len(reference)
    with pytest.raises(InputError, match="validation split"):
        monitor(reference, certified("selective_risk=0.2"), reference=images)
    with pytest.raises(InputError, match="the level is 5"):
        monitor(images, certified("selective_risk=0.2"), level=5)


def test_a_workload_needs_no_labels():
    images = follow_up(np.random.default_rng(6), 400, unlabelled_from=0)
    found = monitor(images, certified("referral_rate=0.05"))
    assert found.combined.alarm is not None
    assert "referral_rate <= 0.05" in found.missed


def test_the_result_is_json_and_the_windows_hold_every_image():
    found = monitor(follow_up(np.random.default_rng(7), 150), certified("selective_risk=0.1", "ppv=0.7"))
    content = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert content["schema"] == "retinabench.monitor/2"
    assert sum(one["images"] for one in content["windows"]) == 300
    assert content["combined"]["alarm"] is None


def test_a_group_that_fails_is_named_though_the_average_holds():
    """A twelfth of the patients: their errors of the retained are four times the goal, the average stays below it."""
    images = follow_up(np.random.default_rng(11), 1500)
    rows = np.char.endswith(images.patient, "0") & ~np.char.endswith(images.patient, "00")
    wrong = rows & (np.random.default_rng(12).random(len(images)) < 0.3) & (images.uncertainty < 0.1)
    images = replace(images, label=images.label ^ wrong, group=np.where(rows, "site: B", "site: A"))
    found = monitor(images, certified(f"selective_risk={2.2 * true_risk():.3f}"))
    assert found.combined.alarm is None
    assert [one.name.split(": selective")[0] for one in found.failing] == ["site: B"]
    assert found.alarm
    assert found.combined.needed == pytest.approx(40)
    assert found.groups[0].needed == pytest.approx(80)


def test_zones_are_watched_by_the_goals_of_each(tmp_path):
    side = {"threshold": 0.2, "certificate": {"most_images": 2, "goals": [{"goal": {"target": "npv", "goal": 0.9}}]}}
    other = {"threshold": 0.8, "certificate": {"most_images": 2, "goals": [{"goal": {"target": "ppv", "goal": 0.8}}]}}
    content = {"schema": "retinabench.triage/1", "per": "image", "zones": {"negative": side, "positive": other}}
    zones = read_rule(written(tmp_path, content))
    images = follow_up(np.random.default_rng(0), 300)
    negative, positive = images.prob <= 0.2, images.prob >= 0.8
    np.testing.assert_array_equal(read_by_expert(zones, images), ~(negative | positive))
    num, den = goal_sums(zones, Goal("npv", 0.9), images)
    np.testing.assert_array_equal(den, negative)
    np.testing.assert_array_equal(num, negative & images.label)
    num, den = goal_sums(zones, Goal("ppv", 0.8), images)
    np.testing.assert_array_equal(den, positive)
    np.testing.assert_array_equal(num, positive & ~images.label)
    assert monitor(images, zones).combined.alarm is None
    flipped = replace(images, label=images.label ^ (negative & (np.arange(len(images)) % 3 == 0)))
    assert monitor(flipped, zones).broken == ("npv >= 0.9",)


def test_an_alarm_says_when_the_failure_began():
    """Sure errors from day 200 on; a quiet follow-up has no onset, and days that come later change none."""
    images = follow_up(np.random.default_rng(5), 1500, sure_errors=0.5, change=200)
    found = monitor(images, certified("selective_risk=0.1"))
    began = [int((day - FIRST).astype(int)) for day in found.combined.began]
    assert began[1] <= 200 <= began[2] <= int((found.combined.alarm - FIRST).astype(int))
    assert abs(began[0] - 200) < 20
    earlier = monitor(images.take(images.day <= found.combined.alarm), certified("selective_risk=0.1"))
    assert earlier.to_dict()["combined"]["began"] == found.to_dict()["combined"]["began"]
    assert monitor(follow_up(np.random.default_rng(5), 300), certified("selective_risk=0.12")).combined.began == ()
