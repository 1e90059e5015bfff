"""The list of images to refer: its order, its marks, its ties."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics.selective.referral_list import COLUMNS, referral_list

PROB = np.array([0.1, 0.5, 0.9, 0.4, 0.6, 0.3])
FILE = rb.Predictions(
    list("fedcba"), [0, 1, 1, 0, 1, 0], PROB, patient_id=list("ppqqrr"), split=["test"] * 5 + ["validation"]
)


def test_the_most_uncertain_comes_first_and_ties_by_id():
    found = referral_list(FILE, share=0.4)
    assert found.images.image_id.tolist() == ["e", "b", "c", "d", "f"]
    assert found.referred.tolist() == [True, True, False, False, False]
    assert found.notes == (
        "1 of 2 equally uncertain images are referred: those whose ids come first",
        "2 of 5 images are referred",
    )


def test_a_limit_refers_what_lies_above_it():
    found = referral_list(FILE, "max_probability", above=0.4)
    assert found.referred.tolist() == [True, False, False, False, False]
    assert referral_list(FILE, "max_probability", above=0.39).referred.sum() == 3
    assert referral_list(FILE).referred is None


def test_the_csv_has_one_row_per_image():
    rows = list(csv.DictReader(io.StringIO(referral_list(FILE, share=0.2).to_csv().decode())))
    assert tuple(rows[0]) == COLUMNS
    assert [row["rank"] for row in rows] == list("12345")
    assert [row["referred"] for row in rows] == ["yes", "no", "no", "no", "no"]
    assert [float(row["prob"]) for row in rows] == [0.5, 0.6, 0.4, 0.9, 0.1]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"share": 1.5}, "share of 1.5"), ({"share": 0.1, "above": 0.2}, "both a share and a limit")],
)
def test_what_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        referral_list(FILE, **options)
    with pytest.raises(InputError, match="no image of the test split"):
        referral_list(FILE.select(split="validation"))
