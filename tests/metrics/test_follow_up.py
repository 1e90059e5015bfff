"""E-processes: Ville's bound by enumeration of every sequence, and the wealth by its definition."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy import stats

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics import follow_up as module
from retinabench.metrics.follow_up import conformal_p_values, days, first_alarm, log_wealth, one_image_each, onset


def wealth_by_definition(x):
    """The mean over shares and starting times, by loops."""
    remaining = [1.0] + [1 / np.log2(k + 3) for k in range(1, len(x) + 1)]
    found = []
    for t in range(1, len(x) + 1):
        owned = [
            sum((remaining[k] - remaining[k + 1]) * np.prod(1 + bet * x[k:t]) for k in range(t)) for bet in module.BETS
        ]
        found.append(np.mean(owned) + remaining[t])
    return np.log(found)


def test_the_wealth_is_the_mean_over_shares_and_starting_times():
    x = np.random.default_rng(0).uniform(-1, 3, 40)
    np.testing.assert_allclose(log_wealth(x), wealth_by_definition(x), rtol=0, atol=1e-12)
    np.testing.assert_allclose(log_wealth(np.stack([x, -x / 3]))[0], log_wealth(x), atol=1e-12)


@pytest.mark.parametrize("goal", [0.05, 0.2, 0.5])
def test_villes_bound_holds_by_enumeration_of_all_sequences(goal):
    """14 patients, wrong with probability `goal`: every one of 16,384 histories with its probability."""
    wrong = np.array(list(product([0, 1], repeat=14)))
    chance = np.prod(np.where(wrong, goal, 1 - goal), axis=1)
    wealth = log_wealth((wrong - goal) / goal)
    np.testing.assert_allclose(chance @ np.exp(wealth), 1, rtol=0, atol=1e-9)  # a martingale at every time
    for level in (0.5, 0.2, 0.1, 0.05, 0.01):
        assert chance[wealth.max(axis=1) >= -np.log(level)].sum() <= level


def test_every_increment_at_its_least_leaves_some_wealth_and_nothing_overflows():
    lost = log_wealth(np.full(1000, -1.0))
    assert np.isfinite(lost).all()
    assert np.all(np.diff(lost) < 0)
    assert np.isfinite(log_wealth(np.full(20_000, 19.0))).all()  # in logarithms: no overflow


def test_a_mean_of_e_processes_and_the_first_alarm():
    rich, poor = np.log([1.0, 30.0, 50.0]), np.log([1.0, 0.5, 0.1])
    np.testing.assert_allclose(np.exp(module.mean_log_wealth([rich, poor])), [1, 15.25, 25.05])
    assert first_alarm(rich, 0.05) == 1
    assert first_alarm(poor, 0.05) is None


def test_conformal_p_values_by_their_definition_with_ties():
    reference, values = [1.0, 2.0, 2.0], [2.0, 5.0, 0.0]
    u = np.random.default_rng([7, 0xC0DF]).random(3)
    expected = [(0 + u[0] * 3) / 4, (0 + u[1]) / 5, (5 + u[2]) / 6]
    np.testing.assert_allclose(conformal_p_values(reference, values, seed=7), expected)


def test_exchangeable_values_give_uniform_and_uncorrelated_p_values():
    """2,000 values with ties, seed 3: Kolmogorov-Smirnov below its 0.1 % point, lag correlation below 4 standard errors."""
    rng = np.random.default_rng(3)
    p = conformal_p_values(rng.integers(0, 30, 50), rng.integers(0, 30, 2000), seed=1)
    assert stats.kstest(p, "uniform").pvalue > 0.001
    assert abs(np.corrcoef(p[1:], p[:-1])[0, 1]) < 4 / np.sqrt(2000)


def test_drift_alarms_rarely_without_a_drift_and_soon_with_one():
    """150 streams of 400 after 200 reference patients at level 10 %: the standard error of a share of 10 % is 2.4 points."""

    def alarmed(values, seed):
        return (
            first_alarm(module.drift_log_wealth(conformal_p_values(values[:200], values[200:], seed)), 0.1) is not None
        )

    rng = np.random.default_rng(4)
    false = found = 0
    for study in range(150):
        values = rng.normal(size=600)
        false += alarmed(values, study)
        values[350:] += 0.8
        found += alarmed(values, study)
    assert false / 150 <= 0.1 + 3 * 0.024
    assert found / 150 >= 0.95


def predictions(dates, **columns):
    n = len(dates)
    ids = [f"i{k}" for k in range(n)]
    return rb.Predictions(ids, [0, 1] * (n // 2) + [0] * (n % 2), np.full(n, 0.3), subgroups={"date": dates}, **columns)


def test_dates_with_time_of_day_and_months_are_read():
    found = days(predictions(["2026-03-01", "2026-03-02T08:30:00", "2026-04", "2026-03-02 09:00"]), "date")
    assert found.astype(str).tolist() == ["2026-03-01", "2026-03-02", "2026-04-01", "2026-03-02"]


@pytest.mark.parametrize(
    ("dates", "message"),
    [
        (["2026-01-01", "31.12.25"], "row 2, column 'date': is '31.12.25', not a date"),
        (["2026-01-01", ""], "row 2, column 'date': is empty"),
        (["2026-02-31", "2026-01-01"], "row 1, column 'date': is '2026-02-31', not a date"),
        ([20260101.0, 20260102.0], "not a date"),
    ],
)
def test_what_is_no_date_is_named_by_its_row(dates, message):
    with pytest.raises(InputError, match=message):
        days(predictions(dates), "date")


def test_a_bad_date_of_the_test_split_is_named_by_the_row_of_the_file(tmp_path):
    rows = ["a,0,.1,,validation,1", "b,1,.9,,validation,1", "c,0,,2026-01-01,test,0", "d,0,.1,2026-01-01,test,1"]
    lines = ["image_id,label,prob,date,split,gradable", *rows, "e,1,.8,31.02.2026,test,1"]
    (tmp_path / "p.csv").write_text("\n".join(lines) + "\n")
    whole = rb.read_predictions(tmp_path / "p.csv")
    with pytest.raises(InputError, match=r"p\.csv, row 5, column 'date': is '31\.02\.2026'"):
        module.follow_up([whole], "auto", 0.5, "date")


def test_visits_are_ordered_by_day_and_id_and_counted_by_patient():
    dates = ["2026-01-02", "2026-01-01", "2026-01-05", "2026-01-01", "2026-01-02"]
    images = module.Watched.of(predictions(dates, patient_id=["b", "c", "b", "a", "b"]), "auto", "date")
    visits = module.Visits.of(images)
    assert visits.day.astype(str).tolist() == ["2026-01-01", "2026-01-01", "2026-01-02", "2026-01-05"]  # a, c, b, b
    assert visits.number.tolist() == [1, 1, 1, 2]
    assert visits.sums(np.array([1.0, 2, 4, 8, 16])).tolist() == [8, 2, 17, 4]
    path = visits.evidence(lambda rows: np.log([4.0, 2, 8][: len(rows)]) if len(rows) == 3 else np.log([60.0]))
    np.testing.assert_allclose(np.exp(path), [2, 1, 4, 10])  # halves of the first visits, a sixth of the second


def test_the_image_that_stands_for_a_patient_does_not_depend_on_the_others():
    names = np.array([f"image-{k}" for k in range(600)])
    codes = np.arange(600) // 3
    chosen = one_image_each(names, codes)
    assert codes[chosen].tolist() == list(range(200))
    order = np.random.default_rng(0).permutation(600)
    assert set(names[order][one_image_each(names[order], codes[order])]) == set(names[chosen])
    kept = np.setdiff1d(np.arange(600), np.setdiff1d(np.arange(0, 600, 2), chosen))
    assert set(names[kept][one_image_each(names[kept], codes[kept])]) == set(names[chosen])
    # Each of three places is chosen in a third of 200 patients: standard error 3.3 points.
    assert np.all(np.abs(np.bincount(chosen % 3) / 200 - 1 / 3) < 4 * 0.033)


@pytest.mark.parametrize(
    ("last", "unit", "count"), [(30, "day", 31), (200, "week", 30), (900, "month", 30), (4000, "year", 11)]
)
def test_windows_are_the_finest_that_fit(last, unit, count):
    start, number, name = module.windows(np.datetime64("2026-01-01", "D") + np.arange(last + 1))
    assert (name, len(start)) == (unit, count)
    assert number.max() == count - 1
    if unit == "week":
        assert start[1].astype(object).weekday() == 0


def test_validation_images_without_labels_stay_in_the_reference():
    later, earlier = (predictions(["2026-01-01"]), predictions(["2025-01-01", "2025-01-02"], split=["validation"] * 2))
    groups = {**earlier.subgroups, "labelled": ["yes", "no"]}
    earlier = replace(earlier, image_id=np.array(["v0", "v1"]), subgroups=groups)
    _, reference = module.follow_up([later, earlier], "auto", 0.5, "date")
    assert reference.labelled.tolist() == [True, False]


def test_the_onset_of_a_failure_by_hand_and_in_simulated_ones():
    """Ten right calls, then ten wrong ones; and 200 alarms of a risk of 30 instead of 5 % from step 300 on: 95 % covered, 3 points less by chance."""
    assert onset(np.repeat([-1.0, 4.0], 10))[0] == 10
    rng, held = np.random.default_rng(12), []
    while len(held) < 200:
        x = (rng.random(900) < np.repeat([0.05, 0.3], [300, 600])) / 0.1 - 1
        alarm = first_alarm(log_wealth(x), 0.025)
        if alarm is not None and alarm >= 300:
            best, low, high = onset(x[: alarm + 1])
            assert low <= best <= high
            held.append(low <= 300 <= high)
    assert np.mean(held) >= 0.92
