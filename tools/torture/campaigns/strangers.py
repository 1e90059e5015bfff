"""Files of a stranger that were made to do harm: bombs, paths that lead out, code, and names that are more than text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from torture.contract import Outcome
from torture.fuzz.case import Case, perform, trials
from torture.strangers import bombs, names, paths

UNIT, SHARE = "attacks", 0.5
WHOLE = b"image_id,label,prob\na,0,0.1\nb,1,0.8\n"


def campaign(seed: int, scratch: Path) -> Iterator[Outcome]:
    """One batch: every attack once, with random sizes and names."""
    random = np.random.default_rng([seed, 0x57A])
    warm = Case("", "", {"t.csv": WHOLE}, ("score", "@/t.csv", "--bootstrap", "0", "--quiet"))
    perform(warm, scratch / "warm")  # imports what every trial needs
    drawn = [*paths.cases(random), *bombs.cases(random), *names.cases(random)]
    yield from trials(drawn, scratch)
