"""What the papers' tables and figures show of each predictions file."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError, nearest
from retinabench.metrics import published, referral_curves
from retinabench.metrics.classification import Roc, grade_weight, roc_curve, sensitivity_on_chords
from retinabench.metrics.comparison import RankedModel, ScoreRanking
from retinabench.metrics.image_sets import ImageSet, image_sets
from retinabench.metrics.published import balanced_rows, rebalanced_rows
from retinabench.metrics.referral_curves import Curve
from retinabench.metrics.registry import REFERRED_PERCENT, SCORES
from retinabench.metrics.weighted_images import Cases, Weighted
from retinabench.predictions.table import Predictions

COLUMNS = ("file", "method", "task", "dataset", "criterion", "blur", "seed", "members")

_INTEGERS = ("blur", "seed", "members")

STANDARD_BLUR = 30

"""Blur constant of both papers' preprocessing; files that state none belong to it."""

JOINT_CRITERION = "balanced_joint_accuracy_area"

TASK_TITLES = {
    "country_shift": "Country Shift",
    "severity_shift": "Severity Shift",
    "severity_shift_published": "Severity Shift as released",
    "severity_shift_mild": "Severity Shift, mild",
    "severity_shift_mild_published": "Severity Shift, mild, as released",
    "in_domain": "one population",
    "hold_out_2019": "hold-out of 2019",
    "": "task not stated",
}

CRITERION_TITLES = {
    "": "",
    "in_domain_auroc": "tuned on in-domain validation AUROC",
    JOINT_CRITERION: "tuned on the joint validation metric",
}

_CRITERION_SLUGS = {"in_domain_auroc": "tuned-in-domain", JOINT_CRITERION: "tuned-jointly"}

Labels = Mapping[Path, Mapping[str, str]]


@dataclass(frozen=True)
class Origin:
    """The run or ensemble behind a predictions file.

    Attributes:
        method: Title of the method.
        setting: Hash shared by runs that differ by their seed alone, "" if unknown.
        task: Name of the task, "" if unknown.
        dataset: Name of the data set, "" if unknown.
        criterion: The validation criterion that the configuration was tuned on, "" if unknown.
        blur: Blur constant of Graham's preprocessing, None if unknown.
        seed: Seed of the run, None if unknown.
        members: Number of trainings that are pooled.
        member_seeds: Seeds of the pooled trainings, where the file states them.
    """

    method: str
    setting: str
    task: str = ""
    dataset: str = ""
    criterion: str = ""
    blur: int | None = None
    seed: int | None = None
    members: int = 1
    member_seeds: tuple[int, ...] = ()

    @property
    def base(self) -> str:
        """The title of the method of a single member."""
        return re.sub(r"^ensemble of \d+ |\s+ensemble( of \d+)?$", "", self.method) or self.method

    @property
    def ensemble(self) -> bool:
        """Whether several trainings are pooled."""
        return self.members > 1


def origin(predictions: Predictions, labels: Mapping[str, str]) -> Origin:
    """Return the origin of predictions, from labels, else from their metadata, else from the name of their file."""
    metadata = predictions.metadata
    stem = Path(predictions.source).stem if predictions.source else "model"
    stated = {name: labels.get(name) or metadata.get(name) for name in COLUMNS}
    seeds = metadata.get("member_seeds")

    def integer(name: str) -> int | None:
        return _integer(stated[name], name, predictions.source)

    return Origin(
        method=str(labels.get("method") or metadata.get("title") or metadata.get("method") or stem),
        # Files that a label gives the same name are runs of one method, whatever their configurations.
        setting="" if labels.get("method") else str(metadata.get("setting", "")),
        task=str(stated["task"] or ""),
        dataset=str(stated["dataset"] or metadata.get("data") or ""),
        criterion=str(stated["criterion"] or ""),
        blur=integer("blur"),
        seed=integer("seed"),
        members=integer("members") or 1,
        member_seeds=tuple(seeds) if isinstance(seeds, list) else (),
    )


def _integer(value: object, name: str, source: str | None) -> int | None:
    if value is None or value == "":
        return None
    try:
        return int(str(value))
    except ValueError:
        raise InputError(
            f"states {name} = {value!r}, which is not a whole number",
            file=source,
            hint="Correct it with --labels.",
        ) from None


