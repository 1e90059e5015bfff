"""Run many things, resume, and rank them: the engine under `tune`, `benchmark`, `uci` and `fidelity tune`.

What is computed is a list of items, each with a key that states all that decides its result. A result table is a folder of
segments. Every writer appends lines of JSON to a segment of its own, so that no writer waits for another or can spoil its
lines, on network file systems too; a line that `kill -9` cut short is the last of its segment, and ignored. The first line of
a segment states the code and data of its rows: rows of others are refused.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from retinabench.core.errors import QUIET, InputError, Progress, check
from retinabench.core.files import explain, sealed, unsealed
from retinabench.core.results import JsonObject
from retinabench.experiments.engines.scheduler import State

Work = TypeVar("Work")
SCHEMA = "retinabench.results/1"
AGAIN = "Delete the file: its rows are read again from the run folders."
STATES: dict[State, int] = {"done": 0, "diverged": 1, "out_of_memory": 2, "failed": 3}  # in the order of a ranking


@dataclass(frozen=True)
class Result:
    """The result of one item. run: its key. folder: name of its folder, or empty. ended: seconds since 1970.

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


class ResultTable:
    """The results below a folder by key: those that are there, and a segment of its own for new ones.

    identity: what the rows depend on beside their key, such as the version and the data's fingerprint; None reads any.
    """

    def __init__(self, folder: Path, identity: Mapping[str, object] | None) -> None:
        self.folder, self.identity = folder, identity
        self.known = read_results(folder, identity)
        self._handle: int | None = None
        self._path = self._new_segment()

    def settled(self, key: str) -> bool:
        """Whether an item needs no computing: it is done, or it diverged and would diverge again."""
        return key in self.known and self.known[key].state in ("done", "diverged")

    def add(self, result: Result) -> Result:
        """Append a row, in one write; the segment begins with the first one."""
        self.known[result.run] = result
        try:
            if self._handle is None:
                self.folder.mkdir(parents=True, exist_ok=True)
                flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND
                self._handle = os.open(self._path, flags, 0o644)
                self._write({"schema": SCHEMA, **(self.identity or {})})
            self._write(asdict(result))
        except OSError as error:
            self.close()
            raise explain(error, self._path) from error
        return result

    def confirm(self, result: Result) -> None:
        """Raise `WorkError` where the folder of a result is not whole; tables of runs do."""

    def close(self) -> None:
        """End the segment; another row begins another one, since the last line of this one may be cut short."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle, self._path = None, self._new_segment()

    def _new_segment(self) -> Path:
        return self.folder / f"{secrets.token_hex(8)}.jsonl"

    def _write(self, content: Mapping[str, object]) -> None:
        assert self._handle is not None
        line = sealed(content)
        if os.write(self._handle, line) < len(line):
            raise OSError(errno.ENOSPC, "the line was cut short")


@dataclass(frozen=True)
class Item(Generic[Work]):
    """Something to compute: the table that holds its result, its key there, and the work."""

    table: ResultTable
    key: str
    work: Work


def run_many(
    items: Sequence[Item[Work]],
    compute: Callable[[Sequence[Item[Work]]], Iterable[tuple[Item[Work], Result]]],
    describe: Callable[[Result], str] = lambda result: result.state.replace("_", " "),
    progress: Progress = QUIET,
) -> list[Result]:
    """Return the result of every item in order, where no table holds it from `compute`, which yields items with results as they end."""
    every = {(one.table.folder, one.key): one for one in items}
    missing = [one for one in every.values() if not one.table.settled(one.key)]
    done = len(every) - len(missing)
    if done:
        progress.say(f"{done} of {len(every)}: done before")
    try:
        for item, result in compute(missing) if missing else ():
            item.table.add(result)
            done += 1
            progress.say(f"{done} of {len(every)}: {describe(result)}")
    finally:
        for one in every.values():
            one.table.close()
    for one in every.values():
        one.table.confirm(one.table.known[one.key])
    return [one.table.known[one.key] for one in items]


def read_results(folder: Path, identity: Mapping[str, object] | None) -> dict[str, Result]:
    """Read all segments: key -> row, of several rows the finished or latest one. `InputError` where rows are of another identity, or a line is damaged that is not the last."""
    found: dict[str, Result] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for row in _read_segment(path, identity):
            try:
                result = Result(**row)
            except TypeError:  # a flipped byte in the name of a field
                raise InputError("holds a damaged line", file=path, hint=AGAIN) from None
            other = found.setdefault(result.run, result)
            if (result.state == "done", result.ended) > (other.state == "done", other.ended):
                found[result.run] = result
    return found


def _read_segment(path: Path, identity: Mapping[str, object] | None) -> list[JsonObject]:
    *lines, _cut = check(path).read_bytes().split(b"\n")  # what follows the last line end is empty or cut short
    content = []
    for number, line in enumerate(lines, start=1):
        try:
            content.append(unsealed(line))
        except ValueError:
            raise InputError(f"line {number} is damaged", file=path, hint=AGAIN) from None
    if not content:
        return []
    for key, ours in {"schema": SCHEMA, **(identity or {})}.items():
        if content[0].get(key) != ours:
            problem = f"holds results of {key} {content[0].get(key)!r}, where {ours!r} is at work"
            hint = "They are never mixed. Choose another --out, or go back to the version and data of these results."
            raise InputError(problem, file=path, hint=hint)
    return content[1:]
