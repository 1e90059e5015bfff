"""Predictions from arrays: what is refused, where the message points, and what legal oddities are kept."""

from __future__ import annotations

import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import InputError

GOOD = {"image_id": ["a", "b", "c"], "label": [0, 1, 1], "probs": [0.1, 0.8, 0.4]}


def test_defaults_and_types():
    predictions = rb.Predictions(**GOOD)
    assert (len(predictions), predictions.samples) == (3, 1)
    assert predictions.probs.shape == (3, 1)
    assert predictions.domain.tolist() == ["in_domain"] * 3
    assert predictions.split.tolist() == ["test"] * 3
    assert predictions.patient_id is None
    assert predictions.label.dtype == np.int8


def test_legal_oddities():
    assert len(rb.Predictions(["one"], [1], [1.0])) == 1
    assert rb.Predictions(["a", "b"], [0, 0], [0.0, 1.0]).label.tolist() == [0, 0]
    assert rb.Predictions(["a", "b"], ["0", "1"], ["0.25", "1e-3"]).prob.tolist() == [0.25, 1e-3]
    assert rb.Predictions([10, 11], [True, False], [1, 0]).image_id.tolist() == ["10", "11"]
    assert rb.Predictions(np.array([b"a", b"\xc3\xa9"]), [0, 1], [0, 1]).image_id.tolist() == ["a", "é"]
    objects = np.array([b"a", "b"], object)
    assert rb.Predictions(objects, [0, 1], np.array([0.5, 1], object)).image_id.tolist() == ["a", "b"]


def test_mean_over_samples():
    predictions = rb.Predictions(["a", "b"], [0, 1], [[0.1, 0.3], [0.5, 1.0]], metadata={"members": 2})
    np.testing.assert_allclose(predictions.prob, [0.2, 0.75])


def test_select_and_take():
    predictions = rb.Predictions(
        **GOOD,
        domain=["in_domain", "shifted", "in_domain"],
        split=["validation", "test", "test"],
        grade=[0, 3, 2],
        uncertainty=[1, 2, 3],
    )
    assert predictions.select(domain="in_domain").image_id.tolist() == ["a", "c"]
    assert predictions.select(domain="shifted", split="validation") is None
    taken = predictions.take([2, 0])
    assert taken.image_id.tolist() == ["c", "a"]
    assert taken.grade.tolist() == [2, 0]
    assert predictions.take([0, 1, 2]) is predictions


def test_images_without_a_label_are_selected_only_where_that_is_asked_for():
    found = rb.Predictions(["a", "b"], [1, 0], [0.9, 0.8], subgroups={"labelled": ["yes", "no"]})
    with pytest.raises(InputError, match=r"row 2, column 'label': is not known for 1 of 2 images"):
        rb.score(found, bootstrap=0)
    assert len(found.select(split="test", unlabelled=True)) == 2


def test_a_selection_of_a_selection_knows_the_rows_of_the_file():
    split = ["validation", "test", "test", "validation", "test"]
    whole = rb.Predictions(list("abcde"), [0, 1, 0, 1, 1], [0.5] * 5, split=split)
    part = whole.select(split="test")
    assert [whole.file_row(k) for k in range(5)] == [1, 2, 3, 4, 5]
    assert [part.file_row(k) for k in range(3)] == [2, 3, 5]
    assert [part.take([2, 0]).file_row(k) for k in range(2)] == [5, 2]
