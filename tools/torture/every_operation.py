"""A complete pass: a verb killed once at each of its operations on files, however long that takes."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from torture.campaigns import kills
from torture.interpose import interposed
from torture.log import OutcomeLog
from torture.trees import undisturbed
from torture.verbs import VERBS, Verb

NAME = "every_operation"


def kill_at_every_operation(verb: Verb, log: OutcomeLog, scratch: Path) -> None:
    """Kill a verb at each operation on its files and log the outcomes; operations in the log are not repeated."""
    plan = interposed()
    if plan is None:
        raise RuntimeError("kills at operations need Linux and a C compiler")
    done = {line["case"] for line in log.trials() if line["name"] == NAME}
    base = undisturbed(verb, scratch, plan)
    for at in range(1, base.operations + 1):
        case = f"operation {at} of {base.operations}"
        if f"{verb.name}: {case}" not in done:
            row = f"kills at every operation: {verb.name}"
            log.outcome(NAME, 0, kills.UNIT, kills.trial(verb, base, plan, case, at=at, row=row))


def kill_verbs(names: Sequence[str], log: OutcomeLog) -> None:
    """Kill the verbs of some names, or all of them for none, at each operation."""
    known = {verb.name: verb for verb in VERBS}
    if unknown := sorted(set(names) - set(known)):
        raise SystemExit(f"torture: error: no command {unknown[0]!r}; there are {', '.join(known)}")
    for name in names or known:
        with tempfile.TemporaryDirectory(prefix="torture-") as folder:
            kill_at_every_operation(known[name], log, Path(folder))
