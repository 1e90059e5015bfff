"""An examination: its options, the loop of questions, and its result."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.banks.tables import FEWEST, LATENT, MAJORITY
from retinabench.concepts.examinees import Answers, Examinee
from retinabench.concepts.inference.claims import Claim, RateEnds
from retinabench.concepts.inference.rates import ALPHA, Patients, Rate, accuracy, rate
from retinabench.concepts.inference.unpredictability import (
    GRID,
    LENGTH,
    NOISE,
    SIGNAL,
    Admissible,
    AnswerRanking,
    Performance,
    Reading,
    around_half,
    bin_of,
    outcomes,
    posterior,
    says_yes,
)
from retinabench.concepts.questioning.strategies import ADMISSIBLE, SATURATED, ExaminationState, Strategy, find_strategy
from retinabench.concepts.questioning.transcript import (
    Answered,
    Question,
    Record,
    Registration,
    Transcript,
    recorded_header,
    register,
    seed_of,
)
from retinabench.core.errors import QUIET, InputError, Progress, WorkError, check
from retinabench.core.random_streams import numpy_generator
from retinabench.core.results import Document, JsonObject, json_content
from retinabench.metrics.clinical.readers import BesideReaders

SCHEMA = "retinabench.examination/2"
RARE = 10  # positive or negative samples, below which a rate of the bank is hardly worth an interval


class AnswerCurve(NamedTuple):
    """The Gaussian process over the answers, on a grid (101,), and its uncertainty without and with the concept."""

    grid: NDArray[np.float64]
    mean: NDArray[np.float64]
    sd: NDArray[np.float64]
    u_minus: float
    u_plus: float
    kernel: dict[str, float]


@dataclass(frozen=True, eq=False)
class ConceptResult(Document):
    """What the answers say of one concept."""

    counts: dict[str, int]
    bins: NDArray[np.int64]
    answers: dict[str, list[float]]
    gp: AnswerCurve
    sensitivity: Rate
    specificity: Rate
    accuracy: Rate
    auroc: AnswerRanking


@dataclass(frozen=True)
class Disagreement:
    """What several readers say of one concept; `range` is the least and the largest rate against a single reader.

    `beside` compares the model with the readers by sensitivity and specificity, each against the majority of the other readers;
    empty until every image was asked about.
    """

    disputed: int
    against: Mapping[str, Mapping[str, Rate]]
    range: Mapping[str, RateEnds | None]
    beside: Mapping[str, BesideReaders]


@dataclass(frozen=True)
class Readers:
    """Several readers from whom the truth was made, see `questioning.readers`."""

    truth: str
    names: Sequence[str]
    concepts: Mapping[str, Disagreement]
    results: Mapping[str, ConceptResult]

    @property
    def joint(self) -> bool:
        """Whether the truth is what several readers say together."""
        return self.truth in (MAJORITY, LATENT) and len(self.names) > 1

    @property
    def panel(self) -> bool:
        """Whether the intervals hold what another panel of as many readers would say."""
        return self.joint and len(self.names) >= FEWEST


@dataclass(frozen=True, eq=False)
class Examination:
    """The result of questioning an examinee; `to_dict` returns the JSON described in `retinabench.concepts`."""

    bank: Bank
    strategy: str
    seed: int
    reading: Reading
    rules: str
    stopped: str
    bins: NDArray[np.int64]
    uncertainty: NDArray[np.float64]
    claims: Sequence[Claim] = ()
    record: Record = field(default_factory=Record)
    readers: Readers | None = None
    cut: Mapping[str, float] = field(default_factory=dict)
    fixed: bool = False
    nonce: str | None = None
    head: str | None = None

    @property
    def asked(self) -> int:
        return int(self.bins.sum())

    @property
    def companion_valid(self) -> bool:
        """Whether the strategy draws samples within a cell at random, so that shares of right answers are about new samples."""
        return find_strategy(self.strategy).companion_valid

    @property
    def rates(self) -> int:
        """Number of rates that the bank can show: of cells with samples, whether asked about or not."""
        return int(np.count_nonzero(self.bank.cells))

    @cached_property
    def answered(self) -> Answered:
        return Answered(self.bank, self.record, self.seed, self.companion_valid, self.fixed)

    @cached_property
    def concepts(self) -> Mapping[str, ConceptResult]:
        if self.readers is not None:
            return self.readers.results
        return {name: self._result(place) for place, name in enumerate(self.bank.concepts)}

    def __getitem__(self, concept: str) -> ConceptResult:
        return self.concepts[concept]

    def _result(self, place: int) -> ConceptResult:
        bins = self.bins[place]
        model, kernel = posterior(bins), {"signal": SIGNAL, "noise": NOISE, "length": LENGTH}
        minus, plus = model.uncertainty(self.reading).tolist()
        curve = AnswerCurve(GRID, model.mean(), np.sqrt(model.variance()), minus, plus, kernel)
        without, having = (self.answered.cell(place, sign) for sign in (0, 1))
        return ConceptResult(
            outcomes(bins), bins, self.record.answers(place), curve, rate(having, self.rates), rate(without, self.rates),
            accuracy((without, having)), self.answered.ranking(place),
        )  # fmt: skip

    def to_dict(self) -> JsonObject:
        bank, names = self.bank, self.bank.concepts
        negatives, positives = self.bank.cells.T.tolist()
        unknown = (bank.samples - bank.cells.sum(axis=1)).tolist()
        content = {
            "schema": SCHEMA, "strategy": self.strategy, "seed": self.seed, "reading": self.reading, "rules": self.rules,
            "asked": self.asked, "stopped": self.stopped, "cut": dict(self.cut),
            "intervals": "fixed" if self.fixed else "sequence", "nonce": self.nonce, "transcript": self.head,
            "bank": {
                "hash": bank.hash, "samples": bank.samples, "concepts": list(names),
                "positives": dict(zip(names, positives, strict=True)),
                "negatives": dict(zip(names, negatives, strict=True)),
                "unknown": dict(zip(names, unknown, strict=True)),
            },
            "concepts": json_content(self.concepts),
            "progress": {"questions": list(range(len(self.uncertainty))), "uncertainty": self.uncertainty.tolist()},
            "claims": [claim.to_dict(bank) for claim in self.claims],
            "error_control": {"alpha": ALPHA, "rates": self.rates},
            "companion_valid": self.companion_valid, "notes": self.notes,
        }  # fmt: skip
        if (readers := self.readers) is not None:
            shown = {"truth": readers.truth, "names": readers.names, "concepts": readers.concepts}
            content["readers"] = json_content(shown)
        return content

    @property
    def notes(self) -> list[str]:
        return list(self._notes())

    def _notes(self) -> Iterator[str]:
        if not self.companion_valid:
            yield (
                f"The strategy '{self.strategy}' selects samples by their other concepts: shares of correct answers describe the "
                "questions asked. The intervals of the bank hold whatever the answers that were not asked for; nothing is said of "
                "new samples until every sample was asked about."
            )
        if self.strategy.startswith("uncertainty") and self.rules == "corrected":
            yield (
                f"A concept and truth whose last {SATURATED} questions filled no new bin is skipped while others "
                "are fresher; the published rule would ask it until no question is left."
            )
        if self.answered.patients is not None:
            yield (
                "Patients have several samples: intervals for new samples count one sample of each patient, drawn before the first "
                "question, and are about the answers to a sample of a new patient."
            )
        if self.readers is not None and self.readers.joint and not self.readers.panel:
            count = len(self.readers.names)
            yield (
                f"{count} readers are too few to say what other readers would find: all {count} may share a habit. Intervals, goals and "
                f"claims are about the truth of these {count} readers alone; see the range of the single readers. With {FEWEST} "
                "readers or more, the intervals hold what another panel of as many would say. The comparison of the model with the mean "
                "reader missed in 6 to 20 % of simulations with three readers."
            )
        for name, (negative, positive) in zip(self.bank.concepts, self.bank.cells.tolist(), strict=True):
            for kind, n, of in (("positive", positive, "sensitivity"), ("negative", negative, "specificity")):
                if n == 0:
                    yield f"The bank has no {kind} sample of '{name}': nothing can be said of its {of}."
                elif n < RARE:
                    yield f"The bank has only {n} {kind} sample{'s' * (n > 1)} of '{name}'."
            if unknown := self.bank.samples - negative - positive:
                yield f"The truth of '{name}' is unknown for {unknown} sample{'s' * (unknown > 1)}, not asked about."
        registered = [claim for claim in self.claims if claim.registered]
        if registered and registered[0].together > 1:
            yield (
                f"The {registered[0].together} registered claims are decided together: with a probability of at least "
                f"{100 * registered[0].confidence:g} % no decision is wrong."
            )
        if len(registered) < len(self.claims):
            yield (
                "A claim that was stated after the first answer is exploratory: it is not decided. Examine anew, with other images "
                "or before anybody has seen these answers, to decide it."
            )


PROGRESS = 1e-3  # `patience` calls less than this fall of the mean uncertainty, which begins at 2, no progress.


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
    cut: Mapping[str, float] | None = None,
    fixed: bool = False,
    nonce: str | None = None,
    transcript: str | Path | None = None,
    random: np.random.Generator | None = None,
    progress: Progress = QUIET,
) -> Examination:
    """Question an examinee about a bank: Algorithm 1 of Fountoukidou and Sznitman (2019), reconstructed.

    Args:
        bank: Samples, concepts and truth.
        examinee: A function of the number of a sample and the name of a concept, which returns P(yes).
        strategy: Which question comes next (`retinabench examine --help` lists them); by default `claims` where there are claims, else `round-robin`.
        questions: The most questions to ask; by default all.
        tolerance: Stop when the mean uncertainty is at most this.
        patience: Stop when the mean uncertainty has not fallen over as many questions.
        claim: Claims such as "sensitivity of haemorrhage >= 0.85", with "in new patients" at the end or about the bank.
        confidence: Probability that none of the claims is decided wrongly, at least.
        seed: Of the order of the questions.
        reading: Measure of the uncertainty of a cell.
        rules: `published` also asks about cells whose rate is already certain.
        cut: From which answer on a concept is a yes, by concept; elsewhere above one half.
        fixed: State beforehand that every question will be asked: intervals are those for this number, which are narrower.
        nonce: A word of an auditor; the seed follows from it and from the bank.
        transcript: File of every question and answer, which the same call continues.
        random: Generator that replaces the one of `seed`.
        progress: Where progress is shown.

    Returns:
        The rates of every concept (`examination["haemorrhage"].sensitivity`), the decided claims, and `to_dict()`.

    Raises:
        InputError: A claim, a strategy or the transcript cannot be used with this bank.
    """
    path = None if transcript is None else Path(transcript)
    seed = seed if nonce is None else seed_of(bank.hash, nonce)
    rule = StoppingRule(questions, tolerance, patience)
    stated = state_before(bank, strategy, rule, claim, confidence, path, fixed=fixed)
    chosen, claims, name = find_strategy(stated.strategy), stated.claims, stated.strategy
    if bank.patient is not None:  # of each, one sample counts for the claims about new patients
        patients = Patients(bank.patient, seed)
        for one in (one for one in claims if one.new):
            rows = patients.counted(np.asarray(bank.truth[:, one.concept]) == one.truth)
            one.counted = None if rows is None else frozenset(rows.tolist())
    models = [Performance() for _ in bank.concepts]
    asked, right, stale = (np.zeros(bank.cells.shape, np.int64) for _ in range(3))
    start = np.stack([model.uncertainty(reading) for model in models])
    cuts = [(cut or {}).get(concept) for concept in bank.concepts]
    state = ExaminationState(bank, asked, right, start, stale, claims, rules == "corrected", cuts)
    who = getattr(examinee, "hash", None)
    header = stated.header(
        bank=bank.hash, examinee=who, seed=seed, reading=reading, rules=rules, cut=dict(cut) if cut else None,
        intervals="fixed" if fixed else None, nonce=nonce,
    )  # fmt: skip
    generator = random or numpy_generator(seed, "examination", name)
    with Transcript(path, header) as past:
        stopped, course, record = _ask(state, models, chosen, examinee, rule, past, reading, generator, progress)
        head = past.heads[len(record.sample)] if past.heads else None
    bins = np.stack([model.counts for model in models])
    return Examination(
        bank, name, seed, reading, rules, stopped, bins, np.array(course), claims, record,
        cut=cut or {}, fixed=fixed, nonce=nonce, head=head,
    )  # fmt: skip


def state_before(
    bank: Bank,
    strategy: str | None,
    rule: StoppingRule,
    claim: str | Sequence[str] | None,
    confidence: float,
    transcript: Path | None,
    *,
    fixed: bool,
) -> Registration:
    """Return what is stated before the first question; raise `InputError` for options that cannot be, or not together."""
    if fixed and ((strategy or "").endswith(ADMISSIBLE) or claim or rule != StoppingRule()):
        hint = "State goals instead of claims, and leave out when to stop."
        raise InputError("intervals for a fixed number of questions need that all are asked", hint=hint)
    stated = register(bank, claim, confidence, strategy, recorded_header(transcript))
    find_strategy(stated.strategy)
    return stated


def replay(bank: Bank, transcript: Path, examinee: Answers | None) -> Examination:
    """Repeat an examination from its transcript; raise `InputError` for anything that does not follow from its first line.

    Without an examinee, the answers are taken as they are recorded.
    """
    content = check(transcript, named=True).read_bytes()
    header, asked = recorded_header(transcript), content.count(b"\n") - 1

    def recorded(sample: int, concept: str) -> float:
        raise InputError(f"ends after {asked} questions, before its examination does")

    recorded.hash = header.get("examinee") if examinee is None else examinee.hash  # type: ignore[attr-defined]
    fixed = header.get("intervals") == "fixed"
    with TemporaryDirectory() as folder:
        copy = Path(folder) / transcript.name
        copy.write_bytes(content)
        try:
            found = examine(
                bank, recorded, strategy=header["strategy"], questions=None if fixed else asked, seed=header["seed"],
                reading=header["reading"], rules=header["rules"], cut=header.get("cut"), fixed=fixed,
                nonce=header.get("nonce"), transcript=copy,
            )  # fmt: skip
        except InputError as error:
            raise InputError(error.problem, file=transcript, row=error.row) from None
    if found.asked < asked:
        raise InputError(f"goes on after the end of its examination, {found.asked} questions", file=transcript)
    asked_about = zip(found.record.sample, found.record.concept, found.record.prob, strict=True)
    for row, (sample, concept, prob) in enumerate(asked_about, start=1):
        if examinee is not None and examinee(sample, bank.concepts[concept]) != prob:
            raise InputError(f"holds the answer {prob}, which the answers do not", file=transcript, row=row)
    return found


@dataclass(frozen=True)
class StoppingRule:
    """When to stop before all claims are decided and all questions asked; None: not before."""

    questions: int | None = None
    tolerance: float | None = None
    patience: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("--questions", self.questions), ("patience", self.patience)):
            if value is not None and value < 1:
                raise InputError(f"{name} {value} is not at least 1")
        if self.tolerance is not None and not self.tolerance > 0:
            raise InputError(f"tolerance {self.tolerance:g} is not above 0", hint="The uncertainty starts at 2.")

    def reason(self, claims: Sequence[Claim], course: list[float], available: int) -> str:
        """Return why no further question is asked, empty to go on."""
        asked = len(course) - 1
        registered, patience = [one for one in claims if one.registered], self.patience
        if registered and not any(one.open for one in registered):
            return "claims" if all(one.decided != "undecided" for one in registered) else "no sample left"
        if self.tolerance is not None and course[-1] <= self.tolerance:
            return "tolerance"
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
    bank, pool, record = state.bank, strategy.sample(state.bank), Record()
    available, course = int(bank.cells.sum()), [float(state.uncertainty.mean())]
    with progress.track("Asking", min(rule.questions or available, available), unit="questions") as advance:
        while not (stopped := rule.reason(state.claims, course, available)):
            if isinstance(pool, Admissible):
                state.admissible = pool.left()
                if not state.admissible.any():
                    stopped = "none admissible"
                    break
            number = len(course)
            sample, concept, truth = pool.draw(strategy.cell(state, random) if strategy.cell else None, random)
            question = Question(number, sample, bank.name(sample), bank.concepts[concept], truth)
            prob = past.recall(question)
            if prob is None:
                prob = _answer(examinee, question, bounded=state.cut[concept] is None)
                past.add(question, prob)
            level = around_half(prob, state.cut[concept])
            correct = record.add(sample, concept, truth, prob, says_yes(level))
            state.asked[concept, truth] += 1
            state.right[concept, truth] += correct
            state.stale[concept, truth] += 1
            course.append(course[-1])
            if models[concept].add(bin_of(truth, level)):
                state.stale[concept, truth] = 0
                state.uncertainty[concept] = models[concept].uncertainty(reading)
                course[-1] = float(state.uncertainty.mean())
            for one in state.claims:
                one.update(concept, truth, correct, number, sample)
            advance(1)
    return stopped, course, record


def _answer(examinee: Examinee, one: Question, *, bounded: bool) -> float:
    """Ask, and insist on a probability, or on a finite score where the concept has a cut."""
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
    if not math.isfinite(prob) or (bounded and not 0 <= prob <= 1):
        raise WorkError(f"{where}: the examinee answered {prob:g}, outside [0, 1]")
    return prob
