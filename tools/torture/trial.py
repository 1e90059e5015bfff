"""One trial in a process of its own, with limits of time and memory."""

import contextlib
import io
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

SECONDS, MEGABYTES = 20.0, 2048
RETINABENCH = (sys.executable, "-m", "retinabench")


@dataclass(frozen=True)
class Ended:
    """How a trial's process ended."""

    code: int
    value: Any = None
    error: str = ""
    traceback: str = ""
    output: str = ""
    seconds: float = 0.0
    broken: str = ""

    @property
    def lines(self) -> list[str]:
        return [line for line in self.error.splitlines() if line.startswith("retinabench: error: ")]

    @property
    def problem(self) -> str:
        return f"{self.broken or self.code}: {self.error[-600:]}" if self.code or self.broken else ""

    @property
    def refused(self) -> bool:
        """Whether a command failed as it should: exit code 1 or 2 and one line on standard error that says why."""
        return not self.broken and self.code in (1, 2) and len(self.lines) == 1


def isolated(
    function: Callable[..., Any], *arguments: Any, seconds: float = SECONDS, megabytes: int = MEGABYTES
) -> Ended:
    """Call a function in a forked child; import what it needs before, so that the child starts with it."""
    (ended,) = isolated_each(lambda _: function(*arguments), [0], seconds=seconds, megabytes=megabytes)
    return ended


def isolated_each(
    function: Callable[[Any], Any],
    items: Sequence[Any],
    *,
    together: int = 1,
    seconds: float = SECONDS,
    megabytes: int = MEGABYTES,
) -> Iterator[Ended]:
    """Call a function with each item in forked children, one after the other; one that fails is replaced, so that it changes no next trial."""
    place = 0
    while place < len(items):
        part = items[place : place + together]
        receiver, sender = multiprocessing.get_context("fork").Pipe(duplex=False)
        child = os.fork()
        if child == 0:
            _call(function, part, sender, megabytes)
        sender.close()
        try:
            for _ in part:
                ended = _await(child, receiver, seconds, megabytes)
                place += 1
                yield ended
                if ended.code or ended.broken:
                    break
        finally:
            receiver.close()
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


def _await(child: int, receiver: Connection, seconds: float, megabytes: int) -> Ended:
    """Wait for what the child sends of its next item; a child that hangs or died is ended."""
    start, content = time.monotonic(), None
    hung = not receiver.poll(seconds)
    if not hung:
        with contextlib.suppress(EOFError):
            content = receiver.recv()
    spent = time.monotonic() - start
    if content is not None:
        code, value, error, where = content
        broken = f"more than {megabytes} MB" if error.startswith("MemoryError") else ""
        return Ended(code, value, error, where, seconds=spent, broken=broken)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    broken = f"longer than {seconds:g} s" if hung else f"died with code {code}"
    return Ended(-signal.SIGKILL if hung else code, seconds=spent, broken=broken)


def _call(function: Callable[[Any], Any], items: Sequence[Any], sender: Connection, megabytes: int) -> None:
    """Call the function in the child with each item, send what comes of it, and end the child."""
    with contextlib.suppress(BaseException):
        limit = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + megabytes * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for item in items:
            try:
                content = (0, function(item), "", "")
            except BaseException as error:
                content = (1, None, f"{type(error).__name__}: {error}", traceback.format_exc())
            sender.send(content)
        sender.close()
    os._exit(0)


def command(
    *arguments: str | Path, seconds: float = SECONDS, program: Sequence[str] = RETINABENCH, **options: Any
) -> Ended:
    start, broken = time.monotonic(), ""
    options |= dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    options |= {"stdin": subprocess.DEVNULL, "text": True, "errors": "replace", "start_new_session": True}
    process = subprocess.Popen([*program, *map(str, arguments)], **options)
    try:
        output, error = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        broken = f"longer than {seconds:g} s"
        end_group(process.pid)
        output, error = process.communicate()
    end_group(process.pid)
    if not broken and process.returncode < 0:
        broken = f"died with code {process.returncode}"
    if "Traceback (most recent call last)" in error:
        broken = broken or "traceback"
    return Ended(process.returncode, output=output, error=error, seconds=time.monotonic() - start, broken=broken)


def end_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def environment(**changes: str | None) -> Mapping[str, str]:
    """Return this process's environment with one thread per process and the given changes; None removes a variable."""
    merged = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", **changes}
    return {name: value for name, value in merged.items() if value is not None}


def save_blank(figure: Any, file: Any, *, format: str, **_: object) -> None:
    """Save nothing where a figure is saved, in the form of its format."""
    blank = '<svg viewBox="0 0 1 1"><g></g></svg>'
    file.write(blank if isinstance(file, io.TextIOBase) else blank.encode() if format == "svg" else b"blank")
