"""What the papers' tables and figures show of each predictions file: its numbers, and its curves on common grids.

Where a file comes from is said by its metadata, or by a CSV of labels. The CSV has a column `file` (relative to the CSV) and any of `method`, `task`, `dataset`, `criterion`, `blur`, `seed` and
`members`. A label overrides the metadata; an empty cell leaves the value to the metadata:

    file,method,task,blur,seed
    ours-0.csv,Our network,country_shift,30,0
    ours-1.csv,Our network,country_shift,30,1

Files that differ by `seed` alone are the runs of a `method` (else the file's name); the same seed twice is refused, and without one every file is a run.
Each `task` and `dataset` has tables of its own. `criterion` is ``in_domain_auroc`` (the default; Tables 1 to 7 of Band et al. 2021) or
``balanced_joint_accuracy_area`` (8 to 11), `blur` that of Graham's preprocessing (default 30; Tables 12, 13), `members` more than 1 of an
ensemble.

The sets are those of `metrics.image_sets` and, where the shifted set is graded and holds both classes, `rebalanced`: the
shifted images with the grade frequencies of the EyePACS test set (paper, section B.5).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from retinabench.metrics import published
from retinabench.metrics.arrays import Floats
from retinabench.metrics.classification import grade_weight, roc_curve, sensitivity_on_chords
from retinabench.metrics.comparison import RankedModel, ScoreRanking
from retinabench.metrics.image_sets import image_sets
from retinabench.metrics.referral_curves import values_on_grid
from retinabench.metrics.registry import REFERRED_PERCENT, SCORES
from retinabench.metrics.weighted_images import Cases, Weighted
from retinabench.predictions.table import Predictions
from retinabench.reports.evaluation.evaluation import FEWEST, GRID

STANDARD_BLUR = 30  # Blur constant of both papers' preprocessing; files that state none belong to it.
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
Key = tuple[str, str]  # Set and score.
RATES = {"corrected": np.linspace(0, 1, 201), "published": np.arange(0, 1.02, 0.02)}
RETAINED = (0.6, 0.9)  # of the ROC curves after referral, Figure 6 of the 2019 paper
METRICS = published.METRICS
CONTROLS = ("accuracy", "nll", "auroc")  # metrics with an oracle; that of the AUPRC takes too long
DETECTION = ("ood_auroc", "ood_auprc")
AT = ("accuracy", "auroc")  # metrics that are also read at single shares referred
# The numbers of a file.
RANKED = (
    "nll", "accuracy", "auprc", "auroc", "ece_top_label", *DETECTION,
    *(f"referral_{metric}_area" for metric in ("accuracy", "nll", "auroc", "auprc")),
    *(f"{metric}_at_{p}" for metric in AT for p in REFERRED_PERCENT),
)  # fmt: skip


def task_title(task: str) -> str:
    return TASK_TITLES.get(task, task)


def criterion_title(criterion: str) -> str:
    return CRITERION_TITLES.get(criterion, f"tuned on {criterion}")


@dataclass(frozen=True)
class Measurements:
    """The numbers of one predictions file by key, NaN where undefined, the reasons, and the curves on common grids.

    Curves: `referral` and `oracle` by (set, metric), (101,) over `GRID`; `roc` by (set, share retained), over `RATES`.
    """

    value: dict[Key, float] = field(default_factory=dict)
    why: dict[Key, str] = field(default_factory=dict)
    referral: dict[Key, Floats] = field(default_factory=dict)
    roc: dict[tuple[str, float], Floats] = field(default_factory=dict)
    oracle: dict[Key, Floats] = field(default_factory=dict)

    def get(self, key: Key) -> float:
        return self.value.get(key, np.nan)


def measure(job: tuple[Predictions, str, int]) -> Measurements:
    test, rules, seed = job
    return _published(test, seed) if rules == "published" else _corrected(test)


def _corrected(test: Predictions) -> Measurements:
    assert test.uncertainty is not None
    out = Measurements()
    for images in image_sets(test, test.uncertainty):
        name, whole = images.name, images.whole
        for score in (score for score in RANKED if name == "joint" or score not in DETECTION):
            out.value[name, score] = value = float(SCORES[score](whole))
            if not np.isfinite(value):
                out.why[name, score] = SCORES[score].why_undefined(whole)
        _add_curves(out, name, whole, METRICS)
        perfect = Cases(images.cases.label, images.cases.prob, images.cases.log_loss).weighted(whole.weight)
        for metric, values in values_on_grid(perfect, GRID, FEWEST, CONTROLS).items():
            out.oracle[name, metric] = values
    if (part := rebalanced(test)) is not None:
        weight = grade_weight(part.grade)  # type: ignore[arg-type]  # `rebalanced` has checked the grades
        whole = Cases(part.label, part.prob, part.uncertainty).weighted(weight)
        _add_curves(out, "rebalanced", whole, ("accuracy", "auroc"))
    return out


def _add_curves(out: Measurements, name: str, whole: Weighted, metrics: Sequence[str]) -> None:
    for metric, values in values_on_grid(whole, GRID, FEWEST, metrics).items():
        out.referral[name, metric] = values
    for share in (1.0, *RETAINED):
        kept = retained_weight(whole, share)
        if kept[whole.cases.label].sum() > 0 and kept[~whole.cases.label].sum() > 0:
            curve = roc_curve(whole.cases.label, whole.cases.prob, kept)
            out.roc[name, share] = sensitivity_on_chords(curve, RATES["corrected"])


def rebalanced(test: Predictions) -> Predictions | None:
    part = test.select(domain="shifted")
    if part is None or part.grade is None or len(np.unique(part.label)) < 2 or (part.grade < 0).any():
        return None
    return part


def retained_weight(w: Weighted, share: float) -> Floats:
    """Return (N,) weights, in the order of the cases, that retain this share of the mass; ties are shared evenly."""
    at = w.locate(np.array([share * w.total]))
    block, fraction = at.block, at.fraction
    starts = np.concatenate(([0], w.cases.ends + 1))
    weight = w.weight.copy()
    weight[starts[block[0]] : starts[block[0] + 1]] *= fraction[0]
    weight[starts[block[0] + 1] :] = 0
    return weight


def _published(test: Predictions, seed: int) -> Measurements:
    """Return the released code's numbers, as `score` does, and curves; that protocol has no intervals."""
    assert test.uncertainty is not None
    out = Measurements()
    for name, found in published.score_sets(test, test.uncertainty, seed).items():
        for score, entry in found.scores.items():
            out.value[name, score] = entry.value
            if entry.why is not None:
                out.why[name, score] = "the released code gives none: one class only"
    sets = _published_rows(test, seed)
    for name, rows in sets.items():
        label, prob, uncertainty = test.label[rows], test.prob[rows], test.uncertainty[rows]
        for metric in METRICS:
            # Of the balanced set the released code takes these curves from the unbalanced joint set.
            fault = name == "balanced" and metric in ("auroc", "auprc")
            of = sets["joint"] if fault else rows
            curve = published.referral_curve(test.label[of], test.prob[of], test.uncertainty[of], metric)
            out.referral[name, metric] = np.interp(GRID, curve.referred, curve.value)
            for p in REFERRED_PERCENT if metric in AT and name != "rebalanced" else ():
                place = int(p / 100 * (len(curve.value) - 1))
                out.value[name, f"{metric}_at_{p}"] = float(curve.value[place])
        for share in (1.0, *RETAINED) if 0 < label.sum() < len(label) else ():
            kept = published.order_of(uncertainty)[: int(share * len(rows))]
            if 0 < label[kept].sum() < len(kept):
                curve_of_kept = roc_curve(label[kept], prob[kept])
                sensitivity = published.sensitivity_at_nearest(curve_of_kept, RATES["published"])
                out.roc[name, share] = sensitivity
    return out


