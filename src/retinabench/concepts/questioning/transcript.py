"""The transcript of an examination, and its registration before the first question.

Which claims an examination decides: those that its transcript's first line registers, before the first question.

A claim that is first stated when answers are known could have been chosen for them. It is *exploratory*: its answers are
counted, it is never decided, does not end the examination and guides no question. The registered claims stay what they were:
a later command that leaves one out does not make the others easier to decide.

Transcripts of version 1 register the claims of the strategy `claims` alone, each decided at its confidence by itself.

The transcript: every question and its answer as one line of JSON, appended as soon as the answer is there.

The first line registers what determines the questions, the claims among it: `registration.py` takes up a claim only if it stands
there. It is the only file that is not written as a whole, because an answer may be expensive (an expert, a large network). A line
that was cut short by a kill is dropped, and its question is asked again. An examination continues by repetition: strategy,
seed and answers determine every question, so it starts again with the answers of the transcript and checks that each
question is the recorded one. One process writes at a time: it holds the lock of the folder.
"""

from __future__ import annotations

import contextlib
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
from retinabench.concepts.inference.rates import CellAnswers, PatientAnswers, Patients
from retinabench.concepts.inference.unpredictability import AnswerRanking, Floats, ranking, says_yes
from retinabench.concepts.questioning.strategies import find_strategy
from retinabench.core.errors import InputError
from retinabench.core.files import check, explain, sealed, unsealed
from retinabench.core.results import JsonObject
from retinabench.core.untrusted import open_in_place
from retinabench.core.workspace import Workspace


