"""Who answers: a table of answers, or a synthetic examinee."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retinabench.concepts.banks.bank import CHUNK, Bank
from retinabench.concepts.banks.tables import read_concepts
from retinabench.core.errors import InputError
from retinabench.core.random_streams import numpy_generator
from retinabench.predictions.check import Check

Examinee = Callable[[int, str], float]


class Answers:
    """A table of answers to every question of a bank."""

    def __init__(
        self, bank: Bank, probs: NDArray[np.floating], source: str | None = None, rows: Sequence[int] | None = None,
        cut: Collection[str] = (),
    ) -> None:  # fmt: skip
        check = Check(source)
        if probs.shape != bank.truth.shape:
            raise check.fail("probs", None, f"the answers have shape {probs.shape}, the bank {bank.truth.shape}")
        digest = hashlib.sha256()
        for start in range(0, bank.samples, CHUNK):
            part = np.ascontiguousarray(probs[start : start + CHUNK], np.float64)
            digest.update(part.data)
            if part.min() >= 0 and part.max() <= 1:
                continue
            any_score = np.isin(bank.concepts, list(cut))
            bad = ~((part >= 0) & (part <= 1) | (np.isfinite(part) & any_score)) & (
                np.asarray(bank.truth[start : start + CHUNK]) >= 0
            )
            if bad.any():
                row, column = np.argwhere(bad)[0]
                value, sample = part[row, column], start + int(row)
                name = bank.name(sample)
                problem = f"has no answer for image '{name}'" if np.isnan(value) else f"is {value:g}, outside [0, 1]"
                hint = "Give every image a probability." if np.isnan(value) else "A probability lies between 0 and 1."
                place = sample if rows is None else rows[sample]
                raise check.fail(bank.concepts[column], place, problem, hint)
        self._probs = probs
        self._column = {name: place for place, name in enumerate(bank.concepts)}
        self.hash = digest.hexdigest()

    def __call__(self, sample: int, concept: str) -> float:
        return float(self._probs[sample, self._column[concept]])


def read_answers(path: str | Path, bank: Bank, cut: Collection[str] = ()) -> Answers:
    """Read P(yes) for every image and concept of a bank, or any score where a concept has a `cut`; others are left aside."""
    path = Path(path)
    image_id, names, values = read_concepts(path, bank.concepts)
    wrong = ((values < 0) | (values > 1)) & ~np.isin(names, list(cut))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        looks = "A probability lies between 0 and 1; for other scores state from which one on yes is said, with --cut."
        if np.nanmin(values) < 0:
            looks = "These look like logits: apply the sigmoid, or state from which score on yes is said, with --cut."
        elif np.nanmax(values) > 2:
            looks = "These look like percentages: divide by 100, or state from which score on yes is said, with --cut."
        problem = f"is {values[row, column]:g}, outside [0, 1]"
        raise InputError(problem, file=path, row=int(row) + 1, column=names[column], hint=looks)
    if bank.ids is not None and np.array_equal(bank.ids, image_id):  # most often one program writes both tables
        return Answers(bank, values, source=str(path), cut=cut)
    Check(str(path)).unique("image_id", image_id)
    place = {name: row for row, name in enumerate(image_id.tolist())}
    wanted = [bank.name(sample) for sample in range(bank.samples)]
    if missing := [name for name in wanted if name not in place]:
        shown = ", ".join(f"'{name[:60]}'" for name in missing[:3])
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise InputError(f"has no row for {shown}{more}", file=path, hint="Answer every image of the truth file.")
    rows = [place[name] for name in wanted]
    return Answers(bank, values[rows], source=str(path), rows=rows, cut=cut)


def synthetic(bank: Bank, accuracy: NDArray[np.float64], seed: int, sure: tuple[float, float] = (0.5, 1.0)) -> Examinee:
    """Return an examinee with a known accuracy per concept, whatever the truth (Fountoukidou and Sznitman 2019, section 3).

    Each answer is a function of seed, sample and concept, so that it does not depend on the order of the questions.
    """
    column = {name: place for place, name in enumerate(bank.concepts)}

    def answer(sample: int, concept: str) -> float:
        place = column[concept]
        chance, sureness = numpy_generator(seed, "examinee", concept, sample).random(2)
        says_yes = (chance < accuracy[place]) == bool(bank.truth[sample, place] == 1)
        prob = sure[0] + (sure[1] - sure[0]) * sureness
        return float(prob if says_yes else 1 - prob)

    return answer


def _simulated(
    commonest: float, others: float, sure: tuple[float, float] = (0.5, 1.0)
) -> Callable[[Bank, int], Examinee]:
    """Return what makes an examinee of two accuracies: about the commonest concept of a bank, and about all others."""

    def make(bank: Bank, seed: int) -> Examinee:
        accuracy = np.full(len(bank.concepts), others)
        accuracy[bank.cells[:, 1].argmax()] = commonest
        return synthetic(bank, accuracy, seed, sure)

    return make


SYNTHETIC: dict[str, Callable[[Bank, int], Examinee]] = {
    "biased-1": _simulated(0.9, 0.5),  # published, as the next two
    "biased-2": _simulated(0.5, 0.9),
    "unbiased": _simulated(0.7, 0.7),
    "overconfident": _simulated(0.7, 0.7, sure=(0.99, 1.0)),  # few bins are occupied
    "guessing": _simulated(0.5, 0.5),  # P(yes) ~ U(0, 1), whatever the truth
    "always-yes": lambda bank, seed: lambda sample, concept: 1.0,
}
