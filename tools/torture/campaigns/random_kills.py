"""Every verb that writes, killed at random times: 100 times each in five batches.

A command is killed up to five times in one folder, each time at a random moment after it was started again, and then left
alone. After each kill no process is left and every file is whole; in the end the files are those of an undisturbed run.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from torture.contract import Outcome, Verdict
from torture.interpose import interposed
from torture.trees import Undisturbed, damage_in, fresh, undisturbed, wrong_after
from torture.verbs import VERBS, Verb

UNIT, SHARE = "kills", 9.0
KILLS, TOGETHER = 20, 5  # of one batch, of one folder


def campaign(seed: int, scratch: Path) -> Iterator[Outcome]:
    """One verb."""
    plan = interposed()
    if plan is None:
        yield Outcome("random kills", "all", Verdict.SKIPPED, "needs Linux and a C compiler")
        return
    verb = VERBS[seed % len(VERBS)]
    base, rng = undisturbed(verb, scratch, plan), random.Random(seed)
    done = 0
    while done < KILLS:
        moments, wrong = _kill_often(verb, base, rng, min(TOGETHER, KILLS - done))
        for after in moments:
            case = f"{verb.name}: SIGKILL {done} after {after:.3f} s"
            verdict = Verdict.FAILED if wrong else Verdict.EQUAL
            yield Outcome(f"random kills: {verb.name}", case, verdict, wrong)
            done += 1


def _kill_often(verb: Verb, base: Undisturbed, rng: random.Random, times: int) -> tuple[list[float], str]:
    """Kill a command in a fresh folder until it ends before its kill, or so many times.

    Returns:
        The moments of the kills, and what was wrong, "" if nothing.
    """
    folder, wrong = fresh(base), ""
    moments: list[float] = []
    while len(moments) < times and not wrong:
        after = rng.uniform(0, base.seconds)
        running = base.start(folder)
        deadline = time.monotonic() + after
        while time.monotonic() < deadline and not running.ended():
            time.sleep(0.001)
        if not running.ended():
            running.send(signal.SIGKILL)
        ended = running.wait()
        if left := running.orphans():
            wrong = f"{len(left)} processes were left"
        elif ended.code == -signal.SIGKILL and not ended.broken:
            moments.append(after)
            wrong = damage_in(folder / "out")
        elif ended.code or ended.broken:
            wrong = f"not killed: {ended.broken or ended.code}: {ended.error[-300:]}"
        else:
            break
    if wrong and not moments:
        moments.append(0.0)
    return moments, wrong or wrong_after(verb, base, folder)
