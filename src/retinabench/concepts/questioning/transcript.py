"""The transcript: every question and its answer as one line of JSON, appended as soon as the answer is there.

The first line registers what determines the questions, the claims among it: `registration.py` takes up a claim only if it stands
there. It is the only file that is not written as a whole, because an answer may be expensive (an expert, a large network). A line
that was cut short by a kill is dropped, and its question is asked again. An examination continues by repetition: strategy,
seed and answers determine every question, so it starts again with the answers of the transcript and checks that each
question is the recorded one. One process writes at a time: it holds the lock of the folder.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

from retinabench.core.errors import InputError
from retinabench.core.files import explain, sealed, unsealed
from retinabench.core.results import JsonObject
from retinabench.core.untrusted import open_in_place
from retinabench.core.workspace import Workspace

SCHEMA = "retinabench.transcript/2"
READ = ("retinabench.transcript/1", SCHEMA)
STATED = ("schema", "strategy", "claims")
"""What may still be stated anew while a transcript holds no answer."""


@dataclass(frozen=True)
class Question:
    """A question, as a line of the transcript has it."""

    question: int
    sample: int
    image_id: str
    concept: str
    truth: int


def recorded_header(path: Path | None) -> JsonObject:
    """Return the first line of a transcript with answers; empty where there is none, or none that can be read.

    What is returned is used only for what was left open; `Transcript` checks every line.
    """
    if path is None or path.is_symlink() or not path.is_file():
        return {}
    try:
        with open(path, "rb") as handle:
            first, answered = handle.readline(), handle.readline().endswith(b"\n")
        header = unsealed(first) if answered else {}
    except (OSError, ValueError):
        return {}
    claims = header.get("claims")
    whole = (
        header.get("schema") in READ and isinstance(header.get("strategy"), str) and isinstance(claims, list)
    )
    return header if whole and all(isinstance(claim, str) for claim in claims or ()) else {}


class Transcript:
    """The answers of an earlier start of the same examination, and the file to which new ones are appended."""

    def __init__(self, path: Path | None, header: Mapping[str, object]) -> None:
        self.path = path
        self.past: list[JsonObject] = []
        self._handle: IO[bytes] | None = None
        self._resources = contextlib.ExitStack()
        if path is None:
            return
        with contextlib.ExitStack() as opening:
            opening.enter_context(Workspace(path.parent, "examination").lock())
            try:
                descriptor = open_in_place(path, os.O_RDWR)
                handle = opening.enter_context(os.fdopen(descriptor, "r+b", buffering=0))
                self._handle = handle
                content = handle.read()
                whole = content.rfind(b"\n") + 1
                # A new file, a first line that was cut short, or one without an answer that is stated anew.
                begun = sealed(header).startswith(content) or _unanswered(content[:whole], header)
                if not begun:
                    self._read(content[:whole], header)
                handle.seek(0 if begun else whole)
                handle.truncate()
            except OSError as error:
                raise explain(error, path) from error
            if begun:
                self._append(header)
            self._resources = opening.pop_all()

    def _read(self, content: bytes, header: Mapping[str, object]) -> None:
        rows = []
        for number, text in enumerate(content.splitlines()):
            try:
                row = unsealed(text)
            except ValueError:
                hint = "Delete the file; the examination then starts again."
                raise InputError(
                    "is not a line of a transcript", file=self.path, row=number, hint=hint
                ) from None
            rows.append(row)
        found = rows[0] if rows else {}
        for key, value in header.items():
            if found.get(key) != value:
                shown = ", ".join(
                    f"{name} {str(one)[:40]}" for name, one in (("there:", found.get(key)), ("now:", value))
                )
                raise InputError(
                    f"is the transcript of another examination: its {key} differs ({shown})",
                    file=self.path,
                    hint="Choose another --out, or delete the file.",
                )
        self.past = rows[1:]

    def recall(self, question: Question) -> float | None:
        """Return the answer that was written down for a question, None where it was not yet asked."""
        number = question.question
        if number > len(self.past):
            return None
        past = self.past[number - 1]
        answer = past.get("answer")
        if (
            {**vars(question), "answer": answer} != past
            or not isinstance(answer, float)
            or not 0 <= answer <= 1
        ):
            hint = "It was changed, or written by another version: delete it to start again."
            raise InputError(
                "is not the question that this examination asks", file=self.path, row=number, hint=hint
            )
        return answer

    def add(self, question: Question, answer: float) -> None:
        """Write a question with its answer, unbuffered."""
        self._append({**vars(question), "answer": answer})

    def _append(self, row: Mapping[str, object]) -> None:
        if self._handle is not None:
            left = sealed(row)
            try:
                while left:
                    left = left[self._handle.write(left) :]
            except OSError as error:
                assert self.path is not None
                raise explain(error, self.path) from error

    def __enter__(self) -> Transcript:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()


def _unanswered(content: bytes, header: Mapping[str, object]) -> bool:
    """Whether the whole lines of a transcript are one, which differs from `header` at most in what is `STATED`."""
    lines = content.splitlines()
    try:
        found = unsealed(lines[0]) if len(lines) == 1 else {}
    except ValueError:
        return False
    fixed = {**found, **{name: header[name] for name in STATED}}
    return found.get("schema") in READ and fixed == dict(header)
