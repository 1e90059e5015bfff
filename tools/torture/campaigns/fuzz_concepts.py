"""Banks, answers and transcripts of `examine`: valid, with one fault each, and damaged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hypothesis import strategies as st

from torture.contract import Outcome
from torture.fuzz import concepts
from torture.fuzz.case import cases, trials

UNIT, INPUTS, SHARE = "inputs", 1000, 2.0
STRATEGY = st.one_of(concepts.tables_damaged(), concepts.tables_faulty(), concepts.transcripts())


def campaign(seed: int, scratch: Path) -> Iterator[Outcome]:
    """One batch of inputs."""
    yield from trials(cases(STRATEGY, seed, INPUTS), scratch)
