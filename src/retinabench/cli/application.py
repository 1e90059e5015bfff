"""How verbs become an application: the options that they share, and what each gives back: table, progress, notes, exit code."""

from __future__ import annotations

import dataclasses
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_origin, get_type_hints

import typer

from retinabench.core.errors import InputError
from retinabench.core.files import json_text, write_json
from retinabench.core.progress import QUIET, Bars, Progress
from retinabench.core.untrusted import visible

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    from retinabench.core.progress import Progress
    from retinabench.experiments.engines.scheduler import JobEngine
    from retinabench.predictions.table import Predictions


Verbs = Mapping[str, tuple[Callable[..., int | None], str]]
"""Name of a verb -> its function, and the example that ends its help."""


def application(text: str) -> typer.Typer:
    """Return an application without verbs."""
    return typer.Typer(
        help=text,
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def add_verbs(app: typer.Typer, verbs: Verbs, group: str | None = None) -> None:
    """Add verbs to an application."""
    for name, (function, example) in verbs.items():
        app.command(name, epilog=f"Example: {example}", rich_help_panel=group)(function)


def argument(value: str, text: str) -> Any:
    """Return an argument."""
    return typer.Argument(metavar=value, help=text)


def flag(*names: str, help: str, **further: Any) -> Any:
    """Return an option without a value."""
    return typer.Option(*names, metavar="", help=help, **further)


def option(name: str, value: str, text: str = "", **further: Any) -> Any:
    """Return an option that takes a value; a file in the place of the folder of `--out` is refused before any work."""
    if (name, value) == ("--out", "FOLDER"):
        further.setdefault("callback", _folder_to_write)
    return typer.Option(name, metavar=value, help=text, **further)


def _folder_to_write(out: Path | None) -> Path | None:
    for path in () if out is None else (out, *out.parents):
        if path.exists() and not path.is_dir():
            raise InputError(
                "is a file where a folder is needed to write into", file=path, hint="Choose another --out."
            )
    return out


def with_options(settings: type[Any], name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return what gives a verb the options of a dataclass, in the place of the one argument that gets an instance of it."""
    hints = get_type_hints(settings, include_extras=True)
    added = {
        field.name: inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in dataclasses.fields(settings)
        if get_origin(hints[field.name]) is Annotated
    }

    def give(verb: Callable[..., Any]) -> Callable[..., Any]:
        own = inspect.signature(verb, eval_str=True)
        parameters = [
            one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for p in own.parameters.values()
            for one in (added.values() if p.name == name else (p,))
        ]

        @wraps(verb)
        def command(**given: Any) -> Any:
            chosen = {option: given.pop(option) for option in added}
            for file in given.get("files") or [given.get("file") or Path()]:
                if not os.path.lexists(file):  # said before anything slow is imported
                    raise InputError("does not exist", file=file)
            import_scipy()
            return verb(**given, **{name: settings(**chosen)})

        command.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return give


def import_scipy() -> None:
    """Import SciPy without two parts of NumPy that it copies and never uses: they take a tenth of the time of a small command."""
    import numpy

    unused = [name for name in ("f2py", "testing") if name not in vars(numpy)]
    for name in unused:
        setattr(numpy, name, None)
    import scipy.special  # noqa: F401

    for name in unused:
        if vars(numpy)[name] is None:
            delattr(numpy, name)


class ExitCode(IntEnum):
    """What the exit code of a command says; the highest that applies is returned."""

    DONE = 0
    FAILED = 1  # the work failed on correct input
    WRONG_INPUT = 2  # a file or an option is wrong
    REFUSED = 3  # the data do not support the certificate that was asked for
    REFUTED = 4  # a certificate is refuted by the labels of newer images, or its monitor raises an alarm
    INTERRUPTED = 130  # Ctrl-C


STANDARD_OUTPUT = Path("-")


def progress_of(quiet: bool) -> Progress:
    """Return what shows the progress of long work; nothing with `--quiet`."""
    return QUIET if quiet else Bars()


class _Shown:
    """What rich draws, with the control characters of names spelled out."""

    def __init__(self, drawn: RenderableType) -> None:
        self.drawn = drawn

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self.drawn, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))


def print_table(table: RenderableType, console: Console | None = None) -> None:
    """Print a table on standard output, or on a console."""
    if console is None:
        from rich.console import Console as Screen

        console = Screen()
    console.print(_Shown(table))


def say(line: object = "", *, error: bool = False, flush: bool = False) -> None:
    """Print text with the control characters of names spelled out."""
    print(visible(str(line)), file=sys.stderr if error else sys.stdout, flush=flush)


def say_error(message: str) -> None:
    """Print an error on standard error, its head in red where the terminal and `NO_COLOR` allow it."""
    head = typer.style("retinabench: error: ", fg="red", bold=True)
    colour = False if os.environ.get("NO_COLOR") else True if os.environ.get("FORCE_COLOR") else None
    typer.echo(f"{head}{visible(message)}", err=True, color=colour)


def print_result(table: RenderableType, json: Path | None, content: Callable[[], Any]) -> None:
    """Print the table of a result, and write the result as JSON where `--json` asks for it."""
    if json == STANDARD_OUTPUT:
        sys.stdout.write(json_text(content()))
        return
    if json is not None:
        write_json(json, content())
    print_table(table)


def print_path(path: Path, json: Path | None = None) -> None:
    """Print the path of what was written, unless standard output is for JSON."""
    if json != STANDARD_OUTPUT:
        say(path)


def print_notes(notes: Iterable[str]) -> None:
    """Print notes on standard error, each one once."""
    for note in dict.fromkeys(notes):
        say(f"note: {note}", error=True)


READING, COMPUTING = "How files are read", "How it is computed"
reading, computing = partial(option, rich_help_panel=READING), partial(option, rich_help_panel=COMPUTING)
Out = Annotated[Path, option("--out", "FOLDER", "Folder to write into.")]
Seed = Annotated[int, computing("--seed", "N", "Seed of everything random.", min=0)]
Silent = Annotated[bool, flag("--quiet", "-q", help="No progress, only results and errors.", rich_help_panel=COMPUTING)]

Workers = Annotated[int | None, computing("--workers", "N", "Processes; default: one per core.", min=1)]

Threads = Annotated[int | None, computing("--workers", "N", "Threads; default: one per core.", min=1)]

Readers = Annotated[
    int | None,
    computing(
        "--readers", "N", "Processes that read images ahead; default: none on a CPU, up to eight for a GPU.", min=0
    ),
]

Device = Annotated[str, computing("--device", "DEVICE", "auto, cpu, cuda or cuda:N.")]

Rules = Annotated[
    Literal["corrected", "published"],
    option("--rules", "RULES", "corrected: ours; published: as the released Retina Benchmark, faults included."),
]

Uncertainty = Annotated[
    str,
    option(
        "--uncertainty",
        "NAME",
        "What orders the referral: auto, own, total, epistemic, aleatoric, variance, max_probability, margin, or the NAME "
        "of a column uncertainty_NAME. Of several (epistemic,total) the first orders; score and report compare them.",
    ),
]

Threshold = Annotated[
    str,
    option(
        "--threshold",
        "THRESHOLD",
        "From which probability on an image counts as referable: 0.3, youden, sensitivity=.85@validation, "
        "specificity=.9@validation; default: above 0.5.",
    ),
]

Json = Annotated[
    Path | None, option("--json", "FILE", "Write everything as JSON; -: to standard output, and nothing else there.")
]

MOST_REPLICATES = 1_000_000

Bootstrap = Annotated[
    int, option("--bootstrap", "N", "Replicates for the intervals; 0: none.", min=0, max=MOST_REPLICATES)
]

# Of the verbs that train.
Data = Annotated[Path, option("--data", "FOLDER", "Prepared folder.")]

Shifted = Annotated[
    Path | None, option("--shifted", "FOLDER", "A second prepared folder, to test on as the shifted domain.")
]

Config = Annotated[
    str | None,
    option("--config", "NAME|FILE", "TOML file, or a preset such as demo/map; settings left out have defaults."),
]

Overrides = Annotated[
    list[str] | None, argument("KEY=VALUE", "key=value, such as method.rate=0.2 or optimizer.epochs=20.")
]

Model = Annotated[
    str | None,
    option("--model", "NETWORK", "Network: one of ours, timm:NAME, or your own function package.module:function."),
]

OwnModel = Annotated[
    str | None,
    option(
        "--model", "FUNCTION", "Where the network is a user's function: package.module:function, whose code then runs."
    ),
]

# Of the verbs that compute many runs.
RunEngine = Annotated[
    Literal["local", "ray"],
    typer.Option("--engine", help="Processes of this machine, or a Ray cluster.", rich_help_panel=COMPUTING),
]

Address = Annotated[
    str | None, computing("--address", "ADDRESS", "Of a running Ray cluster; default: one of this machine.")
]

Parallel = Annotated[int | None, computing("--workers", "N", "Runs at a time; default: as many as fit.", min=1)]

Cpus = Annotated[float, computing("--cpus", "X", "Cores of one run, on Ray.", min=0)]

Gpus = Annotated[
    float, computing("--gpus", "X", "GPUs of one run; 0.5: two runs share one; 2: two train it together.", min=0)
]

Storage = Annotated[
    str | None, computing("--storage", "URL", "Where a cluster's runs meet: a shared folder or an fsspec URL.")
]


@dataclass(frozen=True)
class Computing:
    """Where many runs are computed, as the options say."""

    name: RunEngine = "local"
    parallel: Parallel = None
    address: Address = None
    cpus: Cpus = 1.0
    gpus: Gpus = 0.0
    storage: Storage = None
    device: Device = "auto"

    def engine(self, progress: Progress, readers: int | None = None) -> JobEngine:
        """Return the engine; nothing is started before it has jobs. readers: processes of each run that read images."""
        from retinabench.experiments.engines.engine import make_engine

        return make_engine(
            self.name, parallel=self.parallel, device=self.device, address=self.address, cpus=self.cpus, gpus=self.gpus,
            storage=self.storage, progress=progress, readers=readers,
        )  # fmt: skip

    def precision(self) -> Literal["bfloat16"] | None:
        """Return the precision of runs whose settings name none."""
        from retinabench.experiments.engines.engine import precision_of

        return precision_of(self.name, self.device, self.gpus)


HERE = Computing()  # Where a verb that is called as a function computes.
computes_runs = with_options(Computing, "computing")
"""Gives a verb the options of `Computing`, which it gets as its argument `computing`."""


# Of the verbs of `fidelity`.
Target = Annotated[str, option("--task", "TASK", "A target: a name of `retinabench fidelity tasks`.")]

TargetFolder = Annotated[
    Path | None, option("--data", "FOLDER", "The target's data, where they do not come with the package.")
]

Chains = Annotated[int, option("--chains", "N", "Number of chains; fewer than 4 cannot pass.", min=1)]
BurnIn = Annotated[int, option("--burn-in", "N", "Transitions that adapt the step and are dropped.", min=1)]
Keep = Annotated[int, option("--keep", "N", "Transitions of each chain that count.", min=8)]

# Of the verbs that read predictions files.
Columns = Annotated[
    list[str] | None,
    reading("--column", "NAME=COLUMN", "NAME=COLUMN of the file, such as label=y_true; may be repeated."),
]

Softmax = Annotated[
    bool,
    flag("--softmax", help="prob_0, prob_1 … are the probabilities of classes, not samples.", rich_help_panel=READING),
]

Grades = Annotated[
    bool,
    flag("--grades", help="The classes are the grades 0 to 4: P(referable) = P(grade >= 2).", rich_help_panel=READING),
]

ReferableFrom = Annotated[
    str | None,
    reading(
        "--referable-from",
        "GRADE",
        "Lowest referable grade, default 2; label: keep the file's label, whatever the grade.",
    ),
]

Methods = Annotated[
    list[str] | None,
    reading("--method", "METHOD", "Name of the method: once, or once for each file. Files of one are seeds."),
]

ModelSeeds = Annotated[list[int] | None, reading("--model-seed", "N", "Seed of the model, once for each file.", min=0)]


@dataclass(frozen=True)
class FileReader:
    """Reads predictions files as the options say: `reader.read(paths)`."""

    column: Columns = None
    softmax: Softmax = False
    grades: Grades = False
    referable_from: ReferableFrom = None
    method: Methods = None
    model_seed: ModelSeeds = None
    unlabelled: bool = False
    ungradable: bool = False

    def read(self, paths: Sequence[Path]) -> list[Predictions]:
        """Return the predictions of files; a run folder stands for the file in it."""
        return list(self.each(paths))

    def each(self, paths: Sequence[Path]) -> Iterator[Predictions]:
        """Read one file after the other, as `read` does."""
        from retinabench.predictions.io import find_files, read_predictions

        files = find_files(paths)
        methods = _for_each("--method", self.method, len(files), once=True)
        seeds = _for_each("--model-seed", self.model_seed, len(files), once=len(files) == 1)
        lowest = self.referable_from
        if lowest is not None and lowest not in ("1", "2", "3", "4", "label"):
            raise InputError(f"--referable-from {lowest} is not a grade", hint="Give 1, 2, 3, 4 or label.")
        for file, method, seed in zip(files, methods, seeds, strict=True):
            yield read_predictions(
                file,
                columns=_columns(self.column or ()),
                softmax=self.softmax,
                grades=self.grades,
                referable_from=lowest if lowest in (None, "label") else int(lowest),  # type: ignore[arg-type]
                method=method,
                seed=seed,
                unlabelled=self.unlabelled,
                ungradable=self.ungradable,
            )


PLAIN = FileReader()  # Reads files without options; what a verb that is called as a function has.
reads_predictions = with_options(FileReader, "reader")
"""Gives a verb the options of `FileReader`, which it gets as its argument `reader`."""


def _columns(pairs: Sequence[str]) -> dict[str, str]:
    columns: dict[str, str] = {}
    for pair in pairs:
        name, equals, column = (part.strip() for part in pair.partition("="))
        if not (name and equals and column):
            raise InputError(f"--column {pair} is not NAME=COLUMN", hint="For example --column label=y_true.")
        if name in columns:
            raise InputError(f"--column {name} is given twice", hint="Give each name one column.")
        columns[name] = column
    return columns


def _for_each(option: str, values: Sequence[Any] | None, files: int, *, once: bool) -> Sequence[Any]:
    if not values:
        return [None] * files
    if once and len(values) == 1:
        return [values[0]] * files
    if len(values) != files:
        raise InputError(f"{option} is given {len(values)} times for {files} files", hint="Give it per file.")
    return values
