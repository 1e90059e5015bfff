"""Weighted accuracy, discrimination and proper scores against scikit-learn; operating points against golden values."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from sklearn import metrics

from retinabench.core.errors import InputError
from retinabench.metrics import classification as c
from retinabench.metrics.sorted_images import Cases
from support.shared_inputs import answers, cases_of, images


@settings(max_examples=150, deadline=None)
@given(case=images())
def test_against_sklearn(case):
    y, p, _, w = case
    kept = w > 0
    args = {"sample_weight": w[kept]}
    weighted = Cases(y, p).weighted(w)
    yk, pk = y[kept], p[kept]
    assert c.accuracy_of(weighted) == pytest.approx(metrics.accuracy_score(yk, pk > 0.5, **args), abs=1e-12)
    assert c.brier_of(weighted) == pytest.approx(np.average((p - y) ** 2, weights=w), abs=1e-12)
    clipped = np.clip(pk, 1e-15, 1 - 1e-15)
    assert c.nll(y, p, w) == pytest.approx(metrics.log_loss(yk, clipped, labels=[0, 1], **args), abs=1e-12)
    if len(set(yk)) == 2:
        assert c.auroc(y, p, w) == pytest.approx(metrics.roc_auc_score(yk, pk, **args), abs=1e-12)
        assert c.auprc_of(weighted) == pytest.approx(
            metrics.average_precision_score(yk, pk, **args), abs=1e-12
        )
        roc = c.roc_curve(y, p, w)
        fpr, tpr, thresholds = metrics.roc_curve(yk, pk, drop_intermediate=False, **args)
        held = np.concatenate(([True], np.diff(roc.false_positive_rate + roc.sensitivity) > 0))
        np.testing.assert_allclose(roc.false_positive_rate[held], fpr, atol=1e-12)
        np.testing.assert_allclose(roc.sensitivity[held], tpr, atol=1e-12)
        np.testing.assert_array_equal(roc.threshold[held], thresholds)
    else:
        assert np.isnan(c.auroc(y, p, w))
        with pytest.raises(InputError, match="both classes"):
            c.roc_curve(y, p, w)


def test_a_roc_curve_is_read_on_its_chords():
    roc = c.roc_curve([0, 0, 1, 1, 0, 1], [0.1, 0.4, 0.35, 0.8, 0.5, 0.9])
    last = np.append(np.diff(roc.false_positive_rate) > 0, True)
    for x, y in zip(roc.false_positive_rate[last], roc.sensitivity[last], strict=True):
        assert c.sensitivity_on_chords(roc, [x])[0] == pytest.approx(y)
    grid = np.linspace(0, 1, 51)
    found = c.sensitivity_on_chords(roc, grid)
    assert found[-1] == 1
    assert (np.diff(found) >= -1e-12).all()
    tied = c.roc_curve([0, 1], [0.5, 0.5])  # one chord from (0, 0) to (1, 1)
    np.testing.assert_allclose(c.sensitivity_on_chords(tied, grid), grid, atol=1e-12)
    # A chord from (0, 1/2) to (1/2, 1), and a jump whose upper end counts.
    chord, jump = c.roc_curve([0, 0, 1, 1], [0.1, 0.5, 0.5, 0.9]), c.roc_curve([0, 1], [0.1, 0.9])
    assert c.sensitivity_on_chords(chord, [0.25]) == pytest.approx([0.75])
    assert c.sensitivity_on_chords(jump, [0.0, 0.25]).tolist() == [1, 1]


def test_golden_scalars():
    y, p, _ = cases_of("n400")
    weighted = Cases(y, p).weighted()
    truth = answers("reference_outputs")["n400"]
    assert c.auroc(y, p) == pytest.approx(truth["auroc"], abs=1e-12)
    assert c.auprc_of(weighted) == pytest.approx(truth["average_precision"], abs=1e-12)
    assert c.brier_of(weighted) == pytest.approx(truth["brier"], abs=1e-12)
    assert c.nll(y, p) == pytest.approx(truth["nll"], abs=1e-12)


def test_one_class_is_undefined_not_zero():
    w = Cases([1, 1], [0.2, 0.9]).weighted()
    assert np.isnan(c.auroc_of(w))
    assert np.isnan(c.specificity_of(w))
    assert c.sensitivity_of(w) == 0.5
    assert c.auprc_of(w) == 1.0
    assert np.isnan(c.auprc_of(Cases([0, 0], [0.2, 0.9]).weighted()))


def test_bad_shapes_and_values_are_refused():
    for args in (([0, 1], [0.5], None), ([0, 2], [0.5, 0.5], None), ([0, 1], [0.5, 1.5], None)):
        with pytest.raises(InputError):
            Cases(*args)
    with pytest.raises(InputError):
        Cases([0, 1], [0.5, 0.5], [np.nan, 1])


def test_a_saturated_mistake_costs_34_nats():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert c.nll([1], [0.0]) == pytest.approx(-np.log(1e-15))
        assert c.nll([0], [0.0]) == pytest.approx(0, abs=1e-14)
