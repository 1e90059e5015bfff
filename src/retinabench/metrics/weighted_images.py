"""Images sorted once for all scores, with any weights, and the bootstrap, which weighs them by patients drawn with replacement.

Every score of this package is a function of *weighted* images. A weight is a number of images: 2 means that the image
is there twice (a bootstrap replicate), 12.1 that it stands for 12.1 (the balanced set), and the total weight W stands
for W images. Sorting is the slow part of most scores and does not depend on weights, so `Cases` sorts once and
`Weighted` only cumulates.

A score takes one weighting (N,) and returns a number, or R weightings (R, N), such as bootstrap replicates, and returns
(R,). In shapes, `...` stands for nothing or for R. Row r of every result depends on row r of the weights alone, to the
last bit: no value depends on how replicates are cut into blocks, and nothing here calls BLAS, whose threads would make
results depend on their number.

**Ties.** Images of equal uncertainty are one block. Where the referral threshold falls inside a block, every image of
it is retained with the same fraction of its weight. No value depends on the order of the rows, and each equals what
scikit-learn gives for these fractions as `sample_weight`. For means over the retained (accuracy, NLL, Brier) this is
exactly the expectation over random tie breaking; for AUROC and AUPRC it is that of the fractionally weighted set.

**Bootstrap.** Two eyes of one patient fail together: an interval that resamples images is too narrow. The bootstrap therefore
draws *clusters* (patients) with replacement and hands a statistic the multiplicity of every image as a weight.

    >>> import numpy as np
    >>> hit = np.array([1.0, 0.0, 1.0, 1.0])
    >>> draws = cluster_bootstrap(lambda w: w @ hit[:, None] / w.sum(axis=1)[:, None], ["a", "a", "b", "c"], replicates=200)
    >>> draws.shape
    (200, 1)

Threads and not processes: NumPy lets other threads run while it computes on large arrays, the images and their indexes are in
memory once, and a script needs no guard around its main part. Blocks depend on the size of the problem only, and each
uses one BLAS thread, so that no result depends on the number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache, cached_property, lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import ThreadpoolController

from retinabench.core.errors import Advance, InputError
from retinabench.predictions.check import numbered

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Index = NDArray[np.integer[Any]]
Built = TypeVar("Built")
SLACK = 1e-12  # of the total mass: a point that misses a block's end by rounding is at the end
MOST = 100_000_000  # images that the weights stand for: a curve has a point for each
MANY = 2**18  # Images above which indexes are kept short.
EPS = 1e-15  # probabilities are clipped to [EPS, 1 - EPS] in logarithms: one saturated mistake costs 34.5 nats, not infinity


def as_index(rows: Index) -> Index:
    """Numbers of rows in half the memory where they are many; 64 bits are faster where they are few."""
    return rows.astype(np.int32) if MANY < len(rows) < 2**31 else rows


def block_ends(ordered: Floats) -> Index:
    """Return the last place of each run of equal values in (N,) ordered ones."""
    ends = as_index(np.flatnonzero(ordered[1:] != ordered[:-1]))
    return np.append(ends, np.asarray([len(ordered) - 1], ends.dtype))


def cumulate(mass: Floats, *, whole: bool = False) -> Floats:
    """(..., N+1) sums of the columns before, for (..., N); `whole` numbers as integers, in a quarter of the time."""
    sums = np.zeros((*mass.shape[:-1], mass.shape[-1] + 1))
    if whole:
        sums[..., 1:] = np.cumsum(mass.astype(np.int32, copy=False), axis=-1, dtype=np.int32)
    else:
        np.cumsum(mass, axis=-1, out=sums[..., 1:])
    return sums


def ratio(part: Floats, whole: Floats) -> Floats:
    """part / whole of equal shapes, NaN where the whole is not above 0."""
    part = np.asarray(part)
    quotient: Floats = np.divide(part, whole, out=np.full(part.shape, np.nan), where=np.asarray(whole) > 0)[()]
    return quotient


@lru_cache(maxsize=4)
def harmonic(bits: int) -> Floats:
    """The sums 1 + 1/2 + … + 1/n for all n of so many bits, from n = 0."""
    return np.append(0.0, np.cumsum(1 / np.arange(1, 1 << bits)))


def is_positive(prob: Floats, threshold: float = 0.5) -> Bools:
    """Whether probabilities (N,) count as positive: p >= threshold, but p > 0.5 at 0.5, as the papers have it."""
    return np.asarray(prob > 0.5 if threshold == 0.5 else prob >= threshold)


class RankedImages:
    """Images ordered by a score from the highest, equal values as one step."""

    def __init__(self, score: Floats) -> None:
        self.order = as_index(np.argsort(-score, kind="stable"))
        ranked = score[self.order]
        self.ends = block_ends(ranked)
        self.edges = np.append(0, self.ends + 1)
        self.values: Floats = ranked[self.ends]

    def cumulate(self, mass: Floats, *, whole: bool = False) -> Floats:
        """(..., G+1) mass (..., N) of the images at or above each of the G distinct values, from the highest, led by 0."""
        sums = cumulate(np.take(mass, self.order, axis=-1), whole=whole)
        return sums if len(self.ends) == len(self.order) else np.take(sums, self.edges, axis=-1)


class _Derived:
    """Keeps what is derived from an object."""

    def __init__(self) -> None:
        self._derived: dict[Hashable, Any] = {}

    def derived(self, build: Callable[..., Built], *more: Hashable) -> Built:
        """Return `build(self, *more)`, computed once: what several scores, or several weightings, need."""
        if (build, more) not in self._derived:
            self._derived[build, more] = build(self, *more)
        built: Built = self._derived[build, more]
        return built


class Cases(_Derived):
    """N images with label, probability and uncertainty, sorted by uncertainty (then probability and label).

    Attributes are in sorted order; `order` (N,) leads from there to the rows given. `ends` (B,) is the last image of
    each block of equal uncertainty, `edges` (B+1,) where blocks begin, and N. `called` (N,): the model calls the image positive. `error` (N,): that is wrong.
    Shapes: all (N,). Without `uncertainty` it is 0; without `patient` each image is its own; `shifted` is True in joint sets only.
    """

    grade_error: Floats  # of `grades.GradedCases` alone: (N,) error of the called grade

    def __init__(
        self,
        label: ArrayLike,
        prob: ArrayLike,
        uncertainty: ArrayLike | None = None,
        shifted: ArrayLike | None = None,
        threshold: float = 0.5,
        patient: ArrayLike | None = None,
    ) -> None:
        y, p = np.asarray(label), np.asarray(prob, np.float64)
        u = np.zeros(len(p)) if uncertainty is None else np.asarray(uncertainty, np.float64)
        if not (y.ndim == p.ndim == u.ndim == 1 and len(y) == len(p) == len(u) > 0):
            problem = f"label, prob and uncertainty have shapes {y.shape}, {p.shape}, {u.shape}; needed is (N,) for all"
            raise InputError(problem, hint="Give one value per image, at least one image.")
        if not (np.isin(y, (0, 1)).all() and ((p >= 0) & (p <= 1)).all() and np.isfinite(u).all()):
            raise InputError("label must be 0 or 1, prob in [0, 1] and uncertainty finite")
        super().__init__()
        order = np.lexsort((y, p, u))
        self.patient = as_index((np.arange(len(p)) if patient is None else np.asarray(patient, np.intp))[order])
        self.order = as_index(order)
        self.label: Bools = (y == 1)[self.order]
        self.prob, self.uncertainty = p[self.order], u[self.order]
        self.shifted: Bools = (np.zeros(len(p), bool) if shifted is None else np.asarray(shifted, bool))[self.order]
        self.ends = block_ends(self.uncertainty)
        self.edges = np.append(0, self.ends + 1)
        self.threshold = threshold
        self.called = is_positive(self.prob, threshold)
        self.error: Bools = self.called != self.label

    def __len__(self) -> int:
        return len(self.prob)

    def reordered(self, uncertainty: ArrayLike) -> Cases:
        """Return the same images referred by another uncertainty (N,), given in the sorted order of these cases."""
        return Cases(self.label, self.prob, uncertainty, self.shifted, self.threshold, self.patient)

    def weighted(self, weight: ArrayLike | None = None) -> Weighted:
        """Weigh the images: (..., N) in the order of the rows given to `Cases`; None is 1 for each."""
        if weight is None:
            return Weighted(self, np.ones(len(self)))
        w = np.asarray(weight, np.float64)
        if w.shape[-1:] != (len(self),) or not np.isfinite(w).all() or (w < 0).any() or not w.any(axis=-1).all():
            raise InputError(f"weights must be {len(self)} finite numbers >= 0, not all 0")
        if w.sum(axis=-1).max() > MOST:
            hint = "Divide all of them by the same number."
            raise InputError(f"the weights sum to more than {MOST:,} images", hint=hint)
        return Weighted(self, np.take(w, self.order, axis=-1))

    @cached_property
    def log_loss(self) -> Floats:
        clipped = np.clip(self.prob, EPS, 1 - EPS)
        return np.asarray(-np.log(np.where(self.label, clipped, 1 - clipped)))

    @cached_property
    def squared_error(self) -> Floats:
        return np.asarray((self.prob - self.label) ** 2)

    @cached_property
    def by_prob(self) -> RankedImages:
        return RankedImages(self.prob)

    @cached_property
    def block(self) -> Index:
        """(N,) number of the block of each image."""
        return as_index(np.repeat(np.arange(len(self.ends)), np.diff(self.edges)))

    @cached_property
    def positive_steps(self) -> Index:
        """(P,) which of the distinct probabilities, from the highest, are those of positive images."""
        ranking = self.by_prob
        return np.unique(np.searchsorted(ranking.ends, np.flatnonzero(self.label[ranking.order])))

    def forget(self) -> None:
        """Free what is derived, which is made again where it is asked for."""
        self._derived.clear()
        for name in ("by_prob", "log_loss", "squared_error", "block", "positive_steps"):
            vars(self).pop(name, None)


class Points:
    """M points of a referral curve: all blocks before `block` (..., M) are retained, and `fraction` (..., M) of that block."""

    def __init__(self, block: Index, fraction: Floats, blocks: int) -> None:
        self.block, self.fraction, self.blocks = block, fraction, blocks
        rows = len(block) if block.ndim > 1 else 1
        # Places in the flat sums of all rows: one gather is faster than one by rows.
        self._place = block if rows == 1 else block + (np.arange(rows) * (blocks + 1))[:, None]

    def retained(self, sums: Floats) -> Floats:
        """(..., M) retained part of a mass whose sums over the blocks before are (..., B+1)."""
        before, gained = self.split(sums)
        gained *= self.fraction
        gained += before
        return gained

    def split(self, sums: Floats) -> tuple[Floats, Floats]:
        """(..., M) sums over the blocks before, and what the block of each point adds to them."""
        flat = sums.ravel()
        before, gained = np.take(flat, self._place), np.take(flat[1:], self._place)
        gained -= before
        return before, gained

    def chosen(self, number: Index) -> Points:
        block = np.take_along_axis(self.block, number, axis=-1)
        return Points(block, np.take_along_axis(self.fraction, number, axis=-1), self.blocks)


class Weighted(_Derived):
    """`Cases` with one weighting or R: the argument of every score.

    `total` (...,) is W. A referral curve has the points W k / K for k = 1 … K with K = round(W), so that unit weights give
    every count 1 … N and whole-number weights give what the images repeated that often would give. Of R weightings the
    points have the largest K of all; what stands beyond the `count` of a row is without meaning.
    Shapes: `weight` (..., N) >= 0 in the sorted order of the cases, in every row some above 0.
    """

    def __init__(self, cases: Cases, weight: Floats) -> None:
        super().__init__()
        self.cases, self.weight = cases, np.ascontiguousarray(weight)  # else sums would run across rows
        self.total: Floats = self.weight.sum(axis=-1)

    def forget(self) -> None:
        """Free everything but the weights; it is computed again where it is asked for."""
        kept = self.cases, self.weight, self.total
        vars(self).clear()
        self.cases, self.weight, self.total = kept
        self._derived = {}

    def sum(self, values: NDArray[np.generic]) -> Floats:
        """(...,) weighted sum of (N,) values in sorted order."""
        numbers = np.asarray(values, np.float64)
        if self.weight.ndim == 1:  # a dot product, on whose last digit fitted temperatures depend
            return np.asarray(self.weight @ numbers)[()]
        return np.asarray(np.einsum("...n,n->...", self.weight, numbers))[()]

    def mean(self, values: NDArray[np.generic]) -> Floats:
        """(...,) weighted mean of (N,) values in sorted order."""
        return self.sum(values) / self.total

    @cached_property
    def numbers(self) -> NDArray[Any]:
        """The weights, as integers where all are whole: these are masked and added up in a fraction of the time."""
        return self.weight.astype(np.int32) if self.whole else self.weight

    @cached_property
    def positive(self) -> Floats:
        """(..., N) weights of the positive images, 0 of the others."""
        return np.asarray(self.weight * self.cases.label)

    @cached_property
    def negative(self) -> Floats:
        """(..., N) weights of the negative images, 0 of the others."""
        return np.asarray(self.weight * ~self.cases.label)

    @cached_property
    def positives(self) -> Floats:
        return self.sum(self.cases.label)

    @cached_property
    def negatives(self) -> Floats:
        return self.sum(~self.cases.label)

    @cached_property
    def ranked(self) -> tuple[Floats, Floats]:
        """(..., G+1) mass of the positive and of the negative images at or above each distinct probability, led by 0."""
        ranking = self.cases.by_prob
        classes = (self.numbers * self.cases.label, self.numbers * ~self.cases.label)
        both = (ranking.cumulate(mass, whole=self.whole) for mass in classes)
        return next(both), next(both)

    @cached_property
    def whole(self) -> bool:
        """Whether all weights are whole numbers, such as those of replicates, whose sums are small integers."""
        return bool(self.whole_rows.all())

    @cached_property
    def whole_rows(self) -> Bools:
        """(...,) `whole` of each row by itself."""
        return np.asarray((self.total <= MOST) & (self.weight == np.rint(self.weight)).all(axis=-1))

    def block_sums(self, mass: Floats, *, whole: bool = False) -> Floats:
        """(..., B+1) sums of a mass (..., N) over the blocks before, led by 0; see `cumulate`."""
        sums, edges = cumulate(mass, whole=whole), self.cases.edges
        return sums if len(edges) == sums.shape[-1] else np.take(sums, edges, axis=-1)

    @cached_property
    def mass(self) -> Floats:
        """(..., B+1) mass of the blocks before, from 0 to W."""
        return self.block_sums(self.numbers, whole=self.whole)

    @cached_property
    def wrong_mass(self) -> Floats:
        return self.block_sums(self.numbers * self.cases.error, whole=self.whole)

    @cached_property
    def positive_mass(self) -> Floats:
        return self.block_sums(self.numbers * self.cases.label, whole=self.whole)

    @cached_property
    def count(self) -> Index:
        return np.maximum(1, np.rint(self.total)).astype(np.intp)

    @cached_property
    def step(self) -> Floats:
        """(...,) retained mass from one point to the next."""
        return self.total / self.count

    @cached_property
    def points(self) -> Floats:
        """(..., K) retained masses, ascending."""
        return np.asarray(np.arange(1, np.max(self.count) + 1) * self.step[..., None])

    @cached_property
    def there(self) -> Bools:
        """(..., K) whether the row has this point."""
        return np.asarray(np.arange(np.max(self.count)) < self.count[..., None])

    @cached_property
    def passed(self) -> Index:
        """(..., B+1) number of points at or below the mass of the blocks before; points are evenly spaced, so none is searched."""
        if self.whole:
            return self.mass.astype(np.intp)
        passed = ((self.mass + (SLACK * self.total)[..., None]) / self.step[..., None]).astype(np.intp)
        np.minimum(passed, self.count[..., None], out=passed)
        passed[..., -1] = self.count
        return passed

    @cached_property
    def at_points(self) -> Points:
        passed, most = np.atleast_2d(self.passed), self.points.shape[-1]
        row = np.arange(len(passed))[:, None] * (most + 1)
        # A point lies in the block whose number is that of the blocks passed before it.
        ends = np.bincount((passed[:, 1:-1] + row).ravel(), minlength=len(passed) * (most + 1))
        block = np.cumsum(ends.reshape(len(passed), most + 1)[:, :most], axis=1)
        return self._points(self.points, block.reshape(self.points.shape))

    def locate(self, retained: Floats) -> Points:
        """Return where retained masses (..., M) in (0, W] lie."""
        reached = retained - (SLACK * self.total)[..., None]
        rows = zip(np.atleast_2d(self.mass), np.atleast_2d(reached), strict=True)
        block = np.stack([np.searchsorted(mass, asked, side="left") - 1 for mass, asked in rows])
        block = np.clip(block, 0, self.mass.shape[-1] - 2)
        return self._points(retained, block.reshape(retained.shape))

    def _points(self, retained: Floats, block: Index) -> Points:
        at = Points(block, np.ones(block.shape), self.mass.shape[-1] - 1)
        before, gained = at.split(self.mass)
        partial = before + gained - retained > (SLACK * self.total)[..., None]
        np.divide(retained - before, gained, out=at.fraction, where=partial)
        np.clip(at.fraction, 0.0, 1.0, out=at.fraction)
        return at

    @cached_property
    def mean_factor(self) -> Floats:
        """(..., N) factors: the mean over all points of the mean of a value over the retained is the sum of factor x value / W.

        Where the retained mass x lies in a block that begins at the mass b, the share (x - b) / x of the retained is of this block;
        beyond its end, mass / x. The sums over points are differences of `harmonic` numbers.
        """
        sums, step = np.take(harmonic(int(np.max(self.count)).bit_length()), self.passed), self.step[..., None]
        gained = np.diff(self.mass)
        factor = (gained if self.whole else np.diff(self.passed) * step) - self.mass[..., :-1] * np.diff(sums)
        factor /= np.maximum(gained, 1e-300)
        factor += sums[..., -1:]
        factor -= sums[..., 1:]
        if len(self.cases.ends) < len(self.cases):
            factor = np.take(factor, self.cases.block, axis=-1)
        return self.weight * factor

    def along(self, sums: Floats) -> Floats:
        """(..., K) retained part at every point of a mass whose sums over the blocks before are (..., B+1)."""
        return self.at_points.retained(sums)

    @cached_property
    def retained_positives(self) -> Floats:
        return self.along(self.positive_mass)

    @cached_property
    def retained_negatives(self) -> Floats:
        return self.along(self.mass) - self.retained_positives

    def retained(self, count: int) -> Floats:
        """(N,) retained part of each weight at the point `count` of 1 … K of one weighting; 0 retains nothing."""
        if count == 0:
            return np.zeros_like(self.weight)
        block, fraction = self.at_points.block[count - 1], self.at_points.fraction[count - 1]
        first = 0 if block == 0 else int(self.cases.ends[block - 1]) + 1
        part = np.where(np.arange(len(self.weight)) < first, self.weight, 0.0)
        inside = slice(first, int(self.cases.ends[block]) + 1)
        part[inside] = fraction * self.weight[inside]
        return part


Statistic = Callable[[Floats], Floats]  # Weights (R, N) >= 0 -> values (R, K), NaN where undefined.
BLOCK = 2**16
"""Numbers in one matrix of a block: small enough for a cache, large enough that calls cost little beside the work."""
SMALL = 2**22  # Numbers in all rows below which one thread is as fast as several.
KEPT_DRAWS, KEPT_PATIENTS = 4096, 2000  # 16 MB at most
MAX_UNDEFINED = 0.05  # an interval over fewer than 95 % of the draws would describe the easy ones only


def cores() -> int:
    """Return the number of cores that this process may use; `OMP_NUM_THREADS` can lower it."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    free = len(affinity(0)) if affinity else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(free, int(asked)) if asked.isdigit() and int(asked) > 0 else free


