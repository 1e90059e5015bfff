"""Ungradable images by hand, and through `rb.clinic`."""

from __future__ import annotations

import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics.clinical.ungradable import ungradable_images


def test_counting_them_by_hand():
    y = np.array([1, 1, 1, 1, 0, 0, 0, 0, 0, 0], bool)
    said = np.array([1, 1, 0, 0, 1, 0, 0, 0, 0, 0], bool)
    good = np.array([1, 1, 1, 0, 1, 1, 1, 1, 0, 0], bool)
    found = ungradable_images(y, said & good, good, np.arange(10))
    assert found.images == 3
    assert found.imageability.value == pytest.approx(0.7)
    assert (found.among_referable.value, found.among_healthy.value) == (1 / 4, 2 / 6)
    assert [one.value for one in found.excluded] == [2 / 3, 3 / 4]
    assert [one.value for one in found.as_referred] == [3 / 4, 3 / 6]


def test_the_clinic_leaves_them_out_and_counts_them():
    n = 60
    label = np.arange(n) % 3 == 0
    prob = np.where(label, 0.8, 0.2)
    gradable = np.where(np.arange(n) % 10 == 0, "no", "yes")
    found = rb.clinic(rb.Predictions(np.arange(n), label, prob, subgroups={"gradable": gradable}))[
        "in_domain"
    ]
    assert found.ungradable.images == 6
    table = found.images.table
    assert table.tp + table.fp + table.fn + table.tn == 54
    assert found.ungradable.excluded[0].value == found.images.sensitivity.value == 1
    assert found.ungradable.as_referred[1].value == pytest.approx(36 / 40)
    with pytest.raises(InputError, match="not 0 or 1"):
        rb.clinic(rb.Predictions(["a", "b"], [0, 1], [0.1, 0.8], subgroups={"gradable": ["yes", "perhaps"]}))
    with pytest.raises(InputError, match="gradable"):
        rb.clinic(rb.Predictions(["a", "b"], [0, 1], [0.1, 0.8], subgroups={"gradable": [0, 0]}))