@dataclass
class Record:
    """The questions in their order; item i of every list belongs to question i + 1."""

    sample: list[int] = field(default_factory=list)
    concept: list[int] = field(default_factory=list)
    truth: list[int] = field(default_factory=list)
    prob: list[float] = field(default_factory=list)

    def add(self, sample: int, concept: int, truth: int, prob: float) -> bool:
        """Add a question with its answer."""
        for values, value in ((self.sample, sample), (self.concept, concept), (self.truth, truth)):
            values.append(value)
        self.prob.append(prob)
        return says_yes(prob) == bool(truth)

    def about(self, concept: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Return sample, truth and answer of the questions about a concept, (q,) each."""
        mine = np.asarray(self.concept, np.int64) == concept
        sample, truth = (np.asarray(values, np.int64)[mine] for values in (self.sample, self.truth))
        return sample, truth, np.asarray(self.prob, np.float64)[mine]

    def answers(self, concept: int) -> dict[str, list[float]]:
        """Return P(yes) about the samples ``without`` a concept and about those ``with`` it."""
        _, truth, prob = self.about(concept)
        return {"without": prob[truth == 0].tolist(), "with": prob[truth == 1].tolist()}


class Answered:
    """Counts answers.

    Attributes:
        patients: Which samples count for new patients; None where each sample is a patient of its own.
    """

    def __init__(self, bank: Bank, record: Record, seed: int, drawn: bool) -> None:
        self._bank, self._record, self._drawn = bank, record, drawn
        self.patients = None if bank.patient is None else Patients(bank.patient, seed)

    def cell(self, concept: int, sign: int) -> CellAnswers:
        """Return the answers about a cell."""
        sample, truth, prob = self._record.about(concept)
        mine = truth == sign
        return self.members(
            np.asarray(self._bank.truth[:, concept]) == sign, sample[mine], says_yes(prob[mine]) == bool(sign)
        )

    def members(self, member: NDArray[np.bool_], sample: NDArray[np.int64], right: NDArray[np.bool_]) -> CellAnswers:
        """Return the answers about any set of samples that are asked about in random order."""
        patients = None
        if self.patients is not None and (rows := self.patients.counted(member)) is not None:
            counted = np.isin(sample, rows)
            patients = PatientAnswers(int(right[counted].sum()), int(counted.sum()), len(rows))
        return CellAnswers(int(right.sum()), len(sample), int(member.sum()), self._drawn, patients)

    def ranking(self, concept: int) -> AnswerRanking:
        """Return how well the answers about a concept rank the samples."""
        _, truth, prob = self._record.about(concept)
        return ranking((prob[truth == 0], prob[truth == 1]), self.compared(concept, self._bank.truth[:, concept]))

    def compared(self, concept: int, truth: NDArray[np.int8]) -> tuple[Floats, Floats] | None:
        """Return P(yes) about the samples that the interval of a ranking compares, in the order in which they were asked."""
        sample, _, prob = self._record.about(concept)
        if not self._drawn:
            if len(sample) < self._bank.cells[concept].sum():
                return None
            order = np.argsort(sample, kind="stable")  # an order in which the answers had no part
            sample, prob = sample[order], prob[order]
        kinds = [truth[sample] == 0, truth[sample] == 1]
        if self.patients is not None:
            rows = self.patients.compared(truth)
            kinds = [kind & np.isin(sample, some) for kind, some in zip(kinds, rows, strict=True)]
        return prob[kinds[0]], prob[kinds[1]]


SCHEMA = "retinabench.transcript/2"
READ = ("retinabench.transcript/1", SCHEMA)
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
        self._handle: IO[bytes] | None = None
        self._resources = contextlib.ExitStack()
        if path is None:
            return
        with contextlib.ExitStack() as opening:
            opening.enter_context(Workspace(path.parent, "examination").lock())
            try:
                descriptor = open_in_place(path, os.O_RDWR)
                handle = opening.enter_context(os.fdopen(descriptor, "r+b", buffering=0))
                self._handle = handle
                content = handle.read()
                whole = content.rfind(b"\n") + 1
                # A new file, a first line that was cut short, or one without an answer that is stated anew.
                begun = sealed(header).startswith(content) or _unanswered(content[:whole], header)
                if not begun:
                    self._read(content[:whole], header)
                handle.seek(0 if begun else whole)
                handle.truncate()
            except OSError as error:
                raise explain(error, path) from error
            if begun:
                self._append(header)
            self._resources = opening.pop_all()

    def _read(self, content: bytes, header: Mapping[str, object]) -> None:
        rows = []
        for number, text in enumerate(content.splitlines()):
            try:
                row = unsealed(text)
            except ValueError:
                hint = "Delete the file; the examination then starts again."
                raise InputError("is not a line of a transcript", file=self.path, row=number, hint=hint) from None
            rows.append(row)
        found = rows[0] if rows else {}
        for key, value in header.items():
            if found.get(key) != value:
                shown = ", ".join(
                    f"{name} {str(one)[:40]}" for name, one in (("there:", found.get(key)), ("now:", value))
                )
                raise InputError(
                    f"is the transcript of another examination: its {key} differs ({shown})",
                    file=self.path,
                    hint="Choose another --out, or delete the file.",
                )
        self.past = rows[1:]

    def recall(self, question: Question) -> float | None:
        """Return the answer that was written down for a question, None where it was not yet asked."""
        number = question.question
        if number > len(self.past):
            return None
        past = self.past[number - 1]
        answer = past.get("answer")
        if {**vars(question), "answer": answer} != past or not isinstance(answer, float) or not 0 <= answer <= 1:
            hint = "It was changed, or written by another version: delete it to start again."
            raise InputError("is not the question that this examination asks", file=self.path, row=number, hint=hint)
        return answer

    def add(self, question: Question, answer: float) -> None:
        """Write a question with its answer, unbuffered."""
        self._append({**vars(question), "answer": answer})

    def _append(self, row: Mapping[str, object]) -> None:
        if self._handle is not None:
            left = sealed(row)
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


def _unanswered(content: bytes, header: Mapping[str, object]) -> bool:
    """Whether the whole lines of a transcript are one, which differs from `header` at most in what is `STATED`."""
    lines = content.splitlines()
    try:
        found = unsealed(lines[0]) if len(lines) == 1 else {}
    except ValueError:
        return False
    fixed = {**found, **{name: header[name] for name in STATED}}
    return found.get("schema") in READ and fixed == dict(header)


SEPARATOR = " @ "  # between a claim and its confidence


@dataclass(frozen=True)
class Registration:
    """What the first line of a transcript fixes."""

    schema: str
    strategy: str
    texts: list[str]
    claims: list[Claim]

    def header(self, **fixed: Any) -> JsonObject:
        """Return the first line of the transcript, with what else determines the questions."""
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
    name = strategy or str(recorded.get("strategy", "claims" if registered else "precision"))
    together = len(registered) if schema == SCHEMA else 1
    claims = [_parse(text, bank, together, registered=True) for text in registered]
    claims += [_parse(text, bank, together, registered=False) for text in stated if text not in registered]
    if claims and not find_strategy(name).companion_valid:
        raise InputError(
            f"the strategy '{name}' selects samples within a cell, so no claim can be decided by it",
            hint="Choose claims, precision, uncertainty or random.",
        )
    if name == "claims" and not registered:
        raise InputError("the strategy 'claims' needs a claim", hint="Give it with --claim.")
    return Registration(schema, name, registered, claims)


def _parse(text: str, bank: Bank, together: int, *, registered: bool) -> Claim:
    """A claim as the transcript writes it."""
    claim, _, confidence = text.rpartition(SEPARATOR)
    try:
        number = float(confidence)
    except ValueError:
        raise InputError(f"the registered claim '{text}' has no confidence") from None
    return parse_claim(claim, bank, number, together=together, registered=registered)
