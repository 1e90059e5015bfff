"""The command line: one verb per function. Exit code 0: done; 1: the work failed; 2: wrong input or options."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from retinabench.errors import InputError, WorkError
from retinabench.progress import QUIET, Bars, Progress

SHELL_INTERRUPTED = 130  # what newer versions of typer turn Ctrl-C into

app = typer.Typer(
    help="Tells whether a deep model knows when it does not know, on screening photographs of the retina.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Out = Annotated[Path, typer.Option("--out", help="Folder to write into.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything random.")]
Silent = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only results and errors.")]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Processes; default: one per core.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")]
RulesOption = Annotated[
    Literal["corrected", "published"],
    typer.Option(
        "--rules", help="corrected: ours; published: as the released Retina Benchmark, faults included."
    ),
]
UncertaintyOption = Annotated[
    str,
    typer.Option(
        "--uncertainty",
        help="What orders the referral: auto, own, total, epistemic, aleatoric, variance, max_probability.",
    ),
]
JsonOption = Annotated[Path | None, typer.Option("--json", help="Write everything as JSON.")]
Bootstrap = Annotated[int, typer.Option("--bootstrap", min=0, help="Replicates for the intervals; 0: none.")]


def main() -> None:
    """Run the command line; the console script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; every error becomes one line on standard error."""
    try:
        code = app(arguments, prog_name="retinabench", standalone_mode=False)
        if code == SHELL_INTERRUPTED:
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except InputError as error:
        return _fail(str(error), 2)
    except WorkError as error:
        return _fail(str(error), 1)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted; the same command continues where it stopped", 1)
    except MemoryError:
        return _fail("not enough memory; choose a smaller --size, batch or network", 1)
    except ImportError as error:
        if error.name and error.name.partition(".")[0] == "torch":
            return _fail("training needs PyTorch. Install it with: pip install 'retinabench[train]'", 2)
        raise
    except Exception as error:
        # Typer's own complaints about options share no public base class across its versions.
        if not hasattr(error, "format_message"):
            raise
        help_for = getattr(getattr(error, "ctx", None), "command_path", "retinabench")
        return _fail(f"{error.format_message().rstrip('.')}. See: {help_for} --help", 2)


def _fail(message: str, code: int) -> int:
    print(f"retinabench: error: {' '.join(message.split())}", file=sys.stderr)
    return code


def _notes(found: Sequence[Mapping[str, Any]]) -> None:
    for note in dict.fromkeys(note for one in found for note in one["notes"]):
        print(f"note: {note}", file=sys.stderr)


def _progress(quiet: bool) -> Progress:
    return QUIET if quiet else Bars()


@app.command(epilog="Example: retinabench demo --out retinabench-demo")
def demo(
    out: Out = Path("retinabench-demo"), seed: Seed = 0, workers: Workers = None, quiet: Silent = False
) -> None:
    """Draw retinas, train MAP, MC dropout and a deep ensemble, score them under camera shift, write a report."""
    from retinabench.demo import run_demo

    run_demo(out, seed=seed, workers=workers, progress=_progress(quiet))


@app.command(epilog="Example: retinabench prepare aptos --source ~/aptos.zip --out data/aptos --size 512")
def prepare(
    dataset: Annotated[
        str,
        typer.Argument(help="synthetic, eyepacs, aptos, idrid, messidor, retinamnist or folder (your own)."),
    ],
    out: Out,
    source: Annotated[
        Path | None, typer.Option("--source", help="The data set as downloaded: folder or zip.")
    ] = None,
    download: Annotated[
        bool, typer.Option("--download", help="Fetch what needs no login into --source, or say what to do.")
    ] = False,
    size: Annotated[int, typer.Option("--size", help="Side of the square pictures, in pixels.")] = 64,
    images: Annotated[
        int | None, typer.Option("--images", help="synthetic only: training images to draw.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="synthetic only: seed of the drawing.")
    ] = None,
    preprocess: Annotated[
        Literal["crop", "graham", "none"],
        typer.Option("--preprocess", help="graham: subtract the local average; none: the whole photograph."),
    ] = "crop",
    blur: Annotated[
        int, typer.Option("--blur", help="graham only: sigma is the disc's radius / blur; 5, 10, 20 or 30.")
    ] = 30,
    published: Annotated[
        bool, typer.Option("--published", help="graham only: the released code's pixels, faults included.")
    ] = False,
    on_bad: Annotated[
        Literal["fail", "skip"],
        typer.Option("--on-bad", help="Files that cannot be read: fail after all, or leave them out."),
    ] = "fail",
    split: Annotated[
        str | None, typer.Option("--split", help="Put all images into this split, not the published ones.")
    ] = None,
    labels: Annotated[
        str | None, typer.Option("--labels", help="folder only: the CSV with the labels, below --source.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column", help="folder only: ROLE=NAME; image, grade, label, patient, eye, split, domain."
        ),
    ] = None,
    workers: Workers = None,
    quiet: Silent = False,
) -> None:
    """Read or draw a data set once, into a folder from which training is fast."""
    from retinabench.data.images import Recipe
    from retinabench.data.options import dataset_options, download_source
    from retinabench.data.prepare import prepare as prepare_data

    options = dataset_options(
        dataset, source, images=images, seed=seed, split=split, labels=labels, column=column
    )
    recipe = Recipe(size, preprocess, blur, published)
    if download:
        download_source(dataset, source, size, _progress(quiet))
    data = prepare_data(
        dataset,
        out,
        recipe=recipe,
        source=source,
        workers=workers,
        on_bad=on_bad,
        progress=_progress(quiet),
        **options,
    )
    left_out = data.files.num_rows - len(data.records)
    print(
        f"{len(data.records):,} images at {size} px in {out}"
        + (f"; {left_out:,} bad files left out, see bad.csv" if left_out else "")
    )


@app.command(
    epilog="Example: retinabench train --data data/idrid --task in_domain --method dropout --out runs optimizer.epochs=40"
)
def train(
    data: Annotated[Path, typer.Option("--data", help="Prepared folder.")],
    shifted: Annotated[
        Path | None, typer.Option("--shifted", help="Another one, to test on as the shifted domain.")
    ] = None,
    out: Out = Path("runs"),
    config: Annotated[
        str | None,
        typer.Option("--config", help="TOML file, or a preset such as demo/map; holds differences."),
    ] = None,
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value, such as method.rate=0.2.")] = None,
    task: Annotated[
        str | None, typer.Option("--task", help="country_shift, severity_shift, in_domain, hold_out_2019, …")
    ] = None,
    method: Annotated[str | None, typer.Option("--method", help="map, dropout or ensemble.")] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Seed of weights, order and noise.")
    ] = None,
    device: Device = "auto",
    workers: Annotated[int, typer.Option("--workers", min=0, help="Processes that read ahead.")] = 0,
    quiet: Silent = False,
) -> None:
    """Train one run and write its predictions; the same command continues a killed one."""
    from retinabench.config import load_run
    from retinabench.run import Engine, execute

    words = list(overrides or ())
    if method is not None:
        words.insert(0, f'method.name="{method}"')
    run = load_run(
        config, words, data=str(data), shifted=None if shifted is None else str(shifted), task=task, seed=seed
    )
    print(execute(run, out, Engine(device, workers, _progress(quiet))) / "predictions.parquet")


@app.command(
    epilog="Example: retinabench predict runs/map-resnet18-seed-0-1f2e3d4c5b6a --data data/idrid --out idrid.parquet"
)
def predict(
    folder: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    data: Annotated[Path, typer.Option("--data", help="Prepared folder, to test on as the shifted domain.")],
    out: Annotated[Path, typer.Option("--out", help="Predictions file to write: .parquet, .csv or .npz.")],
    device: Device = "auto",
    workers: Annotated[int, typer.Option("--workers", min=0, help="Processes that read ahead.")] = 0,
    quiet: Silent = False,
) -> None:
    """Test a trained run on another data set, without training again."""
    from retinabench.elsewhere import predict_elsewhere
    from retinabench.run import Engine

    print(predict_elsewhere(folder, data, out, Engine(device, workers, _progress(quiet))))


@app.command(epilog="Example: retinabench score predictions.csv --json scores.json")
def score(
    files: Annotated[list[Path], typer.Argument(help="Predictions: Parquet, CSV or NPZ, or run folders.")],
    rules: RulesOption = "corrected",
    bootstrap: Bootstrap = 1000,
    uncertainty: UncertaintyOption = "auto",
    json: JsonOption = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write all scores as CSV.")] = None,
    seed: Seed = 0,
    quiet: Silent = False,
) -> None:
    """Score predictions of any model from any framework: no training, no PyTorch."""
    from rich.console import Console

    from retinabench.commands import score_files
    from retinabench.report.console import console_table

    found = score_files(files, rules, bootstrap, uncertainty, seed, json, csv, _progress(quiet))
    Console().print(console_table(found))
    _notes(found)


@app.command(epilog="Example: retinabench compare ours.csv theirs.csv --json comparison.json")
def compare(
    a: Annotated[Path, typer.Argument(help="Predictions file or run folder.")],
    b: Annotated[Path, typer.Argument(help="Another, of the same images.")],
    rules: RulesOption = "corrected",
    bootstrap: Bootstrap = 1000,
    uncertainty: UncertaintyOption = "auto",
    json: JsonOption = None,
    seed: Seed = 0,
    quiet: Silent = False,
) -> None:
    """Compare two models on the same images: paired differences with patient-clustered intervals."""
    from rich.console import Console

    from retinabench.commands import compare_files
    from retinabench.report.console_pairs import comparison_table

    found = compare_files(a, b, rules, bootstrap, uncertainty, seed, json, _progress(quiet))
    Console().print(comparison_table(found))
    _notes([found])


@app.command(
    epilog="Example: retinabench transfer predictions.csv --target selective_risk --goal 0.05 --confidence 0.95"
)
def transfer(
    file: Annotated[Path, typer.Argument(help="Predictions with a validation and a test split.")],
    target: Annotated[
        str, typer.Option("--target", help="accuracy, sensitivity, selective_risk or referral_rate.")
    ] = "selective_risk",
    goal: Annotated[float, typer.Option("--goal", help="What the target must reach.")] = 0.05,
    confidence: Annotated[
        float | None,
        typer.Option("--confidence", help="Guarantee the risk with this confidence, or refuse: 0.95."),
    ] = None,
    bootstrap: Annotated[
        int, typer.Option("--bootstrap", min=1, help="Replicates for the intervals.")
    ] = 1000,
    uncertainty: UncertaintyOption = "auto",
    json: JsonOption = None,
    seed: Seed = 0,
    quiet: Silent = False,
) -> None:
    """Choose a referral threshold on the validation split, freeze it, and see what it does on the test sets."""
    from rich.console import Console

    from retinabench.commands import transfer_file
    from retinabench.report.console_pairs import transfer_table

    found = transfer_file(
        file, target, goal, confidence, bootstrap, uncertainty, seed, json, _progress(quiet)
    )
    Console().print(transfer_table(found))
    _notes([found])


@app.command(epilog="Example: retinabench report runs/* --out report")
def report(
    files: Annotated[
        list[Path], typer.Argument(help="Predictions files or run folders; seeds of one method join.")
    ],
    out: Out = Path("report"),
    data: Annotated[Path | None, typer.Option("--data", help="Prepared folder, for example images.")] = None,
    shifted: Annotated[
        Path | None, typer.Option("--shifted", help="The other one, as `train` had it.")
    ] = None,
    title: Annotated[str | None, typer.Option("--title", help="Headline of the page.")] = None,
    rules: RulesOption = "corrected",
    bootstrap: Bootstrap = 1000,
    seed: Seed = 0,
    quiet: Silent = False,
) -> None:
    """Write one self-contained page with tables and figures about one or more models."""
    from retinabench.commands import report_files

    print(report_files(files, out, data, title, rules, bootstrap, seed, _progress(quiet), shifted))


@app.command(
    epilog="Example: retinabench examine --answers answers.csv --truth truth.csv --strategy precision --questions 200 --out examination"
)
def examine(
    answers: Annotated[
        Path, typer.Option("--answers", help="P(yes): CSV or Parquet, image_id and a column per concept.")
    ],
    truth: Annotated[Path, typer.Option("--truth", help="0, 1 or empty (unknown): the same columns.")],
    out: Out = Path("examination"),
    concepts: Annotated[
        str | None,
        typer.Option("--concepts", help="Columns of the truth file, separated by commas; default: all."),
    ] = None,
    strategy: Annotated[
        str,
        typer.Option(
            "--strategy",
            help="uncertainty, random, unpredictability, uncertainty+unpredictability, precision or claims.",
        ),
    ] = "uncertainty",
    questions: Annotated[
        int | None, typer.Option("--questions", help="Stop after so many; default: all.")
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option("--tolerance", help="Stop at this mean uncertainty; it begins at 2.")
    ] = None,
    patience: Annotated[
        int | None, typer.Option("--patience", help="Stop after so many questions without progress.")
    ] = None,
    claim: Annotated[
        list[str] | None,
        typer.Option(
            "--claim", help="Stop when decided: 'sensitivity of haemorrhage >= 0.85'; may be repeated."
        ),
    ] = None,
    confidence: Annotated[float, typer.Option("--confidence", help="Of each claim's decision.")] = 0.95,
    reading: Annotated[
        Literal["std", "variance"],
        typer.Option("--reading", help="Uncertainty: area of the drawn band, or as printed."),
    ] = "std",
    rules: Annotated[
        Literal["corrected", "published"],
        typer.Option("--rules", help="corrected: skip saturated cells; published: ask them until empty."),
    ] = "corrected",
    kernel: Annotated[
        Literal["published", "fitted"], typer.Option("--kernel", help="Hyper-parameters of the drawn curves.")
    ] = "published",
    repetitions: Annotated[
        int, typer.Option("--repetitions", min=0, help="To compare all strategies; 0: do not.")
    ] = 10,
    seed: Seed = 0,
    quiet: Silent = False,
) -> None:
    """Question a classifier concept by concept: which lesions does it grasp, from as few questions as possible?"""
    from retinabench.concepts.command import examine_files, summary_lines

    found = examine_files(
        answers,
        truth,
        out,
        concepts=[name.strip() for name in concepts.split(",")] if concepts else None,
        strategy=strategy,
        questions=questions,
        tolerance=tolerance,
        patience=patience,
        claims=claim or (),
        confidence=confidence,
        reading=reading,
        rules=rules,
        kernel=kernel,
        repetitions=repetitions,
        seed=seed,
        progress=_progress(quiet),
    )
    for line in summary_lines(found):
        print(line)
    _notes([found])
    print(out / "index.html")


@app.command(epilog="Example: retinabench lesions idrid --source ~/idrid --out idrid-lesions")
def lesions(
    dataset: Annotated[str, typer.Argument(help="synthetic or idrid.")],
    out: Out = Path("lesions"),
    source: Annotated[
        Path | None, typer.Option("--source", help="Folder of the data set as downloaded.")
    ] = None,
    images: Annotated[int | None, typer.Option("--images", help="synthetic only: images to draw.")] = None,
    size: Annotated[
        int | None,
        typer.Option("--size", help="Side of the pictures, in pixels; default: 256, drawn ones 64."),
    ] = None,
    grid: Annotated[
        int, typer.Option("--grid", min=1, help="Ask about each of grid x grid regions of an image.")
    ] = 1,
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="Epochs of the training.")] = 40,
    seed: Seed = 0,
    quiet: Silent = False,
) -> None:
    """Train a small network to name lesions, then examine it on the images that it has not seen."""
    from retinabench.concepts.command import summary_lines
    from retinabench.concepts.trained import examine_network

    found = examine_network(
        dataset, out, source, images=images, size=size, grid=grid, epochs=epochs, seed=seed,
        progress=_progress(quiet),
    )  # fmt: skip
    for line in summary_lines(found):
        print(line)
    _notes([found])
    print(out / "index.html")


@app.command(epilog="Example: retinabench inspect data/idrid --out idrid-inspection")
def inspect(
    path: Annotated[Path, typer.Argument(help="A predictions file, run folder or prepared folder.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Prepared folder: look at every picture, write sheets and a data card here."
        ),
    ] = None,
    seed: Seed = 0,
    quiet: Silent = False,
) -> None:
    """Say what a file or folder holds; of a data set also copies, conflicting grades, leaks and outliers."""
    from retinabench.inspection import inspect_lines

    for line in inspect_lines(path, out, seed, _progress(quiet)):
        print(line)


if __name__ == "__main__":
    main()
