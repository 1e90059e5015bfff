"""The command line: one verb per function, which may return an exit code (`output.ExitCode`).

A new verb is one function in the file of its group, and one line in `GROUPS`. Only the module of the verb that runs is
imported, and whatever is slow to import is imported inside its function: `--help` stays quick and never needs PyTorch.
"""

from __future__ import annotations

import contextlib
import errno
import io
import math
import os
import signal
import stat
import sys
import threading
import warnings
from importlib import import_module
from typing import Annotated

import typer

from retinabench.cli.application import ExitCode, Verbs, add_verbs, application, flag, say, say_error
from retinabench.core.errors import InputError, WorkError
from retinabench.core.files import confirming
from retinabench.core.subprocesses import keep_memory, sleeping_threads
from retinabench.core.untrusted import visible
from retinabench.core.version import __version__

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
    """Run the command line; the console script."""
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
            raise InputError(
                f"{name} {text} is out of range", hint="Give a finite number that is not vanishingly small."
            )


def _fail(message: str, code: int) -> int:
    say_error(" ".join(message.split()))
    return code
