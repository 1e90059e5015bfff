"""Conformance of a method with its contract, for `retinabench check`, for plug-ins and for the tests.

Each check (`checks.py`) runs the method on `write_easy_data`: 160 images of 16 x 16 pixels, in which every
referable image has a bright patch, with a network of a few thousand weights. All checks of one method take seconds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from retinabench.core.errors import InputError
from retinabench.core.registry import import_location
from retinabench.data.easy_images import write_easy_data
from retinabench.experiments.config import load_run
from retinabench.experiments.conformance.checks import CHECKS, OF_TRAINED
from retinabench.experiments.conformance.subject import NonconformingError, Subject
from retinabench.methods.base import is_composed
from retinabench.methods.registry import METHODS
from retinabench.models.build import check_size

NETWORK = ("model.name=resnet18", "model.width=4", "model.stem=small")
SHORT = (
    "optimizer.epochs=3", "optimizer.batch_size=16", "optimizer.lr=0.05", "optimizer.validation_share=1",
)  # fmt: skip
TINY = (*NETWORK, *SHORT)


@dataclass(frozen=True)
class CheckOutcome:
    """The result of one check: its name, what went wrong (empty where nothing did), and the seconds it took."""

    check: str
    problem: str
    seconds: float


def check_method(
    name: str,
    folder: Path,
    overrides: tuple[str, ...] = (),
    only: tuple[str, ...] = (),
    *,
    network: str | None = None,
    size: int = 16,
) -> Iterator[CheckOutcome]:
    """Run the checks on one method, and yield the outcome of each as it is known.

    Args:
        name: A name of `METHODS`; see `find_method` for methods that are not registered.
        folder: An empty folder to compute in.
        overrides: Settings of the run as `key=value`, after those of `TINY`.
        only: Names of `CHECKS` to run; all by default.
        network: What to train in place of a small ResNet, such as ``package.module:function``.
        size: Side of the images in pixels.

    Yields:
        One outcome per check. A check that does not apply to a composed method is left out.
    """
    data = write_easy_data(folder / "data", size)
    of_network = NETWORK if network is None else (f"model.name={json.dumps(network)}", "optimizer.select=nll")
    run = load_run(None, [*of_network, *SHORT, f"method.name={name}", *overrides], data=str(data))
    check_size(run.model, size)
    subject = Subject(run, folder)
    for check in only or checks_of(name):
        begun, problem = time.monotonic(), ""
        try:
            CHECKS[check](subject)
        except Exception as error:  # a method that raises does not conform either, whatever it raises
            problem = (
                str(error) if isinstance(error, NonconformingError) else f"{type(error).__name__}: {error}"
            )
        yield CheckOutcome(check, problem, time.monotonic() - begun)


def checks_of(name: str) -> list[str]:
    """Return the names of the checks that apply to a method."""
    composed = is_composed(METHODS[name])
    return [check for check in CHECKS if not (composed and check in OF_TRAINED)]


def find_method(name: str) -> str:
    """Return the name of a method, which is registered for this process where it is not yet.

    Args:
        name: A name of `METHODS`, a Python file that ends in `.py`, or the name of an importable module.

    Returns:
        The name that the method's `Config` states.

    Raises:
        InputError: There is no such method, or the module has no `Config` with a name, or the name of a built-in method.
    """
    if name in METHODS:
        return name
    if not (name.endswith(".py") or "." in name):
        METHODS.find(name)
    module = import_location(name)
    fields = getattr(getattr(module, "Config", None), "model_fields", {})
    own = fields["name"].default if "name" in fields else None
    if not isinstance(own, str):
        raise InputError("is no method: it has no `Config` whose field `name` has a default", file=name)
    if METHODS.is_builtin(own):
        if module.__name__ == getattr(METHODS[own], "__name__", None):
            return own  # the built-in method itself, by the name of its module
        raise InputError(
            f"the name '{own}' is taken by a method of retinabench",
            file=name,
            hint="Give Config.name another default.",
        )
    METHODS.add(
        own, module, instead=True
    )  # what is installed under that name may be an older state of the file
    return own
