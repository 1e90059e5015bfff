"""Examinations about the images of a bank: by a table of answers, by a synthetic examinee, or by a network that is trained."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from retinabench.concepts.banks import masks
from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.banks.definition import find_definition
from retinabench.concepts.banks.tables import read_bank, read_images, read_reference
from retinabench.concepts.examine import ExamineOptions, check_options, examine_bank, examine_files
from retinabench.concepts.examinees import SYNTHETIC, read_answers
from retinabench.concepts.questioning.transcript import recorded_header
from retinabench.concepts.report.findings import ExaminationReport
from retinabench.concepts.trained_answers import AS_IT_IS, NetworkOptions, train_and_answer, write_truth
from retinabench.core.errors import InputError, nearest
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
    if options.reference is not None:
        raise InputError("--reference is for --truth with columns CONCEPT@READER", hint="Leave it out.")
    definition = find_definition(bank)
    size, progress = network.side(definition), network.resources.progress
    images = read_images(definition, source, images=network.images, seed=network.seed, progress=progress)
    whole = answers is not None or network.trained == AS_IT_IS
    rows = np.arange(len(images)) if whole else masks.split(images, network.seed, definition.held_out)[1]
    if network.grid == 1:
        # What is wrong in an option is refused before a network is trained and a file written.
        check_options(_in_memory(images, rows, options.concepts), options, out)
    if answers is not None:
        write_truth(images, rows, out / "truth.csv")
        return examine_files(answers, out / "truth.csv", out, options, progress=progress)
    if network.synthetic:
        assert network.examinee is not None
        write_truth(images, rows, out / "truth.csv")
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
    bank, panel = read_reference(truth, options.concepts, options.reference, options.reader_seed)
    return examine_bank(bank, SYNTHETIC[name](bank, options.seed), out, options, panel, progress=resources.progress)


def origin(bank: str, source: Path | None) -> dict[str, str]:
    """Return what decides the samples of a bank: its definition and where its files lie."""
    digest = hashlib.sha256(find_definition(bank).model_dump_json().encode()).hexdigest()[:12]
    place = "" if source is None else hashlib.sha256(str(source.resolve()).encode()).hexdigest()[:12]
    return {"bank": f"{Path(bank).stem} ({digest})", "source": place}


def asked_bank(bank: str, source: Path | None, network: NetworkOptions, concepts: Sequence[str] | None) -> Bank:
    """Return the questions that a synthetic examinee is asked about the images of a bank."""
    definition, progress = find_definition(bank), network.resources.progress
    images = read_images(definition, source, images=network.images, seed=network.seed, progress=progress)
    return _in_memory(images, masks.split(images, network.seed, definition.held_out)[1], concepts)


def _in_memory(images: ConceptImages, rows: Rows, concepts: Sequence[str] | None) -> Bank:
    for concept in concepts or ():
        if concept not in images.concepts:
            raise InputError(f"the bank has no concept '{concept}'", hint=nearest(concept, images.concepts))
    columns = [images.concepts.index(concept) for concept in concepts or images.concepts]
    truth = images.truth[rows][:, columns].astype(np.int8)
    return Bank(images.sample_id[rows], concepts or images.concepts, truth, patient=images.patient_id[rows])
