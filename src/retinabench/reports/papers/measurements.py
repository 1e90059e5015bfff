"""The predictions files that the papers' tables and figures are made of, their numbers, and their curves on common grids.

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

import csv
import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import Advance, InputError, Progress, nearest
from retinabench.core.subprocesses import in_processes
from retinabench.metrics import published
from retinabench.metrics.classification import grade_weight, roc_curve, sensitivity_on_chords
from retinabench.metrics.comparison import RankedModel, ScoreRanking, rank_methods
from retinabench.metrics.image_sets import image_sets, referral_uncertainty
from retinabench.metrics.referral_curves import values_on_grid
from retinabench.metrics.registry import REFERRED_PERCENT, SCORES
from retinabench.metrics.scoring import ScoreSettings
from retinabench.metrics.weighted_images import Cases, Floats, Weighted
from retinabench.predictions.io import ReadEach, find_files, read_each
from retinabench.predictions.table import Predictions, align
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
    """The numbers of a file by key, NaN with the reason where undefined, and its curves: `referral` and `oracle` (101,) over `GRID`, `roc` over `RATES`."""

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
    start, end = np.concatenate(([0], w.cases.ends + 1))[at.block[0] :][:2]
    weight = w.weight.copy()
    weight[start:end] *= at.fraction[0]
    weight[end:] = 0
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
                out.roc[name, share] = published.sensitivity_at_nearest(curve_of_kept, RATES["published"])
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
    """The runs of one method, with its name in `rankings`, the comparisons of all methods of the task, and the seeds that each run pools, None if not stated."""

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
    """The methods of one task, data set and criterion: `methods` at the standard blur, `blur_variants` those with several blur constants, at each."""

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

    @property
    def facts(self) -> dict[str, str]:
        return {"task": self.task, "dataset": self.dataset, "criterion": self.criterion}

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


COLUMNS = ("file", "method", "task", "dataset", "criterion", "blur", "seed", "members")
_INTEGERS = ("blur", "seed", "members")
_PARALLEL_FROM = 400_000  # images in all files below which starting processes takes longer than measuring


@dataclass(frozen=True)
class Origin:
    """The run or ensemble behind a predictions file.

    `setting` is a hash that runs share which differ by their seed alone; `criterion` what the configuration was tuned on; `blur`
    the constant of Graham's preprocessing; `members` the number of pooled trainings. "" and None: unknown.
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
        return re.sub(r"^ensemble of \d+ |\s+ensemble( of \d+)?$", "", self.method) or self.method

    @property
    def ensemble(self) -> bool:
        return self.members > 1


def origin(predictions: Predictions, labels: Mapping[str, str]) -> Origin:
    """Return the origin of predictions, from labels, else from their metadata, else from the name of their file."""
    metadata = predictions.metadata
    stem = Path(predictions.source).stem if predictions.source else "model"
    stated = {name: labels.get(name) or metadata.get(name) for name in COLUMNS}
    seeds = metadata.get("member_seeds")

    def integer(name: str) -> int | None:
        if (value := stated[name]) in (None, ""):
            return None
        try:
            return int(str(value))
        except ValueError:
            problem = f"states {name} = {value!r}, which is not a whole number"
            raise InputError(problem, file=predictions.source, hint="Correct it with --labels.") from None

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


def read_labels(path: Path | None, files: Sequence[Path]) -> Mapping[Path, Mapping[str, str]]:
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
            problem = f"'{row['file']}' is not among the files of the command"
            raise InputError(problem, file=path, row=number, column="file", hint="Paths are relative to this CSV.")
        for column in _INTEGERS:
            if (label := row.get(column)) and not label.strip().isdigit():
                raise InputError(f"is '{label}', which is not a whole number", file=path, row=number, column=column)
        labels[file] = {column: (label or "").strip() for column, label in row.items()}
    return labels


def collect(
    files: Sequence[Path],
    labels: Path | None,
    rules: str,
    bootstrap: int,
    seed: int,
    workers: int | None,
    progress: Progress,
    read: ReadEach = read_each,
) -> Collection:
    ScoreSettings(rules, bootstrap, seed)  # type: ignore[arg-type]  # refuses unknown rules
    paths = find_files(files)
    if not paths:
        raise InputError("there is nothing to tabulate", hint="Give one predictions file or more.")
    labelled = read_labels(labels, paths)
    tests, origins = [], []
    for path, predictions in zip(paths, read(paths), strict=True):
        origins.append(origin(predictions, labelled.get(path.resolve(), {})))
        tests.append(reduced(predictions, exact=rules == "published"))
    origins = _with_datasets(origins, tests)
    _refuse_duplicates(origins, paths)
    tests = _aligned(tests, origins)
    places = [_place(one) for one in origins]
    jobs = [(test, rules, seed) for test in tests]
    names = _names(origins)
    groups: dict[Origin, MethodRuns] = {}
    for k, measured in enumerate(_measured(jobs, workers, progress)):
        one = origins[k]
        made = MethodRuns(names[k], one.base, one.ensemble, one.blur, label=str(k))
        group = groups.setdefault(places[k], made)
        group.runs.append(measured)
        group.tests.append(tests[k])
        group.seeds.append(one.member_seeds or (None if one.seed is None else (one.seed,)))
    tasks: dict[tuple[str, str, str], list[MethodRuns]] = {}
    for place, group in groups.items():
        tasks.setdefault((place.task, place.dataset, place.criterion), []).append(group)
    notes = tuple(dict.fromkeys(note for test in tests for note in test.notes))
    if any(test.patient_id is None for test in tests):
        notes += ("no patient_id: every image is its own cluster, errors and intervals may be too narrow",)
    if rules == "corrected":
        with progress.track("Comparing", len(paths), unit="files") as advance:
            _rank(tasks.values(), bootstrap, seed, advance)
    return Collection([_results(*task) for task in tasks.items()], rules, bootstrap, seed, len(paths), notes)


