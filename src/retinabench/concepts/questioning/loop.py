"""The questioning loop: choose a question, ask, count, update the performance model, until a stopping rule applies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.examinees.answers import Examinee
from retinabench.concepts.inference.claims import Claim
from retinabench.concepts.inference.gaussian_process import Performance, Reading, bin_of
from retinabench.concepts.questioning.examination import Examination
from retinabench.concepts.questioning.record import Record
from retinabench.concepts.questioning.registration import register
from retinabench.concepts.questioning.strategies import ExaminationState, Strategy, find_strategy
from retinabench.concepts.questioning.transcript import Question, Transcript, recorded_header
from retinabench.core.errors import InputError, WorkError
from retinabench.core.progress import QUIET, Progress
from retinabench.core.random_streams import numpy_generator

PROGRESS = 1e-3
"""`patience` calls less than this fall of the mean uncertainty, which begins at 2, no progress."""


def examine(
    bank: Bank,
    examinee: Examinee,
    *,
    strategy: str | None = None,
    questions: int | None = None,
    tolerance: float | None = None,
    patience: int | None = None,
    claim: str | Sequence[str] | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    reading: Reading = "std",
    rules: Literal["corrected", "published"] = "corrected",
    kernel: Literal["published", "fitted"] = "published",
    transcript: str | Path | None = None,
    random: np.random.Generator | None = None,
    progress: Progress = QUIET,
) -> Examination:
    """Question an examinee about a bank: Algorithm 1 of Fountoukidou and Sznitman (2019), reconstructed."""
    path = None if transcript is None else Path(transcript)
    stated = register(bank, claim, confidence, strategy, recorded_header(path))
    chosen, claims, name = find_strategy(stated.strategy), stated.claims, stated.strategy
    rule = StoppingRule(questions, tolerance, patience)
    state, models = _blank(bank, claims, rules, reading)
    who = getattr(examinee, "hash", None)
    header = stated.header(bank=bank.hash, examinee=who, seed=seed, reading=reading, rules=rules)
    generator = random or numpy_generator(seed, "examination", name)
    with Transcript(path, header) as past:
        stopped, course, record = _ask(
            state, models, chosen, examinee, rule, past, reading, generator, progress
        )
    bins = np.stack([model.counts for model in models])
    progressed = np.array(course)
    return Examination(bank, name, seed, reading, rules, kernel, stopped, bins, progressed, claims, record)


@dataclass(frozen=True)
class StoppingRule:
    """When to stop beside the decision of all claims and the end of the bank; None: never."""

    questions: int | None
    tolerance: float | None
    patience: int | None

    def __post_init__(self) -> None:
        for name, value in (("--questions", self.questions), ("--patience", self.patience)):
            if value is not None and value < 1:
                raise InputError(f"{name} {value} is not at least 1")
        if self.tolerance is not None and not self.tolerance > 0:
            raise InputError(
                f"--tolerance {self.tolerance:g} is not above 0", hint="The uncertainty starts at 2."
            )

    def reason(self, claims: Sequence[Claim], course: list[float], available: int) -> str:
        """Return why no further question is asked, empty to go on."""
        asked = len(course) - 1
        registered = [one for one in claims if one.registered]
        if registered and not any(one.open for one in registered):
            return "claims"
        if self.tolerance is not None and course[-1] <= self.tolerance:
            return "tolerance"
        patience = self.patience
        if patience is not None and asked >= patience and course[-1 - patience] - course[-1] < PROGRESS:
            return "patience"
        if asked >= available:
            return "all asked"
        return "questions" if self.questions is not None and asked >= self.questions else ""


def _ask(
    state: ExaminationState,
    models: list[Performance],
    strategy: Strategy,
    examinee: Examinee,
    rule: StoppingRule,
    past: Transcript,
    reading: Reading,
    random: np.random.Generator,
    progress: Progress,
) -> tuple[str, list[float], Record]:
    """Ask until a stopping rule applies; return its name, the mean uncertainty after each question, and what was asked."""
    bank, pool = state.bank, strategy.sample(state.bank)
    available, course = int(bank.cells.sum()), [float(state.uncertainty.mean())]
    record = Record()
    expected = min(rule.questions or available, available)
    with progress.track("Asking", expected, unit="questions") as advance:
        while not (stopped := rule.reason(state.claims, course, available)):
            number = len(course)
            sample, concept, truth = pool.draw(
                strategy.cell(state, random) if strategy.cell else None, random
            )
            question = Question(number, sample, bank.name(sample), bank.concepts[concept], truth)
            prob = past.recall(question)
            if prob is None:
                prob = _answer(examinee, question)
                past.add(question, prob)
            correct = record.add(sample, concept, truth, prob)
            state.asked[concept, truth] += 1
            state.right[concept, truth] += correct
            state.stale[concept, truth] += 1
            if models[concept].add(bin_of(truth, prob)):
                state.stale[concept, truth] = 0
                state.uncertainty[concept] = models[concept].uncertainty(reading)
            for one in state.claims:
                one.update(concept, truth, correct, number)
            course.append(float(state.uncertainty.mean()))
            advance(1)
    return stopped, course, record


def _blank(
    bank: Bank, claims: Sequence[Claim], rules: str, reading: Reading
) -> tuple[ExaminationState, list[Performance]]:
    models = [Performance() for _ in bank.concepts]
    asked, right, stale = (np.zeros(bank.cells.shape, np.int64) for _ in range(3))
    start = np.stack([model.uncertainty(reading) for model in models])
    return ExaminationState(bank, asked, right, start, stale, claims, rules == "corrected"), models


def _answer(examinee: Examinee, one: Question) -> float:
    """Ask, and insist on a probability."""
    where = f"question {one.question} (image '{one.image_id}', concept '{one.concept}')"
    try:
        answer = examinee(one.sample, one.concept)
    except (InputError, WorkError):
        raise
    except Exception as error:
        raise WorkError(f"{where}: the examinee raised {type(error).__name__}: {error}") from error
    try:
        prob = float(answer)
    except (TypeError, ValueError):
        raise WorkError(f"{where}: the examinee answered {answer!r:.60}, not a number") from None
    if math.isnan(prob) or not 0 <= prob <= 1:
        raise WorkError(f"{where}: the examinee answered {prob:g}, outside [0, 1]")
    return prob
