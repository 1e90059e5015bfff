"""The transcript of an examination: every question and its answer as one line of JSON, appended as soon as the answer is there.

The first line registers, before the first question, what determines the questions: the claims, the cuts, how intervals are made, the
hashes of bank and answers, the seed. A claim that is first stated when answers are known is *exploratory*: it is never decided and guides
no question. Every line names the SHA-256 of the line before it, so that the hash of the last line identifies the whole transcript. With an
auditor's *nonce* the seed is `seed_of(bank, nonce)`, which the examined side can neither choose nor foresee. Transcripts of version 2 have
neither; those of version 1 register the claims of the strategy `claims` alone, each decided at its confidence by itself.

An examination continues by repetition: strategy, seed and answers determine every question. A line that was cut short by a kill is
dropped, and its question is asked again. One process writes at a time: it holds the lock of the folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.inference.claims import Claim, check_confidence, parse_claim
from retinabench.concepts.inference.rates import ANYTHING, CellAnswers, PatientAnswers, Patients
from retinabench.concepts.inference.unpredictability import AnswerRanking, ranking
from retinabench.concepts.questioning.strategies import find_strategy
from retinabench.core.errors import InputError, check, open_in_place
from retinabench.core.files import explain, sealed, unsealed
from retinabench.core.results import JsonObject
from retinabench.core.workspace import Workspace


@dataclass
class Record:
    """The questions in their order; item i of every list belongs to question i + 1."""

    sample: list[int] = field(default_factory=list)
    concept: list[int] = field(default_factory=list)
    truth: list[int] = field(default_factory=list)
    prob: list[float] = field(default_factory=list)
    yes: list[bool] = field(default_factory=list)

    def add(self, sample: int, concept: int, truth: int, prob: float, yes: bool) -> bool:
        """Add a question with its answer; return whether it was right."""
        for values, value in zip(vars(self).values(), (sample, concept, truth, prob, yes), strict=True):
            values.append(value)
        return yes == bool(truth)

    def said(self, concept: int) -> NDArray[np.bool_]:
        """Return whether the answers to the questions about a concept were yes, (q,)."""
        mine: NDArray[np.bool_] = np.asarray(self.concept, np.int64) == concept
        return np.asarray(np.asarray(self.yes, np.bool_)[mine])

    def about(self, concept: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Return sample, truth and answer of the questions about a concept, (q,) each."""
        mine = np.asarray(self.concept, np.int64) == concept
        sample, truth = (np.asarray(values, np.int64)[mine] for values in (self.sample, self.truth))
        return sample, truth, np.asarray(self.prob, np.float64)[mine]

    def answers(self, concept: int) -> dict[str, list[float]]:
        _, truth, prob = self.about(concept)
        return {"without": prob[truth == 0].tolist(), "with": prob[truth == 1].tolist()}


class Answered:
    """Counts answers; `patients` are the samples that count for new patients, None where each is a patient of its own."""

    def __init__(self, bank: Bank, record: Record, seed: int, drawn: bool, fixed: bool = False) -> None:
        self._bank, self._record, self._drawn, self._fixed = bank, record, drawn, fixed
        self.patients = None if bank.patient is None else Patients(bank.patient, seed)

    def cell(self, concept: int, sign: int) -> CellAnswers:
        sample, truth, _ = self._record.about(concept)
        mine, right = truth == sign, self._record.said(concept) == bool(sign)
        return self.members(np.asarray(self._bank.truth[:, concept]) == sign, sample[mine], right[mine])

    def members(self, member: NDArray[np.bool_], sample: NDArray[np.int64], right: NDArray[np.bool_]) -> CellAnswers:
        """Return the answers about any set of samples that are asked about in random order."""
        patients = None
        if self.patients is not None and (rows := self.patients.counted(member)) is not None:
            counted = np.isin(sample, rows)
            patients = PatientAnswers(int(right[counted].sum()), int(counted.sum()), len(rows))
        return CellAnswers(int(right.sum()), len(sample), int(member.sum()), self._drawn, patients, self._fixed)

    def ranking(self, concept: int) -> AnswerRanking:
        sample, truth, prob = self._record.about(concept)
        order = np.argsort(sample)  # sums do not depend on the order of the questions
        sample, truth, prob = sample[order], truth[order], prob[order]
        patient = sample if self._bank.patient is None else self._bank.patient[sample]
        if len(sample) == self._bank.cells[concept].sum():
            return ranking(truth, prob, patient, None)
        found = ranking(truth, prob, patient, self._patients_of(concept))
        return found if self._drawn else found._replace(**ANYTHING._asdict())

    def _patients_of(self, concept: int) -> list[int]:
        if self._bank.patient is None:
            return [int(count) for count in self._bank.cells[concept]]
        truth = np.asarray(self._bank.truth[:, concept])
        return [len(np.unique(self._bank.patient[truth == sign])) for sign in (0, 1)]


