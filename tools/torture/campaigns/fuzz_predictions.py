"""Predictions files of every format and dialect, with faults and damage, against a plain second reader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hypothesis import strategies as st

from torture.contract import Outcome
from torture.fuzz import predictions
from torture.fuzz.case import Case, cases, perform, trials

UNIT, INPUTS, SHARE = "inputs", 1000, 2.0
WHOLE = b"image_id,label,prob\na,0,0.1\nb,1,0.8\n"
STRATEGY = st.one_of(
    predictions.csv_valid(), predictions.csv_faulty(), predictions.csv_damaged(), predictions.csv_cut(),
    predictions.binary_files(), predictions.binary_files(), predictions.odd_arrays(),
)  # fmt: skip


def campaign(seed: int, scratch: Path) -> Iterator[Outcome]:
    """One batch of inputs."""
    warm = Case("", "", {"table": WHOLE}, predictions.SCORE)
    perform(warm, scratch / "warm")  # imports what every trial needs
    yield from trials(cases(STRATEGY, seed, INPUTS), scratch)
