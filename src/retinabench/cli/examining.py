"""The verbs `examine` (a table of answers) and `lesions` (a network trained for it)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from retinabench.cli.application import option
from retinabench.cli.options import Out, Seed, Silent
from retinabench.cli.output import print_notes, progress_of, say

Answers = Annotated[
    Path, option("--answers", "FILE", "P(yes): CSV or Parquet, image_id and a column per concept.")
]
Truth = Annotated[Path, option("--truth", "FILE", "0, 1 or empty (unknown): the same columns.")]
Concepts = Annotated[
    str | None,
    option("--concepts", "CONCEPTS", "Columns of the truth file, separated by commas; default: all."),
]
StrategyName = Annotated[
    str,
    option(
        "--strategy",
        "NAME",
        "precision, uncertainty, random, unpredictability, uncertainty+unpredictability or claims.",
    ),
]
Questions = Annotated[int | None, option("--questions", "N", "Stop after so many; default: all.")]
Tolerance = Annotated[
    float | None, option("--tolerance", "X", "Stop at this mean uncertainty; it starts at 2.")
]
Patience = Annotated[int | None, option("--patience", "N", "Stop after so many questions without progress.")]
Claims = Annotated[
    list[str] | None,
    option(
        "--claim",
        "CLAIM",
        "Stop when decided, such as 'sensitivity of haemorrhage >= 0.85'; may be repeated. State it before the "
        "answers are known.",
    ),
]
Goals = Annotated[
    list[str] | None,
    option(
        "--goal",
        "GOAL",
        "By which the page judges every concept: sensitivity=0.85, specificity=0.8; default: nothing is judged.",
    ),
]
Confidence = Annotated[float, option("--confidence", "X", "Of each claim's decision.")]
UncertaintyReading = Annotated[
    Literal["std", "variance"],
    typer.Option("--reading", help="Uncertainty: area of the drawn band, or as printed."),
]
QuestionRules = Annotated[
    Literal["corrected", "published"],
    typer.Option("--rules", help="corrected: skip saturated cells; published: ask them until empty."),
]
KernelChoice = Annotated[
    Literal["published", "fitted"], typer.Option("--kernel", help="Hyper-parameters of the drawn curves.")
]
Repetitions = Annotated[int, option("--repetitions", "N", "To compare all strategies; 0: do not.", min=0)]


def examine(
    answers: Answers,
    truth: Truth,
    out: Out = Path("examination"),
    concepts: Concepts = None,
    strategy: StrategyName = "precision",
    questions: Questions = None,
    tolerance: Tolerance = None,
    patience: Patience = None,
    claim: Claims = None,
    confidence: Confidence = 0.95,
    goal: Goals = None,
    reading: UncertaintyReading = "std",
    rules: QuestionRules = "corrected",
    kernel: KernelChoice = "published",
    repetitions: Repetitions = 10,
    seed: Seed = 0,
    quiet: Silent = False,
) -> None:
    """Question a classifier concept by concept: which lesions does it grasp, from as few questions as possible?"""
    from retinabench.concepts.examine import ExamineOptions, examine_files, summary_lines

    options = ExamineOptions(
        concepts=[name.strip() for name in concepts.split(",")] if concepts else None,
        strategy=strategy,
        questions=questions,
        tolerance=tolerance,
        patience=patience,
        claims=claim or (),
        confidence=confidence,
        goals=goal or (),
        reading=reading,
        rules=rules,
        kernel=kernel,
        repetitions=repetitions,
        seed=seed,
    )
    found = examine_files(answers, truth, out, options, progress=progress_of(quiet))
    for line in summary_lines(found):
        say(line)
    print_notes(found["notes"])
    say(out / "index.html")


def lesions(
    dataset: Annotated[str, typer.Argument(help="synthetic or idrid.")],
    out: Out = Path("lesions"),
    source: Annotated[
        Path | None, option("--source", "PATH", "Folder of the data set as downloaded.")
    ] = None,
    images: Annotated[int | None, option("--images", "N", "synthetic only: number of images.")] = None,
    size: Annotated[
        int | None, option("--size", "N", "Side of the images, in pixels; default: 256, synthetic 64.")
    ] = None,
    grid: Annotated[
        int, option("--grid", "N", "Ask about each of grid x grid regions of an image.", min=1)
    ] = 1,
    epochs: Annotated[int, option("--epochs", "N", "Epochs of the training.", min=1)] = 40,
    goal: Goals = None,
    seed: Seed = 0,
    quiet: Silent = False,
) -> None:
    """Train a small network to name lesions, then examine it on the images that it has not seen."""
    from retinabench.concepts.examine import summary_lines
    from retinabench.concepts.lesions import examine_lesions

    found = examine_lesions(
        dataset, out, source, images=images, size=size, grid=grid, epochs=epochs, goals=goal or (), seed=seed,
        progress=progress_of(quiet),
    )  # fmt: skip
    for line in summary_lines(found):
        say(line)
    print_notes(found["notes"])
    say(out / "index.html")