def one_blas_thread() -> AbstractContextManager[object]:
    limit: AbstractContextManager[object] = _libraries().limit(limits=1, user_api="blas")
    return limit


_libraries = cache(ThreadpoolController)  # looks through all loaded libraries, which takes milliseconds


def in_steps(advance: Advance | None, steps: int, work: float) -> Callable[[float], None]:
    """Return what advances a bar of whole steps by work in parts of unequal size."""
    done = 0.0

    def add(part: float) -> None:
        nonlocal done
        before, done = round(done), done + part * (steps / max(work, 1))
        if advance is not None:
            advance(round(done) - before)

    return add


def stacked(
    rows: Callable[[range], Floats], count: int, size: int, workers: int | None = None, advance: Advance | None = None
) -> Floats:
    """Return (count, K) rows, computed in blocks; `rows`: numbers of b rows -> (b, K), `size`: numbers that a row works on, such as images."""
    length = max(1, BLOCK // size)
    blocks = [range(start, min(start + length, count)) for start in range(0, count, length)]
    if workers is None:
        workers = 1 if count * size < SMALL else cores()
    if length * size > 2**15:
        # Lets glibc keep freed memory for the next block: else waiting for cleared pages took 40 % of the time.
        np.empty(31 * 2**20, np.uint8)
    found = []
    with one_blas_thread(), ThreadPoolExecutor(max(workers, 1)) as pool:
        results = pool.map(rows, blocks) if min(workers, len(blocks)) > 1 else map(rows, blocks)
        try:
            for block, result in zip(blocks, results, strict=True):
                found.append(result)
                if advance is not None:
                    advance(len(block))
        except BaseException:  # Ctrl-C too: blocks that have begun end soon, the others are given up
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return np.concatenate(found)


def cluster_codes(cluster: ArrayLike) -> tuple[NDArray[np.intp], int]:
    """Number the clusters by their sorted ids: (N,) codes in 0 … G-1 and G. A missing id (NaN or None) is refused, because it names nobody."""
    ids = np.asarray(cluster)
    if ids.ndim != 1 or ids.size == 0:
        raise InputError(f"the cluster ids have shape {ids.shape}, needed is (N,) with N >= 1")
    if ids.dtype.kind in "fO":
        missing = np.array([value is None or value != value for value in ids.tolist()])
        if missing.any():
            hint = "Give every image a patient, or none of them."
            raise InputError("is missing", row=int(np.flatnonzero(missing)[0]) + 1, column="patient_id", hint=hint)
    if ids.dtype.kind == "U":
        return numbered(ids)
    try:
        values, codes = np.unique(ids, return_inverse=True)
        return np.asarray(codes, np.intp).reshape(-1), len(values)
    except TypeError:  # ids of several kinds have no order: they are numbered as they appear
        number: dict[Hashable, int] = {}
        codes = np.array([number.setdefault(value, len(number)) for value in ids.tolist()], np.intp)
        return codes, len(number)


def replicate_weight(codes: NDArray[np.intp], clusters: int, seed: int, replicate: int) -> Floats:
    """Return how often each image (N,) is in one bootstrap replicate, by its patient's code (N,); a function of seed and replicate."""
    drawn = _kept_draw if clusters <= KEPT_PATIENTS else _draw
    return drawn(clusters, seed, replicate)[codes].astype(np.float64)


def _draw(clusters: int, seed: int, replicate: int) -> NDArray[np.int16]:
    """How often each patient is drawn; of millions none is drawn 30,000 times."""
    rng = np.random.default_rng([seed, replicate])
    return np.bincount(rng.integers(clusters, size=clusters), minlength=clusters).astype(np.int16)


# Reports ask for the same draws again for every run, set and statistic; to seed a generator takes longer than to draw.
_kept_draw = lru_cache(maxsize=KEPT_DRAWS)(_draw)


def cluster_bootstrap(
    statistic: Statistic,
    cluster: ArrayLike,
    *,
    replicates: int = 1000,
    seed: int = 0,
    workers: int | None = None,
    advance: Advance | None = None,
) -> Floats:
    """Return a statistic on replicates of patients drawn with replacement: the nonparametric cluster bootstrap.

    Replicate r depends on (seed, r) only: more replicates leave the first ones as they are, and two models are compared on the
    same patients. Few weight vectors are in memory at a time.

    Shapes: `statistic` of weights (b, N) returns (b, K), NaN where undefined; `cluster` (N,); returns (R, K), NaN throughout for a single patient,
    whose replicates are all equal.

    References:
        Field and Welsh, Bootstrapping clustered data, J. R. Stat. Soc. B 69:369 (2007), the randomised cluster bootstrap.
    """
    check_draws(replicates, seed)
    codes, clusters = cluster_codes(cluster)
    if clusters == 1:
        return np.full((replicates, statistic(np.ones((1, len(codes)))).shape[1]), np.nan)

    def rows(numbers: range) -> Floats:
        return statistic(np.stack([replicate_weight(codes, clusters, seed, number) for number in numbers]))

    return stacked(rows, replicates, len(codes), workers=workers, advance=advance)


def check_draws(replicates: int, seed: int) -> None:
    if replicates < 1:
        raise InputError(f"{replicates} bootstrap replicates", hint="Ask for 1 or more; 1,000 is the default.")
    check_seed(seed)


def check_seed(seed: int) -> None:
    if seed < 0:
        raise InputError(f"the seed is {seed}", hint="A seed is a whole number >= 0.")


def check_level(level: float) -> None:
    if not 0 < level < 1:
        raise InputError(f"the level is {level}", hint="A level lies between 0 and 1, such as 0.95.")


def percentile_interval(draws: ArrayLike, level: float = 0.95, *, points: bool = False) -> tuple[Floats, Floats]:
    """Return the percentile interval per column: the (1-level)/2 and (1+level)/2 quantiles of the replicates (R, K) or (R,).

    The q-quantile of R values is the q (R + 1)-th of them in order (between two of them linearly): the usual q (R - 1) rule
    would lose 0.6 % of the coverage at 300 replicates. Values that are not finite are undefined (an AUROC of a replicate with one
    class): up to 5 % of them are left out, beyond that both ends are NaN.

    `points`: whether equal ends are given, such as those of a rank. Else they are NaN: that all replicates are equal shows that they hold no
    such case, and not that the value is certain.

    References:
        Efron, Bootstrap methods: another look at the jackknife, Ann. Stat. 7:1 (1979); Davison and Hinkley, Bootstrap methods
        and their application (1997), section 5.2.
    """
    values = np.asarray(draws, np.float64)
    columns = values.reshape(len(values), -1)
    check_level(level)
    tails = np.array([(1 - level) / 2, 1 - (1 - level) / 2])
    ends = np.full((columns.shape[1], 2), np.nan)
    for k, column in enumerate(columns.T):
        known = column[np.isfinite(column)]
        if len(known) and len(known) >= (1 - MAX_UNDEFINED) * len(column):
            ends[k] = np.quantile(known, tails, method="weibull")
    if not points:
        ends[ends[:, 0] == ends[:, 1]] = np.nan
    shape = values.shape[1:]
    return ends[:, 0].reshape(shape), ends[:, 1].reshape(shape)
