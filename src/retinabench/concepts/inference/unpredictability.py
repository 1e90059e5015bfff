"""The Gaussian process over the images, and what it cannot predict.

The performance model of one concept: a Gaussian process over the answers, given the truth.

An answer f = P(yes) to a question with truth o lies at a = (o + f) / 2: truth 0 on [0, 0.5], truth 1 on [0.5, 1], so that
with the cut f = 0.5 the four quarters of [0, 1] are TN, FP, FN, TP. It is counted in one of 100 bins, by (o, f) rather than by a:
a = 0.5 is both a sure false positive and a sure false negative. The counts at the centres of the occupied bins are the
observations of a Gaussian process with mean 0 and kernel

    k(a, a') = signal exp(-(a - a')^2 / (2 length^2)) + noise [a = a'],   signal 1, noise 0.025 (variances), length 0.1.

Empty bins are not observations of 0; otherwise no question would ever lower the variance. The variance depends on *which*
bins are occupied, never on the counts. TN, FP, FN and TP are taken from the counts, not from the mean, which is smooth across
the borders.

The question whose true answer is hardest to predict from what was already asked about the same sample.

For a sample s and a concept c, M are the samples of the bank with the same truth as s for every concept already asked about s:

    p = #{s' in M: c present} / #{s' in M: c known},      unpredictability = 1 - 2 |p - 1/2|.

s itself is in M, so p is defined. Of all unasked questions, or of those of one cell, one with the largest value is asked, ties at
random. A reading of the query engine of Geman, Geman, Hallonquist and Younes, Visual Turing test for computer vision systems, PNAS
112:3618 (2015), on the bank itself, as Fountoukidou and Sznitman (2019) use it; neither text gives a formula.

Samples with the same truth and the same questions asked are interchangeable: they form one group, and the work per question
grows with the number of groups (at most patterns of truth + questions asked), not with the number of samples. Memory: 16 bytes
per sample at the start, then 8, and 9 per group and concept.

How well the answers about a concept rank the samples: the AUROC, with an interval for new samples.

    A = P(X > Y) + P(X = Y) / 2,      X, Y: P(yes) about a sample with the concept and about one without it.

Value and interval compare all answered samples with each other, and respect patients (`metrics.intervals.auroc_error`: DeLong,
Obuchowski). When all were asked, their numbers m and n are those of the bank, M and N, which no answer decided: the interval is at 95 %.
Before, it is an asymptotic confidence sequence. The error is nearly that of two independent means, of m and n values; a mixture over
normal slopes of both (variances 9 / M and 9 / N in units of their std) gives the supermartingale from which, for all m and n at once,

    |error| <= z std,   z^2 = (2 log(1 / alpha) + log(1 + 9 m / M) + log(1 + 9 n / N)) (1 + max(M / 9 m, N / 9 n)).

The interval is that of the engine at the level 2 Phi(z) - 1, which bounds rare errors as small samples need it. It is proven for large
samples only; `benchmarks/examination_guarantees.py` counts how often it misses at the worst moment.

References:
    Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, Time-uniform central limit theory and asymptotic confidence sequences, Annals of
    Statistics 52:2613 (2024).
    DeLong, DeLong and Clarke-Pearson, Biometrics 44:837 (1988); Obuchowski, Biometrics 53:567 (1997).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, special

from retinabench.concepts.banks.bank import CHUNK, Bank
from retinabench.concepts.inference.claims import RateEnds
from retinabench.concepts.inference.rates import ALPHA, ANYTHING
from retinabench.metrics.intervals import auroc_error

Floats = NDArray[np.float64]
Reading = Literal["std", "variance"]
BINS = 100
CENTRES: Floats = (np.arange(BINS) + 0.5) / BINS
GRID: Floats = np.arange(BINS + 1) / BINS
OUTCOMES = ("tn", "fp", "fn", "tp")


SIGNAL, NOISE, LENGTH = 1.0, 0.025, 0.1  # two variances, and a length in units of a


def says_yes(prob: float) -> bool:
    """Whether an answer P(yes) is a yes: above 0.5, as in `metrics`; 0.5 itself is a no."""
    return prob > 0.5


def around_half(prob: float, cut: float | None) -> float:
    """Return an answer on the scale of the performance model, where its cut lies at one half and yes is above it.

    Without a cut this is the answer. With one, yes is an answer of the cut or more; what lies below 0 or above 1 counts as 0 or 1.
    """
    if cut is None:
        return prob
    if prob >= cut:
        return max(0.5 + 0.5 * min((prob - cut) / max(1 - cut, 1e-9), 1.0), float(np.nextafter(0.5, 1)))
    return 0.5 * max(prob / max(cut, 1e-9), 0.0)


def bin_of(truth: int, prob: float) -> int:
    """Return the bin 0 … 99 of an answer: 50 truth + floor(50 prob); bin // 25 is the outcome.

    0.5, which is a no, is counted with the bin below it, and 1 with the last.
    """
    least, most = (25, 49) if says_yes(prob) else (0, 24)
    return 50 * truth + min(max(int(50 * prob), least), most)


def outcomes(bins: NDArray[np.int64]) -> dict[str, int]:
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

    def __init__(self, places: Floats = CENTRES) -> None:
        self.counts = np.zeros(len(places), np.int64)
        self._points = np.concatenate([places, GRID])
        self._occupied: list[int] = []
        self._diagonal: list[float] = []  # of L
        self._w = np.empty((len(places), len(self._points)))
        self._variance = np.full(len(GRID), SIGNAL)

    def add(self, place: int) -> bool:
        """Count one answer in a bin; return whether the bin was new, so that the variance changed."""
        self.counts[place] += 1
        if self.counts[place] > 1:
            return False
        above = self._w[: len(self._occupied)]
        row = SIGNAL * np.exp(-((self._points[place] - self._points) ** 2) / (2 * LENGTH**2)) - above[:, place] @ above
        self._diagonal.append(float(np.sqrt(row[place] + NOISE)))
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
        return np.array([left, whole - ends / 2 - left]) * (4 / BINS)


def posterior(counts: NDArray[np.int64]) -> Performance:
    found = Performance()
    for place in np.flatnonzero(counts).tolist():
        found.add(place)
    found.counts[:] = counts
    return found


NEVER = -1.0  # the value of a question that is asked already or has no known truth


class Unpredictable:
    """Draws the least predictable unasked question, of one cell or of the whole bank; those of `ceiling` or more are equal."""

    ceiling = 1.0

    def __init__(self, bank: Bank) -> None:
        self._patterns, self._order, starts = _patterns(bank)
        self._weight = np.diff(starts).astype(np.float64)
        groups, c = self._patterns.shape
        # Groups 0 … groups - 1 are the untouched samples of each pattern; later ones hold samples that were asked about.
        self._pattern = np.arange(groups)
        self._asked = np.zeros((c, groups), bool)  # as are the values and the truth
        self._size = np.diff(starts)
        self._begin = starts[:-1]
        self._touched: list[list[int]] = [[] for _ in range(groups)]
        self._groups: dict[tuple[int, bytes], int] = {(k, self._asked[:, k].tobytes()): k for k in range(groups)}
        self._known: dict[bytes, NDArray[np.float64]] = {}
        self._values = np.where(self._patterns >= 0, self.value(self._patterns[0], []), NEVER).T.copy()
        self._truth = self._patterns.T.copy()
        self._best = self._values.max(axis=0)
        self._ties = (self._values == self._best).sum(axis=0)  # concepts that share the best value
        self._used = int(groups)

    @property
    def groups(self) -> int:
        return self._used

    def value(self, truth: ArrayLike, asked: Sequence[int] | NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the unpredictability of all concepts, (c,), for samples with a given truth and history.

        Values are cached by history: they depend on the concepts asked about and their truths alone.
        """
        truths = np.asarray(truth, np.int8)
        history = np.full(len(truths), 2, np.int8)
        history[asked] = truths[asked]
        key = history.tobytes()
        if key not in self._known:
            matching = (self._patterns[:, asked] == truths[asked]).all(axis=1)
            patterns, weight = self._patterns[matching], self._weight[matching]
            present, known = weight @ (patterns == 1), weight @ (patterns >= 0)
            p = present / np.maximum(known, 1)
            self._known[key] = np.round(1 - 2 * np.abs(p - 0.5), 12)  # 0.3 and 0.7 are equally unpredictable
        return self._known[key]

    def draw(self, cell: tuple[int, int] | None, random: np.random.Generator) -> tuple[int, int, int]:
        live, size = self._size[: self._used] > 0, self._size[: self._used]
        if cell is None:
            best = np.where(live, self._best[: self._used], NEVER)
            groups = (best == best.max()).nonzero()[0]
            # Every such question is equally likely, so a group counts for its samples times its tied concepts.
            group = int(groups[_weighted(size[groups] * self._ties[groups], random)])
            concepts = (self._values[:, group] == best[group]).nonzero()[0]
            concept = int(concepts[random.integers(len(concepts))])
            truth = int(self._truth[concept, group])
        else:
            concept, truth = cell
            fits = live & (self._truth[concept, : self._used] == truth)
            row = np.where(fits, np.minimum(self._values[concept, : self._used], self.ceiling), NEVER)
            groups = (row == row.max()).nonzero()[0]
            group = int(groups[_weighted(size[groups], random)])
        sample = self._take(group, random)
        self._move(sample, group, concept)
        return sample, concept, truth

    def _take(self, group: int, random: np.random.Generator) -> int:
        place = int(random.integers(self._size[group]))
        self._size[group] -= 1
        last = int(self._size[group])
        if group < len(self._weight):  # untouched: a stretch of `_order`, shuffled as it is used up
            stretch = self._order[self._begin[group] :]
            sample = int(stretch[place])
            stretch[place] = stretch[last]
            return sample
        members = self._touched[group]
        members[place], members[last] = members[last], members[place]
        return members.pop()

    def _move(self, sample: int, group: int, concept: int) -> None:
        """Put a sample that was asked about a concept into the group of its new history."""
        asked, pattern = self._asked[:, group].copy(), int(self._pattern[group])
        asked[concept] = True
        key = (pattern, asked.tobytes())
        place = self._groups.get(key)
        if place is None:
            place = self._groups[key] = self._used
            if self._used == len(self._pattern):
                self._grow()
            self._pattern[place], self._asked[:, place] = pattern, asked
            closed = asked | (self._patterns[pattern] < 0)
            self._values[:, place] = np.where(closed, NEVER, self.value(self._patterns[pattern], asked.nonzero()[0]))
            self._truth[:, place], self._best[place] = self._patterns[pattern], self._values[:, place].max()
            self._ties[place] = (self._values[:, place] == self._best[place]).sum()
            self._touched.append([])
            self._used += 1
        self._touched[place].append(sample)
        self._size[place] += 1

    def _grow(self) -> None:
        for name in ("_pattern", "_size", "_asked", "_values", "_truth", "_best", "_ties"):
            known, value = getattr(self, name), NEVER if name in ("_values", "_best") else 0
            more = np.full((*known.shape[:-1], max(64, known.shape[-1])), value, known.dtype)
            setattr(self, name, np.concatenate([known, more], axis=-1))


