"""From points of a space to runs: a space is checked against the run that it varies before anything is computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from retinabench.core.errors import InputError, nearest
from retinabench.experiments.config import Run, load_run
from retinabench.experiments.search.space import Space, points

FIXED = ("data", "shifted", "task", "seed", "model.name")  # the trials of a search are comparable


def trial_runs(base: Run, space: Space, first: int, stop: int, seed: int) -> list[Run]:
    """Return the runs of the trials first … stop - 1: `base` with the values of the space's points.

    Args:
        base: The run that the space varies.
        space: What varies.
        first: Number of the first trial.
        stop: Number after the last trial.
        seed: Seed of the points.

    Returns:
        One run per trial.

    Raises:
        InputError: See `check_space`; or values are possible one by one but not together.
    """
    check_space(base, space)
    return [
        _vary(base, values, space, f"trial {number}: ")
        for number, values in enumerate(points(space, first, stop, seed), start=first)
    ]


def check_space(base: Run, space: Space) -> None:
    """Raise `InputError` naming file and key where the run has no such key, or refuses an end of a range."""
    known = [key for key, _ in _leaves(base.model_dump(mode="json"))]
    for parameter in space:
        if parameter.key not in known:
            raise InputError(
                f"unknown key '{parameter.key}' for the method '{base.method.name}'",
                file=space.file,
                hint=nearest(parameter.key, known),
            )
        for value in parameter.bounds():
            _vary(base, {parameter.key: value}, space, "")


def values_of(run: Run, keys: Sequence[str]) -> dict[str, Any]:
    """Return a run's values under dotted keys."""
    leaves = dict(_leaves(run.model_dump(mode="json")))
    return {key: leaves[key] for key in keys}


def _vary(base: Run, values: Mapping[str, Any], space: Space, what: str) -> Run:
    tree = deepcopy(base.model_dump(mode="json"))
    for key, value in values.items():
        *tables, last = key.split(".")
        inner = tree
        for table in tables:
            inner = inner[table]
        inner[last] = value
    try:
        return load_run(None, **tree)
    except InputError as error:
        raise InputError(f"{what}{error.problem}", file=space.file, hint=error.hint) from None


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys that may vary, with their values."""
    for key, value in tree.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{dotted}.")
        elif dotted not in FIXED and not (dotted.startswith("method.") and key == "name"):
            yield dotted, value