FIRST, SECOND, SCHEMA = (f"retinabench.transcript/{version}" for version in (1, 2, 3))
READ = (FIRST, SECOND, SCHEMA)
PREVIOUS = "previous"  # the SHA-256 of the line before
STATED = ("schema", "strategy", "claims")  # What may still be stated anew while a transcript holds no answer.


@dataclass(frozen=True)
class Question:
    """A question, as a line of the transcript has it."""

    question: int
    sample: int
    image_id: str
    concept: str
    truth: int


def recorded_header(path: Path | None) -> JsonObject:
    """Return the first line of a transcript with answers; empty where there is none, or none that can be read.

    What is returned is used only for what was left open; `Transcript` checks every line.
    """
    if path is None or path.is_symlink() or not path.is_file():
        return {}
    try:
        with open(check(path), "rb") as handle:
            first, answered = handle.readline(), handle.readline().endswith(b"\n")
        header = unsealed(first) if answered else {}
    except (OSError, ValueError):
        return {}
    claims = header.get("claims")
    whole = header.get("schema") in READ and isinstance(header.get("strategy"), str) and isinstance(claims, list)
    return header if whole and all(isinstance(claim, str) for claim in claims or ()) else {}


class Transcript:
    """The answers of an earlier start of the same examination, and the file to which new ones are appended."""

    def __init__(self, path: Path | None, header: Mapping[str, object]) -> None:
        self.path = path
        self.past: list[JsonObject] = []
        self.heads: list[str] = []
        self._chained = header.get("schema") == SCHEMA
        self._bounded = not header.get("cut")
        self._handle: IO[bytes] | None = None
        self._resources = contextlib.ExitStack()
        if path is None:
            return
        with contextlib.ExitStack() as opening:
            opening.enter_context(Workspace(path.parent, "examination").lock())
            try:
                handle = opening.enter_context(os.fdopen(open_in_place(path, os.O_RDWR), "r+b", buffering=0))
                self._handle = handle
                content = handle.read()
                whole = content.rfind(b"\n") + 1
                # A new file, a first line that was cut short, or one without an answer that is stated anew.
                begun = sealed(header).startswith(content) or _unanswered(content[:whole], header)
                if not begun:
                    self.past, self.heads = read_lines(path, content[:whole] or b"{}\n", header)
                handle.seek(0 if begun else whole)
                handle.truncate()
            except OSError as error:
                raise explain(error, path) from error
            if begun:
                self._append(header)
            self._resources = opening.pop_all()

    def recall(self, question: Question) -> float | None:
        """Return the answer that was written down for a question, None where it was not yet asked."""
        number = question.question
        if number > len(self.past):
            return None
        past = self.past[number - 1]
        answer: Any = past.get("answer")
        known = isinstance(answer, float) and math.isfinite(answer) and (0 <= answer <= 1 or not self._bounded)
        if {**vars(question), "answer": answer} != past or not known:
            hint = "It was changed, or written by another version: delete it to start again."
            raise InputError("is not the question that this examination asks", file=self.path, row=number, hint=hint)
        return float(answer)

    def add(self, question: Question, answer: float) -> None:
        self._append({**vars(question), "answer": answer})

    def _append(self, row: Mapping[str, object]) -> None:
        if self._handle is not None:
            if self.heads and self._chained:
                row = {**row, PREVIOUS: self.heads[-1]}
            left = sealed(row)
            self.heads.append(hashlib.sha256(left).hexdigest())
            try:
                while left:
                    left = left[self._handle.write(left) :]
            except OSError as error:
                assert self.path is not None
                raise explain(error, self.path) from error

    def __enter__(self) -> Transcript:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()


