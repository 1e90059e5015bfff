"""Every verb that writes, killed at random times: 100 times each in five batches."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from torture.campaigns.kills import trial
from torture.contract import Outcome, Verdict
from torture.interpose import interposed
from torture.trees import undisturbed
from torture.verbs import VERBS

UNIT, SHARE = "kills", 9.0
KILLS = 20  # of one batch


def campaign(seed: int, scratch: Path) -> Iterator[Outcome]:
    """One verb."""
    plan = interposed()
    if plan is None:
        yield Outcome("random kills", "all", Verdict.SKIPPED, "needs Linux and a C compiler")
        return
    verb = VERBS[seed % len(VERBS)]
    base, rng = undisturbed(verb, scratch, plan), random.Random(seed)
    for number in range(KILLS):
        after = rng.uniform(0, base.seconds)
        case = f"SIGKILL {number} after {after:.3f} s"
        yield trial(verb, base, plan, case, row=f"random kills: {verb.name}", after=after)
