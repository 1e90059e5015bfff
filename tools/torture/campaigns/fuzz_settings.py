"""TOML of runs, spaces and studies, and certificates: with other values, strange lines and damage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from torture.contract import Outcome
from torture.fuzz.case import cases, trials
from torture.fuzz.settings import settings_files

UNIT, INPUTS, SHARE = "inputs", 1000, 2.0
STRATEGY = settings_files()


def campaign(seed: int, scratch: Path) -> Iterator[Outcome]:
    """One batch of inputs."""
    yield from trials(cases(STRATEGY, seed, INPUTS), scratch)
