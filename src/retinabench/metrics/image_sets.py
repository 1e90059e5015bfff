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
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import scipy
from numpy.typing import NDArray

from retinabench.core.errors import InputError, WorkError, check, disposable, nearest, shown
from retinabench.core.files import write_bytes
from retinabench.core.results import (
    Document,
    IntervalRow,
    JsonObject,
    Row,
    Tabular,
    draw_intervals,
    json_content,
    vars_of,
)
from retinabench.metrics.calibration import SetCalibration
from retinabench.metrics.classification import balanced_weight
from retinabench.metrics.decisions import ABOVE_HALF, FrozenThreshold
from retinabench.metrics.grades import GradeScores
from retinabench.metrics.intervals import Interval
from retinabench.metrics.referral_curves import coarse_auprc_area
from retinabench.metrics.registry import SCORES, ScoreSpec, ScoreValue
from retinabench.metrics.weighted_images import Cases, Floats, Index, Weighted, cluster_bootstrap, cluster_codes
from retinabench.predictions.table import Predictions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

VARIABLE = "RETINABENCH_CACHE"
WORTH_KEEPING = 2**19  # Numbers in all replicates: what is computed faster than read is not kept.
MOST_BYTES = 200_000_000  # of all files; a predictions file of two domains takes about one megabyte
SET_LABELS = {"in_domain": "In-domain", "shifted": "Shifted", "joint": "Joint", "balanced": "Balanced"}
"""The sets by their key in files, with what tables and figures call them; see `docs/scores.md`."""
SETS = tuple(SET_LABELS)
PER_IMAGE, PER_PATIENT = "per image", "per patient"
PER_IMAGE_OF_A_RANDOM_PATIENT = "per image of a random patient"
"""Denominators of rates: images, patients, or images of which each patient's together count as 1."""

PLOTTED = ("auroc", "accuracy", "failure_auroc", "referral_accuracy_area", "brier")
"""Scores that `plot` draws unless others are named: all between 0 and 1."""

SCHEMA = "retinabench.scores/1"
REFERRED = (0.0, 0.5, 0.7)  # Fractions referred at which `referral` and `retained` are given.
Kind = Literal[
    "one class", "inverted", "never positive", "always positive", "not useful", "probabilities", "not shown", "informative", "useful"
]  # fmt: skip

POOR = 0.7
"""An AUROC below this is called poor discrimination (Hosmer, Lemeshow and Sturdivant, Applied logistic regression, 2013)."""

FEW_PATIENTS = 10  # Fewer patients with disease than this say little about sensitivity.


@dataclass(frozen=True)
class PriorCorrection(Document):
    """The scores after every log odds is moved by `offset`, as class weights in training move it, so that as many images are positive as predicted."""

    offset: float
    chosen_on: str
    accuracy: float
    sensitivity: float
    brier_skill: float
    ece_positive_class: float


@dataclass(frozen=True)
class Baseline(Document):
    """The baseline of a set and what the model adds to it, per image.

    The baseline predicts the same for every image, that of the larger class ("not referable" below a prevalence of one
    half), and for probabilities the prevalence of the set. A model below it is worse than no model.

    `baseline` in the JSON of `score` holds the larger class and its accuracy, `net_benefit_gain`, `brier_skill`, `positive_patients`, and
    `corrected`, the same model with every log odds moved by `offset` so that as many images are positive as predicted. `judge` turns them into a verdict;
    `docs/clinic.md` lists every verdict with its rule.
    """

    answer: str
    accuracy: float
    net_benefit_gain: Interval
    brier_skill: Interval
    positive_patients: int
    threshold: float
    corrected: PriorCorrection | None


def judge(
    *, sensitivity: Interval, specificity: Interval, auroc: Interval, net_benefit_gain: Interval, brier_skill: Interval
) -> Kind:
    """Say in one word what a model is worth against the baseline: *useful* by its decisions, *informative* by its probabilities; each claim needs its interval."""
    if not (np.isfinite(sensitivity.value) and np.isfinite(specificity.value)):
        return "one class"
    if _below(auroc, 0.5):
        return "inverted"
    if sensitivity.value == 0:
        return "never positive"
    if specificity.value == 0:
        return "always positive"
    if _below(net_benefit_gain, 0) and _below(brier_skill, 0):
        return "not useful" if auroc.value < POOR else "probabilities"
    if _above_zero(net_benefit_gain):
        return "useful"
    return "informative" if _above_zero(brier_skill) else "not shown"


def _below(one: Interval, bound: float) -> bool:
    return bool((one.high if np.isfinite(one.high) else one.value) < bound)


def _above_zero(one: Interval) -> bool:
    return bool((one.low if np.isfinite(one.low) else one.value) > 0)