def read_lines(path: Path, content: bytes, header: Mapping[str, object]) -> tuple[list[JsonObject], list[str]]:
    """Return the rows of a transcript below its first line, and the hash of every line; refuse what is not `header`'s."""
    rows: list[JsonObject] = []
    heads: list[str] = []
    for number, text in enumerate(content.splitlines(keepends=True)):
        try:
            row = unsealed(text)
        except ValueError:
            hint = "Delete the file; the examination then starts again."
            raise InputError("is not a line of a transcript", file=path, row=number, hint=hint) from None
        if number == 0:
            _check_header(path, row, header)
        elif header.get("schema") == SCHEMA and row.pop(PREVIOUS, None) != heads[-1]:
            hint = "A line before it was changed, or is missing: delete the file to start again."
            raise InputError("does not continue the line before it", file=path, row=number, hint=hint)
        rows.append(row)
        heads.append(hashlib.sha256(text).hexdigest())
    return rows[1:], heads


def _check_header(path: Path, found: JsonObject, header: Mapping[str, object]) -> None:
    for key, value in header.items():
        if found.get(key) != value:
            shown = f"there: {str(found.get(key))[:40]}, now: {str(value)[:40]}"
            problem = f"is the transcript of another examination: its {key} differs ({shown})"
            raise InputError(problem, file=path, hint="Choose another --out, or delete the file.")


def _unanswered(content: bytes, header: Mapping[str, object]) -> bool:
    """Whether the whole lines of a transcript are one, which differs from `header` at most in what is `STATED`."""
    lines = content.splitlines()
    try:
        found = unsealed(lines[0]) if len(lines) == 1 else {}
    except ValueError:
        return False
    fixed = {**found, **{name: header[name] for name in STATED}}
    return found.get("schema") in READ and fixed == dict(header)


def seed_of(bank: str, nonce: str) -> int:
    return int(hashlib.sha256(f"{bank} {nonce}".encode()).hexdigest()[:8], 16) >> 1  # 31 bits: an option may name it


SEPARATOR = " @ "  # between a claim and its confidence


@dataclass(frozen=True)
class Registration:
    """What the first line of a transcript fixes."""

    schema: str
    strategy: str
    texts: list[str]
    claims: list[Claim]

    def header(self, **fixed: Any) -> JsonObject:
        return {"schema": self.schema, **fixed, "strategy": self.strategy, "claims": self.texts}


def register(
    bank: Bank, texts: str | Sequence[str] | None, confidence: float, strategy: str | None, recorded: JsonObject
) -> Registration:
    """Register claims, or take up those of a transcript with answers."""
    check_confidence(confidence)
    stated = [" ".join(text.split()) for text in ([texts] if isinstance(texts, str) else texts or ())]
    stated = [f"{text}{SEPARATOR}{float(confidence)!r}" for text in dict.fromkeys(stated)]
    registered = [str(text) for text in recorded.get("claims", ())] if recorded else stated
    schema = str(recorded.get("schema", SCHEMA))
    name = strategy or str(recorded.get("strategy", "claims" if registered else "round-robin"))
    together = 1 if schema == FIRST else len(registered)
    claims = [_parse(text, bank, together, registered=True) for text in registered]
    claims += [_parse(text, bank, together, registered=False) for text in stated if text not in registered]
    if claims and not find_strategy(name).companion_valid:
        problem = f"the strategy '{name}' selects samples within a cell, so no claim can be decided by it"
        raise InputError(problem, hint="Choose claims, precision, uncertainty or random.")
    if name == "claims" and not registered:
        raise InputError("the strategy 'claims' needs a claim", hint="Give it with --claim.")
    return Registration(schema, name, registered, claims)


def _parse(text: str, bank: Bank, together: int, *, registered: bool) -> Claim:
    claim, _, confidence = text.rpartition(SEPARATOR)
    try:
        number = float(confidence)
    except ValueError:
        raise InputError(f"the registered claim '{text}' has no confidence") from None
    return parse_claim(claim, bank, number, together=together, registered=registered)
