"""Commands in forked children of a warm process: PyTorch is imported once, and a command starts within milliseconds.

Their workers are forked as well, not spawned, their figures are blank, and boards have two baselines: finding fonts, drawing and
ranking fifty methods would take most of the time.
"""

import contextlib
import multiprocessing
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from retinabench.cli.main import main
from retinabench.experiments.engines import engine
from retinabench.reports.leaderboard import board
from retinabench.reports.leaderboard.board import baselines_of
from retinabench.reports.leaderboard.submission import Submission
from torture.trial import Ended, end_group, save_blank

PATIENCE = 600.0  # seconds for a command of a few seconds on a very busy machine


@dataclass
class Running:
    """A command that runs in a session of its own."""

    process: int
    output: Path
    began: float
    status: int | None = None

    def ended(self) -> bool:
        if self.status is None:
            found, status = os.waitpid(self.process, os.WNOHANG)
            self.status = status if found else None
        return self.status is not None

    def until(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.ended():
            time.sleep(0.001)

    def wait(self, seconds: float = PATIENCE) -> Ended:
        """Wait for the end; one that takes longer is killed with its children, and broken."""
        broken = ""
        while not self.ended():
            time.sleep(0.002)
            if time.monotonic() - self.began > seconds:
                broken = f"longer than {seconds:g} s"
                end_group(self.process)
        assert self.status is not None
        text = self.output.read_text(errors="replace")
        # What an interrupt does inside a destructor Python reports and ignores.
        if "Traceback (most recent call last)" in re.sub(r"Exception ignored in.*\nTraceback", "", text):
            broken = broken or "traceback"
        code = os.waitstatus_to_exitcode(self.status)
        return Ended(code, error=text, seconds=time.monotonic() - self.began, broken=broken)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process, and SIGINT, as a terminal does for Ctrl-C, to its children as well."""
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if number == signal.SIGINT else os.kill)(self.process, number)

    def orphans(self, seconds: float = 5.0) -> list[int]:
        """Return the processes of its session that still run some seconds after its end, and kill them."""
        deadline = time.monotonic() + seconds
        while (left := session(self.process)) and time.monotonic() < deadline:
            time.sleep(0.02)
        end_group(self.process)
        return left


def start(
    arguments: Sequence[str | Path],
    folder: Path,
    output: Path,
    first: Callable[[], object] = int,
    modules: Path | None = None,
) -> Running:
    sys.stdout.flush()
    output.write_bytes(b"")
    began, process = time.monotonic(), os.fork()
    if process:
        return Running(process, output, began)
    code = 70
    try:
        os.setsid()
        os.chdir(folder)
        file = os.open(output, os.O_WRONLY | os.O_APPEND)
        os.dup2(file, 1)
        os.dup2(file, 2)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        engine.SPAWN = multiprocessing.get_context("fork")  # type: ignore[assignment]
        setattr(Figure, "draw_without_rendering", lambda figure: None)  # noqa: B010 - mypy takes it for a method
        setattr(Figure, "savefig", save_blank)  # noqa: B010
        setattr(board, "baselines_of", _two_baselines)  # noqa: B010 - mypy takes it for a foreign name
        first()
        sys.argv = ["retinabench", *map(str, arguments)]
        main()
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            if modules:
                modules.write_text("\n".join(name for name in sys.modules if not name.startswith("__")))
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _two_baselines(name: str) -> tuple[Submission, ...]:
    """Return the first two baselines of a benchmark: all of them take a minute and write 500 files."""
    return baselines_of(name)[:2]


def session(number: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            state, _, _, own, *_ = path.read_text().rpartition(")")[2].split()
            if int(own) == number and state != "Z":
                found.append(int(path.parent.name))
    return found
