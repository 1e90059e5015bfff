"""Predictions files in every other verb that reads them: whole, with one fault each, and damaged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from torture.contract import Outcome
from torture.fuzz.case import Case, cases, perform, trials
from torture.fuzz.settings import CERTIFICATE
from torture.fuzz.verbs import COMMANDS, verbs

UNIT, INPUTS, SHARE = "inputs", 400, 2.0
WHOLE = b"image_id,label,prob,date,split\n" + b"".join(
    b"i%d,%d,0.%d,2026-01-%02d,%s\n"
    % (k, k % 2, 10 + 7 * k % 80, k % 28 + 1, (b"test", b"validation")[k // 2 % 2])
    for k in range(40)
)


def campaign(seed: int, scratch: Path) -> Iterator[Outcome]:
    """One batch of inputs."""
    files = {"table": WHOLE, "certificate.json": CERTIFICATE.encode()}
    for name, (arguments, _) in COMMANDS.items():  # imports what every trial needs
        perform(Case("", "", files, arguments), scratch / f"warm-{name}")
    yield from trials(cases(verbs(), seed, INPUTS), scratch)