def _published_rows(test: Predictions, seed: int) -> dict[str, NDArray[np.intp]]:
    far = test.domain == "shifted"
    sets = {"in_domain": np.flatnonzero(~far), "shifted": np.flatnonzero(far)}
    sets = {name: rows for name, rows in sets.items() if len(rows)}
    if len(sets) == 2:
        joint = sets["joint"] = np.concatenate(list(sets.values()))
        sets["balanced"] = joint[published.balanced_rows(far[joint], seed)]
        if (part := rebalanced(test)) is not None:
            assert part.grade is not None
            sets["rebalanced"] = sets["shifted"][published.rebalanced_rows(part.grade, seed)]
    return sets


@dataclass
class MethodRuns:
    """The runs of one method: a row of a table, a line of a figure.

    `base` is the title of a single member's method, `label` its name in `rankings`, the comparisons of all methods of the task
    (none under the published rules); `seeds` those that each run pools, None where its file does not state them.
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
        return self.rankings[key].models[self.label] if key in self.rankings else None


@dataclass(frozen=True)
class TaskResults:
    """The methods of one task on one data set (named where the task has several), tuned on one criterion.

    `methods` are those at the standard blur, `blur_variants` those that have several blur constants, at each of them.
    """

    task: str
    dataset: str
    criterion: str
    methods: list[MethodRuns]
    blur_variants: list[MethodRuns]

    @property
    def kind(self) -> str:
        return self.task.removesuffix("_published")

    @property
    def slug(self) -> str:
        """Task, data set and criterion as part of a file name, such as `country-shift-tuned-in-domain`."""
        words = (_CRITERION_SLUGS.get(part, part) for part in (self.task, self.dataset, self.criterion))
        return "-".join(re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-") for word in words if word)

    def title(self, criterion: bool = True) -> str:
        task = task_title(self.task) + (f" on {self.dataset}" if self.dataset else "")
        tuned = criterion_title(self.criterion) if criterion else ""
        return f"{task}, {tuned}" if tuned else task

    def holds(self, set_name: str) -> bool:
        return has_set(self.methods, set_name)

    def missing(self, kind: str, needed: str) -> str:
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
    return any(key[0] == set_name for method in methods for run in method.runs for key in run.value)
