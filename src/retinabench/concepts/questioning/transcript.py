"""The transcript: every question and answer as one line of JSON, appended as it happens.

It is the one file that is not written whole: an answer may have cost an expert's or a large network's minute. A line that `kill -9` cut
short is dropped and asked again. An examination continues by repetition: as strategy, seed and answers determine every
question, it starts anew with the answers of the transcript, and insists that each question is the one written down.
One process writes a transcript at a time: it holds a lock on the file, which ends with the process, however that ends.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from retinabench.core.atomic_files import explain
from retinabench.core.errors import InputError

if sys.platform != "win32":
    import fcntl

SCHEMA = "retinabench.transcript/1"


class Transcript:
    """Answers of an earlier start of the same examination, and where to append new ones; without a path, neither.

    header: what determines the questions (bank, strategy, seed, …). Raises `InputError` where the file belongs to another
    examination, naming what differs, holds a broken line, or is being written by another process.
    """

    def __init__(self, path: Path | None, header: Mapping[str, Any]) -> None:
        self.path = path
        self.past: list[dict[str, Any]] = []
        self._handle: IO[bytes] | None = None
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Not `store.atomic_write`: its rename would leave a second process with a lock on a file that is gone.
            self._handle = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        except OSError as error:
            raise explain(error, path) from error
        try:
            _lock(self._handle, path)
            content = self._handle.read()
            whole = content.rfind(b"\n") + 1
            first = {"schema": SCHEMA, **header}
            begun = _line(first).startswith(content)  # a new file, or a first line that was cut short
            if not begun:
                self._read(content[:whole], first)
            self._handle.seek(0 if begun else whole)
            self._handle.truncate()
            if begun:
                self.append(first)
        except BaseException:
            self._handle.close()
            raise

    def _read(self, content: bytes, header: Mapping[str, Any]) -> None:
        rows = []
        for number, text in enumerate(content.splitlines()):
            try:
                row = json.loads(text)
                if not isinstance(row, dict):
                    raise ValueError
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

    def recall(self, row: Mapping[str, Any]) -> float | None:
        """The answer written down for question `row["question"]`, None where it was not yet asked."""
        number = int(row["question"])
        if number > len(self.past):
            return None
        past = self.past[number - 1]
        answer = past.get("answer")
        if {**row, "answer": answer} != past or not isinstance(answer, float) or not 0 <= answer <= 1:
            hint = "It was changed, or written by another version: delete it to start again."
            raise InputError(
                "is not the question that this examination asks", file=self.path, row=number, hint=hint
            )
        return answer

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one question with its answer, out of this process's hands at once."""
        if self._handle is not None:
            try:
                self._handle.write(_line(row))
                self._handle.flush()
            except OSError as error:
                assert self.path is not None
                raise explain(error, self.path) from error

    def __enter__(self) -> Transcript:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None:
            self._handle.close()


def _lock(handle: IO[bytes], path: Path) -> None:
    """Hold the file until it is closed; `InputError` where another examination holds it."""
    if sys.platform == "win32":
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        hint = "Wait until it ends, or choose another --out."
        raise InputError("is being written by another examination", file=path, hint=hint) from None
    except OSError:
        pass  # a file system without locks: better unguarded than not at all


def _line(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, allow_nan=False) + "\n").encode()
