"""Labels of `prepare` and prepared folders: valid, with one fault each, and damaged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hypothesis import strategies as st

from torture.contract import Outcome
from torture.fuzz import folders
from torture.fuzz.case import cases, trials

UNIT, INPUTS, SHARE = "inputs", 800, 2.0
STRATEGY = st.one_of(folders.label_tables(), folders.prepared_folders())


def campaign(seed: int, scratch: Path) -> Iterator[Outcome]:
    """One batch of inputs."""
    folders.prepared()  # imports what every trial needs
    yield from trials(cases(STRATEGY, seed, INPUTS), scratch)
