"""The result of an examination: counts, performance model, rates and claims, as numbers and as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.inference.beta_binomial import accuracy, rate
from retinabench.concepts.inference.gaussian_process import (
    GRID,
    PUBLISHED,
    Reading,
    fit_kernel,
    outcomes,
    posterior,
)
from retinabench.concepts.questioning.strategies import SATURATED, find_strategy

SCHEMA = "retinabench.examination/1"
ANSWER_DRIVEN = ("claims", "tolerance", "patience")
"""Reasons to stop that depend on the answers."""

RARE = 10  # positive or negative samples, below which a rate of the bank is hardly worth an interval


@dataclass(frozen=True)
class Examination:
    """What the questions showed; see `concepts/__init__.py` for the JSON that `to_dict` returns.

    bins: (c, 100) int64, how often each bin of answers was hit (see `performance.bin_of`); uncertainty: (questions + 1,)
    mean over concepts and signs before the first question and after each; stopped: why no further question was asked.
    """

    bank: Bank
    strategy: str
    seed: int
    reading: Reading
    rules: str
    kernel: str
    stopped: str
    bins: NDArray[np.int64]
    uncertainty: NDArray[np.float64]
    claims: list[dict[str, Any]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The examination as JSON content."""
        bank, names = self.bank, self.bank.concepts
        negatives, positives = self.bank.cells.T.tolist()
        unknown = (bank.samples - bank.cells.sum(axis=1)).tolist()
        return {
            "schema": SCHEMA,
            "strategy": self.strategy,
            "seed": self.seed,
            "reading": self.reading,
            "rules": self.rules,
            "asked": int(self.bins.sum()),
            "stopped": self.stopped,
            "bank": {
                "hash": bank.hash,
                "samples": bank.samples,
                "concepts": list(names),
                "positives": dict(zip(names, positives, strict=True)),
                "negatives": dict(zip(names, negatives, strict=True)),
                "unknown": dict(zip(names, unknown, strict=True)),
            },
            "concepts": {name: self._concept(place) for place, name in enumerate(names)},
            "progress": {
                "questions": list(range(len(self.uncertainty))),
                "uncertainty": self.uncertainty.tolist(),
            },
            "claims": self.claims,
            "companion_valid": find_strategy(self.strategy).companion_valid,
            "notes": self._notes(),
        }

    def _concept(self, place: int) -> dict[str, Any]:
        bins, of = self.bins[place], self.bank.cells[place]
        counts = outcomes(bins)
        asked = bins.reshape(2, 50).sum(axis=1)
        right = np.array([counts["tn"], counts["tp"]])
        kernel = fit_kernel(bins) if self.kernel == "fitted" else PUBLISHED
        model = posterior(bins, kernel)
        u_minus, u_plus = model.uncertainty(self.reading).tolist()
        return {
            "counts": counts,
            "bins": bins.tolist(),
            "gp": {
                "grid": GRID.tolist(),
                "mean": model.mean().tolist(),
                "sd": np.sqrt(model.variance()).tolist(),
                "u_minus": u_minus,
                "u_plus": u_plus,
                "kernel": {"signal": kernel.signal, "noise": kernel.noise, "length": kernel.length},
            },
            "sensitivity": rate(int(right[1]), int(asked[1]), int(of[1])),
            "specificity": rate(int(right[0]), int(asked[0]), int(of[0])),
            "accuracy": accuracy(right, asked, of),
        }

    def _notes(self) -> list[str]:
        """What a reader of the numbers must know."""
        notes = []
        if not find_strategy(self.strategy).companion_valid:
            notes.append(
                f"The strategy '{self.strategy}' selects samples by their other concepts: sensitivity, specificity "
                "and accuracy describe the questions asked, and their intervals are not valid for the bank."
            )
        else:
            notes.append(
                "Rates, intervals and claims are about the samples of this bank; where all of a kind were asked, nothing is "
                "left open. Other patients would show more variation."
            )
        if self.strategy in ("uncertainty", "claims"):
            notes.append(
                "How often a concept was asked depended on the answers, so the 95 % intervals are approximate; those of the "
                "strategies precision and random are not."
            )
        if self.strategy.startswith("uncertainty") and self.rules == "corrected":
            notes.append(
                f"A concept and truth whose last {SATURATED} questions filled no new bin is skipped while others "
                "are fresher; the published rule would ask it until no question is left."
            )
        for name, (negative, positive) in zip(self.bank.concepts, self.bank.cells.tolist(), strict=True):
            for kind, n, of in (("positive", positive, "sensitivity"), ("negative", negative, "specificity")):
                if n == 0:
                    notes.append(
                        f"The bank has no {kind} sample of '{name}': nothing can be said of its {of}."
                    )
                elif n < RARE:
                    notes.append(f"The bank has only {n} {kind} sample{'s' * (n > 1)} of '{name}'.")
            if unknown := self.bank.samples - negative - positive:
                notes.append(f"The truth of '{name}' is unknown for {unknown} samples, which are not asked.")
        if self.stopped in ANSWER_DRIVEN:
            notes.append(
                "The answers decided when to stop, while the intervals of the rates are for a number of questions chosen "
                "without regard to the answers: they hold somewhat less often than they say. Claims do not suffer from this."
            )
        if self.claims:
            notes.append(
                "A claim is decided at its confidence if it was stated before the answers were seen"
                + ("; each for itself, not all of them together." if len(self.claims) > 1 else ".")
            )
        return notes