def _rank(tasks: Iterable[list[MethodRuns]], bootstrap: int, seed: int, advance: Advance) -> None:
    """Compare the methods of each task, data set and criterion by all numbers; `advance` is told the number of files done."""
    for own in tasks:
        stated = {one.label: [seeds for seeds in one.seeds if seeds is not None] for one in own}
        seeds = {one.label: stated[one.label] for one in own if None not in one.seeds}
        tests = {one.label: one.tests for one in own}
        ranked, _ = rank_methods(tests, bootstrap, seed, scores=RANKED, seeds=seeds, advance=advance)
        rankings = {(name, score): found for name, of in ranked.items() for score, found in of.scores.items()}
        for one in own:
            one.rankings = rankings


def _place(one: Origin) -> Origin:
    return replace(one, seed=None, members=1, member_seeds=())


def reduced(predictions: Predictions, exact: bool) -> Predictions:
    test = predictions.select(split="test")
    if test is None:
        raise InputError("holds no image of the test split", file=predictions.source)
    values, _ = referral_uncertainty(test, exact=exact)
    return replace(test, probs=test.prob[:, None], uncertainty=values, metadata={"referable_from": "label"})


def _with_datasets(origins: Sequence[Origin], tests: Sequence[Predictions]) -> list[Origin]:
    """Keep the data set of an origin only where its task has several, told apart by name and by images; the same images with the same labels are one."""
    digests = [_digest(test) for test in tests]
    datasets: dict[tuple[str, str], str] = {}
    for task in dict.fromkeys(one.task for one in origins):
        names: dict[str, set[str]] = {}
        for one, digest in zip(origins, digests, strict=True):
            if one.task == task:
                names.setdefault(digest, set()).add(one.dataset)
        stated = [name for of_images in names.values() for name in of_images]
        distinct = len(names) > 1 and len(set(stated)) == len(stated) and "" not in stated
        for digest, of_images in names.items():
            datasets[task, digest] = min(of_images) if distinct else ""
    return [replace(one, dataset=datasets[one.task, digest]) for one, digest in zip(origins, digests, strict=True)]


def _digest(test: Predictions) -> str:
    order = np.argsort(test.image_id, kind="stable")
    names = "\n".join(test.image_id[order].tolist()).encode()
    return hashlib.sha256(names + test.label[order].astype(np.int8).tobytes()).hexdigest()


def _refuse_duplicates(origins: Sequence[Origin], paths: Sequence[Path]) -> None:
    seen: dict[object, Path] = {}
    for one, path in zip(origins, paths, strict=True):
        if one.seed is None:
            continue
        key = (_place(one), one.seed, one.member_seeds)
        if key in seen:
            hint = "Name every run once, or tell the files apart with --labels."
            raise InputError(f"is seed {one.seed} of {one.method}, as is {seen[key]}", file=path, hint=hint)
        seen[key] = path


def _aligned(tests: Sequence[Predictions], origins: Sequence[Origin]) -> list[Predictions]:
    out = list(tests)
    keys = [(one.task, one.dataset) for one in origins]
    for key in dict.fromkeys(keys):
        rows = [k for k, one in enumerate(keys) if one == key]
        matched = align([tests[k] for k in rows])
        truth = {
            column: next((v for one in matched if (v := getattr(one, column)) is not None), None)
            for column in ("image_id", "label", "domain", "split", "patient_id", "grade")
        }
        for k, one in zip(rows, matched, strict=True):
            # Not `replace`: it would validate the columns again, which takes longer than reading them.
            for column, values in truth.items():
                object.__setattr__(one, column, values)
            out[k] = one
    return out


def _names(origins: Sequence[Origin]) -> list[str]:
    settings: dict[Origin, set[str]] = {}
    keys = [replace(_place(one), setting="") for one in origins]
    for one, key in zip(origins, keys, strict=True):
        settings.setdefault(key, set()).add(one.setting)
    return [
        f"{one.method} ({one.setting})" if len(settings[key]) > 1 and one.setting else one.method
        for one, key in zip(origins, keys, strict=True)
    ]


def _measured(
    jobs: Sequence[tuple[Predictions, str, int]], workers: int | None, progress: Progress
) -> list[Measurements]:
    images = sum(len(test) for test, *_ in jobs)
    processes = workers or (1 if images < _PARALLEL_FROM else os.cpu_count() or 1)
    found: list[Measurements | None] = [None] * len(jobs)
    with progress.track("Scoring", len(jobs), unit="files") as advance:
        for k, one in in_processes(measure, jobs, min(processes, len(jobs))):
            found[k] = one
            advance(1)
    return [one for one in found if one is not None]


def _results(key: tuple[str, str, str], methods: list[MethodRuns]) -> TaskResults:
    bases = list(dict.fromkeys(method.base for method in methods))
    methods.sort(key=lambda method: (bases.index(method.base), method.ensemble))
    standard = [method for method in methods if method.blur in (None, STANDARD_BLUR)]
    blurs: dict[str, set[int]] = {}
    for method in methods:
        blurs.setdefault(method.name, set()).add(method.blur or STANDARD_BLUR)
    return TaskResults(*key, standard, [method for method in methods if len(blurs[method.name]) > 1])
