"""Dates, the order of patients, and windows of time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics.monitoring.follow_up import Units, Watched, days, follow_up, one_image_each, windows


def predictions(dates, **columns):
    n = len(dates)
    ids = [f"i{k}" for k in range(n)]
    return rb.Predictions(
        ids, [0, 1] * (n // 2) + [0] * (n % 2), np.full(n, 0.3), subgroups={"date": dates}, **columns
    )


def test_dates_with_time_of_day_and_months_are_read():
    found = days(predictions(["2026-03-01", "2026-03-02T08:30:00", "2026-04", "2026-03-02 09:00"]), "date")
    assert found.astype(str).tolist() == ["2026-03-01", "2026-03-02", "2026-04-01", "2026-03-02"]


@pytest.mark.parametrize(
    ("dates", "message"),
    [
        (["2026-01-01", "31.12.2025"], "row 2, column 'date': is '31.12.2025', not a date"),
        (["2026-01-01", ""], "row 2, column 'date': is empty"),
        (["2026-02-31", "2026-01-01"], "row 1, column 'date': is '2026-02-31', not a date"),
        ([20260101.0, 20260102.0], "not a date"),
    ],
)
def test_what_is_no_date_is_named_by_its_row(dates, message):
    with pytest.raises(InputError, match=message):
        days(predictions(dates), "date")


def test_a_bad_date_of_the_test_split_is_named_by_the_row_of_the_file(tmp_path):
    rows = [
        "a,0,.1,,validation,1",
        "b,1,.9,,validation,1",
        "c,0,,2026-01-01,test,0",
        "d,0,.1,2026-01-01,test,1",
    ]
    lines = ["image_id,label,prob,date,split,gradable", *rows, "e,1,.8,31.02.26,test,1"]
    (tmp_path / "p.csv").write_text("\n".join(lines) + "\n")
    whole = rb.read_predictions(tmp_path / "p.csv")
    with pytest.raises(InputError, match=r"p\.csv, row 5, column 'date': is '31\.02\.26'"):
        follow_up([whole], "auto", 0.5, "date")


def test_a_missing_column_is_named_with_the_nearest_one():
    with pytest.raises(InputError, match="Did you mean 'date'"):
        days(predictions(["2026-01-01"]), "dates")


def test_units_are_patients_at_their_first_day_by_day_and_id():
    dates = ["2026-01-02", "2026-01-01", "2026-01-05", "2026-01-01", "2026-01-02"]
    images = Watched.of(predictions(dates, patient_id=["b", "c", "b", "a", "b"]), "auto", "date")
    units = Units.of(images)
    assert units.day.astype(str).tolist() == ["2026-01-01", "2026-01-01", "2026-01-02"]  # a, c, b
    assert units.later == 1
    assert units.sums(np.array([1.0, 2, 4, 8, 16])).tolist() == [8, 2, 17]
    rows = units.one_each(images.image_id)
    assert images.patient[rows].tolist() == ["a", "c", "b"]
    assert rows[2] in (0, 4)  # not the later day


def test_the_image_that_stands_for_a_patient_does_not_depend_on_the_others():
    names = np.array([f"image-{k}" for k in range(600)])
    codes = np.arange(600) // 3
    chosen = one_image_each(names, codes)
    assert codes[chosen].tolist() == list(range(200))
    order = np.random.default_rng(0).permutation(600)
    assert set(names[order][one_image_each(names[order], codes[order])]) == set(names[chosen])
    kept = np.setdiff1d(
        np.arange(600), np.setdiff1d(np.arange(0, 600, 2), chosen)
    )  # some that were not chosen are gone
    assert set(names[kept][one_image_each(names[kept], codes[kept])]) == set(names[chosen])
    # Each of three places is chosen in a third of 200 patients: standard error 3.3 points.
    assert np.all(np.abs(np.bincount(chosen % 3) / 200 - 1 / 3) < 4 * 0.033)


def test_later_days_only_add_to_the_order():
    rng = np.random.default_rng(0)
    dates = np.sort(rng.integers(1, 28, 60))
    names = [f"p{k}" for k in rng.integers(0, 40, 60)]
    whole = Watched.of(predictions([f"2026-01-{d:02d}" for d in dates], patient_id=names), "auto", "date")
    early = whole.take(whole.day < np.datetime64("2026-01-15"))
    values = rng.random(60)
    start = Units.of(early).sums(values[whole.day < np.datetime64("2026-01-15")])
    np.testing.assert_array_equal(Units.of(whole).sums(values)[: len(start)], start)


def test_an_image_of_two_files_is_refused():
    part = Watched.of(predictions(["2026-01-01"]), "auto", "date")
    with pytest.raises(InputError, match="'i0' is in two files"):
        Watched.together([part, part])


@pytest.mark.parametrize(
    ("last", "unit", "count"), [(30, "day", 31), (200, "week", 30), (900, "month", 30), (4000, "year", 11)]
)
def test_windows_are_the_finest_that_fit(last, unit, count):
    start, number, name = windows(np.datetime64("2026-01-01", "D") + np.arange(last + 1))
    assert (name, len(start)) == (unit, count)
    assert number.max() == count - 1
    if unit == "week":
        assert start[1].astype(object).weekday() == 0


def test_validation_images_without_labels_stay_in_the_reference():
    later, earlier = (
        predictions(["2026-01-01"]),
        predictions(["2025-01-01", "2025-01-02"], split=["validation"] * 2),
    )
    earlier = replace(
        earlier,
        image_id=np.array(["v0", "v1"]),
        subgroups={**earlier.subgroups, "labelled": ["yes", "no"]},
    )
    _, reference = follow_up([later, earlier], "auto", 0.5, "date")
    assert reference.labelled.tolist() == [True, False]
