"""The result table of a search: one row per run, appended by any number of processes.

The table is a folder of segments. Every writer appends lines of JSON to a segment of its own, so that no writer waits
for another or can spoil its lines, on network file systems too; a line that `kill -9` cut short is the last of its
segment, and ignored. The first line of a segment says to which code and data its rows belong: rows of others are
refused.

The table is a cache of the run folders: a row whose folder is gone does not count, and
a finished run without a row is read again. Lines are therefore not flushed to the disk one by one.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType

from retinabench.core.errors import InputError
from retinabench.core.files import explain, sealed, unsealed
from retinabench.core.results import JsonObject
from retinabench.experiments.engines.scheduler import State

SCHEMA = "retinabench.results/1"
AGAIN = "Delete the file: its rows are read again from the run folders."


@dataclass(frozen=True)
class Result:
    """The result of one run. run: its hash. folder: its name, empty where it has none. ended: seconds since 1970.

    scores: name -> value, None where undefined; whys: the reasons of undefined values.
    """

    run: str
    state: State
    folder: str
    seconds: float
    attempts: int
    ended: float
    message: str = ""
    log: str = ""
    scores: dict[str, float | None] = field(default_factory=dict)
    whys: dict[str, str] = field(default_factory=dict)


class Writer:
    """Appends rows to a segment of its own below `folder`; one process, one writer.

    identity: what the rows depend on beside the run, such as the version and the data's fingerprint.
    """

    def __init__(self, folder: Path, identity: Mapping[str, object]) -> None:
        self.path = folder / f"{secrets.token_hex(8)}.jsonl"
        self._first = {"schema": SCHEMA, **identity}
        self._handle: int | None = None

    def add(self, result: Result) -> None:
        """Append a row, in one write; the segment begins with the first one."""
        try:
            if self._handle is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._handle = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o644)
                self._write(self._first)
            self._write(asdict(result))
        except OSError as error:
            self.close()
            # Whatever was cut short stays the last line of its segment: another row begins another one.
            self.path = self.path.with_name(f"{secrets.token_hex(8)}.jsonl")
            raise explain(error, self.path) from error

    def close(self) -> None:
        """End the segment."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, content: Mapping[str, object]) -> None:
        assert self._handle is not None
        line = sealed(content)
        if os.write(self._handle, line) < len(line):
            raise OSError(errno.ENOSPC, "the line was cut short")


def read_results(folder: Path, identity: Mapping[str, object]) -> dict[str, Result]:
    """Read all segments: run -> row. Of several rows of one run a finished one counts, else the latest.

    Raises `InputError` where rows belong to another identity, naming both, and where a line that is not the last of
    its segment is damaged.
    """
    found: dict[str, Result] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for row in _read_segment(path, identity):
            try:
                result = Result(**row)
            except TypeError:  # a flipped byte in the name of a field
                raise InputError("holds a damaged line", file=path, hint=AGAIN) from None
            other = found.get(result.run)
            if other is None or _rank(result) > _rank(other):
                found[result.run] = result
    return found


def run_folders(runs: Path) -> dict[str, str]:
    """Return the run folders below `runs`, hash -> name, from one listing; whether they are finished is not looked at."""
    try:
        with os.scandir(runs) as entries:
            return {entry.name.rpartition("-")[2]: entry.name for entry in entries if "-" in entry.name}
    except FileNotFoundError:
        return {}
    except NotADirectoryError:
        raise InputError("is a file, where a folder of runs is needed", file=runs) from None


def valid(results: Mapping[str, Result], folders: Mapping[str, str]) -> dict[str, Result]:
    """Return the rows without finished ones whose folder no longer exists."""
    return {run: row for run, row in results.items() if row.state != "done" or run in folders}


def _rank(result: Result) -> tuple[bool, float]:
    return result.state == "done", result.ended


def _read_segment(path: Path, identity: Mapping[str, object]) -> list[JsonObject]:
    *lines, _cut = path.read_bytes().split(b"\n")  # what follows the last line end is empty or cut short
    if not lines:
        return []
    try:
        content = [unsealed(line) for line in lines]
    except ValueError:
        raise _damaged(path, lines) from None
    _check(path, content[0], identity)
    return content[1:]


def _check(path: Path, first: Mapping[str, object], identity: Mapping[str, object]) -> None:
    for key, ours in {"schema": SCHEMA, **identity}.items():
        if first.get(key) != ours:
            raise InputError(
                f"holds results of {key} {first.get(key)!r}, where {ours!r} is at work",
                file=path,
                hint="They are never mixed. Choose another --out, or go back to the version and data of these results.",
            )


def _damaged(path: Path, lines: list[bytes]) -> InputError:
    """Name the first damaged line."""
    number = next(n for n, line in enumerate(lines, start=1) if not _is_whole(line))
    return InputError(f"line {number} is damaged", file=path, hint=AGAIN)


def _is_whole(line: bytes) -> bool:
    try:
        unsealed(line)
    except ValueError:
        return False
    return True
