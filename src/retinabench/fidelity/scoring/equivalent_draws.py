"""Equivalent exact draws: how many independent draws of the posterior are as far from the reference as a submission.

The mean of n independent draws of the posterior is a submission too. Its distance from the reference falls as 1 / √n, on every
target from another first value, so that the number of draws compares targets where distances do not. A submission that is no
farther than the reference's own error has at least as many draws as are as far as that error: more cannot be told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retinabench.core.random_streams import numpy_generator
from retinabench.fidelity.reference.reference_file import Reference
from retinabench.fidelity.submissions.submission import DRAWS

COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
REPEATS = (200, 8)  # least number of draws in all the sets of one size, and of sets
POINTS = 64  # of a regression, evenly spaced: sorting draws is slow

Values = NDArray[np.float64]


@dataclass(frozen=True)
class DrawCurve:
    """The mean distance of n independent draws from the reference, and the reference's own error."""

    distance: tuple[float, ...]
    floor: float

    @property
    def most(self) -> float:
        """The number of draws that are as far as the reference's own error."""
        return self._invert(max(self.floor, 1e-12))

    def draws(self, distance: float) -> float:
        """Return the number of draws that are as far as `distance`, at most `most`; below 1 where one draw is nearer."""
        if not np.isfinite(distance):
            return float("nan")
        return float(min(self._invert(max(distance, 1e-12)), self.most))

    def _invert(self, distance: float) -> float:
        known, counts = np.log(self.distance[::-1]), np.log(COUNTS[::-1])
        if known[0] <= np.log(distance) <= known[-1]:
            return float(np.exp(np.interp(np.log(distance), known, counts)))
        end = 0 if np.log(distance) > known[-1] else -1  # beyond the ends it falls as 1 / √n
        return float(COUNTS[end] * (self.distance[end] / distance) ** 2)


def draw_curve(reference: Reference, rows: NDArray[np.intp], floor: float) -> DrawCurve | None:
    """Return the distances of independent draws, or None where the reference keeps none."""
    generator = numpy_generator(0, "equivalent draws")
    if reference.chain_probs is not None:
        if reference.samples is None:
            return None
        samples = reference.samples[:, rows].astype(np.float64)
        return _curve(lambda n: _of_probabilities(samples, n, generator), floor)
    if reference.external:
        return None
    mean, std, draws = _components(reference, rows)
    levels = ((np.arange(DRAWS) + 0.5) * draws.shape[1] / DRAWS).astype(
        np.intp
    )  # as many as a submission has
    draws = np.sort(draws, axis=1)[:, levels].T
    return _curve(lambda n: _of_draws(mean, std, draws, n, generator), floor, most=REPEATS[1])


def _curve(measure: Callable[[int], float], floor: float, most: int = 200) -> DrawCurve:
    repeats = [min(most, max(REPEATS[0] // n, REPEATS[1])) for n in COUNTS]
    found = [
        float(np.mean([measure(n) for _ in range(times)])) for n, times in zip(COUNTS, repeats, strict=True)
    ]
    return DrawCurve(tuple(np.minimum.accumulate(found).tolist()), floor)


def _of_probabilities(samples: Values, n: int, generator: np.random.Generator) -> float:
    """Return the distance of the mean of n samples (S, N, C) from that of all, which the thinned ones stand for."""
    drawn = generator.multinomial(n, np.full(len(samples), 1 / len(samples))) / n
    mean = np.tensordot(drawn - 1 / len(samples), samples, 1)
    return float(np.abs(mean).sum(axis=1).mean() / 2)


def _of_draws(mean: Values, std: Values, draws: Values, n: int, generator: np.random.Generator) -> float:
    """Return the Wasserstein distance of draws of y from n of the states (S, N), from as many sorted ones (D, N)."""
    chosen = generator.integers(len(mean), size=n)[np.arange(len(draws)) * n // len(draws)]
    y = mean[chosen] + std[chosen] * generator.standard_normal(draws.shape)
    return float(np.abs(np.sort(y, axis=0) - draws).mean())


def _components(reference: Reference, rows: NDArray[np.intp]) -> tuple[Values, Values, Values]:
    """Return means and stds of states (S, n), and the reference's draws (n, M), of some of the points.

    Without the states, draws of y stand for their means, drawn together until their std is that of the means, with the rest
    of the variance as noise of one size.
    """
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), POINTS)).astype(np.intp)]
    draws = reference.draws[rows].astype(np.float64)
    if reference.states is not None:
        states = reference.states[:, :, rows].astype(np.float64)
        flat = states.reshape(-1, len(rows), states.shape[-1])
        return flat[..., 0], flat[..., 1], draws
    centre, total = draws.mean(axis=1), draws.std(axis=1)
    epistemic = np.minimum(reference.epistemic[rows].astype(np.float64), total)
    mean = centre + (draws.T - centre) * epistemic / np.maximum(total, 1e-12)
    return mean, np.broadcast_to(np.sqrt(total**2 - epistemic**2), mean.shape), draws
