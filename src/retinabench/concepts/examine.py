"""Examinations of files: `examination.json`, `transcript.jsonl` and the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.banks.tables import ReaderPanel, read_bank, read_reference
from retinabench.concepts.examinees import Examinee, read_answers
from retinabench.concepts.inference.rates import Rate
from retinabench.concepts.questioning.examination import StoppingRule, examine, replay, state_before
from retinabench.concepts.questioning.readers import enter_readers
from retinabench.concepts.questioning.referral import Decisions, agreement, decisions
from retinabench.concepts.questioning.transcript import recorded_header, seed_of
from retinabench.concepts.report.findings import (
    ExaminationReport,
    Goals,
    beside_lines,
    by_goal,
    claim_verdicts,
    parse_goals,
    recognised,
    together,
)
from retinabench.concepts.report.page import write_report
from retinabench.core.errors import QUIET, InputError, Progress, nearest
from retinabench.core.files import write_json
from retinabench.core.settings import read_toml
from retinabench.metrics.image_sets import DecisionThreshold
from retinabench.predictions.io import read_predictions
from retinabench.predictions.table import Predictions

MANY = 100_000  # questions, which take about a quarter of a minute


@dataclass(frozen=True)
class ExamineOptions:
    """Options of an examination, as `questioning.examination.examine` takes them."""

    concepts: Sequence[str] | None = None
    strategy: str | None = None
    questions: int | None = None
    claims: Sequence[str] = ()
    confidence: float = 0.95
    goals: Sequence[str] = ()
    predictions: Path | None = None
    reference: str | None = None
    threshold: str = "0.5"
    rules: Literal["corrected", "published"] = "corrected"
    cut: str | None = None
    fixed: bool = False
    nonce: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.predictions is None and self.threshold != "0.5":
            raise InputError("--threshold is of the referrals of --predictions", hint="Name their file.")
        if not self.claims and self.confidence != 0.95:
            hint = "State one with --claim; all other intervals are at 95 %."
            raise InputError("--confidence is of the decisions of claims", hint=hint)
        if self.nonce is not None and self.seed:
            raise InputError("--nonce decides the seed", hint="Leave --seed out.")

    @property
    def reader_seed(self) -> int:
        """The seed that draws readers and decides ties, before there is a bank."""
        return self.seed if self.nonce is None else seed_of("readers", self.nonce)


def examine_files(
    answers: Path, truth: Path, out: Path, options: ExamineOptions, *, progress: Progress = QUIET
) -> ExaminationReport:
    bank, panel = read_reference(truth, options.concepts, options.reference, options.reader_seed)
    given = read_answers(answers, bank, parse_cut(options.cut, bank))
    return examine_bank(bank, given, out, options, panel, progress=progress)


def verify_files(truth: Path, transcript: Path, options: ExamineOptions, answers: Path | None) -> ExaminationReport:
    """Replay a transcript: every question and answer is the one that follows from its first line, the truth and the answers."""
    header = recorded_header(transcript)
    if not header:
        raise InputError("holds no transcript with answers", file=transcript)
    nonce, cut = header.get("nonce"), header.get("cut")
    options = replace(options, nonce=nonce, seed=header["seed"] if nonce is None else 0)
    bank, panel = read_reference(truth, options.concepts, options.reference, options.reader_seed)
    examined = replay(bank, transcript, None if answers is None else read_answers(answers, bank, cut or {}))
    return ExaminationReport(examined if panel is None else enter_readers(examined, panel))


def examine_bank(
    bank: Bank,
    examinee: Examinee,
    out: Path,
    options: ExamineOptions,
    panel: ReaderPanel | None = None,
    *,
    progress: Progress = QUIET,
) -> ExaminationReport:
    """Examine any examinee and write all files; a transcript found there is continued."""
    goals, decided = check_options(bank, options, out)
    asked = min(int(bank.cells.sum()), options.questions or 10**12)
    if asked > MANY and not options.claims:
        progress.say(
            f"{asked:,} questions will be asked, about {asked / MANY / 4:.1f} minutes; --questions N asks fewer."
        )
    examined = examine(
        bank, examinee, progress=progress, strategy=options.strategy, questions=options.questions, claim=options.claims,
        confidence=options.confidence, seed=options.seed, rules=options.rules, cut=parse_cut(options.cut, bank),
        fixed=options.fixed, nonce=options.nonce, transcript=out / "transcript.jsonl",
    )  # fmt: skip
    if panel is not None:
        examined = enter_readers(examined, panel)
    referral = None if decided is None else agreement(bank, examined.record, decided)
    report = ExaminationReport(examined, goals, together(bank), referral)
    write_json(out / "examination.json", report.to_dict(), checked=True)
    write_report(report, out)
    return report


def check_options(bank: Bank, options: ExamineOptions, out: Path) -> tuple[Goals, Decisions | None]:
    """Refuse what is wrong in an option, or in a file that it names, before the questions begin."""
    parse_cut(options.cut, bank)
    rule, path = StoppingRule(options.questions), out / "transcript.jsonl"
    state_before(bank, options.strategy, rule, options.claims, options.confidence, path, fixed=options.fixed)
    goals = parse_goals(options.goals, bank.concepts)
    if options.predictions is None:
        return goals, None
    predictions = read_predictions(options.predictions)
    return goals, decisions(bank, predictions, DecisionThreshold.parse(options.threshold).freeze(predictions))


def parse_cut(text: str | None, asked: Bank) -> dict[str, float]:
    """Return the cuts, from which answer on a concept of what is asked about is a yes; without one, yes is above one half.

    A cut is a number for all concepts, a TOML file with a number per concept (and one named ``all`` for the others), or ``RULE@FOLDER``:
    the rule, such as ``youden`` or ``sensitivity=0.9``, chooses it on the `answers.csv` and `truth.csv` of other images in the folder.
    """
    concepts = asked.concepts
    if text is None:
        return {}
    if text.endswith(".toml"):
        return _cuts_of_file(Path(text), concepts)
    rule, at, folder = text.partition("@")
    if at:
        return _chosen(DecisionThreshold.parse(rule), Path(folder), asked)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        hint = "A number, a TOML file with one per concept, or a rule with the folder of other answers: youden@FOLDER."
        raise InputError(f"--cut '{text}' is not understood", hint=hint)
    return dict.fromkeys(concepts, value)


def _cuts_of_file(path: Path, concepts: Sequence[str]) -> dict[str, float]:
    stated = read_toml(path)
    for name, value in stated.items():
        if name not in ("all", *concepts):
            raise InputError(f"has a cut of an unknown concept '{name}'", file=path, hint=nearest(name, concepts))
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise InputError(f"the cut of '{name}' is not a number", file=path, hint=f'Write "{name}" = 0.3.')
    common = dict.fromkeys(concepts, stated.pop("all")) if "all" in stated else {}
    return {name: float(value) for name, value in {**common, **stated}.items()}


def _chosen(rule: DecisionThreshold, folder: Path, asked: Bank) -> dict[str, float]:
    """Choose cuts by a rule on the answers in a folder, which are about other images."""
    bank = read_bank(folder / "truth.csv", asked.concepts)
    if np.isin([bank.name(k) for k in range(bank.samples)], asked.ids if asked.ids is not None else []).any():
        raise InputError("holds images that will be asked about", file=folder, hint="Choose cuts on others.")
    answers = read_answers(folder / "answers.csv", bank, asked.concepts)
    cuts = {}
    for column, concept in enumerate(asked.concepts):
        known = np.flatnonzero(bank.truth[:, column] >= 0)
        # The rules know their scores by rank alone: a score need not be a probability.
        levels, rank = np.unique([answers(int(sample), concept) for sample in known], return_inverse=True)
        names = np.arange(len(rank)).astype(np.str_)
        truth = bank.truth[known, column]
        try:
            found = rule.freeze(Predictions(names, truth, rank / len(levels))).value
        except InputError:
            problem = f"cannot decide the cut of '{concept}', which {truth.sum()} of {len(truth)} images show"
            hint = "Leave the concept out with --concepts, or give the cuts in a TOML file."
            raise InputError(problem, file=folder, hint=hint) from None
        place_of = math.ceil(found * len(levels) - 1e-6)
        above = np.nextafter(levels[-1], np.inf)  # the rule wants no yes at all
        cuts[concept] = float(levels[place_of] if place_of < len(levels) else above)
    return cuts


SHOWN = ("Recognised", "Not shown to be recognised", "Reversed", "Not asked")  # in the order of `recognised`


def summary_lines(report: ExaminationReport) -> list[str]:
    found, lines = report.examination, []
    for verdict in claim_verdicts(report):
        claim, rate = verdict.claim, verdict.rate
        after = f", decided after {claim.after} questions" if claim.after else ""
        counts = f"{rate.right} of {rate.asked} answers were right"
        more = "" if verdict.of_new_patients else f" For new samples it {verdict.new}."
        lines.append(f"{verdict.says} in {claim.scope}: {claim.text}{after}; {counts}.{more}")
    lines += [f"Exploratory, not decided: {claim.text}." for claim in found.claims if not claim.registered]
    for standing in ("missed", "met", "open"):
        for (measure, goal), rates in by_goal(rate for rate in report.every_rate if rate.standing == standing).items():
            lines.append(f"Goal {standing}: {measure} >= {goal:g} of {', '.join(rate.concept for rate in rates)}.")
    if not lines:
        said = zip(SHOWN, recognised(report).values(), strict=True)
        lines.append("; ".join(f"{text}: {', '.join(names)}" for text, names in said if names) + ".")
    lines.append(f"{found.asked:,} of {found.bank.cells.sum():,} questions asked, stopped by: {found.stopped}.")
    if found.head:
        lines.append(f"Transcript: {found.head} (SHA-256 of its last line, which names the one before it, and so on).")
    readers, width = found.readers, max(map(len, found.concepts))
    panel = f" of what another panel of {len(readers.names)} would say" if readers and readers.panel else ""
    lines.append(f"{'':<{width}}  {'sensitivity':<28}specificity (95 % interval{panel}, asked/all)")
    for name, one in found.concepts.items():
        cells = "".join(f"{_rate(rate):<28}" for rate in (one.sensitivity, one.specificity))
        lines.append(f"{name:<{width}}  {cells}".rstrip())
    return lines + (beside_lines(readers) if readers else [])


def _rate(one: Rate) -> str:
    asked = f"{one.asked}/{one.of}"
    if one.value is None:
        return f"unknown {asked}"
    if one.low == one.high:  # the rate of the bank is known: it has no interval
        return f"{one.value:.2f} of all {one.of}"
    return f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}] {asked}"
