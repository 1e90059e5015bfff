"""Every verb that writes, killed at each operation on its files, and by several signals.

After each kill no process is left, every file is whole, and the same command, repeated, gives the files of an undisturbed
run: byte for byte, but for those in which two undisturbed runs differ (they hold seconds).
"""

import random
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from torture.interpose import Plan, What, interposed
from torture.outcomes import Outcome, OutcomeLog, Verdict, equal
from torture.running import Running
from torture.trees import Undisturbed, damage_in, fresh, undisturbed, wrong_after
from torture.verbs import VERBS, Verb

UNIT, SHARE = "kills", 9.0
AT_WRITES, OTHERS, AT_RANDOM = 24, 8, 4  # trials of one batch
TOGETHER = 5  # kills in one folder
KINDS = ("SIGTERM", "SIGINT", "SIGINT twice", "SIGSTOP", "2 copies", "8 copies", "reader")
PARTS = {"reader": "with a reader beside"}
EVERY = "every_operation"  # the complete pass in the log


def campaign(seed: int, scratch: Path) -> Iterator[Outcome]:
    plan = interposed()
    if plan is None:
        yield Outcome("kills", "all", Verdict.SKIPPED, "needs Linux and a C compiler")
        return
    verb = VERBS[seed % len(VERBS)]
    base = undisturbed(verb, scratch, plan)
    rng = random.Random(seed)
    for at in _operations(base.operations, seed // len(VERBS)):
        yield trial(verb, base, plan, f"operation {at} of {base.operations}", at=at)
    for number in range(OTHERS):
        after = rng.uniform(0, base.seconds)
        kind = KINDS[(number + seed) % len(KINDS)]
        yield trial(verb, base, plan, f"{kind} after {after:.3f} s", kind=kind, after=after)
    for number in range(AT_RANDOM):
        moments, wrong = _kill_often(verb, base, rng, TOGETHER)
        case = f"{verb.name}: {number}: killed after {', '.join(f'{after:.3f}' for after in moments)} s"
        yield equal("kills at random times", case, wrong)


def _operations(count: int, turn: int) -> list[int]:
    """Every operation is reached once before any is reached again; a batch takes some that lie far apart."""
    turns = max(1, -(-count // AT_WRITES))
    return list(range(1 + turn % turns, count + 1, turns))


def trial(
    verb: Verb, base: Undisturbed, plan: Plan, case: str, at: int = 0, kind: str = "", after: float = 0, row: str = ""
) -> Outcome:
    folder = fresh(base)
    if at:
        plan.set(folder / "out", at, What.KILL_TORN)
    copies = int(kind[0]) if kind.endswith("copies") else 1
    running = [base.start(folder, number) for number in range(copies)]
    wrong = "" if at or copies > 1 else _disturb(running[0], kind, after, folder)
    for one in running:
        ended = one.wait()
        if left := one.orphans():
            wrong = f"{len(left)} processes were left"
        elif ended.broken and not ended.broken.startswith("died"):
            wrong = f"{ended.broken}: {ended.error[-300:]}"
        elif copies > 1 and ended.code and not ended.refused:
            wrong = f"a copy ended with {ended.code}: {ended.error[-300:]}"
    reached = not at or plan.done >= at
    plan.set(None)
    wrong = wrong or wrong_after(verb, base, folder)
    part = "at each operation" if at else "copies at once" if copies > 1 else PARTS.get(kind, "other signals")
    row, case = row or f"kills {part}", f"{verb.name}: {case}"
    if not reached and not wrong:
        return Outcome(row, case, Verdict.SKIPPED, "the command ended before this operation")
    return equal(row, case, wrong)


def _disturb(running: Running, kind: str, after: float, folder: Path) -> str:
    """Send signals to a command, or read its folder while it works; return what a reader finds wrong."""
    running.until(after)
    if kind == "reader":
        while not running.ended():
            if damage := damage_in(folder / "out"):
                return f"beside the writer: {damage}"
            time.sleep(0.01)
    elif kind == "SIGSTOP":
        running.send(signal.SIGSTOP)
        time.sleep(0.2)
        running.send(signal.SIGCONT)
    else:
        number = signal.Signals[kind.partition(" ")[0]]
        running.send(number)
        if kind.endswith("twice"):
            time.sleep(0.01)
            running.send(number)
    return ""


def _kill_often(verb: Verb, base: Undisturbed, rng: random.Random, times: int) -> tuple[list[float], str]:
    """Kill a command in one folder until it ends before its kill, or so many times; return the moments, and what was wrong."""
    folder, moments = fresh(base), list[float]()
    while len(moments) < times:
        after = rng.uniform(0, base.seconds)
        running = base.start(folder)
        running.until(after)
        if not running.ended():
            running.send(signal.SIGKILL)
        ended = running.wait()
        if left := running.orphans():
            return moments, f"{len(left)} processes were left"
        if ended.code != -signal.SIGKILL or ended.broken:
            if ended.problem:
                return moments, f"not killed: {ended.problem}"
            break
        moments.append(after)
        if wrong := damage_in(folder / "out"):
            return moments, wrong
    return moments, wrong_after(verb, base, folder)


def kill_at_every_operation(verb: Verb, log: OutcomeLog, scratch: Path) -> None:
    """Kill a verb at each operation on its files and log the outcomes; operations in the log are not repeated."""
    plan = interposed()
    if plan is None:
        raise RuntimeError("kills at operations need Linux and a C compiler")
    done = {line["case"] for line in log.trials() if line["name"] == EVERY}
    base = undisturbed(verb, scratch, plan)
    for at in range(1, base.operations + 1):
        case = f"operation {at} of {base.operations}"
        if f"{verb.name}: {case}" not in done:
            row = f"kills at every operation: {verb.name}"
            log.outcome(EVERY, 0, UNIT, trial(verb, base, plan, case, at=at, row=row))


def kill_verbs(names: Sequence[str], log: OutcomeLog) -> None:
    known = {verb.name: verb for verb in VERBS}
    if unknown := sorted(set(names) - set(known)):
        raise SystemExit(f"torture: error: no command {unknown[0]!r}; there are {', '.join(known)}")
    for name in names or known:
        with tempfile.TemporaryDirectory(prefix="torture-") as folder:
            kill_at_every_operation(known[name], log, Path(folder))
