"""The result of an examination: counts, performance model, rates and claims, as numbers and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.inference.beta_binomial import Rate, accuracy, rate
from retinabench.concepts.inference.claims import Claim
from retinabench.concepts.inference.gaussian_process import (
    GRID,
    PUBLISHED,
    Kernel,
    Performance,
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


@dataclass(frozen=True, eq=False)
class ConceptResult:
    """What the answers say of one concept.

    Args:
        counts: Answers by outcome: ``tn``, ``fp``, ``fn``, ``tp``.
        bins: Answers by bin, (100,), see `gaussian_process.bin_of`.
        performance: The Gaussian process of the concept.
        uncertainty: Its uncertainty for negative and positive samples, (2,).
        kernel: Hyper-parameters of the process.
        sensitivity: Rate of correct answers among positive samples.
        specificity: Rate of correct answers among negative samples.
        accuracy: Rate of correct answers among all samples.
        answers: P(yes) about the samples ``without`` the concept and about those ``with`` it, in the order of the questions.
    """

    counts: dict[str, int]
    bins: NDArray[np.int64]
    performance: Performance
    uncertainty: NDArray[np.float64]
    kernel: Kernel
    sensitivity: Rate
    specificity: Rate
    accuracy: Rate
    answers: dict[str, list[float]]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON content."""
        u_minus, u_plus = self.uncertainty.tolist()
        kernel = self.kernel
        return {
            "counts": self.counts,
            "bins": self.bins.tolist(),
            "answers": self.answers,
            "gp": {
                "grid": GRID.tolist(),
                "mean": self.performance.mean().tolist(),
                "sd": np.sqrt(self.performance.variance()).tolist(),
                "u_minus": u_minus,
                "u_plus": u_plus,
                "kernel": {"signal": kernel.signal, "noise": kernel.noise, "length": kernel.length},
            },
            "sensitivity": self.sensitivity.to_dict(),
            "specificity": self.specificity.to_dict(),
            "accuracy": self.accuracy.to_dict(),
        }


@dataclass(frozen=True, eq=False)
class Examination:
    """The result of questioning an examinee; `to_dict` returns the JSON described in `retinabench.concepts`.

    Args:
        bank: The questions.
        strategy: Name of the strategy.
        seed: Seed of the order of the questions.
        reading: Which uncertainty was reported, see `Performance.uncertainty`.
        rules: ``corrected`` or ``published``, see `strategies`.
        kernel: ``published`` or ``fitted`` hyper-parameters of the reported curves.
        stopped: Why no further question was asked.
        bins: Answers by concept and bin, (c, 100), see `gaussian_process.bin_of`.
        uncertainty: Mean over concepts and truths before the first question and after each, (questions + 1,).
        claims: The claims with their decisions.
        answers: By concept, the answers about samples without it and with it.
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
    claims: Sequence[Claim] = ()
    answers: Sequence[tuple[list[float], list[float]]] = ()

    def __getitem__(self, concept: str) -> ConceptResult:
        """Return the result of one concept."""
        place = self.bank.concepts.index(concept)
        bins, of = self.bins[place], self.bank.cells[place]
        counts = outcomes(bins)
        asked = bins.reshape(2, 50).sum(axis=1)
        right = np.array([counts["tn"], counts["tp"]])
        kernel = fit_kernel(bins) if self.kernel == "fitted" else PUBLISHED
        model = posterior(bins, kernel)
        return ConceptResult(
            counts=counts,
            bins=bins,
            performance=model,
            uncertainty=model.uncertainty(self.reading),
            kernel=kernel,
            sensitivity=rate(int(right[1]), int(asked[1]), int(of[1])),
            specificity=rate(int(right[0]), int(asked[0]), int(of[0])),
            accuracy=accuracy(right, asked, of),
            answers=dict(zip(("without", "with"), self.answers[place], strict=True)),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON content."""
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
            "concepts": {name: self[name].to_dict() for name in names},
            "progress": {
                "questions": list(range(len(self.uncertainty))),
                "uncertainty": self.uncertainty.tolist(),
            },
            "claims": [claim.to_dict(bank) for claim in self.claims],
            "companion_valid": find_strategy(self.strategy).companion_valid,
            "notes": self.notes,
        }

    @property
    def notes(self) -> list[str]:
        """Limits of the numbers, as sentences."""
        return [*self._validity_notes(), *self._bank_notes(), *self._claim_notes()]

    def _validity_notes(self) -> list[str]:
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
        return notes

    def _bank_notes(self) -> list[str]:
        notes = []
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
        return notes

    def _claim_notes(self) -> list[str]:
        notes = []
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
