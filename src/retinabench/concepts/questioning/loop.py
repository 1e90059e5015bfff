"""The examination: ask, count, update, until told to stop. Algorithm 1 of Fountoukidou and Sznitman (2019), reconstructed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.examinees.examinees import Examinee
from retinabench.concepts.inference.claims import Claim, check_confidence, parse_claim
from retinabench.concepts.inference.gaussian_process import Performance, Reading, bin_of
from retinabench.concepts.questioning.examination import Examination
from retinabench.concepts.questioning.strategies import State, find_strategy
from retinabench.concepts.questioning.transcript import Transcript
from retinabench.core.errors import InputError, WorkError
from retinabench.core.progress import QUIET, Progress
from retinabench.core.random_streams import numpy_generator

PROGRESS = 1e-3
"""`patience` calls less than this fall of the mean uncertainty, which begins at 2, no progress."""


def examine(
    bank: Bank,
    examinee: Examinee,
    *,
    strategy: str = "precision",
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
    """Question an examinee about a bank.

    examinee: `answer(sample_index, concept)` -> P(yes). It stops at the first of: so many `questions`; a mean uncertainty of
    at most `tolerance`; `patience` questions in which it fell by less than 0.001; every `claim` decided at `confidence` (each
    for itself); all asked. reading: of the uncertainty, see `Performance.uncertainty`. rules: "corrected" skips saturated cells,
    "published" does not, see `strategies.py`. kernel: "fitted" draws the final curves with hyper-parameters of maximal
    evidence; the questions are always chosen with the published ones. transcript: a file to append to, or to continue from.
    random: replaces the generator of `seed`.

    Raises `InputError` for wrong options and foreign transcripts, `WorkError` naming the question where the examinee raises
    or answers anything but a number in [0, 1]; the transcript then holds all earlier answers.
    """
    chosen = find_strategy(strategy)
    check_confidence(confidence)
    claims = [
        parse_claim(text, bank, confidence) for text in ([claim] if isinstance(claim, str) else claim or ())
    ]
    _check(strategy, chosen.companion_valid, claims, questions, tolerance, patience)
    state, models = _blank(bank, claims, rules, reading)
    random = random or numpy_generator(seed, "examination", strategy)
    pool = chosen.sample(bank)
    available, course = int(bank.cells.sum()), [float(state.uncertainty.mean())]
    header = {
        "bank": bank.hash,
        "examinee": getattr(examinee, "hash", None),
        "strategy": strategy,
        "seed": seed,
        "reading": reading,
        "rules": rules,
        "claims": [(f"{one.text} @ {confidence:g}") for one in claims] if strategy == "claims" else [],
    }
    with (
        Transcript(None if transcript is None else Path(transcript), header) as record,
        progress.track("Asking", min(questions or available, available), unit="questions") as advance,
    ):
        while not (stopped := _stop(state, course, questions, tolerance, patience, available)):
            number = len(course)
            sample, concept, truth = pool.draw(chosen.cell(state, random) if chosen.cell else None, random)
            row = {"question": number, "sample": sample, "image_id": bank.name(sample)}
            row |= {"concept": bank.concepts[concept], "truth": truth}
            prob = record.recall(row)
            if prob is None:
                prob = _answer(examinee, row)
                record.append(row | {"answer": prob})
            correct = (prob >= 0.5) == bool(truth)
            state.asked[concept, truth] += 1
            state.right[concept, truth] += correct
            state.stale[concept, truth] += 1
            if models[concept].add(bin_of(truth, prob)):
                state.stale[concept, truth] = 0
                state.uncertainty[concept] = models[concept].uncertainty(reading)
            for one in claims:
                one.update(concept, truth, correct, number)
            course.append(float(state.uncertainty.mean()))
            advance(1)
    return Examination(
        bank=bank,
        strategy=strategy,
        seed=seed,
        reading=reading,
        rules=rules,
        kernel=kernel,
        stopped=stopped,
        bins=np.stack([model.counts for model in models]),
        uncertainty=np.array(course),
        claims=[one.to_dict(bank) for one in claims],
    )


def _blank(
    bank: Bank, claims: Sequence[Claim], rules: str, reading: Reading
) -> tuple[State, list[Performance]]:
    models = [Performance() for _ in bank.concepts]
    nothing = [np.zeros(bank.cells.shape, np.int64) for _ in range(3)]
    start = np.stack([model.uncertainty(reading) for model in models])
    return State(bank, nothing[0], nothing[1], start, nothing[2], claims, rules == "corrected"), models


def _stop(
    state: State,
    course: list[float],
    questions: int | None,
    tolerance: float | None,
    patience: int | None,
    available: int,
) -> str:
    """Why to ask no further question, empty to go on. course: the mean uncertainty so far, the prior's first."""
    asked = len(course) - 1
    if state.claims and all(one.decided != "undecided" for one in state.claims):
        return "claims"
    if tolerance is not None and course[-1] <= tolerance:
        return "tolerance"
    if patience is not None and asked >= patience and course[-1 - patience] - course[-1] < PROGRESS:
        return "patience"
    if asked >= available:
        return "all asked"
    return "questions" if questions is not None and asked >= questions else ""


def _check(
    strategy: str,
    companion_valid: bool,
    claims: Sequence[Claim],
    questions: int | None,
    tolerance: float | None,
    patience: int | None,
) -> None:
    """Refuse options that make no sense, in the words of the command line."""
    for name, value in (("--questions", questions), ("--patience", patience)):
        if value is not None and value < 1:
            raise InputError(f"{name} {value} is not at least 1")
    if tolerance is not None and not tolerance > 0:
        raise InputError(f"--tolerance {tolerance:g} is not above 0", hint="The uncertainty begins at 2.")
    if claims and not companion_valid:
        raise InputError(
            f"the strategy '{strategy}' selects samples within a cell, so no claim can be decided by it",
            hint="Choose claims, precision, uncertainty or random.",
        )
    if strategy == "claims" and not claims:
        raise InputError("the strategy 'claims' needs a claim", hint="Give it with --claim.")


def _answer(examinee: Examinee, row: dict[str, Any]) -> float:
    """Ask, and insist on a probability."""
    where = f"question {row['question']} (image '{row['image_id']}', concept '{row['concept']}')"
    try:
        answer = examinee(row["sample"], row["concept"])
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
