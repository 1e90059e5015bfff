"""One file, written again and again by a process that is killed."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

from retinabench.core.files import sweep, write_json
from torture.outcomes import Outcome, equal
from torture.trial import isolated

UNIT, SHARE, KILLS, NUMBERS = "kills", 0.3, 50, 4000


def campaign(seed: int, scratch: Path) -> Iterator[Outcome]:
    """Kill writers of a 40 kB file after 0 to 50 ms: what is there is one of the files that were written, whole."""
    rng, path = random.Random(seed), scratch / "numbers.json"
    write_json(path, [0] * NUMBERS)
    for number in range(KILLS):
        after = rng.uniform(0.0, 0.05)
        isolated(_write, path, number * 10**6, seconds=after)
        yield equal("atomic_writes", f"kill {number} after {1000 * after:.1f} ms", _wrong(path))


def _write(path: Path, first: int) -> None:
    for step in range(10**6):
        write_json(path, [first + step] * NUMBERS)


def _wrong(path: Path) -> str:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        return f"not whole: {error}"
    sweep(path.parent)
    if len(content) != NUMBERS or len(set(content)) != 1:
        return "a mixture of two files"
    return "leftovers of killed writes" if len(list(path.parent.iterdir())) > 1 else ""
