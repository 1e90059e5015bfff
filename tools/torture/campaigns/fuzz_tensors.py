"""Training checkpoints, posteriors, pretrained weights and exported models: forged and damaged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hypothesis import strategies as st

from torture.contract import Outcome
from torture.fuzz import tensors
from torture.fuzz.case import cases, trials

UNIT, INPUTS, SHARE = "inputs", 1000, 2.0
STRATEGY = st.one_of(
    tensors.checkpoints(),
    tensors.posteriors(),
    tensors.weights(),
    tensors.weights(),
    tensors.exported(),
    tensors.exported(),
)


def campaign(seed: int, scratch: Path) -> Iterator[Outcome]:
    """One batch of inputs."""
    tensors.made()  # before the trials are forked
    yield from trials(cases(STRATEGY, seed, INPUTS), scratch)
