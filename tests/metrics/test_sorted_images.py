"""Images sorted once: order, blocks of ties, and what is retained of fractional weights, by hand."""

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.metrics.sorted_images import Cases, RankedImages, is_positive


def test_half_is_not_positive_but_any_other_threshold_is_reached():
    assert is_positive(np.array([0.4, 0.5, 0.6])).tolist() == [False, False, True]
    assert is_positive(np.array([0.2, 0.3, 0.4]), 0.3).tolist() == [False, True, True]


def test_equal_values_of_a_ranking_are_one_step():
    ranking = RankedImages(np.array([0.2, 0.9, 0.2, 0.5]))
    assert ranking.values.tolist() == [0.9, 0.5, 0.2]
    assert ranking.cumulate(np.array([1.0, 10.0, 100.0, 1000.0])).tolist() == [10, 1010, 1111]


def test_images_lie_by_uncertainty_then_probability_then_label():
    cases = Cases([1, 0, 1, 0], [0.7, 0.7, 0.1, 0.5], [2.0, 2.0, 2.0, 1.0], patient=[4, 5, 6, 7])
    assert cases.order.tolist() == [3, 2, 1, 0]
    assert cases.patient.tolist() == [7, 6, 5, 4]
    assert cases.ends.tolist() == [0, 3]
    assert cases.error.tolist() == [False, True, True, False]
    np.testing.assert_allclose(cases.log_loss, -np.log([0.5, 0.1, 0.3, 0.7]))


def test_a_block_is_retained_in_equal_parts():
    """Three of four images of one block: a quarter of the weight of each is referred."""
    w = Cases([0, 1, 1, 0], [0.5] * 4, [0.0] * 4).weighted()
    np.testing.assert_allclose(w.points, [1, 2, 3, 4])
    np.testing.assert_allclose(w.retained(3), [0.75] * 4)
    np.testing.assert_allclose(w.retained_positives, [0.5, 1, 1.5, 2])
    assert w.retained(0).sum() == 0


def test_fractional_weights_have_round_w_points_of_equal_mass():
    w = Cases([0, 1, 1], [0.2, 0.6, 0.9], [0.1, 0.2, 0.3]).weighted([0.5, 1.5, 1.2])
    assert w.total == pytest.approx(3.2)
    np.testing.assert_allclose(w.points, 3.2 / 3 * np.arange(1, 4))
    # The second point, 2.133, holds the first two images (2.0) and 0.133 / 1.2 of the third.
    np.testing.assert_allclose(w.retained(2), [0.5, 1.5, 3.2 * 2 / 3 - 2])
    block, fraction = w.locate(np.array([0.5, 2.0, 3.2]))
    assert block.tolist() == [0, 1, 2]
    np.testing.assert_allclose(fraction, 1)


def test_another_order_keeps_the_images():
    cases = Cases([1, 0, 1], [0.9, 0.2, 0.4], [3.0, 1.0, 2.0], patient=[0, 1, 2])
    again = cases.reordered(-cases.uncertainty)
    assert again.patient.tolist() == cases.patient[::-1].tolist()
    assert again.threshold == cases.threshold


@pytest.mark.parametrize("weight", [[1.0], [1, -1, 1], [0, 0, 0], [1, np.nan, 1]])
def test_weights_that_are_none_are_refused(weight):
    with pytest.raises(InputError, match="weights must be 3 finite numbers"):
        Cases([1, 0, 1], [0.9, 0.2, 0.4]).weighted(weight)


def test_what_is_given_up_is_made_again(monkeypatch):
    cases = Cases([0, 1, 1, 0], [0.1, 0.8, 0.4, 0.3], [3, 1, 1, 2])
    w = cases.weighted()
    kept = w.points, w.mass, w.position, cases.by_prob.values, cases.log_loss
    w.forget_curves()
    cases.forget()
    again = w.points, w.mass, w.position, cases.by_prob.values, cases.log_loss
    for a, b in zip(kept, again, strict=True):
        assert np.array_equal(a, b)
    monkeypatch.setattr("retinabench.metrics.sorted_images.MANY", 3)
    short = Cases([0, 1, 1, 0], [0.1, 0.8, 0.4, 0.3], [3, 1, 1, 2])
    assert short.order.dtype == np.int32
    assert (short.order == cases.order).all()
    assert w.derived(vars) is w.derived(vars)
