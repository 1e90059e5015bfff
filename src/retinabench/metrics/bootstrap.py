"""Replicates of patients drawn with replacement, computed in blocks over threads.

Two eyes of one patient fail together: an interval that resamples images is too narrow. Everything here therefore
draws *clusters* (patients) with replacement and hands a statistic the multiplicity of every image as a weight.

    >>> import numpy as np
    >>> hit = np.array([1.0, 0.0, 1.0, 1.0])
    >>> draws = cluster_bootstrap(lambda w: w @ hit[:, None] / w.sum(axis=1)[:, None], ["a", "a", "b", "c"], replicates=200)
    >>> draws.shape
    (200, 1)

Threads and not processes: NumPy lets other threads run while it computes on large arrays, the images and their indexes are in
memory once, and a script needs no guard around its main part. Blocks depend on the size of the problem only, and each
uses one BLAS thread, so that no result depends on the number of threads. (BLAS threads also spin while they wait: a
product of two vectors of 45,000 numbers made several cores busy for nothing.)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache, lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import ThreadpoolController

from retinabench.core.errors import InputError
from retinabench.metrics.arrays import Floats
from retinabench.predictions.check import numbered

Statistic = Callable[[Floats], Floats]  # Weights (R, N) >= 0 -> values (R, K), NaN where undefined.
BLOCK = 2**16
"""Numbers in one matrix of a block: small enough for a cache, large enough that calls cost little beside the work."""
SMALL = 2**22  # Numbers in all rows below which one thread is as fast as several.
KEPT_DRAWS, KEPT_PATIENTS = 4096, 2000  # 16 MB at most
MAX_UNDEFINED = 0.05  # an interval over fewer than 95 % of the draws would describe the easy ones only


def cores() -> int:
    """Return the number of cores that this process may use; `OMP_NUM_THREADS` can lower it."""
    try:
        free = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        free = os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(free, int(asked)) if asked.isdigit() and int(asked) > 0 else free


def one_blas_thread() -> AbstractContextManager[object]:
    limit: AbstractContextManager[object] = _libraries().limit(limits=1, user_api="blas")
    return limit


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()  # looks through all loaded libraries, which takes milliseconds


class Steps:
    """Advances a bar of whole steps by work in parts of unequal size."""

    def __init__(self, advance: Callable[[int], None], steps: int, work: float) -> None:
        self._advance, self._rate = advance, steps / work
        self._done, self._reported = 0.0, 0

    def add(self, work: float) -> None:
        self._done += work * self._rate
        further = round(self._done) - self._reported
        self._reported += further
        self._advance(further)


def stacked(
    rows: Callable[[range], Floats],
    count: int,
    size: int,
    *,
    workers: int | None = None,
    advance: Callable[[int], None] | None = None,
) -> Floats:
    """Return (count, K) rows, computed in blocks.

    `rows`: numbers of b rows -> (b, K). `size`: numbers that a row works on, such as images.
    """
    length = max(1, BLOCK // size)
    blocks = [range(start, min(start + length, count)) for start in range(0, count, length)]
    if workers is None:
        workers = 1 if count * size < SMALL else cores()
    if length * size > 2**15:
        keep_memory()
    found = []
    with one_blas_thread(), _mapped(rows, blocks, workers) as results:
        for block, result in zip(blocks, results, strict=True):
            found.append(result)
            if advance is not None:
                advance(len(block))
    return np.concatenate(found)


def keep_memory() -> None:
    """Let glibc keep freed memory for the next block.

    By default it returns the end of the heap to the system where more is free than twice the largest array that was ever freed;
    the next block then waits for the same pages to be cleared, which took 40 % of the time. Elsewhere this does nothing.
    """
    np.empty(31 * 2**20, np.uint8)


@contextmanager
def _mapped(rows: Callable[[range], Floats], blocks: list[range], workers: int) -> Iterator[Iterator[Floats]]:
    if min(workers, len(blocks)) < 2:
        yield map(rows, blocks)
        return
    with ThreadPoolExecutor(workers) as pool:
        try:
            yield pool.map(rows, blocks)
        except BaseException:  # Ctrl-C too: blocks that have begun end soon, the others are given up
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def cluster_codes(cluster: ArrayLike | Sequence[Hashable]) -> tuple[NDArray[np.intp], int]:
    """Number the clusters: (N,) codes in 0 … G-1 and G.

    Codes follow the sorted ids, so that no result depends on the order of the rows (ids that cannot be sorted are
    numbered as they appear). Raises `InputError` for a missing id (NaN or None): it is no patient.
    """
    ids = np.asarray(cluster)
    if ids.ndim != 1 or ids.size == 0:
        raise InputError(f"the cluster ids have shape {ids.shape}, needed is (N,) with N >= 1")
    if ids.dtype.kind in "fO":
        missing = np.array([value is None or value != value for value in ids.tolist()])
        if missing.any():
            raise InputError(
                "is missing",
                row=int(np.flatnonzero(missing)[0]) + 1,
                column="patient_id",
                hint="Give every image a patient, or none of them.",
            )
    if ids.dtype.kind == "U":
        return numbered(ids)
    try:
        values, codes = np.unique(ids, return_inverse=True)
        return np.asarray(codes, np.intp).reshape(-1), len(values)
    except TypeError:  # ids of several kinds have no order
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
    cluster: ArrayLike | Sequence[Hashable],
    *,
    replicates: int = 1000,
    seed: int = 0,
    workers: int | None = None,
    advance: Callable[[int], None] | None = None,
) -> Floats:
    """Return a statistic on replicates of patients drawn with replacement: the nonparametric cluster bootstrap.

    Replicate r depends on (seed, r) only: more replicates leave the first ones as they are, and two models are compared on the
    same patients. Few weight vectors are in memory at a time.

    References:
        Field and Welsh, Bootstrapping clustered data, J. R. Stat. Soc. B 69:369 (2007), the randomised cluster bootstrap.

    Shapes: `statistic` of weights (b, N) returns (b, K), NaN where undefined; `cluster` (N,); returns (R, K), NaN throughout for a single patient,
    whose replicates are all equal.
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
    """Return the percentile interval per column: the (1-level)/2 and (1+level)/2 quantiles of the replicates.

    The q-quantile of R values is the q (R + 1)-th of them in order (between two of them linearly): the usual q (R - 1) rule
    would lose 0.6 % of the coverage at 300 replicates. Values that are not finite are undefined (an AUROC of a replicate with one
    class): up to 5 % of them are left out, beyond that both ends are NaN.

    References:
        Efron, Bootstrap methods: another look at the jackknife, Ann. Stat. 7:1 (1979); Davison and Hinkley, Bootstrap methods
        and their application (1997), section 5.2.

    Shapes: `draws` (R, K) or (R,); returns (K,) or ().

    `points`: whether equal ends are given, such as those of a rank. Else they are NaN: that all replicates are equal shows that they hold no
    such case, and not that the value is certain.
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
