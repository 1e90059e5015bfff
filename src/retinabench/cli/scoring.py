"""From predictions of any framework to numbers and pages: `score`, `compare`, `report`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer

from retinabench.cli import main as cli
from retinabench.core.errors import InputError

if TYPE_CHECKING:
    from retinabench.metrics.rejection import Rejections
    from retinabench.predictions.table import Predictions

Labels = Annotated[
    Path | None,
    cli.option("--labels", "FILE", "With --tables: a CSV of file, method, task, dataset, criterion, blur, seed."),
]
Images = Annotated[
    Path | None, cli.option("--source", "PATH", "With --tables: a folder of images, for the examples of preprocessing.")
]


@dataclass(frozen=True)
class Scoring:
    """What the options say of how predictions are scored."""

    rules: cli.Rules = "corrected"
    bootstrap: cli.Bootstrap = 1000
    uncertainty: cli.Uncertainty = "auto"
    threshold: cli.Threshold = "0.5"


STANDARD = Scoring()  # What a verb that is called as a function has.
scores_predictions = cli.with_options(Scoring, "scoring")
"""Gives a verb the options of `Scoring`, which it gets as its argument `scoring`."""
PerWhat = Annotated[
    Literal["image", "patient"],
    typer.Option("--per", help="patient: one row for each patient, by any eye (needs a column patient_id)."),
]


def counted(predictions: list[Predictions], per: str, scoring: Scoring) -> tuple[list[Predictions], Scoring]:
    """Return what is scored, images or patients, and how: patients have an uncertainty of their own."""
    if per == "image":
        return predictions, scoring
    from retinabench.metrics.patients import by_patient

    people = [by_patient(one, scoring.uncertainty, scoring.threshold) for one in predictions]
    return people, replace(scoring, uncertainty="own")


@scores_predictions
@cli.reads_predictions
def score(
    files: Annotated[list[Path], cli.argument("FILE", "Predictions: Parquet, CSV or NPZ, or run folders.")],
    scoring: Scoring = STANDARD,
    per: PerWhat = "image",
    json: cli.Json = None,
    referral_list: Annotated[
        Path | None,
        cli.option("--referral-list", "FILE", "Write the images in the order in which an expert reads them, as CSV."),
    ] = None,
    referral: Annotated[
        float | None, cli.option("--referral", "X", "With --referral-list: share that the expert reads, 0.1.")
    ] = None,
    workers: cli.Threads = None,
    seed: cli.Seed = 0,
    quiet: cli.Silent = False,
    reader: cli.FileReader = cli.PLAIN,
) -> None:
    """Score predictions of any model from any framework: no training, no PyTorch."""
    from rich.console import Group

    from retinabench.metrics.scoring import score as score_predictions
    from retinabench.predictions.io import find_files
    from retinabench.predictions.table import check_seeds, have_same_images, join_folds, method_names, notes_of_files
    from retinabench.reports.evaluation.terminal import rejections_table, scores_json, scores_table

    paths = find_files(files)
    if referral_list is None and referral is not None:
        raise InputError("--referral belongs to --referral-list", hint="Add it.")
    if referral_list is not None and len(paths) != 1:
        raise InputError("--referral-list needs one file", hint="Score the others by themselves.")
    # All are checked before the long work begins.
    predictions, scoring = counted(reader.read(paths), per, scoring)
    paths, predictions = join_folds(paths, predictions)
    names = method_names(paths, predictions)
    check_seeds(names, predictions)
    compared = [_compared(one, scoring, seed) if scoring.rules == "corrected" else {} for one in predictions]
    alike = have_same_images(predictions)
    listed = predictions[0] if referral_list is not None else None
    found = []
    replicates = scoring.bootstrap if scoring.rules == "corrected" else 0
    steps, unit = (replicates, "replicates") if replicates else (1, "files")
    with cli.progress_of(quiet).track("Scoring", steps * len(paths), unit) as advance:
        # Each is freed once its ids are read; a call with `**vars(scoring)` would hold it until the scores are there.
        while predictions:
            scored = score_predictions(
                predictions.pop(0), scoring.rules, scoring.bootstrap, seed, scoring.uncertainty,
                threshold=scoring.threshold, workers=workers, advance=advance,
            )  # fmt: skip
            found.append(scored)
            if not replicates:
                advance(1)
    notes = notes_of_files([str(path) for path in paths], [one.notes for one in found])
    if not alike:
        notes.append("the files hold different test images: their scores cannot be ranked")
    if listed is not None and referral_list is not None:
        notes += _write_referral_list(listed, referral_list, scoring.uncertainty, referral, found[0].threshold.value)
    tables = [rejections_table(name, one) for name, one in zip(names, compared, strict=True) if one]
    table = Group(scores_table(names, found), *tables)
    cli.print_result(table, json, lambda: scores_json(found, names, compared), notes)


def _compared(predictions: Predictions, scoring: Scoring, seed: int) -> dict[str, Rejections]:
    from retinabench.metrics.image_sets import compared_uncertainties
    from retinabench.metrics.scoring import frozen_threshold

    threshold = frozen_threshold(predictions, scoring.threshold).value
    if not compared_uncertainties(predictions, scoring.uncertainty):
        return {}
    from retinabench.metrics.rejection import compare_uncertainties

    return compare_uncertainties(
        predictions, scoring.uncertainty, threshold=threshold, bootstrap=scoring.bootstrap, seed=seed
    )


def _write_referral_list(
    predictions: Predictions, out: Path, uncertainty: str, share: float | None, threshold: float
) -> tuple[str, ...]:
    from retinabench.core.files import write_bytes
    from retinabench.metrics.actions import referral_list

    found = referral_list(predictions, uncertainty, share=share, threshold=threshold)
    write_bytes(out, found.to_csv())
    return found.notes


@scores_predictions
@cli.reads_predictions
def compare(
    files: Annotated[
        list[Path],
        cli.argument("FILE", "Two predictions files or run folders; or those of two methods, whose seeds join."),
    ],
    score: Annotated[
        list[str] | None,
        cli.option("--score", "NAME", "Compare this score alone. Repeat it for more: they are corrected together."),
    ] = None,
    margin: Annotated[
        float | None,
        cli.option(
            "--margin",
            "X",
            "Test whether the first model is less than X worse than the second (non-inferiority); needs one --score.",
        ),
    ] = None,
    scoring: Scoring = STANDARD,
    per: PerWhat = "image",
    json: cli.Json = None,
    seed: cli.Seed = 0,
    quiet: cli.Silent = False,
    reader: cli.FileReader = cli.PLAIN,
) -> None:
    """Compare two models on the same images: paired differences with patient-clustered intervals."""
    from retinabench.metrics.comparison import compare as compare_predictions
    from retinabench.predictions.io import find_files
    from retinabench.predictions.table import check_seeds, method_names
    from retinabench.reports.evaluation.terminal import comparison_table

    paths = files if len(files) == 2 else find_files(files)
    predictions, scoring = counted(reader.read(paths), per, scoring)
    names = ["first", "second"] if len(paths) == 2 else method_names(paths, predictions)
    check_seeds(names, predictions)
    sides = [[one for one, own in zip(predictions, names, strict=True) if own == name] for name in dict.fromkeys(names)]
    if len(sides) != 2:
        hint = "Name two files, or the files of two methods; --method gives a file another one."
        raise InputError(f"{len(paths)} files of {len(sides)} methods ({', '.join(dict.fromkeys(names))})", hint=hint)
    with cli.progress_of(quiet).track("Comparing", 1, unit="pair") as advance:
        found = compare_predictions(sides[0], sides[1], seed=seed, scores=score, margin=margin, **vars(scoring))
        advance(1)
    cli.print_result(comparison_table(found), json, found.to_dict, found.notes)


@cli.reads_predictions
def recalibrate(
    file: Annotated[
        Path, cli.argument("FILE", "Predictions with a validation split, which fits the map, and a test split.")
    ],
    out: Annotated[
        Path, cli.option("--out", "FILE", "Predictions of the test images to write: .csv, .parquet or .npz.")
    ],
    map_method: Annotated[
        str, cli.option("--map", "NAME", "platt, temperature, beta, isotonic or venn-abers.")
    ] = "platt",
    by: Annotated[
        str | None, cli.option("--by", "COLUMN", "A map for every group of this column, such as camera.")
    ] = None,
    json: cli.Json = None,
    seed: cli.Seed = 0,
    reader: cli.FileReader = cli.PLAIN,
) -> None:
    """Map probabilities so that they fit the labels of the validation split, and say what the test images gain."""
    from retinabench.metrics.comparison import compare as compare_predictions
    from retinabench.metrics.recalibration import Method
    from retinabench.metrics.recalibration import recalibrate as mapped
    from retinabench.predictions.io import write_predictions
    from retinabench.reports.evaluation.terminal import recalibration_table

    if reader.method and reader.method[0] in get_args(Method):  # a user's other name for the map
        map_method, reader = reader.method[0], replace(reader, method=None)
    (predictions,) = reader.read([file])
    after = mapped(predictions, map_method, by)  # type: ignore[arg-type]
    found = compare_predictions(after, predictions, seed=seed, scores=["nll", "brier", "ece_positive_class", "auroc"])
    write_predictions(after, out)
    notes = [f"the validation images are not in {out.name}: they chose the map, and can certify nothing with it"]
    if predictions.samples > 1:
        notes.append(
            f"{out.name} holds one probability per image: the mean of the {predictions.samples} samples, mapped"
        )
    cli.print_result(recalibration_table(found, map_method), json, found.to_dict, (*found.notes, *notes))
    cli.print_path(out, json)


@scores_predictions
@cli.reads_predictions
def report(
    files: Annotated[list[Path], cli.argument("FILE", "Predictions files or run folders; seeds of one method join.")],
    out: cli.Out = Path("report"),
    data: Annotated[Path | None, cli.option("--data", "FOLDER", "Prepared folder, for example images.")] = None,
    shifted: Annotated[Path | None, cli.option("--shifted", "FOLDER", "The other one, as `train` had it.")] = None,
    tables: Annotated[
        bool, cli.flag("--tables", help="Instead of the page, the papers' tables and figures into OUT/papers.")
    ] = False,
    labels: Labels = None,
    images: Images = None,
    referral: Annotated[
        float, cli.option("--referral", "X", "Share referred in the page's statements and figures.")
    ] = 0.5,
    scoring: Scoring = STANDARD,
    workers: cli.Workers = None,
    seed: cli.Seed = 0,
    quiet: cli.Silent = False,
    reader: cli.FileReader = cli.PLAIN,
) -> None:
    """Write one self-contained page about one or more models, or the tables and figures of the papers."""
    from retinabench.reports.evaluation.evaluation import EvaluationSettings
    from retinabench.reports.evaluation.write import report_files
    from retinabench.reports.papers.write import write_tables

    if tables:
        if (data, referral, scoring.uncertainty, scoring.threshold) != (None, 0.5, "auto", "0.5"):
            given = "--data, --referral, --uncertainty and --threshold belong to the page"
            raise InputError(given, hint="Leave them out, or leave out --tables.")
        index, *_ = write_tables(
            files, out / "papers", rules=scoring.rules, bootstrap=scoring.bootstrap, seed=seed, labels=labels, images=images,
            workers=workers, progress=cli.progress_of(quiet), read=reader.each,
        )  # fmt: skip
        cli.say(index)
        return
    if (labels, images, workers) != (None, None, None):
        raise InputError("--labels, --source and --workers belong to --tables", hint="Add --tables.")
    page = report_files(
        files, out, EvaluationSettings(seed=seed, referred=referral, **vars(scoring)), data=data,
        shifted=shifted, progress=cli.progress_of(quiet), read=reader.each,
    )  # fmt: skip
    cli.say(page)
