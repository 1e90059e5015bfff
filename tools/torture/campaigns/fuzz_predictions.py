"""Predictions files of every format and dialect, with faults and damage, against a plain second reader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hypothesis import strategies as st

from torture.contract import Outcome
from torture.fuzz import binary, predictions
from torture.fuzz.case import Case, cases, perform, trials

UNIT, INPUTS, SHARE = "inputs", 1000, 2.0
WHOLE = b"image_id,label,prob\na,0,0.1\nb,1,0.8\n"
STRATEGY = st.one_of(
    predictions.csv_valid(), predictions.csv_faulty(), predictions.csv_damaged(), predictions.csv_cut(), binary.own_files(),
    binary.own_files(), binary.parquet_foreign(), binary.parquet_faults(), binary.npz_valid(), binary.npz_faults(), binary.metadata(),
)  # fmt: skip


def campaign(seed: int, scratch: Path) -> Iterator[Outcome]:
    """One batch of inputs."""
    perform(
        Case("", "", {"table": WHOLE}, predictions.SCORE), scratch / "warm"
    )  # imports what every trial needs
    yield from trials(cases(STRATEGY, seed, INPUTS), scratch)
