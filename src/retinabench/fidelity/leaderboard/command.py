"""What the verbs `fidelity score` and `fidelity board` do with files: no torch here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from retinabench.core.atomic_files import write_json
from retinabench.core.errors import InputError
from retinabench.core.progress import QUIET, Progress
from retinabench.fidelity.leaderboard.board import Sheet, board, find_submissions, gather, graded, task_of
from retinabench.fidelity.reference.reference_file import read_reference
from retinabench.fidelity.scoring.grading import Evaluator
from retinabench.fidelity.submissions.submission import (
    FILE,
    Submission,
    read_submission,
    submission_in,
    write_submission,
)
from retinabench.fidelity.targets.data import load
from retinabench.fidelity.targets.registry import TARGETS
from retinabench.fidelity.targets.target import Target


def evaluator(
    chosen: Target, source: Path | None, reference: Path | None, bootstrap: int = 1000, seed: int = 0
) -> Evaluator:
    """Load a target's data and its reference, the shipped one or a file."""
    data = load(chosen, source)
    return Evaluator(chosen, data, read_reference(chosen, data.sha256, reference), bootstrap, seed)


def score_files(
    files: Sequence[Path],
    task: str,
    source: Path | None,
    reference: Path | None,
    bootstrap: int,
    seed: int,
    json_out: Path | None,
    keep: Path | None,
    title: str | None,
) -> dict[str, Any]:
    """Grade files against one task's reference; return, and write where asked for, the record of a board of one task.

    keep: a folder that a board reads, into which the submissions go as ours, under `title` or the file's name.
    """
    if title is not None and len(files) != 1:
        raise InputError(f"one --title for {len(files)} files", hint="Name one file.")
    chosen = TARGETS.find(task)
    here = evaluator(chosen, source, reference, bootstrap, seed)
    found = []
    for file in files:
        path = submission_in(file) if file.is_dir() else file
        submission = read_submission(path, chosen, len(here.data.test), here.data.sha256)
        if title is not None:
            submission = Submission(
                submission.probs,
                submission.samples,
                submission.draws,
                {**submission.meta, "title": title},
                path,
            )
        found.append(submission)
        if keep is not None:
            _keep(submission, chosen, here.data.sha256, keep)
    record = board([graded(here, found)])
    if json_out is not None:
        write_json(json_out, record)
    return record


def board_of(
    folders: Sequence[Path],
    sources: Sequence[str],
    references: Sequence[str],
    bootstrap: int,
    seed: int,
    progress: Progress = QUIET,
) -> list[Sheet]:
    """Find and score all submissions below the folders. sources, references: words TASK=PATH."""
    data, reference = _paths(sources, "--data"), _paths(references, "--reference")
    files = find_submissions(folders)
    tasks = sorted({task_of(file) for file in files})
    evaluators = {
        task: evaluator(TARGETS.find(task), data.get(task), reference.get(task), bootstrap, seed)
        for task in tasks
    }
    return gather(files, evaluators, progress)


def _keep(submission: Submission, chosen: Target, data: str, folder: Path) -> None:
    name = "".join(c if c.isalnum() else "-" for c in submission.title)
    meta = {
        "method": submission.title, "seed": None, "budget": None, **submission.meta, "task": chosen.name,
        "target": chosen.fingerprint(data), "data": data, "title": submission.title,
    }  # fmt: skip
    kept = Submission(submission.probs, submission.samples, submission.draws, meta)
    write_submission(folder / f"{name}-{chosen.name}" / FILE, kept)


def _paths(words: Sequence[str], option: str) -> dict[str, Path]:
    found = {}
    for word in words:
        task, equals, path = word.partition("=")
        if not equals or not path:
            raise InputError(
                f"{option} '{word}' is not TASK=PATH", hint=f"For example: {option} idrid=data/idrid"
            )
        found[TARGETS.find(task).name] = Path(path)
    return found
