"""What there is to choose from: `list`; and whether a method keeps its contract: `check`."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from retinabench.cli import main as cli
from retinabench.core.errors import WorkError
from retinabench.core.files import remove
from retinabench.core.registry import Registry

if TYPE_CHECKING:
    from retinabench.metrics.registry import ScoreSpec

Kind = Literal["methods", "presets", "studies", "spaces", "tasks", "datasets", "models", "scores", "targets"]


def list_entries(
    kind: Annotated[Kind, typer.Argument(metavar="KIND", help=f"One of: {', '.join(get_args(Kind))}.")],
    json: cli.Json = None,
) -> None:
    """List the methods, presets, studies, search spaces, tasks, data sets, models, scores or fidelity targets."""
    from rich.table import Table

    found = _described(kind)
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, text in found.items():
        table.add_row(name, text)
    cli.print_result(table, json, lambda: found)


def _described(kind: Kind) -> Mapping[str, str]:
    if kind in ("presets", "studies", "spaces"):
        return _configurations(kind)
    from retinabench.data.registry import DATASETS, TASKS
    from retinabench.fidelity.targets.target import TARGETS
    from retinabench.methods.registry import METHODS
    from retinabench.metrics.registry import SCORES
    from retinabench.models.registry import MODELS

    registries: Mapping[str, Registry[Any]] = {"methods": METHODS, "datasets": DATASETS, "models": MODELS}
    if kind in registries:
        found = {name: registries[kind].summary(name) for name in registries[kind]}
        return {name: text.removeprefix("Return a ") for name, text in found.items()}  # of builders of networks
    if kind == "tasks":
        return {name: (one.divide.__doc__ or "").partition("\n")[0] for name, one in TASKS.items()}
    if kind == "scores":
        return {name: _score(one) for name, one in SCORES.items()}
    return {name: one.title for name, one in TARGETS.items()}


def _configurations(kind: Kind) -> Mapping[str, str]:
    """Return the configurations of a kind that come with the package; their settings are checked, which needs PyTorch."""
    from retinabench.experiments.config import presets
    from retinabench.experiments.search import space
    from retinabench.experiments.study.definition import read_study, study_presets

    if kind == "presets":
        methods = {name: content.get("method", {}).get("name", "map") for name, content in presets().items()}
        return {name: f"{methods[name]} on {content['model']['name']}" for name, content in presets().items()}
    if kind == "studies":
        return {name: read_study(name).title for name in study_presets()}
    return {name: ", ".join(space.read_space(name)) for name in space.spaces()}


def _score(score: ScoreSpec) -> str:
    text = f"{score.heading}: {score.formula}" if score.formula else score.heading
    return f"{text}. It misleads when {score.misleads}." if score.misleads else text


def check(
    method: Annotated[
        str, cli.argument("METHOD", "A method's name, its Python file (my_method.py) or its module (my_package.mine).")
    ],
    overrides: cli.Overrides = None,
    model: cli.Model = None,
    size: Annotated[int, cli.option("--size", "N", "Side of the drawn images in pixels.", min=16)] = 16,
    quiet: cli.Silent = False,
) -> None:
    """Check in seconds that one method keeps its contract, with your own network too: seeds, saved state, continued trainings."""
    from retinabench.experiments.conformance import check_method, find_method

    failed = count = 0
    with tempfile.TemporaryDirectory() as folder:
        name, words = find_method(method), tuple(overrides or ())
        for one in check_method(name, Path(folder), words, network=model, size=size):
            count, failed = count + 1, failed + bool(one.problem)
            if one.problem:
                cli.say(f"failed  {one.check}: {one.problem}", flush=True)
            elif not quiet:
                cli.say(f"ok      {one.check} ({one.seconds:.1f} s)", flush=True)
        remove(Path(folder))
    if failed:
        raise WorkError(f"{failed} of {count} checks failed")