def read_labels(path: Path | None, files: Sequence[Path]) -> Labels:
    """Read the CSV of labels."""
    if path is None:
        return {}
    try:
        with open(path, encoding="utf-8-sig", newline="") as handle:
            rows = list(csv.DictReader(handle))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot be read: {error}", file=path) from None
    if not rows or "file" not in rows[0]:
        raise InputError("needs a column 'file' and one row per predictions file", file=path)
    for column in rows[0]:
        if column not in COLUMNS:
            raise InputError(f"unknown column '{column}'", file=path, hint=nearest(str(column), COLUMNS))
    known = {file.resolve() for file in files}
    labels: dict[Path, Mapping[str, str]] = {}
    for number, row in enumerate(rows, start=1):
        file = (path.parent / (row["file"] or "")).resolve()
        file = file / "predictions.parquet" if file.is_dir() else file
        if file not in known:
            raise InputError(
                f"'{row['file']}' is not among the files of the command",
                file=path,
                row=number,
                column="file",
                hint="Paths are relative to this CSV.",
            )
        for column in _INTEGERS:
            if (label := row.get(column)) and not label.strip().isdigit():
                raise InputError(
                    f"is '{label}', which is not a whole number", file=path, row=number, column=column
                )
        labels[file] = {column: (label or "").strip() for column, label in row.items()}
    return labels


def task_title(task: str) -> str:
    """Return the title of a task; an unknown one keeps its name."""
    return TASK_TITLES.get(task, task)


def criterion_title(criterion: str) -> str:
    """Return the title of a tuning criterion, "" where a configuration was not tuned."""
    return CRITERION_TITLES.get(criterion, f"tuned on {criterion}")


