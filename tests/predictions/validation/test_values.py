"""Labels, grades and probabilities that cannot be are refused with row, column and hint."""

from __future__ import annotations

import re

import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import InputError

GOOD = {"image_id": ["a", "b", "c"], "label": [0, 1, 1], "probs": [0.1, 0.8, 0.4]}

BAD = {
    "logits": ({"probs": [-2.0, 3.0, 0.4]}, "row 1, column 'prob': is -2, outside [0, 1]. These look like logits"),
    "percent": ({"probs": [10, 80, 40]}, "These look like percentages: divide by 100"),
    "a little too large": ({"probs": [0.1, 1.2, 0.4]}, "A probability lies between 0 and 1"),
    "rounding": ({"probs": [0.1, 1 + 1e-7, 0.4]}, "is 1.0000001, outside [0, 1]. This looks like rounding"),
    "rounding below": ({"probs": [0.1, -1e-9, 0.4]}, "is -1e-09, outside [0, 1]. This looks like rounding"),
    "a bad sample": ({"probs": [[0.1, 0.2], [0.3, 2.0], [0.4, 0.5]]}, "row 2, column 'prob_1': is 2"),
    "no samples": ({"probs": np.empty((3, 0))}, "column 'probs': has shape (3, 0)"),
    "grades": ({"label": [0, 4, 2]}, "row 2, column 'label': is 4, not 0 or 1. These look like severity grades"),
    "other labels": ({"label": [0, -1, 1]}, "A label is 0 (not referable) or 1 (referable). Leave out the images whose label is -1"),
    "labels of a margin classifier": ({"label": [1, -1, 1]}, "row 2, column 'label': is -1, not 0 or 1. A label is 0 (not referable) or 1 (referable). Write 0 for -1."),
    "grade 5": ({"grade": [0, 5, 2]}, "row 2, column 'grade': is 5, not one of 0, 1, 2, 3, 4"),
    "softmax": ({"probs": [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]]}, "column 'probs': has 2 values per image that sum to 1: class prob"),
    "label against grade": ({"grade": [0, 1, 2]}, "row 2, column 'label': is 1 where the grade is 1 (1 such rows), and images are referable from grade 2 on. Every label is 1 where grade >= 1: say --referable-from 1"),
    "label against every grade": ({"grade": [0, 1, 0]}, "say --referable-from label"),
    "an unbounded score": ({"probs": [0.1, 2.37, 0.4]}, "is 2.37, outside [0, 1]. A probability lies between 0 and 1"),
    "an uncertain label": ({"probs": [0, -1, 1]}, "-1 marks a finding that is not certain"),
    "members": ({"metadata": {"members": 2}}, "1 samples cannot be shared by 2 members"),
    "members of no kind": ({"metadata": {"members": "two"}}, "cannot be shared by 'two' members"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_values_name_row_column_and_hint(name):
    changed, message = BAD[name]
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        rb.Predictions(**{**GOOD, **changed})
    assert "\n" not in str(caught.value)


def test_a_grade_may_be_missing():
    found = rb.Predictions(**GOOD, grade=[0, None, 3], domain=["in_domain", "shifted", "in_domain"])
    assert found.grade.tolist() == [0, -1, 3]
    assert found.notes == ("the grade of 1 of 3 images is not known",)
    assert found.select(domain="in_domain").grade.tolist() == [0, 3]
    assert found.select(domain="shifted").grade is None
    assert rb.Predictions(**GOOD, grade=[np.nan] * 3).grade is None


def softmax(n, classes, decimals=None, seed=0):
    logits = np.random.default_rng(seed).normal(0, 2, (n, classes))
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return probs if decimals is None else probs.round(decimals)


def table(probs, **more):
    return rb.Predictions([f"i{k}" for k in range(len(probs))], np.arange(len(probs)) % 2, probs, **more)


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize(
    ("n", "decimals"), [(1, None), (1, 3), (4, None), (4, 2), (300, None), (300, 6), (300, 3), (300, 2)]
)
def test_class_probabilities_are_never_read_as_samples(n, decimals, classes):
    with pytest.raises(InputError, match="class probabilities"):
        table(softmax(n, classes, decimals))
    table(softmax(n, classes, decimals), metadata={"samples": classes})  # said to be samples
    with pytest.raises(InputError, match="class probabilities"):
        table(softmax(n, classes).astype(np.float32))


def test_a_few_broken_rows_make_no_samples_of_the_others():
    probs = softmax(300, 2)
    probs[:9] *= 0.8
    with pytest.raises(InputError, match="class probabilities"):
        table(probs)
    half = np.full((300, 2), 0.5)  # nearly all answers are ties
    half[:3] = [[0.1, 0.3], [0.8, 0.7], [0.3, 0.7]]
    assert table(half).samples == 2


@pytest.mark.parametrize("samples", [2, 3, 5])
@pytest.mark.parametrize("n", [1, 2, 5, 300])
def test_samples_about_a_constant_are_not_taken_for_classes(n, samples):
    rng = np.random.default_rng(1)
    table(np.full((n, samples), 1 / samples))
    for scale in (1e-4, 1e-2, 0.1):  # a model that says about 1/S of every image
        table(1 / samples + rng.normal(0, scale, (n, samples)).clip(-0.15, 0.15))


def test_any_selection_of_samples_stays_samples():
    probs = np.random.default_rng(2).random((50, 2)) * 0.5
    probs[7] = [0.3, 0.7]
    assert table(probs).take([7]).samples == 2
