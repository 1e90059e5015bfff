"""The performance model of one concept: a Gaussian process over the answers, given the truth.

An answer f = P(yes) to a question with truth o lies at a = (o + f) / 2: truth 0 on [0, 0.5], truth 1 on [0.5, 1], so that
with the cut f = 0.5 the four quarters of [0, 1] are TN, FP, FN, TP. It is counted in one of 100 bins, by (o, f) rather than by a:
a = 0.5 is both a sure false positive and a sure false negative. The counts at the centres of the occupied bins are the
observations of a Gaussian process with mean 0 and kernel

    k(a, a') = signal exp(-(a - a')^2 / (2 length^2)) + noise [a = a'],   signal 1, noise 0.025 (variances), length 0.1.

Empty bins are not observations of 0; otherwise no question would ever lower the variance. The variance depends on *which*
bins are occupied, never on the counts. TN, FP, FN and TP are taken from the counts, not from the mean, which is smooth across
the borders.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, overload

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize

Floats = NDArray[np.float64]
Reading = Literal["std", "variance"]

BINS = 100
CENTRES: Floats = (np.arange(BINS) + 0.5) / BINS
GRID: Floats = np.arange(BINS + 1) / BINS
OUTCOMES = ("tn", "fp", "fn", "tp")


@dataclass(frozen=True)
class Kernel:
    """Hyper-parameters: signal and noise are variances, length is in units of a."""

    signal: float = 1.0
    noise: float = 0.025
    length: float = 0.1

    def covariance(self, a: Floats, b: Floats) -> Floats:
        """Return the (m, n) covariance of the noise-free function at a (m,) and b (n,)."""
        return np.asarray(self.signal * np.exp(-((a[:, None] - b) ** 2) / (2 * self.length**2)))


PUBLISHED = Kernel()


@overload
def says_yes(prob: float) -> bool: ...
@overload
def says_yes(prob: Floats) -> NDArray[np.bool_]: ...
def says_yes(prob: float | Floats) -> bool | NDArray[np.bool_]:
    """Whether an answer P(yes) is a yes: above 0.5, as in `metrics`; 0.5 itself is a no."""
    return prob > 0.5


def bin_of(truth: int, prob: float) -> int:
    """Return the bin 0 … 99 of an answer: 50 truth + floor(50 prob); bin // 25 is the outcome.

    0.5, which is a no, is counted with the bin below it, and 1 with the last.
    """
    least, most = (25, 49) if says_yes(prob) else (0, 24)
    return 50 * truth + min(max(int(50 * prob), least), most)


def outcomes(bins: NDArray[np.int64]) -> dict[str, int]:
    """Return the counts of TN, FP, FN and TP from the (100,) counts of the bins."""
    return dict(zip(OUTCOMES, bins.reshape(4, 25).sum(axis=1).tolist(), strict=True))


class Performance:
    """The Gaussian process of one concept, updated exactly after every answer.

    W = L^-1 k(X, points) grows by one row whenever a new bin is occupied, with L the Cholesky factor of K = k(X, X): as X is
    among the points, the new row of L is already in W, and nothing is computed twice. Then the variance is
    k(g, g) - sum W(:, g)^2 and the mean W(:, g)^T L^-1 Y, on the grid g. An answer in an occupied bin costs nothing.

    References:
        Fountoukidou and Sznitman, MICCAI 2019, section 2. The formula of a is missing from the published text; this one is
        reconstructed from the order TN, FP, FN, TP.
        Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), algorithm 2.1.
    """

    def __init__(self, kernel: Kernel = PUBLISHED, places: Floats = CENTRES) -> None:
        self.kernel = kernel
        self.counts = np.zeros(len(places), np.int64)
        self._points = np.concatenate([places, GRID])
        self._occupied: list[int] = []
        self._diagonal: list[float] = []  # of L
        self._w = np.empty((len(places), len(self._points)))
        self._variance = np.full(len(GRID), kernel.signal)

    def add(self, place: int) -> bool:
        """Count one answer in a bin; return whether the bin was new, so that the variance changed."""
        self.counts[place] += 1
        if self.counts[place] > 1:
            return False
        above = self._w[: len(self._occupied)]
        row = self.kernel.covariance(self._points[[place]], self._points)[0] - above[:, place] @ above
        self._diagonal.append(float(np.sqrt(row[place] + self.kernel.noise)))
        row /= self._diagonal[-1]
        self._w[len(self._occupied)] = row
        self._occupied.append(place)
        self._variance -= row[len(self.counts) :] ** 2
        return True

    def mean(self) -> Floats:
        """(101,) posterior mean of the counts on the grid."""
        n = len(self._occupied)
        if n == 0:
            return np.zeros(len(GRID))
        factor = np.tril(self._w[:n, self._occupied].T, -1)
        factor[np.diag_indices(n)] = self._diagonal
        z = linalg.solve_triangular(factor, self.counts[self._occupied].astype(np.float64), lower=True)
        return np.asarray(self._w[:n, len(self.counts) :].T @ z)

    def variance(self) -> Floats:
        """(101,) posterior variance of the noise-free function on the grid."""
        return np.asarray(np.maximum(self._variance, 0.0))

    def uncertainty(self, reading: Reading = "std") -> Floats:
        """Return the uncertainty of negative and positive samples, (2,): 4 times the integral over [0, 0.5] and [0.5, 1]."""
        height = self.variance()
        if reading == "std":
            height = np.sqrt(height)
        half = BINS // 2
        whole, ends = height.sum(), height[0] + height[-1]
        left = height[: half + 1].sum() - (height[0] + height[half]) / 2
        right = whole - ends / 2 - left
        return np.array([left, right]) * (4 / BINS)


def posterior(counts: NDArray[np.int64], kernel: Kernel = PUBLISHED) -> Performance:
    """Return the process given the (100,) counts of the bins."""
    found = Performance(kernel)
    for place in np.flatnonzero(counts).tolist():
        found.add(place)
    found.counts[:] = counts
    return found


def log_evidence(counts: NDArray[np.int64], kernel: Kernel) -> float:
    """Return the log marginal likelihood of the counts at the centres of the occupied bins."""
    places = np.flatnonzero(counts)
    x, y = CENTRES[places], counts[places].astype(np.float64)
    factor = linalg.cholesky(kernel.covariance(x, x) + kernel.noise * np.eye(len(x)), lower=True)
    z = linalg.solve_triangular(factor, y, lower=True)
    return float(-z @ z / 2 - np.log(np.diag(factor)).sum() - len(x) / 2 * np.log(2 * np.pi))


def fit_kernel(counts: NDArray[np.int64]) -> Kernel:
    """Return the kernel that maximises the evidence of the counts (type II maximum likelihood), from three starts.

    With fewer than three occupied bins, which fit any length, the published kernel is returned.

    Bounds: signal and noise within 1e-4 … 1e6, length within 0.01 … 1.
    """
    if np.count_nonzero(counts) < 3:
        return PUBLISHED

    def loss(log: Floats) -> float:
        return -log_evidence(counts, Kernel(*np.exp(log).tolist()))

    scale = float(np.mean(counts[counts > 0].astype(np.float64) ** 2))
    starts = [
        np.log([scale, scale * share, length]) for share, length in ((0.02, 0.1), (0.5, 0.3), (0.1, 0.03))
    ]
    bounds = [(np.log(1e-4), np.log(1e6))] * 2 + [(np.log(0.01), 0.0)]
    tries = [optimize.minimize(loss, np.clip(s, *np.transpose(bounds)), bounds=bounds) for s in starts]
    return Kernel(*np.exp(min(tries, key=lambda found: float(found.fun)).x).tolist())
