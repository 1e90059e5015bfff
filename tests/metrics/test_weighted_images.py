"""Images sorted once: order, blocks of ties, and what is retained of fractional weights, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinabench.core.errors import InputError
from retinabench.metrics import selective
from retinabench.metrics.registry import SCORES
from retinabench.metrics.selective import numbers_at
from retinabench.metrics.weighted_images import Batch, Cases, RankedImages, is_positive
from support.shared_inputs import big, images


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
    monkeypatch.setattr("retinabench.metrics.weighted_images.MANY", 3)
    short = Cases([0, 1, 1, 0], [0.1, 0.8, 0.4, 0.3], [3, 1, 1, 2])
    assert short.order.dtype == np.int32
    assert (short.order == cases.order).all()
    assert w.derived(vars) is w.derived(vars)


BATCHED = [spec for spec in SCORES.values() if spec.batched is not None]


def weightings(rng, n, rows=3):
    """(rows, n) of every kind: as in a bootstrap, fractional as in the balanced set, and with images left out."""
    drawn = rng.multinomial(n, np.full(n, 1 / n), rows).astype(float)
    kinds = drawn, drawn * rng.choice([1.0, 12.1], n), rng.random((rows, n)) * 3 * (rng.random(n) < 0.9)
    return np.concatenate([weight[weight.any(axis=1)] for weight in kinds])


def check(cases, weight):
    batch = Batch(cases, weight[:, cases.order])
    for spec in BATCHED:
        plain = [spec(cases.weighted(row)) for row in weight]
        # Shares of a class among the retained are quotients of sums of which a millionth may be left by fractional weights.
        limit = 1e-9 if "_at_" in spec.name else 1e-12
        np.testing.assert_allclose(spec.batched(batch), plain, rtol=limit, atol=limit, err_msg=spec.name)
    for referred in (0.5, 0.1, 0.95):
        plain = [selective.numbers(cases.weighted(row), referred) for row in weight]
        found = numbers_at(batch, referred, selective.SPECIFICITY)
        np.testing.assert_allclose(found, plain, rtol=1e-9, atol=1e-9, err_msg=f"at {referred}")


@settings(deadline=None, max_examples=60)
@given(images(most=60), st.integers(0, 2**32), st.sampled_from([0.5, 0.25]))
def test_every_batched_form_equals_its_function(case, seed, threshold):
    y, p, u, _ = case
    rng = np.random.default_rng(seed)
    shifted = rng.random(len(y)) < 0.3
    check(Cases(y, p, u, shifted, threshold), weightings(rng, len(y)))


@pytest.mark.parametrize("kind", ["free", "entropy", "ties"])
def test_also_of_many_images(kind):
    y, p, rng = big(900)
    u = {"free": rng.random(900), "entropy": p * (1 - p), "ties": rng.integers(0, 30, 900) / 30}[kind]
    check(Cases(y, p, u, rng.random(900) < 0.2), weightings(rng, 900))


def test_a_row_depends_on_its_own_weights_alone():
    """To the last bit, so that more replicates, or other batches, leave the first ones as they are."""
    y, p, rng = big(700)
    for u in (rng.random(700), p * (1 - p), np.round(p, 1)):
        cases = Cases(y, p, u, rng.random(700) < 0.2)
        weight = weightings(rng, 700)
        together = Batch(cases, weight)
        alone = [Batch(cases, weight[k : k + 1]) for k in range(len(weight))]
        for spec in BATCHED:
            found = np.concatenate([spec.batched(one) for one in alone])
            np.testing.assert_array_equal(spec.batched(together), found, err_msg=spec.name)


def test_every_default_score_has_a_batched_form_but_the_one_that_is_read_at_a_few_counts():
    plain = {spec.name for spec in SCORES.values() if spec.batched is None and spec.sets != ()}
    assert plain == {"referral_auprc_area"}
