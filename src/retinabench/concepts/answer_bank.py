"""Examinations about the images of a bank: by a table of answers, by a synthetic examinee, or by a network that is trained."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from retinabench.concepts.banks import masks
from retinabench.concepts.banks.definition import BankDefinition, find_definition
from retinabench.concepts.banks.open_bank import read_images
from retinabench.concepts.banks.tables import read_bank, read_reference
from retinabench.concepts.examine import ExamineOptions, examine_bank, examine_files
from retinabench.concepts.examinees import SYNTHETIC, read_answers
from retinabench.concepts.questioning.transcript import recorded_header
from retinabench.concepts.report.findings import ExaminationReport, parse_goals
from retinabench.concepts.trained_answers import NetworkOptions, train_and_answer, write_truth
from retinabench.core.errors import InputError
from retinabench.data.dataset import ConceptImages, Rows
from retinabench.experiments.execution import Resources


def examine_images(
    bank: str,
    source: Path | None,
    out: Path,
    network: NetworkOptions,
    options: ExamineOptions,
    answers: Path | None = None,
) -> ExaminationReport:
    """Question an examinee about the images of a bank."""
    if options.reference is not None:
        raise InputError("--reference is for --truth with columns CONCEPT@READER", hint="Leave it out.")
    definition = find_definition(bank)
    size, progress = network.side(definition), network.resources.progress
    images = read_images(definition, source, images=network.images, seed=network.seed, progress=progress)
    parse_goals(options.goals, options.concepts or images.concepts)  # is refused before the training begins
    if answers is not None:
        write_truth(images, np.arange(len(images)), out / "truth.csv")
        return examine_files(answers, out / "truth.csv", out, options, progress=progress)
    if network.synthetic:
        assert network.examinee is not None
        write_truth(images, _asked(images, definition, network), out / "truth.csv")
        questions = read_bank(out / "truth.csv", options.concepts)
        examinee = SYNTHETIC[network.examinee](questions, network.seed)
        return examine_bank(questions, examinee, out, options, progress=progress)
    train_and_answer(images, definition, out, network, size, origin(bank, source))
    questions = read_bank(out / "truth.csv", options.concepts)
    given = read_answers(out / "answers.csv", questions)
    # A transcript of an earlier network goes; one of the same answers stays, with the claims that it registered.
    if recorded_header(out / "transcript.jsonl").get("examinee") != given.hash:
        (out / "transcript.jsonl").unlink(missing_ok=True)
    return examine_bank(questions, given, out, options, progress=progress)


def examine_synthetic(
    truth: Path, name: str, out: Path, options: ExamineOptions, resources: Resources
) -> ExaminationReport:
    """Question a synthetic examinee about a table of truth."""
    bank, panel = read_reference(truth, options.concepts, options.reference, options.reader_seed)
    examinee = SYNTHETIC[name](bank, options.seed)
    return examine_bank(bank, examinee, out, options, panel, progress=resources.progress)


def origin(bank: str, source: Path | None) -> dict[str, str]:
    """Return what decides the samples of a bank: its definition and where its files lie."""
    digest = hashlib.sha256(find_definition(bank).model_dump_json().encode()).hexdigest()[:12]
    place = "" if source is None else hashlib.sha256(str(source.resolve()).encode()).hexdigest()[:12]
    return {"bank": f"{Path(bank).stem} ({digest})", "source": place}


def _asked(images: ConceptImages, definition: BankDefinition, network: NetworkOptions) -> Rows:
    return masks.split(images, network.seed, definition.held_out)[1]
