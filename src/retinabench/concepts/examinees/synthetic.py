"""Synthetic examinees whose performance is known: those of the publication and adversarial ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.examinees.answers import Examinee
from retinabench.core.random_streams import numpy_generator


def synthetic(
    bank: Bank, accuracy: NDArray[np.float64], seed: int, sure: tuple[float, float] = (0.5, 1.0)
) -> Examinee:
    """Return an examinee with a known accuracy per concept, whatever the truth.

    Each answer is a function of seed, sample and concept, so that it does not depend on the order of the questions.

    References:
        Fountoukidou and Sznitman, Concept-Centric Visual Turing Tests for Method Validation, MICCAI 2019, section 3.
    """
    column = {name: place for place, name in enumerate(bank.concepts)}

    def answer(sample: int, concept: str) -> float:
        place = column[concept]
        chance, sureness = numpy_generator(seed, "examinee", concept, sample).random(2)
        says_yes = (chance < accuracy[place]) == bool(bank.truth[sample, place] == 1)
        prob = sure[0] + (sure[1] - sure[0]) * sureness
        return float(prob if says_yes else 1 - prob)

    return answer


def _commonest(bank: Bank, on: float, others: float) -> NDArray[np.float64]:
    accuracy = np.full(len(bank.concepts), others)
    accuracy[bank.cells[:, 1].argmax()] = on
    return accuracy


def biased_1(bank: Bank, seed: int) -> Examinee:
    """Right in 90 % of the questions about the commonest concept, in 50 % of all others (published)."""
    return synthetic(bank, _commonest(bank, 0.9, 0.5), seed)


def biased_2(bank: Bank, seed: int) -> Examinee:
    """Right in 50 % of the questions about the commonest concept, in 90 % of all others (published)."""
    return synthetic(bank, _commonest(bank, 0.5, 0.9), seed)


def unbiased(bank: Bank, seed: int) -> Examinee:
    """Right in 70 % of all questions (published)."""
    return synthetic(bank, _commonest(bank, 0.7, 0.7), seed)


def overconfident(bank: Bank, seed: int) -> Examinee:
    """Right in 70 % of all questions, with P(yes) above 0.99 or below 0.01, so that few bins are occupied."""
    return synthetic(bank, _commonest(bank, 0.7, 0.7), seed, sure=(0.99, 1.0))


def guessing(bank: Bank, seed: int) -> Examinee:
    """P(yes) ~ U(0, 1), whatever the truth."""
    return synthetic(bank, _commonest(bank, 0.5, 0.5), seed)


def always_yes(bank: Bank, seed: int) -> Examinee:
    """P(yes) = 1 for every question."""
    return lambda sample, concept: 1.0


SYNTHETIC: dict[str, Callable[[Bank, int], Examinee]] = {
    "biased-1": biased_1,
    "biased-2": biased_2,
    "unbiased": unbiased,
    "overconfident": overconfident,
    "guessing": guessing,
    "always-yes": always_yes,
}
