"""The tables and figures of the two papers, from predictions files alone; never imports torch.

Band et al. 2021 (the Retina Benchmark): Tables 1 to 13 and the figures of its results. Filos et al. 2019: Table 1, Figures
4 to 6 and the leaderboard's CSV files. `docs/papers.md` says which file is which, and how each differs from the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from retinabench.core.progress import QUIET, Progress


def write_tables(
    files: Sequence[Path],
    out: Path,
    *,
    rules: str,
    bootstrap: int,
    seed: int,
    labels: Path | None = None,
    photographs: Path | None = None,
    workers: int | None = None,
    progress: Progress = QUIET,
) -> list[Path]:
    """Write all tables and figures that the files allow below `out`, and `index.md`, which lists them.

    Arguments
    ---------
    files: predictions, or run folders. Files that differ by their seed only are runs of one method (a row); the metadata
    `task`, `criterion` (what it was tuned on) and `blur` decide in which table it stands. rules: "corrected", or
    "published" for the released code's numbers. bootstrap: replicates for the interval of a method with a single run.
    seed: of the bootstrap, of the jackknife's blocks and of the published rules' random sets. labels: a CSV that says
    of files what their metadata does not (`labels.py`). photographs: a folder of fundus photographs for the examples of
    preprocessing. workers: processes, None for one per core where that pays.

    Returns the files written, the index first. What cannot be made is left out; the index says what it lacks.
    Raises `InputError` where files of one task hold other images or another truth.
    """
    from retinabench.reports.papers.collect import collect
    from retinabench.reports.papers.write import write

    collection = collect(files, labels, rules, bootstrap, seed, workers, progress)
    return write(collection, out, photographs, progress)
