"""The batched form of every score equals its function, whatever the ties, the weights and the batch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinabench.metrics.batched.batch import Batch
from retinabench.metrics.batched.selective import numbers_at
from retinabench.metrics.registry import SCORES
from retinabench.metrics.selective import half_referred
from retinabench.metrics.sorted_images import Cases
from support.shared_inputs import big, images

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
        plain = [half_referred.numbers(cases.weighted(row), referred) for row in weight]
        found = numbers_at(batch, referred, half_referred.SPECIFICITY)
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