@dataclass(frozen=True)
class SetScores(Tabular, Document):
    """The scores of one set, by attribute (`.auroc`) and by name (`["auroc"]`).

    Args:
        images: Number of images.
        patients: Number of patients; None where they are not known.
        positives: Number of images with label 1.
        scores: Score name -> value.
        referral: Metric -> fraction referred, as text -> value of the retained images.
        calibration: The calibration line, the parts of the Brier score and calibration errors; None under the published
            rules, as are the following.
        retained: Fraction referred, as text -> retained images of each class.
        controls: `random` and `oracle` -> summaries of the same predictions in these orders of referral.
        baseline: What the model adds to predicting the same for every image; None for the balanced set.
        grades: Scores of the five grade probabilities, and sets of grades; None where the file has no grades or none of these.

    Examples:
        >>> import retinabench as rb
        >>> predictions = rb.Predictions(["a", "b", "c", "d"], [0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9])
        >>> found = rb.score(predictions, bootstrap=0)["in_domain"]
        >>> found["accuracy"].value, found.referral["accuracy"]["0.5"]
        (0.5, 1.0)
    """

    _optional = ("calibration", "retained", "controls", "baseline", "grades")

    images: int
    patients: int | None
    positives: int
    scores: Mapping[str, ScoreValue]
    referral: Mapping[str, Mapping[str, float]]
    calibration: SetCalibration | None = None
    retained: Mapping[str, Mapping[str, float]] | None = None
    controls: Mapping[str, Mapping[str, float]] | None = None
    baseline: Baseline | None = None
    grades: GradeScores | None = None

    def __getitem__(self, name: str) -> ScoreValue:
        if name not in self.scores:
            raise KeyError(f"no score '{name}' on this set. {nearest(name, self.scores)}")
        return self.scores[name]

    def __getattr__(self, name: str) -> ScoreValue:
        if name.startswith("_") or name not in self.scores:
            raise AttributeError(f"no score '{name}' on this set")
        return self.scores[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.scores]

    def __iter__(self) -> Iterator[str]:
        return iter(self.scores)

    def records(self) -> list[Row]:
        rows: list[Row] = []
        for name, score in self.scores.items():
            row: Row = {"score": SCORES[name].label, "direction": SCORES[name].direction}
            rows.append(row | {key: getattr(score, key) for key in ("value", "low", "high", "why")})
        return rows

    def plot(self, axes: Axes | None = None, scores: Sequence[str] = PLOTTED) -> Axes:
        """Draw scores of these names with their intervals on `axes` (None: a new figure); those that the set lacks are left out."""
        return draw_intervals(self.interval_rows(scores), axes)

    def interval_rows(self, names: Sequence[str], ending: str = "") -> list[IntervalRow]:
        """Return a line of a plot for each of these scores that the set has; `ending` follows its label."""
        check_known("score", names, list(SCORES))
        found = [(SCORES[name].label, self.scores[name]) for name in names if name in self.scores]
        return [IntervalRow(label + ending, one.value, one.low, one.high) for label, one in found]


@dataclass(frozen=True, repr=False)
class Scores(Tabular):
    """All scores of one predictions file: `scores["in_domain"].auroc.value`.

    Args:
        rules: `corrected` or `published`.
        uncertainty: What ordered the referral.
        bootstrap: Number of bootstrap replicates; 0 where there are no intervals.
        seed: Seed of the bootstrap.
        sets: Set name -> its scores, for the sets that exist; see `docs/scores.md`.
        notes: What a reader of the numbers must know.
        metadata: What the file says of its origin.
        source: The file.
        threshold: The decision threshold.

    Examples:
        >>> import retinabench as rb
        >>> predictions = rb.Predictions(["a", "b", "c", "d"], [0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9])
        >>> scores = rb.score(predictions, bootstrap=0)
        >>> scores["in_domain"].auroc.value
        0.75
        >>> scores["in_domain"].images
        4
    """

    rules: str
    uncertainty: str
    bootstrap: int
    seed: int
    sets: Mapping[str, SetScores]
    notes: tuple[str, ...] = ()
    metadata: Mapping[str, object] = field(default_factory=dict)
    source: str | None = None
    threshold: FrozenThreshold = ABOVE_HALF

    def __getitem__(self, name: str) -> SetScores:
        if name not in self.sets:
            raise KeyError(f"no set '{name}' in this file. {nearest(name, self.sets)}")
        return self.sets[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.sets)

    def __repr__(self) -> str:
        sets = ", ".join(f"{name}: {one.images} images" for name, one in self.sets.items())
        return f"Scores({self.source or 'predictions'}, {self.rules} rules, {sets})"

    def value(self, name: str, set: str = "in_domain") -> float:
        """Return one score of one set, NaN where undefined."""
        return self[set][name].value

    def records(self) -> list[Row]:
        return [{"set": SET_LABELS[name], **row} for name, one in self.sets.items() for row in one.records()]

    def plot(self, axes: Axes | None = None, scores: Sequence[str] = PLOTTED) -> Axes:
        """Draw scores of every set as `SetScores.plot` does."""
        sets = [(one, f", {SET_LABELS[name].lower()}") for name, one in self.sets.items()]
        rows = [row for score in scores for one, ending in sets for row in one.interval_rows([score], ending)]
        return draw_intervals(rows, axes)

    def to_dict(self) -> JsonObject:
        """Return what `retinabench score --json` writes: only dictionaries, lists, text, finite numbers and None."""
        # Metadata of any origin: NaN and infinity become None, other objects their text.
        metadata = json.loads(json.dumps(dict(self.metadata), default=str), parse_constant=lambda _: None)
        shown_here = {"source": self.source and shown(self.source), "metadata": metadata}
        return {"schema": SCHEMA, **json_content(vars_of(self) | shown_here)}


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


def order_notes(images: str, auroc: Interval) -> list[str]:
    """Return a note that the labels or probabilities of these images look inverted, or derived from each other; or none."""
    if auroc.value < 0.4 and (auroc.high < 0.5 or not np.isfinite(auroc.high)):
        return [
            f"WARNING: labels or probabilities look inverted: {images} AUROC {auroc.value:.2f} is far below 0.5. "
            "Label 1 and prob 1 mean referable"
        ]
    if auroc.value == 1 and auroc.low > 0.95:
        return [
            f"{images.lower()}: every referable image has a higher probability than every other: "
            "was 'prob' computed from the labels?"
        ]
    return []


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
