"""Bootstrap replicates of the scores of a set, kept between commands.

`score`, `report`, `compare`, `leaderboard` and `site` ask for the same replicates of the same file. Those of a large set are
written into a folder of the user, and read where everything that they depend on is equal: the images of the set, the patients that are
drawn, the seed, the number of replicates, the score, and the source code of the metrics. A file's name holds the checksum of
its content; the replicates of a damaged file are computed and written again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
import scipy

from retinabench.core.errors import InputError, WorkError
from retinabench.core.files import check, disposable, write_bytes
from retinabench.metrics.arrays import Floats
from retinabench.metrics.bootstrap import SMALL, cluster_bootstrap
from retinabench.metrics.image_sets import SetEvaluator
from retinabench.metrics.registry import ScoreSpec
from retinabench.metrics.weighted_images import Index

VARIABLE = "RETINABENCH_CACHE"
MOST_BYTES = 200_000_000  # of all files; a predictions file of two domains takes about one megabyte


def replicates_of(
    evaluator: SetEvaluator,
    cluster: Index,
    *,
    replicates: int,
    seed: int,
    workers: int | None = None,
    advance: Callable[[int], None] | None = None,
) -> Floats:
    """Return the bootstrap replicates (R, K) of the scores of a set; `cluster` (N,) numbers the patients that are drawn."""
    folder = _folder() if replicates * len(cluster) >= SMALL else None
    key = _key(evaluator, cluster, replicates, seed) if folder else ""
    kept = _read(folder, key) if folder else {}
    names = [_identity(spec) for spec in evaluator.scores]
    missing = [k for k, name in enumerate(names) if name not in kept]
    values = np.stack([kept.get(name, np.full(replicates, np.nan)) for name in names], axis=1)
    if missing:
        part = SetEvaluator(evaluator.images, [evaluator.scores[k] for k in missing], evaluator.point[missing])
        values[:, missing] = cluster_bootstrap(
            part, cluster, replicates=replicates, seed=seed, workers=workers, advance=advance
        )
        if folder:
            _write(folder, key, {names[k]: values[:, k] for k in missing if names[k]})
    elif advance is not None:
        advance(replicates)
    return values


def kept_columns(of: Iterable[object], work: int, compute: Callable[[], Mapping[str, Floats]]) -> Mapping[str, Floats]:
    """Return columns of equal length, computed or kept by an earlier command; they depend on `of`, arrays and numbers, and on the metrics."""
    folder = _folder() if work >= SMALL else None
    digest = hashlib.sha256(_source())
    for part in of:
        digest.update(part if isinstance(part, bytes) else np.asarray(part, np.float64).tobytes())
    found: Mapping[str, Floats] = _read(folder, digest.hexdigest()) if folder else {}
    if not found:
        found = compute()
        if folder:
            _write(folder, digest.hexdigest(), found)
    return found


def _folder() -> Path | None:
    """Return the folder of files that anyone may delete; None where the user wants none."""
    if (named := os.environ.get(VARIABLE)) is not None:
        return Path(named) if named else None
    usual = {"win32": ("LOCALAPPDATA", "~/AppData/Local"), "darwin": ("", "~/Library/Caches")}
    variable, otherwise = usual.get(sys.platform, ("XDG_CACHE_HOME", "~/.cache"))
    return Path(os.path.expanduser(os.environ.get(variable) or otherwise), "retinabench")


@functools.cache
def _source() -> bytes:
    digest = hashlib.sha256(f"{np.__version__} {scipy.__version__}".encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(check(path).read_bytes())
    return digest.digest()


def _key(evaluator: SetEvaluator, cluster: Index, replicates: int, seed: int) -> str:
    name, cases = evaluator.images.name, evaluator.images.cases
    digest = hashlib.sha256(_source())
    digest.update(f"{name} {len(cases)} {replicates} {seed} {cases.threshold!r}".encode())
    for column in (cases.label, cases.prob, cases.uncertainty, cases.patient, cluster[cases.order], cases.shifted):
        digest.update(b"" if column is None else np.asarray(column, np.float64).tobytes())
    return digest.hexdigest()


def _identity(spec: ScoreSpec) -> str:
    """Return what tells a score from any other; empty for those of plug-ins, whose source may change unseen."""
    function, settings = spec.function, ""
    while isinstance(function, functools.partial):
        settings += f" {function.args} {function.keywords}"
        function = function.func
    if not function.__module__.startswith("retinabench."):
        return ""
    return f"{spec.name} {spec.version} {function.__module__}.{function.__qualname__}{settings}"


def _name(key: str, content: bytes) -> str:
    return f"{key}-{hashlib.sha256(key.encode() + content).hexdigest()}.npz"


def _read(folder: Path, key: str) -> dict[str, Floats]:
    columns: dict[str, Floats] = {}
    with contextlib.suppress(OSError, InputError):
        for path in folder.glob(f"{key}-*.npz"):
            content = check(path).read_bytes()
            if path.name == _name(key, content):
                with np.load(path, allow_pickle=False) as file:
                    columns |= dict(zip(file["scores"].tolist(), file["values"], strict=True))
    return columns


def _write(folder: Path, key: str, columns: Mapping[str, Floats]) -> None:
    """Write columns (R,), and delete the oldest files where there are too many; a folder that is full or closed is no error."""
    held = io.BytesIO()
    np.savez(held, scores=list(columns), values=list(columns.values()))
    with contextlib.suppress(OSError, InputError, WorkError):
        path = folder / _name(key, held.getvalue())
        write_bytes(path, held.getvalue())
        disposable(path)
        size = 0
        for one in sorted(folder.glob("*.npz"), key=lambda one: -one.stat().st_mtime):
            size += one.stat().st_size
            if size > MOST_BYTES:
                one.unlink()
