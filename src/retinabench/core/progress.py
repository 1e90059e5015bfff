"""Progress of long work: bars with the remaining time on a terminal, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from retinabench.core.untrusted import visible

Advance = Callable[[int], None]


class Progress:
    """Where long work reports its progress; this one shows nothing."""

    @contextmanager
    def track(self, what: str, total: int, unit: str = "") -> Iterator[Advance]:
        """Open a bar; the context yields ``advance(steps)``."""
        yield lambda steps: None

    def say(self, line: str) -> None:
        """Print one line."""


class Bars(Progress):
    """Bars on standard error, by rich: description, share, speed, time left."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)

    @contextmanager
    def track(self, what: str, total: int, unit: str = "") -> Iterator[Advance]:
        """Open a bar that stays on the screen when done, and is removed where the work fails; yield its advance."""
        from rich import progress

        class Clock(progress.ProgressColumn):
            """`41/s, 0:12 left`, and when done `in 0:40`."""

            def render(self, task: progress.Task) -> str:
                if task.finished:
                    return f"in {_minutes(task.finished_time or 0)}"
                if task.time_remaining is None or not task.speed:
                    return ""
                return f"{task.speed:.3g}/s, {_minutes(task.time_remaining)} left"

        bar = progress.Progress(
            progress.TextColumn("{task.description:<32}", markup=False),
            progress.BarColumn(bar_width=12),
            progress.MofNCompleteColumn(),
            progress.TextColumn(unit),
            Clock(),
            console=self._console,
        )
        with bar:
            task = bar.add_task(visible(what), total=total)
            try:
                yield lambda steps: bar.advance(task, steps)
            except Exception:
                bar.live.transient = True
                raise

    def say(self, line: str) -> None:
        """Print one line to standard error."""
        self._console.print(visible(line), markup=False)


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


Quiet = Progress  # the name for classes that override some of it
QUIET = Progress()
