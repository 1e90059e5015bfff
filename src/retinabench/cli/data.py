"""The verbs `prepare`, `inspect` and `verify`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from retinabench.cli import main as cli
from retinabench.core.errors import InputError, Progress, described
from retinabench.data.registry import DATASETS

Source = Annotated[
    Path | None,
    cli.option("--source", "PATH", "The data set as downloaded: folder or zip. table: the CSV or Parquet file."),
]
Download = Annotated[bool, cli.flag("--download", help="Fetch what needs no login into --source, or say what to do.")]
Size = Annotated[int, cli.option("--size", "N", "Side of the square images, in pixels.")]
Images = Annotated[
    int | None, cli.option("--images", "N", "Synthetic data: number of training images, or of patients.")
]
Published = Annotated[bool, cli.flag("--published", help="graham: the pixels of the released code, faults included.")]
IntoSplit = Annotated[
    str | None,
    cli.option(
        "--split", "SPLIT", "Put all images into this split, not the published ones. table: the column that holds it."
    ),
]
Label = Annotated[str | None, cli.option("--label", "COLUMN", "table: the outcome, 0 or 1; default: label.")]
Labels = Annotated[
    str | None, cli.option("--labels", "FILE", "folder: the CSV with the labels, below --source or elsewhere.")
]
Columns = Annotated[
    list[str] | None,
    cli.option(
        "--column", "NAME=COLUMN", "folder, table: ROLE=NAME; image, grade, label, patient, eye, split, domain."
    ),
]


def prepare(
    dataset: Annotated[
        str,
        cli.argument(
            "DATASET",
            f"{', '.join(DATASETS)}; folder is for your own images, table for a table of patients. Or a frozen benchmark that is "
            "drawn, such as retinabench-drawn-1-mini.",
        ),
    ],
    out: cli.Out,
    source: Source = None,
    download: Download = False,
    size: Size = 64,
    images: Images = None,
    seed: Annotated[int | None, cli.option("--seed", "N", "Synthetic data: seed of the drawing.", min=0)] = None,
    preprocess: Annotated[
        Literal["crop", "graham", "none"],
        typer.Option("--preprocess", help="graham: subtract the local average; none: the whole image."),
    ] = "crop",
    blur: Annotated[
        int, cli.option("--blur", "N", "graham: sigma is the radius of the field of view / blur; 3, 5, 10, 20 or 30.")
    ] = 30,
    published: Published = False,
    corrupt: Annotated[
        str | None,
        cli.option(
            "--corrupt", "KIND:STRENGTH", "Damage each image, such as defocus:3; strengths 0 to 5; see docs/data.md."
        ),
    ] = None,
    on_bad: Annotated[
        Literal["fail", "skip"],
        typer.Option("--on-bad", help="Files that cannot be read: fail after all, or leave them out."),
    ] = "fail",
    split: IntoSplit = None,
    labels: Labels = None,
    column: Columns = None,
    label: Label = None,
    patient: Annotated[
        str | None, cli.option("--patient", "COLUMN", "table: the id of the patient, whose rows stay together.")
    ] = None,
    features: Annotated[
        str | None, cli.option("--features", "A,B,…", "table: the columns that the model reads; default: all others.")
    ] = None,
    workers: cli.Workers = None,
    quiet: cli.Silent = False,
) -> None:
    """Read or draw a data set once, into a folder from which training is fast."""
    from retinabench.data.frozen.definition import drawn_names

    if dataset in drawn_names():
        given = (source, images, seed, corrupt, split, labels, column)
        _draw_frozen(dataset, out, workers, cli.progress_of(quiet), given=given)
        return
    if dataset == "table":
        if (download, corrupt, labels) != (False, None, None):
            raise InputError("--download, --corrupt and --labels belong to images", hint="Leave them out.")
        roles = {role: name for role, name in (("label", label), ("patient", patient), ("split", split)) if name}
        _prepare_table(out, source, roles, column or [], features, rows=images, seed=seed)
        return
    if (label, patient, features) != (None, None, None):
        raise InputError("--label, --patient and --features belong to 'table'", hint="Use --column ROLE=NAME.")
    from retinabench.data.prepare import dataset_options, download_source
    from retinabench.data.prepare import prepare as prepare_data
    from retinabench.data.preprocessing.corruption import Corruption
    from retinabench.data.preprocessing.preprocess import Recipe

    options = dataset_options(dataset, source, images=images, seed=seed, split=split, labels=labels, column=column)
    recipe = Recipe(size, preprocess, blur, published, Corruption.parse(corrupt) if corrupt else None)
    if download:
        download_source(dataset, source, size, cli.progress_of(quiet))
    data = prepare_data(
        dataset,
        out,
        recipe=recipe,
        source=source,
        workers=workers,
        on_bad=on_bad,
        progress=cli.progress_of(quiet),
        **options,
    )
    left_out = data.files.num_rows - len(data.records)
    cli.say(
        f"{len(data.records):,} images at {size} px in {out}"
        + (f"; {left_out:,} bad file{'s' * (left_out > 1)} left out, see bad.csv" if left_out else "")
        + ("; labels without a file or files without a label: left_out.csv" if (out / "left_out.csv").is_file() else "")
    )


def _prepare_table(
    out: Path, source: Path | None, roles: dict[str, str], column: list[str], features: str | None, **drawn: int | None
) -> None:
    from retinabench.data.prepare import columns_of_roles
    from retinabench.data.tables import prepare_table

    names = None if features is None else [name.strip() for name in features.split(",")]
    data, notes = prepare_table(out, source, {**columns_of_roles(column), **roles}, names, **drawn)
    assert data.table is not None
    cli.print_notes(notes)
    positive = int(data.label.sum())
    cli.say(
        f"{len(data):,} rows of {data.table.num_columns} features in {out}; "
        f"{positive:,} ({positive / len(data):.1%}) with the outcome"
    )


def _draw_frozen(name: str, out: Path, workers: int | None, progress: Progress, given: Sequence[object]) -> None:
    from retinabench.data.frozen.definition import frozen_benchmark
    from retinabench.data.frozen.images import draw_benchmark

    if any(given):
        raise InputError(f"the images of {name} are frozen", hint="Give --out alone.")
    benchmark = frozen_benchmark(name)
    drawn = draw_benchmark(benchmark, out, workers=workers, progress=progress)
    cli.say(f"{len(drawn.records):,} images at {drawn.size} px in {out}, each with the hash of {name}")
    cli.say(f"images_sha256 = {benchmark.listing_sha256}")


def inspect(
    path: Annotated[Path, cli.argument("PATH", "A predictions file, run folder or prepared folder.")],
    out: Annotated[
        Path | None,
        cli.option("--out", "FOLDER", "Prepared folder: read every image, write contact sheets and a data card here."),
    ] = None,
    seed: cli.Seed = 0,
    quiet: cli.Silent = False,
) -> None:
    """Describe a file or folder; of a data set also copies, conflicting grades, leaks and outliers."""
    from retinabench.inspection.page import inspect_lines

    for line in inspect_lines(path, out, seed, cli.progress_of(quiet)):
        cli.say(line)


def verify(
    folders: Annotated[list[Path], cli.argument("FOLDER", "Folders of runs, data, searches, …: whole trees.")],
) -> int:
    """Check every file of folders against its checksum: damage on the disk, files cut short or missing.

    Names each damaged file on standard error with what to do; exit code 1 if there is one.
    """
    from collections import Counter

    from retinabench.core import files

    counts: Counter[str] = Counter()
    for folder in folders:
        if not folder.is_dir():
            raise InputError("is not a folder", file=folder)
        before = counts.total()
        for found in files.verify(folder):
            counts[found.state] += 1
            if found.state in ("damaged", "missing"):
                cli.say(f"retinabench: {described(found)}", error=True)
        if counts.total() == before:
            raise InputError("holds no file to check", file=folder, hint="Name a folder that a command has written.")
    cli.say(
        f"{counts['whole']:,} whole, {counts['damaged']:,} damaged, {counts['missing']:,} missing, "
        f"{counts['without checksum']:,} without checksums"
    )
    return cli.ExitCode.FAILED if counts["damaged"] or counts["missing"] else cli.ExitCode.DONE
