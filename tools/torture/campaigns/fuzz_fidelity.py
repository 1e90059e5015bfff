"""Submissions and references of the fidelity benchmark: valid, forged and damaged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hypothesis import strategies as st

from torture.contract import Outcome
from torture.fuzz import fidelity
from torture.fuzz.case import cases, trials

UNIT, INPUTS, SHARE = "inputs", 800, 2.0
STRATEGY = st.one_of(
    fidelity.submissions(), fidelity.submissions(), fidelity.references(), fidelity.run_metadata()
)


def campaign(seed: int, scratch: Path) -> Iterator[Outcome]:
    """One batch of inputs."""
    repr(fidelity.evaluator().ceiling)  # computed once, before the trials are forked
    yield from trials(cases(STRATEGY, seed, INPUTS), scratch)
