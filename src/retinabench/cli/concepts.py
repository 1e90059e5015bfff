"""The verbs `examine`, `lesions` and `occlude`: questions about the concepts in images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from retinabench.cli import main as cli
from retinabench.core.errors import InputError, nearest

if TYPE_CHECKING:
    from retinabench.concepts.examine import ExamineOptions
    from retinabench.concepts.report.findings import ExaminationReport
    from retinabench.concepts.trained_answers import NetworkOptions
    from retinabench.core.errors import Progress
    from retinabench.metrics.intervals import Interval


bank_option = partial(cli.option, rich_help_panel="Images and their truth")
network_option = partial(cli.option, rich_help_panel="What answers")
OF_BANK = ("source", "images")
OF_NETWORK = ("grid", "weights", "trained", "size", "epochs")

Source = Annotated[Path | None, bank_option("--source", "PATH", "Folder or zip of the data set as downloaded.")]


Weights = Annotated[str | None, network_option("--weights", "WEIGHTS", "imagenet, timm, hf-hub:NAME or a checkpoint.")]


Size = Annotated[int | None, network_option("--size", "N", "Side of what the network sees, in pixels.")]

Epochs = Annotated[int | None, network_option("--epochs", "N", "Epochs of the training.", min=1)]


@dataclass(frozen=True)
class Asked:
    """What the options say: where the images are, and what answers."""

    source: Source = None
    images: Annotated[int | None, bank_option("--images", "N", "Of drawn retinas: their number.")] = None
    grid: Annotated[int, bank_option("--grid", "N", "Ask about each of N x N regions of an image.", min=1)] = 1
    examinee: Annotated[
        str | None,
        network_option(
            "--examinee",
            "NAME",
            "A network to be trained on the other images: ours, timm:NAME or your own package.module:function; or a synthetic "
            "examinee: biased-1, biased-2, unbiased, overconfident, guessing, always-yes; or paper: Figures 2 to 4 of the publication for "
            "its three. Default: that of the bank, most often efficientnet_lite0 with weights of ImageNet.",
        ),
    ] = None
    weights: Weights = None
    trained: Annotated[
        str | None,
        network_option(
            "--trained",
            "PART",
            "head (on features that are computed once), all, a number of stages, or nothing: your own network answers as it is. "
            "Default: the head of a pretrained network.",
        ),
    ] = None
    size: Size = None
    epochs: Epochs = None
    device: cli.Device = "auto"
    readers: cli.Readers = None

    def network(self, seed: int, progress: Progress) -> NetworkOptions:
        from retinabench.concepts.trained_answers import NetworkOptions
        from retinabench.experiments.execution import Resources

        return NetworkOptions(
            self.examinee, self.weights, self.trained, self.size, self.grid, self.epochs, self.images, seed,
            Resources(self.device, self.readers, progress),
        )  # fmt: skip

    def refuse(self, names: Sequence[str], why: str) -> None:
        """Raise `InputError` for an option that has no part in what is asked."""
        for one in fields(self):
            if one.name in names and getattr(self, one.name) != one.default:
                raise InputError(f"--{one.name} {why}", hint="Leave it out.")


asks_about_images = cli.with_options(Asked, "asked")
"""Gives a verb the options of `Asked`, which it gets as its argument `asked`."""


def occlude(
    folder: Annotated[Path, cli.argument("RUN", "Folder of a finished run, or of an exported model.")],
    bank: Annotated[
        str, cli.option("--bank", "NAME|FILE", "Images with outlined lesions: idrid, synthetic … or a TOML file.")
    ] = "idrid",
    source: Annotated[
        Path | None, cli.option("--source", "PATH", "Folder or zip of the data set as downloaded.")
    ] = None,
    out: cli.Out = Path("occlusion"),
    images: Annotated[
        int | None, cli.option("--images", "N", "Use at most N images; of drawn retinas, draw N.", min=1)
    ] = None,
    bootstrap: Annotated[
        int,
        cli.option("--bootstrap", "N", "Replicates for the intervals over patients.", min=100, max=cli.MOST_REPLICATES),
    ] = 2000,
    model: cli.OwnModel = None,
    device: cli.Device = "auto",
    seed: cli.Seed = 0,
    quiet: cli.Silent = False,
) -> None:
    """Fill annotated lesions with the texture around them: does the model refer because of them?"""
    from retinabench.concepts.occlusion.occlude import OcclusionOptions
    from retinabench.concepts.occlusion.occlude import occlude as occlude_lesions

    options = OcclusionOptions(
        images, replicates=bootstrap, seed=seed, device=device, network=model, progress=cli.progress_of(quiet)
    )
    found = occlude_lesions(folder, bank, source, out, options)
    for one in found.effects:
        cli.say(f"{one.concept}: {_change(one.probability['difference'])} in {one.images} images")
    cli.print_notes(found.notes)
    cli.say(out / "index.html")


def _change(change: Interval) -> str:
    if not math.isfinite(change.value):
        return "unknown"
    ends = f" [{change.low:+.3f}, {change.high:+.3f}]" if math.isfinite(change.low) else ""
    return f"{change.value:+.3f}{ends} of P(referable) beyond the control"


Concepts = Annotated[
    str | None, cli.option("--concepts", "CONCEPTS", "Columns of the truth file, separated by commas; default: all.")
]


Goals = Annotated[
    list[str] | None,
    cli.option(
        "--goal",
        "GOAL",
        "By which the page judges: sensitivity=0.85 (every concept), 'specificity of haemorrhage=0.8', or a TOML file with a table "
        "per concept; may be repeated; default: nothing is judged.",
    ),
]

Reference = Annotated[
    str | None,
    cli.option(
        "--reference",
        "TRUTH",
        "Where --truth has columns CONCEPT@READER: majority (default), dawid-skene (weighs readers by how they agree), random (one "
        "reader per image) or a reader's name.",
    ),
]


Confidence = Annotated[float, cli.option("--confidence", "X", "Of the decisions of all claims together.")]


@asks_about_images
def examine(
    asked: Asked,
    answers: Annotated[
        Path | None, cli.option("--answers", "FILE", "P(yes): CSV or Parquet, image_id and a column per concept.")
    ] = None,
    truth: Annotated[Path | None, cli.option("--truth", "FILE", "0, 1 or empty (unknown): the same columns.")] = None,
    bank: Annotated[
        str | None,
        bank_option(
            "--bank",
            "NAME|FILE",
            "Images with known concepts instead of --truth: idrid, isic2018, chexpert, synthetic … or a TOML file.",
        ),
    ] = None,
    out: cli.Out = Path("examination"),
    concepts: Concepts = None,
    strategy: Annotated[
        str | None,
        cli.option(
            "--strategy",
            "NAME",
            "round-robin, precision, uncertainty, random, unpredictability, uncertainty+unpredictability or claims; default: claims with --claim, "
            "otherwise round-robin. With +admissible behind it, only questions whose answer the image's earlier ones leave open.",
        ),
    ] = None,
    questions: Annotated[int | None, cli.option("--questions", "N", "Stop after N questions; default: all.")] = None,
    claim: Annotated[
        list[str] | None,
        cli.option(
            "--claim",
            "CLAIM",
            "Stop when decided, such as 'sensitivity of haemorrhage >= 0.85', about this bank, or the same with 'in new patients' at its "
            "end; may be repeated. Decided only if stated before the first question.",
        ),
    ] = None,
    confidence: Confidence = 0.95,
    goal: Goals = None,
    reference: Reference = None,
    predictions: Annotated[
        Path | None,
        cli.option(
            "--predictions",
            "FILE",
            "Predictions file of the same images: does the model refer those in which it sees the concepts?",
        ),
    ] = None,
    threshold: Annotated[
        str, cli.option("--threshold", "RULE", "From which P(referable) on --predictions refers, as in `score`.")
    ] = "0.5",
    rules: Annotated[
        Literal["corrected", "published"],
        typer.Option("--rules", help="corrected: skip saturated cells; published: ask them until empty."),
    ] = "corrected",
    cut: Annotated[
        str | None,
        cli.option(
            "--cut",
            "CUT",
            "From which answer on a concept is a yes: a number, a TOML file with one per concept, or RULE@FOLDER, which chooses it on other "
            "answers, such as youden@FOLDER; default: above one half.",
        ),
    ] = None,
    intervals: Annotated[
        Literal["sequence", "fixed"],
        typer.Option(
            "--intervals",
            help="sequence: hold whenever one stops; fixed: narrower, every question is asked. Recorded beforehand.",
        ),
    ] = "sequence",
    nonce: Annotated[
        str | None,
        cli.option("--nonce", "TEXT", "From the auditor, after bank and claims are known: the seed follows from it."),
    ] = None,
    verify: Annotated[
        Path | None,
        cli.option(
            "--verify", "TRANSCRIPT", "Replay a transcript against --truth (and --answers) instead of asking anything."
        ),
    ] = None,
    seed: cli.Seed = 0,
    quiet: cli.Silent = False,
) -> None:
    """Question a classifier concept by concept: which lesions does it grasp, from as few questions as possible?"""
    from retinabench.concepts.examine import ExamineOptions, summary_lines, verify_files

    options = ExamineOptions(
        concepts=[name.strip() for name in concepts.split(",")] if concepts else None,
        strategy=strategy,
        questions=questions,
        claims=claim or (),
        confidence=confidence,
        goals=goal or (),
        reference=reference,
        predictions=predictions,
        threshold=threshold,
        rules=rules,
        cut=cut,
        fixed=intervals == "fixed",
        nonce=nonce,
        seed=seed,
    )
    if verify is not None:
        if truth is None:
            raise InputError("--verify needs --truth", hint="The truth.csv beside the transcript, or your own copy.")
        lines = summary_lines(verify_files(truth, verify, options, answers))
        cli.say(
            f"Verified: every line of {verify} follows from the first one{'' if answers is None else ' and the answers'}."
        )
        for line in lines:
            cli.say(line)
        return
    found = _examined(answers, truth, bank, out, options, asked, cli.progress_of(quiet))
    if found is None:
        cli.say(out / "index.html")
    else:
        _say_found(found, out)


def _say_found(found: ExaminationReport, out: Path) -> None:
    from retinabench.concepts.examine import summary_lines

    for line in summary_lines(found):
        cli.say(line)
    cli.print_notes(found.examination.notes)
    cli.say(out / "index.html")


def _examined(
    answers: Path | None,
    truth: Path | None,
    bank: str | None,
    out: Path,
    options: ExamineOptions,
    asked: Asked,
    progress: Progress,
) -> ExaminationReport | None:
    from retinabench.concepts.examine import examine_files

    if (bank is None) == (truth is None):
        raise InputError("name either --truth (a table) or --bank (images)", hint="See: retinabench examine --help")
    if answers is not None and asked.examinee is not None:
        raise InputError("--answers and --examinee exclude each other", hint="Leave one of them out.")
    if truth is not None:
        asked.refuse(OF_BANK, "is for the images of --bank")
    if truth is not None and answers is not None:
        asked.refuse(OF_NETWORK, "is for a network that answers about images")
        return examine_files(answers, truth, out, options, progress=progress)
    from retinabench.concepts.answer_bank import asked_bank, examine_images, examine_synthetic
    from retinabench.concepts.banks.tables import read_reference
    from retinabench.concepts.examine import ExamineOptions
    from retinabench.concepts.examinees import SYNTHETIC
    from retinabench.concepts.report.paper import PAPER, write_paper

    network = asked.network(options.seed, progress)
    if answers is not None or network.synthetic or asked.examinee == PAPER:
        asked.refuse(OF_NETWORK, "is for a network that answers about images")
    if asked.examinee == PAPER:
        drawn = ExamineOptions(
            options.concepts, questions=options.questions, reference=options.reference, seed=options.seed
        )
        if options != drawn:
            hint = "Of the options about questions, it takes --concepts, --reference, --questions and --seed."
            raise InputError("--examinee paper draws the figures of the publication, and judges nothing", hint=hint)
        if bank is not None:
            questions = asked_bank(bank, asked.source, network, options.concepts)
        else:
            assert truth is not None
            questions, _ = read_reference(truth, options.concepts, options.reference, options.reader_seed)
        write_paper(questions, out, questions=options.questions, seed=options.seed, progress=progress)
        return None
    if bank is not None:
        return examine_images(bank, asked.source, out, network, options, answers)
    if not network.synthetic:
        hint = "Give the answers with --answers, or a synthetic examinee with --examinee."
        raise InputError(
            "a table of truth holds no images that a network could be asked about",
            hint=hint if asked.examinee is None else nearest(asked.examinee, SYNTHETIC),
        )
    assert truth is not None
    assert asked.examinee is not None
    return examine_synthetic(truth, asked.examinee, out, options, network.resources)


@asks_about_images
def lesions(
    asked: Asked,
    dataset: Annotated[str, cli.argument("DATASET", "A bank, as in examine --bank: synthetic, idrid …")],
    out: cli.Out = Path("lesions"),
    goal: Goals = None,
    seed: cli.Seed = 0,
    quiet: cli.Silent = False,
) -> None:
    """Train a network to name the concepts of a bank, then examine it on the images that it has not seen."""
    from retinabench.concepts.answer_bank import examine_images
    from retinabench.concepts.examine import ExamineOptions

    options = ExamineOptions(seed=seed, goals=goal or ())
    network = asked.network(seed, cli.progress_of(quiet))
    found = examine_images(dataset, asked.source, out, network, options)
    _say_found(found, out)
