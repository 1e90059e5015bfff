"""A snapshot of the strategies: what each has observed of two concepts after the same number of questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.examinees import Examinee
from retinabench.concepts.inference.unpredictability import Reading
from retinabench.concepts.questioning.examination import examine
from retinabench.concepts.questioning.strategy_comparison import COMPARED
from retinabench.core.results import Document

QUESTIONS = 100  # as published, in a bank of 2,200; a third of a small bank, since all strategies end alike


@dataclass(frozen=True, eq=False)
class Snapshot(Document):
    """What every strategy has observed of two concepts."""

    questions: int
    concepts: Sequence[str]
    bins: Mapping[str, Mapping[str, NDArray[np.int64]]]


def snapshot(
    bank: Bank,
    examinee: Examinee,
    strategies: Sequence[str] = COMPARED,
    seed: int = 0,
    *,
    reading: Reading = "std",
    rules: Literal["corrected", "published"] = "corrected",
) -> Snapshot | None:
    """Ask 100 questions, or a third of a small bank, by every strategy: Figure 3 of the publication."""
    questions = min(QUESTIONS, int(bank.cells.sum()) // 3)
    positives = {name: int(n) for name, n in zip(bank.concepts, bank.cells[:, 1], strict=True) if n}
    if len(positives) < 2:
        return None
    shown = [max(positives, key=positives.__getitem__), min(positives, key=positives.__getitem__)]
    rows = [bank.concepts.index(name) for name in shown]
    bins = {}
    for name in strategies:
        found = examine(
            bank, examinee, strategy=name, questions=questions, seed=seed, reading=reading, rules=rules
        )
        bins[name] = {concept: found.bins[row] for concept, row in zip(shown, rows, strict=True)}
    return Snapshot(questions, shown, bins)
