"""The command line: the table of verbs, the options that they share, and how a command ends: table, notes, exit code.

A new verb is one function in the file of its group, which may return an `ExitCode`, and one line in `GROUPS`. Only the module of the verb that runs is
imported, and whatever is slow to import is imported inside its function: `--help` stays quick and never needs PyTorch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import inspect
import io
import math
import os
import signal
import stat
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_origin, get_type_hints

import typer

from retinabench.core.errors import QUIET, Bars, InputError, Progress, WorkError, confirming, visible
from retinabench.core.files import json_text, write_json
from retinabench.core.subprocesses import keep_memory, sleeping_threads
from retinabench.core.version import __version__

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    from retinabench.predictions.table import Predictions

# Groups and verbs in the order of a user's path: each with its module and function, and the example that ends its help.
GROUPS = {
    "Start": {
        "demo": ("training:demo", "retinabench demo --out retinabench-demo"),
        "list": ("entries:list_entries", "retinabench list methods"),
    },
    "Data": {
        "prepare": ("data:prepare", "retinabench prepare aptos --source ~/aptos.zip --out data/aptos --size 512"),
        "inspect": ("data:inspect", "retinabench inspect data/idrid --out idrid-inspection"),
        "verify": ("data:verify", "retinabench verify runs"),
    },
    "Training": {
        "train": (
            "training:train",
            "retinabench train --data data/idrid --task in_domain --method dropout --out runs optimizer.epochs=40",
        ),
        "predict": (
            "training:predict",
            "retinabench predict runs/dropout-resnet18-seed-0-1f2e3d4c5b6a --data data/aptos --out aptos.parquet",
        ),
        "export": ("training:export", "retinabench export runs/dropout-resnet18-seed-0-1f2e3d4c5b6a --out model"),
        "check": ("entries:check", "retinabench check my_method.py"),
        "tune": (
            "studies:tune",
            "retinabench tune --data data/synthetic --config demo/dropout --space demo/dropout --trials 32 "
            "--criterion in_domain_auroc --out sweeps/dropout",
        ),
        "benchmark": ("studies:benchmark", "retinabench benchmark demo --plan"),
        "reproduce": ("studies:reproduce", "retinabench reproduce country --source ~/kaggle --out country"),
        "track": ("training:track", "retinabench track runs/* --to tensorboard --out tb"),
    },
    "Scores": {
        "score": ("scoring:score", "retinabench score predictions.csv --json scores.json"),
        "compare": ("scoring:compare", "retinabench compare ours.csv theirs.csv --json comparison.json"),
        "recalibrate": ("scoring:recalibrate", "retinabench recalibrate predictions.csv --map platt --out mapped.csv"),
        "report": ("scoring:report", "retinabench report runs/* --out report"),
    },
    "Leaderboard": {
        "leaderboard": ("leaderboard:leaderboard", "retinabench leaderboard predictions.parquet"),
        "submit": ("leaderboard:submit", "retinabench submit check my-method"),
        "site": ("leaderboard:site", "retinabench site --submissions submissions --out leaderboard-site"),
    },
    "Decisions": {
        "transfer": ("clinical:transfer", "retinabench transfer predictions.csv --goal 0.05 --confidence 0.95"),
        "apply": ("clinical:apply", "retinabench apply today.csv --certificate transfer.json --out lists"),
        "clinic": ("clinical:clinic", "retinabench clinic predictions.csv --prevalence 0.1 --cost 0.01 --out clinic"),
        "status": ("clinical:status", "retinabench status service"),
        "plan": ("clinical:plan", "retinabench plan --prevalence 0.1 --above-sensitivity 0.85"),
        "monitor": (
            "clinical:monitor",
            "retinabench monitor follow-up.csv validation.csv --date-column date --certificate transfer.json "
            "--out monitor",
        ),
    },
    "Concepts": {
        "examine": (
            "concepts:examine",
            "retinabench examine --answers answers.csv --truth truth.csv --strategy precision --questions 200 "
            "--out examination",
        ),
        "lesions": ("concepts:lesions", "retinabench lesions idrid --source ~/idrid --out idrid-lesions"),
        "occlude": (
            "concepts:occlude",
            "retinabench occlude runs/dropout-efficientnet_lite0-seed-0-1f2e3d4c5b6a --bank idrid --source ~/idrid "
            "--out occlusion",
        ),
    },
    "Approximate inference": {
        "uci": ("studies:uci", "retinabench uci --source UCI_Datasets --sets boston,energy --out uci")
    },
}


def verbs_of(group: str, only: str | None = None) -> Verbs:
    """Return the verbs of a group, imported; `only`: without all other verbs."""
    found = {}
    for name, (location, example) in GROUPS[group].items():
        if only in (None, name):
            module, _, function = location.partition(":")
            found[name] = (getattr(import_module(f"retinabench.cli.{module}"), function), example)
    return found


def command_line(verb: str | None = None) -> typer.Typer:
    """Return the application: with one verb alone where `verb` is one, since the options of all take long to build."""
    only = verb if any(verb in verbs for verbs in (*GROUPS.values(), ("fidelity",))) else None
    app = application("Tells whether a deep model knows when it does not know, on screening photographs of the retina.")
    for group in GROUPS:
        add_verbs(app, verbs_of(group, only), group)
    if only in (None, "fidelity"):
        benchmark = import_module("retinabench.cli.fidelity").app
        app.add_typer(benchmark, name="fidelity", rich_help_panel="Approximate inference")
    app.callback()(_options)
    return app


def _print_version(asked: bool) -> None:
    if asked:
        say(f"retinabench {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, flag("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    try:
        keep_memory()
        os.environ.update(sleeping_threads())  # before anything imports PyTorch
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # where the encoding has no such letter, as in cp1252
        sys.unraisablehook = _repeat_lost_interrupt
        warnings.formatwarning = _one_line
        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # before anything was begun, or a second one, while the first was being reported
        code = ExitCode.INTERRUPTED
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to interrupt
    sys.exit(code)


def _one_line(message: Warning | str, *_: object, **__: object) -> str:
    """Format a warning without the place in the source that gave it, which tells a user nothing."""
    return f"retinabench: warning: {visible(' '.join(str(message).split()))}\n"


def _repeat_lost_interrupt(unraisable: sys.UnraisableHookArgs) -> None:
    """Repeat a Ctrl-C that came during a finalizer or the callback of a weak reference, which cannot raise it."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt) and hasattr(signal, "pthread_kill"):
        threading.Timer(0.01, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)).start()
    else:
        sys.__unraisablehook__(unraisable)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; every error becomes one line on standard error.

    Any `ValueError` means wrong input and exits with 2. Other exceptions are bugs of this package.
    """
    try:
        _refuse_devices(arguments)
        _refuse_numbers(arguments)
        with confirming():
            code = command_line(*arguments[:1])(arguments, prog_name="retinabench", standalone_mode=False)
            if code == ExitCode.INTERRUPTED:  # what some versions of typer turn Ctrl-C into
                raise KeyboardInterrupt  # what it was writing is not confirmed
        return code if isinstance(code, int) else ExitCode.DONE
    except ValueError as error:
        if not isinstance(error, InputError):  # which most are; pydantic is slow to import
            from pydantic import ValidationError

            from retinabench.core.settings import first_problem

            if isinstance(error, ValidationError):
                error = first_problem(error, None, lambda _: [])
        return _fail(f"{str(error).rstrip('.')}.", ExitCode.WRONG_INPUT)
    except WorkError as error:
        return _fail(str(error), ExitCode.FAILED)
    except (KeyboardInterrupt, typer.Abort):
        return _fail(
            "interrupted; the same command continues, where its work is kept in a folder", ExitCode.INTERRUPTED
        )
    except MemoryError:
        return _fail("not enough memory; choose a smaller --size, batch or network", ExitCode.FAILED)
    except ImportError as error:
        if error.name and error.name.partition(".")[0] == "torch":
            return _fail(
                "training needs PyTorch. Install it with: pip install 'retinabench[train]'", ExitCode.WRONG_INPUT
            )
        raise
    except BrokenPipeError:  # what reads the output has ended
        raise
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        wrong = error.errno in (errno.ENAMETOOLONG, errno.EACCES, errno.ELOOP, errno.EINVAL)
        return _fail(f"{named}{error.strerror or error}.", ExitCode.WRONG_INPUT if wrong else ExitCode.FAILED)
    except Exception as error:
        # Typer's own complaints about options share no public base class across its versions.
        if not hasattr(error, "format_message"):
            raise
        help_for = getattr(getattr(error, "ctx", None), "command_path", "retinabench")
        said = error.format_message().replace("Value error, ", "").replace("?.", "?").rstrip(".")
        if not said:  # no verb: the help is printed
            return ExitCode.WRONG_INPUT
        end = "" if said.endswith("?") else "."
        return _fail(f"{said}{end} See: {help_for} --help", ExitCode.WRONG_INPUT)


def _refuse_devices(arguments: list[str]) -> None:
    """Refuse pipes and devices in the place of files: reading one may never end, and writing replaces it."""
    for argument in arguments:
        path = argument.partition("=")[2] if argument.startswith("--") and "=" in argument else argument
        kind = 0
        with contextlib.suppress(OSError, ValueError):  # not a path, or nothing is there
            kind = os.stat(path).st_mode
        if kind and not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
            raise InputError("is a pipe or a device", file=path, hint="Name a file.")


def _refuse_numbers(arguments: list[str]) -> None:
    """Refuse values of options that are infinite, NaN or vanishingly small, such as `--referral nan`: comparisons with them are silently false."""
    names = [argument.partition("=")[0] for argument in arguments]
    for k, argument in enumerate(arguments):
        own = argument.startswith("--") and "=" in argument
        if not own and not (k and names[k - 1].startswith("--") and "=" not in arguments[k - 1]):
            continue
        text = argument.rpartition("=")[2]
        try:
            value = float(text)
        except ValueError:  # not a number
            continue
        if not math.isfinite(value) or 0 < abs(value) < 1e-200:
            name = names[k] if own else names[k - 1]
            hint = "Give a finite number that is not vanishingly small."
            raise InputError(f"{name} {text} is out of range", hint=hint)


def _fail(message: str, code: int) -> int:
    say_error(" ".join(message.split()))
    return code


Verbs = Mapping[str, tuple[Callable[..., int | None], str]]
"""Name of a verb -> its function, and the example that ends its help."""


def application(text: str) -> typer.Typer:
    return typer.Typer(
        help=text,
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def add_verbs(app: typer.Typer, verbs: Verbs, group: str | None = None) -> None:
    for name, (function, example) in verbs.items():
        app.command(name, epilog=f"Example: {example}", rich_help_panel=group)(function)


def argument(value: str, text: str) -> Any:
    return typer.Argument(metavar=value, help=text)


def flag(*names: str, help: str, **further: Any) -> Any:
    return typer.Option(*names, metavar="", help=help, **further)


def option(name: str, value: str, text: str = "", **further: Any) -> Any:
    """Return an option that takes a value; a file in the place of the folder of `--out` is refused before any work."""
    if (name, value) == ("--out", "FOLDER"):
        further.setdefault("callback", _folder_to_write)
    return typer.Option(name, metavar=value, help=text, **further)


def _folder_to_write(out: Path | None) -> Path | None:
    for path in () if out is None else (out, *out.parents):
        if path.exists() and not path.is_dir():
            hint = "Choose another --out."
            raise InputError("is a file where a folder is needed to write into", file=path, hint=hint)
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
    REFUSED = 3  # the data do not support the certificate that was asked for, or cannot judge it
    REFUTED = 4  # a certificate is refuted by the labels of newer images, or its monitor raises an alarm
    INTERRUPTED = 130  # Ctrl-C


STANDARD_OUTPUT = Path("-")


def progress_of(quiet: bool) -> Progress:
    return QUIET if quiet else Bars()


class _Shown:
    """What rich draws, with the control characters of names spelled out."""

    def __init__(self, drawn: RenderableType) -> None:
        self.drawn = drawn

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self.drawn, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))


def print_table(table: RenderableType) -> None:
    from rich.console import Console

    Console().print(_Shown(table))


def say(line: object = "", *, error: bool = False, flush: bool = False) -> None:
    """Print text with the control characters of names spelled out."""
    print(visible(str(line)), file=sys.stderr if error else sys.stdout, flush=flush)


def say_error(message: str) -> None:
    """Print an error on standard error, its head in red where the terminal and `NO_COLOR` allow it."""
    head = typer.style("retinabench: error: ", fg="red", bold=True)
    colour = False if os.environ.get("NO_COLOR") else True if os.environ.get("FORCE_COLOR") else None
    typer.echo(f"{head}{visible(message)}", err=True, color=colour)


def print_result(
    table: RenderableType, json: Path | None, content: Callable[[], Any], notes: Iterable[str] = ()
) -> None:
    """Print warnings, the table of a result, and other notes; write the result as JSON where `--json` asks for it."""
    warned: list[str] = []
    others: list[str] = []
    for note in notes:
        (warned if "WARNING" in note else others).append(note)
    print_notes(warned)  # a verdict on labels that look wrong is not to be read without them
    if json == STANDARD_OUTPUT:
        sys.stdout.write(json_text(content()))
    else:
        if json is not None:
            write_json(json, content())
        print_table(table)
        sys.stdout.flush()
    print_notes(others)


def print_path(path: Path, json: Path | None = None) -> None:
    """Print the path of what was written, unless standard output is for JSON."""
    if json != STANDARD_OUTPUT:
        say(path)


def print_notes(notes: Iterable[str]) -> None:
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
        return list(self.each(paths))

    def each(self, paths: Sequence[Path]) -> Iterator[Predictions]:
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
