"""The levels of error beside the test points: the chains of the reference, and the seeds of an entry.

Test points are resampled (`resampling.py`). Four chains and three seeds are too few to resample: with replacement a mean of
four chains has a quarter of its variance missing, and a distance from it is larger than from all four. Their part of a replicate is
a linear combination, with standard normal weights, of what each chain or seed changes (a multiplier bootstrap), whose variance is that
of the jackknife over chains, and of the mean over seeds. The weights of the chains are the same for all that is compared; the
variance over n seeds is only known to n - 1 degrees of freedom, and its replicates are those of Student's t.

Letters: R replicates, K chains, S seeds.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from retinabench.core.random_streams import numpy_generator
from retinabench.fidelity import distances
from retinabench.fidelity.reference.reference_file import Reference
from retinabench.fidelity.scoring.resampling import Estimate, Values
from retinabench.fidelity.submissions.submission import Submission


def chain_weights(reference: Reference, task: str, replicates: int, seed: int) -> Values:
    """Return the weights of the chains in each replicate, (R, K)."""
    generator = numpy_generator(seed, "fidelity chains", task)
    return generator.standard_normal((replicates, reference.chains))


def chain_changes(
    submission: Submission, reference: Reference, groups: Mapping[str, NDArray[np.intp]]
) -> dict[str, dict[str, Values]]:
    """Return what each chain changes in the ranked distances: their values (K,) without it, less the mean of these."""
    if reference.chains < 2:
        return {}
    values: dict[str, list[Values]] = {}
    for k in range(reference.chains):
        for name, terms in _without(submission, reference, k).items():
            values.setdefault(name, []).append(terms)
    found: dict[str, dict[str, Values]] = {}
    for group, rows in groups.items():
        means = {name: np.array([terms[rows].mean() for terms in parts]) for name, parts in values.items()}
        found[group] = {name: each - each.mean() for name, each in means.items()}
    return found


def with_chains(estimate: Estimate, changes: Values, weights: Values) -> Estimate:
    """Return an estimate whose replicates also vary with the chains.

    References:
        Efron & Tibshirani 1993, "An Introduction to the Bootstrap", chapter 11, for the jackknife's variance.

    Shapes: `changes` (K,), `weights` (R, K).
    """
    if len(estimate.draws) != len(weights):
        return estimate
    k = len(changes)
    return Estimate(estimate.value, estimate.draws + np.sqrt((k - 1) / k) * (weights @ changes))


def seed_shifts(values: Mapping[str, Values], replicates: int, seed: int, entry: str) -> dict[str, Values]:
    """Return how the mean over S seeds varies in each replicate, (R,), jointly for all measures.

    Shapes: `values` (S,), returns (R,).
    """
    count = len(next(iter(values.values()), np.empty(0)))
    if count < 2:
        return {}
    generator = numpy_generator(seed, "fidelity seeds", entry)
    weights = generator.standard_normal((replicates, count))
    weights /= np.sqrt(generator.chisquare(count - 1, replicates) / (count - 1))[:, None]
    scale = np.sqrt(count * (count - 1))
    with np.errstate(invalid="ignore"):  # an infinite NLL of one seed: how the mean varies is not defined
        return {name: weights @ (each - each.mean()) / scale for name, each in values.items()}


def _without(submission: Submission, reference: Reference, chain: int) -> dict[str, Values]:
    """Return the ranked distances of each point from the reference without one chain."""
    if submission.probs is not None:
        assert reference.chain_probs is not None
        rest = np.delete(reference.chain_probs, chain, axis=0).mean(axis=0)
        return {
            "agreement": distances.agreement(submission.probs, rest),
            "total_variation": distances.total_variation(submission.probs, rest),
        }
    assert submission.draws is not None
    assert reference.chain_draws is not None
    others = np.concatenate(list(np.delete(reference.chain_draws, chain, axis=0)), axis=1)
    return {"wasserstein": distances.wasserstein(submission.draws, others)}