class Admissible(Unpredictable):
    """Draws at random among the admissible questions of a cell: |P(present | history) - 1/2| <= 0.15, a bound quoted from memory."""

    ceiling = 0.7

    def left(self) -> NDArray[np.int64]:
        """Return the (c, 2) numbers of admissible questions."""
        admissible = (self._values[:, : self._used] >= self.ceiling) * self._size[: self._used]
        truth = self._truth[:, : self._used]
        return np.stack([(admissible * (truth == sign)).sum(axis=1) for sign in (0, 1)], axis=1)


def _patterns(bank: Bank) -> tuple[NDArray[np.int8], NDArray[np.int64], NDArray[np.int64]]:
    """Distinct rows of truth (P, c), all samples sorted by row (n,), and where each row's samples begin (P + 1,)."""
    code = np.zeros(bank.samples, np.int64)
    for first in range(0, len(bank.concepts), 20):  # 3^20 times the number of rows so far fits 64 bits
        if first:
            code = np.unique(code, return_inverse=True)[1].astype(np.int64)
        powers = 3 ** np.arange(len(bank.concepts[first : first + 20]), dtype=np.int64)
        for start in range(0, bank.samples, CHUNK):
            rows = np.asarray(bank.truth[start : start + CHUNK, first : first + 20], np.int64) + 1
            code[start : start + CHUNK] = code[start : start + CHUNK] * 3 ** len(powers) + rows @ powers
    order = np.argsort(code, kind="stable")
    ordered = code[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    ends = np.append(starts, bank.samples).astype(np.int64)
    return np.ascontiguousarray(bank.truth[order[starts]]), order, ends


def _weighted(weights: NDArray[np.int64], random: np.random.Generator) -> int:
    """A place with probability proportional to its whole-numbered weight."""
    ends = weights.cumsum()
    return int(ends.searchsorted(random.integers(ends[-1]), side="right"))


class AnswerRanking(NamedTuple):
    """The AUROC of the answers about a concept, with its interval and the number of pairs that the interval compares."""

    value: float | None
    low: float
    high: float
    pairs: int


SLOPES = 9.0  # best where a ninth of the bank or more was asked: nearest to the interval for a fixed number


def ranking(
    truth: NDArray[np.int64], prob: Floats, patient: NDArray[np.int64], of: Sequence[int] | None, alpha: float = ALPHA
) -> AnswerRanking:
    """Return the AUROC of answers (q,); `of`: patients without and with the concept, None if their number was fixed."""
    positives = int(truth.sum())
    if not 0 < positives < len(truth):
        return AnswerRanking(None, *ANYTHING, 0)
    found = auroc_error(truth, prob, patient)
    level = 1 - alpha
    if of is not None:
        shares = SLOPES * np.array([found.negatives, found.positives]) / np.array(of)
        z2 = (-2 * np.log(alpha) + np.log1p(shares).sum()) * (1 + 1 / max(shares.min(), 1e-9))
        level = 1 - 2 * float(special.ndtr(-np.sqrt(z2)))
    low, high = found.interval(level)
    ends = RateEnds(low, high) if low <= high else ANYTHING
    return AnswerRanking(found.auroc, *ends, positives * (len(truth) - positives))
