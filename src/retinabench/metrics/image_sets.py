"""The four sets of a predictions file: how their images are weighted, their scores, the verdict against the baseline, and the bootstrap replicates.

`score`, `report`, `compare`, `leaderboard` and `site` ask for the same replicates of the same file. They are
written into a folder of the user, and read if everything that they depend on is equal: the images of the set, the patients that are
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
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import scipy
from numpy.typing import NDArray

from retinabench.core.errors import InputError, WorkError, check, disposable, nearest
from retinabench.core.files import write_bytes
from retinabench.metrics.classification import balanced_weight
from retinabench.metrics.referral_curves import coarse_auprc_area
from retinabench.metrics.registry import SCORES, ScoreSpec
from retinabench.metrics.weighted_images import Cases, Floats, Index, Weighted, cluster_bootstrap, cluster_codes
from retinabench.predictions.table import Predictions

VARIABLE = "RETINABENCH_CACHE"
WORTH_KEEPING = 2**19  # Numbers in all replicates: what is computed faster than read is not kept.
MOST_BYTES = 200_000_000  # of all files; a predictions file of two domains takes about one megabyte
SET_LABELS = {"in_domain": "In-domain", "shifted": "Shifted", "joint": "Joint", "balanced": "Balanced"}
"""The sets by their key in files, with what tables and figures call them; see `docs/scores.md`."""
SETS = tuple(SET_LABELS)
PER_IMAGE, PER_PATIENT = "per image", "per patient"
PER_IMAGE_OF_A_RANDOM_PATIENT = "per image of a random patient"
"""Denominators of rates: images, patients, or images of which each patient's together count as 1."""

REFERRED = (0.0, 0.5, 0.7)  # Fractions referred at which `referral` and `retained` are given.


def check_known(kind: str, names: Sequence[str] | None, known: Sequence[str]) -> None:
    for name in names or ():
        if name not in known:
            raise InputError(f"unknown {kind} '{name}'", hint=nearest(name, known))


class ImageSet:
    """One of `SETS`: its images, sorted for scoring, and how they are weighted. It keeps no ids.

    Attributes: `cluster` (N,) is the number of the patient (or image) of each row; `patients` the number of patients, None where
    they are not known; `positives` the number of images with label 1.
    """

    def __init__(self, name: str, part: Predictions, uncertainty: Floats, threshold: float = 0.5) -> None:
        self.name = name
        self.shifted = part.domain == "shifted"
        shifted = self.shifted if name == "joint" else None
        self.cluster, clusters = cluster_codes(part.patients)
        self.patients = None if part.patient_id is None else clusters
        self.positives = int(part.label.sum())
        self.cases = Cases(part.label, part.prob, uncertainty, shifted, threshold, self.cluster)
        self.scores = [s for s in SCORES.values() if s.given_for(name)]

    def balanced(self) -> ImageSet:
        """Return the balanced set of the images of this joint set; both share the sorted images and their indexes."""
        other = copy(self)
        other.name = "balanced"
        other.scores = [s for s in SCORES.values() if s.given_for("balanced")]
        return other

    def __len__(self) -> int:
        return len(self.cases)

    @property
    def whole(self) -> Weighted:
        """Every image once; in the balanced set both domains with the same mass."""
        return self.cases.weighted(balanced_weight(self.shifted) if self.name == "balanced" else None)

    def weigh(self, weight: Floats) -> tuple[Weighted | None, Index]:
        """Return the images with weights (R, N), and which rows (R,) these are: replicates of the balanced set that hold one domain alone are left out."""
        if self.name == "balanced":
            weight = balanced_weight(self.shifted, weight)
        known = np.flatnonzero(np.isfinite(weight[:, 0]))
        ordered = np.take(weight[known], self.cases.order, axis=1)
        return (Weighted(self.cases, ordered) if len(known) else None), known


class SetEvaluator:
    """The scores of a set as a function of the weights of its images; `point` (K,) are their values on the whole set, computed where None.

    The area of AUPRC over referral is slow to compute. Replicates evaluate it at a few counts and add the difference
    between the exact and the coarse area of the whole set.
    """

    def __init__(self, images: ImageSet, scores: Sequence[ScoreSpec], point: Floats | None = None) -> None:
        self.images, self.scores, self.whole = images, scores, images.whole
        self.point = np.array([s(self.whole) for s in scores]) if point is None else point
        coarse = [k for k, s in enumerate(scores) if s.name == "referral_auprc_area"]
        self.offset = {k: self.point[k] - coarse_auprc_area(self.whole) for k in coarse}

    def __call__(self, weight: Floats) -> Floats:
        """Return the (R, K) scores of images with weights (R, N), NaN where undefined."""
        values = np.full((len(weight), len(self.scores)), np.nan)
        w, known = self.images.weigh(weight)
        if w is None:
            return values
        for k, s in enumerate(self.scores):
            if k in self.offset:  # clipped, because the offset could lift a coarse area of nearly 1 above it
                values[known, k] = np.clip(coarse_auprc_area(w) + self.offset[k], 0.0, 1.0)
            else:
                values[known, k] = s(w)
        return values


