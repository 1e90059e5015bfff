"""One input of a reader: the files, the command that reads them, and what an accepted reading must agree with."""

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis.strategies import SearchStrategy

from retinabench.cli.main import run
from retinabench.core.errors import InputError
from torture.outcomes import Outcome, Verdict
from torture.trial import isolated_each

TOGETHER = 25  # inputs of one process
ACCEPTED = (0, 3, 4)  # done; a certificate is refused; a certificate is refuted
Must = Literal["", "accept", "refuse"]
Check = Callable[[Path, str], str]
"""Gets the folder and what was printed on standard error; returns what is wrong with an accepted reading, or ""."""


def nothing_wrong(folder: Path, printed: str) -> str:
    """A check for inputs of which only a clean ending is asked."""
    return ""


@dataclass(frozen=True)
class Case:
    """One input."""

    reader: str
    what: str
    files: Mapping[str, bytes]
    arguments: Sequence[str]
    check: Check = nothing_wrong
    must: Must = ""
    prepare: Callable[[Path], None] = lambda folder: None
    function: Callable[[Path], str] | None = None


def cases(strategy: SearchStrategy[Case], seed: int, count: int) -> list[Case]:
    """Draw cases, each content once, by many short draws: Hypothesis makes later examples of one draw out of earlier ones."""
    found: dict[object, Case] = {}
    checks, phases = list(HealthCheck), [Phase.generate]
    for part in range(count):
        if len(found) >= count:
            break

        @seeded(seed * 1_000_003 + part)
        @settings(max_examples=10, phases=phases, database=None, deadline=None, suppress_health_check=checks)
        @given(strategy)
        def collect(case: Case) -> None:
            found.setdefault((case.reader, *sorted(case.files.items()), *case.arguments), case)

        collect()
    return list(found.values())[:count]


def trials(drawn: Sequence[Case], scratch: Path) -> Iterator[Outcome]:
    """Perform the cases in forked processes, `TOGETHER` one after the other; the files of a failure stay in `scratch`."""
    folders = [scratch / f"input-{number}" for number in range(len(drawn))]
    ends = isolated_each(lambda one: perform(*one), [*zip(drawn, folders, strict=True)], together=TOGETHER)
    for number, (case, ended) in enumerate(zip(drawn, ends, strict=True)):
        if ended.broken or ended.code:
            lines = [line for line in ended.traceback.splitlines() if line.startswith("  File ")]
            places = [line for line in lines if "/retinabench/" in line]
            place = places[-1].strip()[-90:] if places else "?"
            verdict, detail = Verdict.FAILED, ended.broken or f"{ended.error[:200]} at {place}"
        else:
            verdict, detail = ended.value
        what = case.what.encode("utf-8", "backslashreplace").decode()
        yield Outcome(case.reader, f"input {number}: {what}", verdict, detail)


def perform(case: Case, folder: Path) -> tuple[Verdict, str]:
    """Write the files, run the command in this process, and judge how it ended; an escaped exception is raised."""
    for name, content in case.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    folder.mkdir(parents=True, exist_ok=True)
    case.prepare(folder)
    arguments = [word.replace("@", str(folder)) for word in case.arguments]
    out, err = io.StringIO(), io.StringIO()
    both = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
    with both[0], both[1], warnings.catch_warnings(record=True, action="always") as warned:
        try:
            code = run(arguments) if case.function is None else 0
            wrong = "" if case.function is None else case.function(folder)
        except InputError as error:  # of a function; a command turns it into this line
            code, wrong = 2, ""
            print(f"retinabench: error: {error}", file=err)
    out.getvalue().encode()  # as a terminal or a pipe needs it
    if wrong:
        return Verdict.FAILED, f"accepted, and {wrong}"
    alien = [str(one.message) for one in warned if not issubclass(one.category, DeprecationWarning | FutureWarning)]
    return judge(case, folder, int(code), err.getvalue(), alien)


def judge(case: Case, folder: Path, code: int, printed: str, warned: Sequence[str]) -> tuple[Verdict, str]:
    errors = [line for line in printed.splitlines() if line.startswith("retinabench: error: ")]
    said = errors[0][20:] if errors else ""
    if warned:
        return Verdict.FAILED, f"prints a warning of Python: {warned[0][:150]}"
    if code in ACCEPTED:
        if case.must == "refuse":
            return Verdict.FAILED, f"accepted, with the notes: {printed[:300]!r}"
        wrong = case.check(folder, printed)
        return (Verdict.FAILED, f"accepted, and {wrong}") if wrong else (Verdict.EQUAL, "")
    if code != 2:
        return Verdict.FAILED, f"exit code {code}: {said or printed[:200]}"
    if len(errors) != 1 or "memory" in said:
        return Verdict.FAILED, f"refused without one clear line: {printed[:300]!r}"
    if str(folder) not in said and "--" not in said:
        return Verdict.FAILED, f"refused without naming a place: {said[:200]}"
    if case.must == "accept":
        return Verdict.FAILED, f"refused a valid input: {said[:250]}"
    return Verdict.REFUSED, said[:200].replace(str(folder), "")