def slug(*parts: str) -> str:
    """Return task, data set and criterion as part of a file name, such as `country-shift-tuned-in-domain`."""
    words = (_CRITERION_SLUGS.get(part, part) for part in parts)
    return "-".join(re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-") for word in words if word)


Floats = NDArray[np.float64]

Named = dict[tuple[str, str], Floats]

GRID = np.linspace(0, 1, 101)  # of the share referred

RATES = {"corrected": np.linspace(0, 1, 201), "published": np.arange(0, 1.02, 0.02)}

RETAINED = (0.6, 0.9)  # of the ROC curves after referral, Figure 6 of the 2019 paper

FEWEST = 0.05  # share of the images below which a curve is too noisy to be drawn

METRICS = published.METRICS

CONTROLS = ("accuracy", "nll", "auroc")  # metrics with an oracle; that of the AUPRC takes too long


@dataclass(frozen=True)
class Curves:
    """Curves by set.

    Attributes:
        referral: By (set, metric) the (101,) values over `GRID`.
        roc: By (set, share retained) the sensitivities over `RATES`.
        oracle: As `referral`, with the same predictions referred in the order of their true loss.
    """

    referral: Named
    roc: dict[tuple[str, float], Floats]
    oracle: Named


def corrected_curves(
    test: Predictions, sets: Sequence[ImageSet], curves: dict[tuple[str, str], referral_curves.Curve]
) -> Curves:
    """Return the corrected curves of a file on the grids."""
    out = Curves({}, {}, {})
    for images in sets:
        whole = images.whole
        for metric in METRICS:
            curves[images.name, metric] = curve = referral_curves.curve_of(whole, metric)
            out.referral[images.name, metric] = _on_grid(curve)
        _rocs(out, images.name, whole)
        loss = images.cases.log_loss
        perfect = Cases(images.cases.label, images.cases.prob, loss).weighted(whole.weight)
        for metric in CONTROLS:
            out.oracle[images.name, metric] = _on_grid(referral_curves.curve_of(perfect, metric))
    if (part := rebalanced(test)) is not None:
        weight = grade_weight(part.grade)  # type: ignore[arg-type]  # `rebalanced` has checked the grades
        whole = Cases(part.label, part.prob, part.uncertainty).weighted(weight)
        _rocs(out, "rebalanced", whole)
        for metric in ("accuracy", "auroc"):
            out.referral["rebalanced", metric] = _on_grid(referral_curves.curve_of(whole, metric))
    return out


def rebalanced(test: Predictions) -> Predictions | None:
    """Return the shifted images if all are graded and both classes are present, else None."""
    part = test.select(domain="shifted")
    if part is None or part.grade is None or len(np.unique(part.label)) < 2:
        return None
    if (part.grade < 0).any():
        return None
    return part


def _on_grid(curve: referral_curves.Curve) -> Floats:
    """Return the (101,) values of a curve, NaN where too few images remain."""
    values = np.array(curve.value)
    held = curve.positives + curve.negatives
    few = held < max(referral_curves.MIN_CLASS, FEWEST * held.max()) - 1e-9
    if referral_curves.ranks_classes(curve.metric):
        few |= np.minimum(curve.positives, curve.negatives) < referral_curves.MIN_CLASS - 1e-9
    values[few] = np.nan
    return np.asarray(np.interp(GRID, curve.referred, values, right=np.nan))


def _rocs(out: Curves, name: str, w: Weighted) -> None:
    """Add the ROC curves of all images of a set and of those that remain after referral."""
    if w.positives <= 0 or w.negatives <= 0:
        return
    for share in (1.0, *RETAINED):
        kept = retained_weight(w, share)
        if (kept[w.cases.label].sum() > 0) and (kept[~w.cases.label].sum() > 0):
            out.roc[name, share] = read_roc(roc_curve(w.cases.label, w.cases.prob, kept))


def read_roc(curve: Roc) -> Floats:
    """Return the (201,) sensitivities of a curve over `RATES`."""
    return sensitivity_on_chords(curve, RATES["corrected"])


def retained_weight(w: Weighted, share: float) -> Floats:
    """Return (N,) weights, in the order of the cases, that retain this share of the mass; ties are shared evenly."""
    block, fraction = w.locate(np.array([share * w.total]))
    starts = np.concatenate(([0], w.cases.ends + 1))
    weight = w.weight.copy()
    weight[starts[block[0]] : starts[block[0] + 1]] *= fraction[0]
    weight[starts[block[0] + 1] :] = 0
    return weight


def published_curves(test: Predictions, seed: int) -> tuple[Curves, Named]:
    """Return the released code's curves, including its joint, balanced and rebalanced sets."""
    assert test.uncertainty is not None
    far = test.domain == "shifted"
    near = np.flatnonzero(~far)
    sets = {"in_domain": near, "shifted": np.flatnonzero(far)}
    sets = {name: rows for name, rows in sets.items() if len(rows)}
    if len(sets) == 2:
        sets["joint"] = np.concatenate(list(sets.values()))
        joint = sets["joint"]
        sets["balanced"] = joint[balanced_rows(far[joint], seed)]
        if (part := rebalanced(test)) is not None:
            assert part.grade is not None
            sets["rebalanced"] = sets["shifted"][rebalanced_rows(part.grade, seed)]
    out, whole = Curves({}, {}, {}), Named()
    for name, rows in sets.items():
        label, prob, uncertainty = test.label[rows], test.prob[rows], test.uncertainty[rows]
        for metric in METRICS:
            if name == "balanced" and metric in (
                "auroc",
                "auprc",
            ):  # the unbalanced joint set: a fault of the released code
                curve_rows = sets["joint"]
                arrays = test.label[curve_rows], test.prob[curve_rows], test.uncertainty[curve_rows]
            else:
                arrays = label, prob, uncertainty
            curve = published.referral_curve(*arrays, metric)
            whole[name, metric] = curve.value
            out.referral[name, metric] = np.interp(GRID, curve.referred, curve.value)
        if 0 < label.sum() < len(label):
            for share in (1.0, *RETAINED):
                kept = published.order_of(uncertainty)[: int(share * len(rows))]
                if 0 < label[kept].sum() < len(kept):
                    out.roc[name, share] = published.sensitivity_at_nearest(
                        roc_curve(label[kept], prob[kept]), RATES["published"]
                    )
    return out, whole


Key = tuple[str, str]

PLAIN = ("nll", "accuracy", "auprc", "auroc", "ece_top_label")

DETECTION = ("ood_auroc", "ood_auprc")

MEASUREMENTS_METRICS = ("accuracy", "nll", "auroc", "auprc")

AT = ("accuracy", "auroc")  # metrics that are also read at single fractions referred

RANKED = (
    *PLAIN, *DETECTION, *(f"referral_{metric}_area" for metric in MEASUREMENTS_METRICS),
    *(f"{metric}_at_{p}" for metric in AT for p in REFERRED_PERCENT),
)  # fmt: skip
"""The numbers of a file."""


@dataclass(frozen=True)
class MeasureJob:
    """One file to measure: its test images, whose `uncertainty` orders their referral, the rules, and the seed of the random sets."""

    test: Predictions
    rules: str
    seed: int


@dataclass(frozen=True)
class Measurements:
    """The numbers of one predictions file by key, NaN where undefined, the reasons, and the curves on common grids."""

    value: dict[Key, float]
    why: dict[Key, str]
    curves: Curves = field(repr=False)

    def get(self, key: Key) -> float:
        """Return a number, NaN where the file has none."""
        return self.value.get(key, np.nan)


def measure(job: MeasureJob) -> Measurements:
    """Return all numbers and curves of one file."""
    return _published(job) if job.rules == "published" else _corrected(job)


def _corrected(job: MeasureJob) -> Measurements:
    test = job.test
    assert test.uncertainty is not None
    sets = image_sets(test, test.uncertainty)
    curves: dict[tuple[str, str], Curve] = {}
    out = Measurements({}, {}, corrected_curves(test, sets, curves))
    for images in sets:
        mine = {metric: curves[images.name, metric] for metric in MEASUREMENTS_METRICS}
        whole = images.whole
        point = _numbers(images.name, whole, mine, mine["auprc"].area)
        out.value.update(point)
        out.why.update({key: _why(key, images, mine) for key, v in point.items() if not np.isfinite(v)})
    return out


def _numbers(name: str, w: Weighted, curves: dict[str, Curve], area: float) -> dict[Key, float]:
    """Return the numbers of one weighted set, always in this order."""
    out = {score: SCORES[score](w) for score in (*PLAIN, *(DETECTION if name == "joint" else ()))}
    out |= {
        f"referral_{metric}_area": curves[metric].area for metric in MEASUREMENTS_METRICS if metric != "auprc"
    }
    out["referral_auprc_area"] = area
    out |= {f"{metric}_at_{p}": curves[metric].at(p / 100) for metric in AT for p in REFERRED_PERCENT}
    return {(name, score): value for score, value in out.items()}


def _why(key: Key, images: ImageSet, curves: dict[str, Curve]) -> str:
    metric, at, referred = key[1].partition("_at_")
    if not at:
        return SCORES[key[1]].why_undefined(images.whole)
    curve = curves[metric]
    k = min(int(np.searchsorted(curve.referred, int(referred) / 100 - 1e-9)), len(curve.value) - 1)
    held = f"{curve.positives[k]:g} positive and {curve.negatives[k]:g} negative images"
    return f"needs both classes: {f'the set has {held}' if referred == '0' else f'{held} are retained'}"


def _published(job: MeasureJob) -> Measurements:
    """Return the released code's numbers, as `score` does; that protocol has no intervals."""
    test = job.test
    assert test.uncertainty is not None
    sets = published.score_sets(test, test.uncertainty, job.seed)
    curves, whole = published_curves(test, job.seed)
    out = Measurements({}, {}, curves)
    for name, found in sets.items():
        for score, entry in found.scores.items():
            out.value[name, score] = entry.value
            if entry.why is not None:
                out.why[name, score] = "the released code gives none: one class only"
        for metric in AT:
            values = whole[name, metric]
            for p in REFERRED_PERCENT:
                out.value[name, f"{metric}_at_{p}"] = float(values[int(p / 100 * (len(values) - 1))])
    return out


@dataclass
class MethodRuns:
    """The runs of one method: a row of a table, a line of a figure.

    Attributes:
        name: Title of the method.
        base: Title of the method of a single member.
        ensemble: Whether members are pooled.
        blur: Blur constant of the preprocessing, None if unknown.
        label: Its name in `rankings`.
        runs: The measurements of each run.
        tests: The test images of each run.
        seeds: The seeds that each run pools, None where its file does not state them.
        rankings: By key the ranking of all methods of the task, empty under the published rules.
    """

    name: str
    base: str
    ensemble: bool
    blur: int | None
    label: str = ""
    runs: list[Measurements] = field(default_factory=list)
    tests: list[Predictions] = field(default_factory=list)
    seeds: list[tuple[int, ...] | None] = field(default_factory=list)
    rankings: Mapping[Key, ScoreRanking] = field(default_factory=dict)

    def ranked(self, key: Key) -> RankedModel | None:
        """Return the mean of a number over runs with its errors, None where the task has none."""
        return self.rankings[key].models[self.label] if key in self.rankings else None


@dataclass(frozen=True)
class TaskResults:
    """The methods of one task on one data set, tuned on one criterion.

    Attributes:
        task: Name of the task.
        dataset: Name of the data set where the task has several, else "".
        criterion: The tuning criterion.
        methods: The methods at the standard blur.
        blur_variants: The methods that have several blur constants, at each of them.
    """

    task: str
    dataset: str
    criterion: str
    methods: list[MethodRuns]
    blur_variants: list[MethodRuns]

    @property
    def kind(self) -> str:
        """The task, without the mark of the released variant."""
        return self.task.removesuffix("_published")

    @property
    def slug(self) -> str:
        """Task, data set and criterion as part of a file name."""
        return slug(self.task, self.dataset, self.criterion)

    def title(self, criterion: bool = True) -> str:
        """Return task, data set and, if asked for, criterion: `Country Shift, tuned on …`."""
        task = task_title(self.task) + (f" on {self.dataset}" if self.dataset else "")
        tuned = criterion_title(self.criterion) if criterion else ""
        return f"{task}, {tuned}" if tuned else task

    def holds(self, set_name: str) -> bool:
        """Tell whether any run has scores of a set."""
        return has_set(self.methods, set_name)

    def missing(self, kind: str, needed: str) -> str:
        """Return the line for a table or figure that cannot be made."""
        return f"{kind[0].upper()}{kind[1:]}, {self.title()}: needs {needed}."


@dataclass(frozen=True)
class Collection:
    """All results of the files, and how they were scored. notes: remarks on the files for the reader."""

    results: list[TaskResults]
    rules: str
    bootstrap: int
    seed: int
    files: int
    notes: tuple[str, ...] = ()


def has_set(methods: Sequence[MethodRuns], set_name: str) -> bool:
    """Tell whether any run of some methods has scores of a set."""
    return any(key[0] == set_name for method in methods for run in method.runs for key in run.value)