def image_sets(test: Predictions, uncertainty: Floats, threshold: float = 0.5) -> list[ImageSet]:
    """Return the sets that exist, in the order of `SETS`: each domain, and both together, as they are and balanced; `uncertainty` (N,)."""
    sets = []
    for domain in ("in_domain", "shifted"):
        rows = np.flatnonzero(test.domain == domain)
        if len(rows):
            sets.append(ImageSet(domain, test.take(rows), uncertainty[rows], threshold))
    if len(sets) == 2:
        joint = ImageSet("joint", test, uncertainty, threshold)
        sets += [joint, joint.balanced()]
    return sets


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
    folder, key = _folder(replicates * len(cluster)), ""
    kept: dict[str, Floats] = {}
    if folder:
        cases = evaluator.images.cases
        about = f"{evaluator.images.name} {len(cases)} {replicates} {seed} {cases.threshold!r}".encode()
        of_images = cases.label, cases.prob, cases.uncertainty, cases.patient, cluster[cases.order], cases.shifted
        key = _key([about, *of_images])
        kept = _read(folder, key)
    names = [_identity(spec) for spec in evaluator.scores]
    missing = [k for k, name in enumerate(names) if name not in kept]
    values = np.stack([kept.get(name, np.full(replicates, np.nan)) for name in names], axis=1)
    if missing:
        part = SetEvaluator(evaluator.images, [evaluator.scores[k] for k in missing], evaluator.point[missing])
        draws = cluster_bootstrap(part, cluster, replicates=replicates, seed=seed, workers=workers, advance=advance)
        values[:, missing] = draws
        if folder:
            _write(folder, key, {names[k]: values[:, k] for k in missing if names[k]})
    elif advance is not None:
        advance(replicates)
    return values


Column = TypeVar("Column", bound=NDArray[Any])


def kept_columns(
    of: Iterable[object], compute: Callable[[], Mapping[str, Column]], work: int = WORTH_KEEPING
) -> Mapping[str, Column]:
    """Return columns, computed or kept by an earlier command; they depend on `of`, arrays and numbers, and on the metrics."""
    if (folder := _folder(work)) is None:
        return compute()
    key = _key(of)
    found: Mapping[str, Any] = _read(folder, key)
    if not found:
        found = compute()
        _write(folder, key, found)
    return found


def _folder(work: int) -> Path | None:
    """Return the folder of files that anyone may delete; None where the user wants none, or the work is not worth one."""
    if work < WORTH_KEEPING:
        return None
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


def _key(of: Iterable[object]) -> str:
    digest = hashlib.sha256(_source())
    for part in of:
        digest.update(part if isinstance(part, bytes) else np.asarray(part, np.float64).tobytes())
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


def _read(folder: Path, key: str) -> dict[str, NDArray[Any]]:
    columns: dict[str, NDArray[Any]] = {}
    with contextlib.suppress(OSError, InputError):
        for path in folder.glob(f"{key}-*.npz"):
            content = check(path).read_bytes()
            if path.name == _name(key, content):
                with np.load(path, allow_pickle=False) as file:
                    columns |= {name: file[f"column_{k}"] for k, name in enumerate(file["names"].tolist())}
    return columns


def _write(folder: Path, key: str, columns: Mapping[str, NDArray[Any]]) -> None:
    """Write columns, and delete the oldest files where there are too many; a full or closed folder is not an error."""
    held = io.BytesIO()
    arrays: dict[str, Any] = {f"column_{k}": column for k, column in enumerate(columns.values())}
    np.savez(held, names=list(columns), **arrays)
    with contextlib.suppress(OSError, InputError, WorkError):
        path = folder / _name(key, held.getvalue())
        write_bytes(path, held.getvalue())
        disposable(path)
        size = 0
        with os.scandir(folder) as entries:
            files = [(one.stat(), one.path) for one in entries if one.name.endswith(".npz")]
        for about, name in sorted(files, key=lambda one: -one[0].st_mtime):
            size += about.st_size
            if size > MOST_BYTES:
                os.unlink(name)
