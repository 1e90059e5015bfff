"""The predictions files that the papers' tables and figures are made of, and where they come from."""

from __future__ import annotations

import csv
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from retinabench.core.errors import Advance, InputError, Progress, nearest
from retinabench.core.subprocesses import in_processes
from retinabench.metrics.comparison import rank_methods
from retinabench.metrics.decisions import referral_uncertainty
from retinabench.metrics.scoring import ScoreSettings
from retinabench.predictions.io import ReadEach, find_files, read_each
from retinabench.predictions.table import Predictions, align
from retinabench.reports.papers.measurements import (
    RANKED,
    STANDARD_BLUR,
    Collection,
    Measurements,
    MethodRuns,
    TaskResults,
    measure,
)

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
        hint = "Correct it with --labels."
        raise InputError(f"states {name} = {value!r}, which is not a whole number", file=source, hint=hint) from None


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
    notes = tuple(dict.fromkeys(note for test in tests for note in test.notes))
    if any(test.patient_id is None for test in tests):
        notes += ("no patient_id: every image is its own cluster, errors and intervals may be too narrow",)
    if rules == "corrected":
        with progress.track("Comparing", len(paths), unit="files") as advance:
            _rank(groups, bootstrap, seed, advance)
    return Collection(_results(groups), rules, bootstrap, seed, len(paths), notes)


def _rank(groups: Mapping[Origin, MethodRuns], bootstrap: int, seed: int, advance: Advance) -> None:
    """Compare the methods of each task, data set and criterion by all numbers; `advance` is told the number of files done."""
    for key in dict.fromkeys((place.task, place.dataset, place.criterion) for place in groups):
        own = [one for place, one in groups.items() if (place.task, place.dataset, place.criterion) == key]
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
    """Keep the data set of an origin only where its task has several, told apart by name and by images.

    Files that hold the same images with the same labels are of one data set, whatever its names. Files with other
    images are of another one if no name is shared; otherwise `align` refuses them.
    """
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


def _results(groups: Mapping[Origin, MethodRuns]) -> list[TaskResults]:
    results = []
    for key in dict.fromkeys((place.task, place.dataset, place.criterion) for place in groups):
        methods = [group for place, group in groups.items() if (place.task, place.dataset, place.criterion) == key]
        bases = list(dict.fromkeys(method.base for method in methods))
        methods.sort(key=lambda method: (bases.index(method.base), method.ensemble))
        standard = [method for method in methods if method.blur in (None, STANDARD_BLUR)]
        blurs: dict[str, set[int]] = {}
        for method in methods:
            blurs.setdefault(method.name, set()).add(method.blur or STANDARD_BLUR)
        variants = [method for method in methods if len(blurs[method.name]) > 1]
        results.append(TaskResults(*key, standard, variants))
    return results
