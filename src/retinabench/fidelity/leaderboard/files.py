"""The verbs `fidelity score` and `fidelity board` on files: find, read, score and keep submissions, without torch."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from retinabench.core.errors import QUIET, InputError, Progress, shown
from retinabench.fidelity.densities.board import DensityBoard
from retinabench.fidelity.densities.density import density_names
from retinabench.fidelity.densities.draws import FILE as DRAWS_FILE
from retinabench.fidelity.densities.draws import board_of_draws
from retinabench.fidelity.leaderboard.board import make_board, score_divisions, score_task
from retinabench.fidelity.leaderboard.results import FidelityBoards, RankedDivision, Refused, TaskBoard
from retinabench.fidelity.leaderboard.shipped import beside, settings_of, shipped_submissions
from retinabench.fidelity.reference.reference_file import read_reference
from retinabench.fidelity.scoring.grading import Evaluator
from retinabench.fidelity.submissions.submission import (
    EARLIER_FILE,
    FILE,
    Submission,
    content_hash,
    folder_of,
    read_meta,
    read_submission,
    submission_in,
    write_submission,
)
from retinabench.fidelity.targets.data import load_for_scoring
from retinabench.fidelity.targets.target import TARGETS, Target

MOST_SUBMISSIONS = 10_000


def make_evaluator(
    target: Target, source: Path | None, reference: Path | None, bootstrap: int = 1000, seed: int = 0
) -> Evaluator:
    data = load_for_scoring(target, source)
    found = read_reference(target, data.sha256, reference)
    if len(found.epistemic) != len(data.test):
        problem = f"is of {len(found.epistemic)} test points; '{target.name}' has {len(data.test)}"
        raise InputError(problem, file=reference)
    return Evaluator(target, data, found, bootstrap, seed)


def score_files(
    files: Sequence[Path], evaluator: Evaluator, *, keep: Path | None = None, title: str | None = None
) -> TaskBoard:
    if title is not None and len(files) != 1:
        raise InputError(f"one --title for {len(files)} files", hint="Name one file.")
    found = []
    for file in files:
        submission = _read(submission_in(file) if file.is_dir() else file, evaluator)
        if title is not None:
            submission = replace(submission, about=submission.about.changed(title=title))
        found.append(submission)
    board = score_among_shipped(found, evaluator)  # nothing is kept that could not be scored
    if keep is not None:
        for submission in found:
            keep_submission(submission, evaluator, keep)
    return board


def score_among_shipped(own: Sequence[Submission], evaluator: Evaluator) -> TaskBoard:
    """Score and rank submissions together, whatever their tracks, among the shipped ones of their tier and the stated track.

    Of several tiers it is the largest; a submission that states no budget is ranked in the largest tier.
    """
    target, shipped = evaluator.target, shipped_submissions(evaluator.target, evaluator.data.sha256)
    known = {one: RankedDivision.of(one, target) for one in shipped}
    tiers = {division.tier or 0 for division in known.values() if division.track == "stated"}
    most = max(RankedDivision.of(one, target).tier or np.inf for one in own)
    tier = max((tier for tier in tiers if tier <= most), default=min(tiers, default=0))
    alike = [one for one, division in known.items() if division == RankedDivision("stated", tier)]
    return score_task(evaluator, [*own, *beside(own, alike)])


def board_of(
    folders: Sequence[Path],
    sources: Sequence[str] = (),
    references: Sequence[str] = (),
    bootstrap: int = 1000,
    seed: int = 0,
    progress: Progress = QUIET,
) -> FidelityBoards:
    """Find, score and rank all submissions below some folders, among those that come with the package."""
    data, reference = _paths(sources, "--data"), _paths(references, "--reference")
    files = find_submissions(folders)
    by_task, refused = _by_task(files)
    densities, unknown = densities_in(folders)
    refused += unknown
    evaluators: dict[str, Evaluator] = {}
    for task, own in by_task.items():
        try:
            evaluators[task] = make_evaluator(TARGETS.find(task), data.get(task), reference.get(task), bootstrap, seed)
        except InputError as error:
            if task in data or task in reference:
                raise  # the user named the file that cannot be used
            refused += [Refused.of(file, error, f"its task '{task}' cannot be scored: ") for file in own]
    tasks: list[TaskBoard] = []
    if evaluators:
        usable = [file for task in evaluators for file in by_task[task]]
        tasks, unread = score_tasks(usable, evaluators, progress, shipped=True)
        refused += unread
    if not tasks and not densities:
        first = refused[0]
        raise InputError(f"{first.why} (none of {len(files)} submissions is usable)", file=first.file)
    return replace(make_board(tasks), refused=refused, densities=densities)


def densities_in(folders: Sequence[Path]) -> tuple[list[DensityBoard], list[Refused]]:
    """Return the boards of the known densities of which there are draws below some folders, and the files that cannot be used."""
    found: dict[str, DensityBoard] = {}
    refused = []
    for file in sorted(file for folder in folders for file in folder.rglob(DRAWS_FILE)):
        try:
            one = board_of_draws([file], str(read_meta(file).get("task")))
        except InputError as error:
            refused.append(Refused.of(file, error))
            continue
        board = found.setdefault(one.known.name, DensityBoard(one.known))
        for title, runs in one.own.items():
            board.own.setdefault(title, []).extend(runs)
    return [found[name] for name in density_names() if name in found], refused


def score_tasks(
    files: Sequence[Path], evaluators: Mapping[str, Evaluator], progress: Progress = QUIET, *, shipped: bool = False
) -> tuple[list[TaskBoard], list[Refused]]:
    """Read and score submissions for any tasks. A file that cannot be used is left out and named."""
    by_task, refused = _by_task(files)
    submissions: dict[str, list[Submission]] = {}
    seen: dict[tuple[str, ...], dict[int | None, Submission]] = {}
    for task, own in by_task.items():
        for file in own:
            try:
                submission = _read(file, evaluators[task])
            except InputError as error:
                refused.append(Refused.of(file, error))
                continue
            first = _original(submission, seen.setdefault((task, *_content(submission)), {}))
            if first is submission:
                submissions.setdefault(task, []).append(submission)
            else:
                refused.append(Refused(file, f"holds the same predictions as {shown(first.source or '')}"))
        if shipped and (read := submissions.get(task)):
            evaluator = evaluators[task]
            read += beside(read, shipped_submissions(evaluator.target, evaluator.data.sha256))
    boards = []
    with progress.track("Scoring", sum(map(len, submissions.values())), unit="submissions") as advance:
        for task in (name for name in TARGETS if submissions.get(name)):
            boards += score_divisions(evaluators[task], submissions[task])
            advance(len(submissions[task]))
    return boards, refused


def _content(one: Submission) -> tuple[str, str, str]:
    """Return what a submission shares with its copies: title, settings, and a hash of its arrays."""
    return one.title, settings_of(one), hashlib.sha256(np.ascontiguousarray(one.values).tobytes()).hexdigest()


def _original(one: Submission, alike: dict[int | None, Submission]) -> Submission:
    """Return the submission that another of the same content is a copy of: itself where a run counted it with a seed of its own."""
    seed = one.about.seed if one.about.counted else None
    if seed is None and alike:
        return next(iter(alike.values()))
    return alike.setdefault(seed, one)


def _by_task(files: Sequence[Path]) -> tuple[dict[str, list[Path]], list[Refused]]:
    """Sort files by the task that they state; those that state none come with the reason."""
    found: dict[str, list[Path]] = {}
    refused = []
    for file in files:
        try:
            found.setdefault(task_of(file), []).append(file)
        except InputError as error:
            refused.append(Refused.of(file, error))
    return {task: found[task] for task in sorted(found)}, refused


def find_submissions(paths: Sequence[Path]) -> list[Path]:
    """Return the files named, and all submissions below the folders named."""
    found: list[Path] = []
    for path in paths:
        files = [path]
        if path.is_dir():
            files = sorted(file for name in (FILE, EARLIER_FILE) for file in path.rglob(name))
            if len(files) > MOST_SUBMISSIONS:
                problem = f"holds {len(files):,} submissions, more than one board ranks ({MOST_SUBMISSIONS:,})"
                raise InputError(problem, file=path, hint="Name some of its folders.")
        if not files and not any(path.rglob(DRAWS_FILE)):
            hint = "Make some: retinabench fidelity run map --task fundus"
            raise InputError("holds no submission.npz", file=path, hint=hint)
        found += files
    return list(dict.fromkeys(found))


def task_of(file: Path) -> str:
    task = read_meta(file).get("task")
    if not isinstance(task, str):
        hint = "Add it to a folder of submissions by: retinabench fidelity score FILE --task T --keep FOLDER"
        raise InputError("does not state its task", file=file, hint=hint)
    return TARGETS.find(task).name


def _read(file: Path, evaluator: Evaluator) -> Submission:
    data = evaluator.data
    return read_submission(file, evaluator.target, len(data.test), data.sha256)


def keep_submission(submission: Submission, evaluator: Evaluator, folder: Path, *, rerun: bool = False) -> Path:
    """Write a submission into a folder, for `fidelity board`; return its path."""
    target, data = evaluator.target, evaluator.data.sha256
    content = f"{submission.title} {content_hash(submission.arrays, submission.about)}".encode()
    read = submission.about
    if not read.counted:  # writing would sign what no run has signed
        read = read.changed(evidence=None)
    if read.rerun != rerun:  # only `fidelity rerun` says so
        read = read.changed(rerun=rerun)
    about = read.changed(
        task=target.name, target=target.fingerprint(data), data=data, title=submission.title,
        method=read.method or submission.title,
    )  # fmt: skip
    path = folder_of(folder, submission.title, target.name, content) / FILE
    write_submission(path, replace(submission, about=about))
    return path


def _paths(words: Sequence[str], option: str) -> dict[str, Path]:
    found = {}
    for word in words:
        task, equals, path = word.partition("=")
        if not equals or not path:
            raise InputError(f"{option} '{word}' is not TASK=PATH", hint=f"For example: {option} idrid=data/idrid")
        found[TARGETS.find(task).name] = Path(path)
    return found
