"""A search space as data, and its quasi-random points: trial i is point i of one scrambled Sobol sequence.

A space is a TOML file of dotted keys, each with a range or a list of choices:

    optimizer.lr = { low = 1e-3, high = 0.5, scale = "log" }
    optimizer.momentum = { low = 0.95, high = 0.995, scale = "log_complement" }
    method.inducing = { low = 5, high = 30, integer = true }
    optimizer.final_lr = { choices = [0.001, 0.01, 0.1] }

Scales: `linear` (default); `log`, uniform in the logarithm; `log_complement`, 1 - value uniform in the logarithm, for
momenta and the like. The meaning of the keys is checked in `sweep.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import qmc

from retinabench.core.errors import InputError, nearest
from retinabench.core.random_streams import numpy_generator
from retinabench.core.results import JsonObject
from retinabench.experiments.config import read_toml

HERE = Path(__file__).parent / "spaces"
SCALES = ("linear", "log", "log_complement")
OPTIONS = ("low", "high", "scale", "integer", "choices")
DIGITS = 6  # of a drawn value: the last bits of a logarithm differ between machines, and a run is its hash
MOST_DOTS = 100  # of a key; no setting of a run has a tenth of them
MOST = 2**30  # points of the sequence

Value = float | int | bool | str
Point = Mapping[str, Value]
"""Dotted key -> value."""


@dataclass(frozen=True)
class Parameter:
    """One dimension: `choices`, or the range from `low` to `high` (both may be drawn) on a scale."""

    key: str
    low: float = math.nan
    high: float = math.nan
    scale: str = "linear"
    integer: bool = False
    choices: tuple[Value, ...] = ()

    def value(self, u: float) -> Value:
        """Return the value at u in [0, 1): 6 significant digits, choices and integers in equal parts."""
        if self.choices:
            return self.choices[int(u * len(self.choices))]
        low, high = self._ends()
        drawn = self._back(low + u * (high - low))
        if self.integer:
            return int(min(math.floor(drawn), self.high))
        return float(min(max(drawn, self.low), self.high))

    def position(self, value: Any) -> float:
        """Return where a value lies, from 0 to 1 on the parameter's scale; the inverse of `value`, for figures."""
        if self.choices:
            return (self.choices.index(value) + 0.5) / len(self.choices)
        low, high = self._ends()
        return (self._there(value + 0.5 * self.integer) - low) / (high - low)

    def bounds(self) -> tuple[Value, ...]:
        """Return the values that bound the parameter: both ends, or all choices."""
        if self.choices:
            return self.choices
        return (int(self.low), int(self.high)) if self.integer else (self.low, self.high)

    def to_dict(self) -> JsonObject:
        """Return the content of its table."""
        if self.choices:
            return {"choices": list(self.choices)}
        low, high = self.bounds()
        return {"low": low, "high": high, "scale": self.scale, "integer": self.integer}

    def _ends(self) -> tuple[float, float]:
        # The integer n stands for [n, n + 1), so that both ends are as likely as the others.
        return self._there(self.low), self._there(self.high + 1 if self.integer else self.high)

    def _there(self, value: float) -> float:
        if self.scale == "log":
            return math.log(value)
        return -math.log(1 - value) if self.scale == "log_complement" else float(value)

    def _back(self, place: float) -> float:
        if self.scale == "log_complement":
            return round(1 - _rounded(math.exp(-place)), 12)
        drawn = math.exp(place) if self.scale == "log" else place
        return drawn if self.integer else _rounded(drawn)


@dataclass(frozen=True)
class Space:
    """Parameters in the order of the file, which is that of the sequence's dimensions."""

    parameters: tuple[Parameter, ...]
    name: str = "space"
    file: Path | None = None

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.parameters)

    def __len__(self) -> int:
        return len(self.parameters)

    def to_dict(self) -> JsonObject:
        """Return the space as JSON can hold it: key -> table, in order."""
        return {parameter.key: parameter.to_dict() for parameter in self}


def spaces() -> list[str]:
    """Return the names of the spaces that come with the package."""
    return sorted(path.relative_to(HERE).with_suffix("").as_posix() for path in HERE.glob("*/*.toml"))


def read_space(source: str | Path) -> Space:
    """Read a space by its name, such as `demo/dropout`, or from a path ending in .toml.

    Raises `InputError` naming file, key and hint.
    """
    name, path = str(source), Path(source)
    if path.suffix != ".toml":
        if name not in (known := spaces()):
            raise InputError(f"unknown space '{name}'", hint=f"{nearest(name, known)} Or name a .toml file.")
        path = HERE / f"{name}.toml"
    return space_of(read_toml(path), name=name, file=path)


def space_of(tree: JsonObject, *, name: str = "space", file: Path | None = None) -> Space:
    """Build a space from nested or dotted tables."""
    parameters = tuple(_parameter(key, table, file) for key, table in _tables(tree, "", file))
    if not parameters:
        raise InputError("the space is empty", file=file, hint="Give ranges or choices of one key or more.")
    if len({parameter.key for parameter in parameters}) < len(parameters):
        raise InputError("a key stands twice, dotted and as a table", file=file)
    return Space(parameters, name, file)


def points(space: Space, first: int, stop: int, seed: int) -> list[Point]:
    """Return points first … stop - 1 of the space's sequence: dotted key -> value.

    Stateless: point i depends on the space, the seed and i alone, so that a longer search begins with the shorter one.
    """
    if not 0 <= first <= stop <= MOST:
        raise InputError(f"points {first} to {stop}", hint=f"0 <= first <= stop <= {MOST}.")
    unit = unit_points(len(space), first, stop, seed).tolist()
    return [{p.key: p.value(u) for p, u in zip(space, row, strict=True)} for row in unit]


def unit_points(dimensions: int, first: int, stop: int, seed: int) -> NDArray[np.float64]:
    """Return points first … stop - 1 of the scrambled Sobol sequence, (stop - first, dimensions) in [0, 1).

    References:
        Owen 1998, "Scrambling Sobol' and Niederreiter-Xing points"; Joe & Kuo 2008 (directions, as in SciPy).
    """
    sequence = qmc.Sobol(dimensions, scramble=True, seed=numpy_generator(seed, "sobol"))
    if first == 0 and stop > 1:
        # SciPy warns where the first draw is no power of two; a sequence cut anywhere is what is wanted here.
        return np.concatenate([sequence.random(1), sequence.random(stop - 1)])
    if first:
        sequence.fast_forward(first)
    return np.asarray(sequence.random(stop - first), np.float64).reshape(stop - first, dimensions)


def _tables(tree: JsonObject, prefix: str, file: Path | None) -> Iterator[tuple[str, JsonObject]]:
    """Yield dotted keys with their tables: a table with no table in it is a parameter's."""
    if prefix.count(".") > MOST_DOTS:
        raise InputError(f"{prefix[:40]}…: is nested too deep", file=file)
    for key, value in tree.items():
        dotted = f"{prefix}{key}"
        if not isinstance(value, dict):
            hint = f'For example: {dotted} = {{ low = 0.001, high = 0.1, scale = "log" }}'
            raise InputError(f"{dotted}: should be a table of a range or choices", file=file, hint=hint)
        if any(isinstance(inner, dict) for inner in value.values()):
            yield from _tables(value, f"{dotted}.", file)
        else:
            yield dotted, value


def _parameter(key: str, table: JsonObject, file: Path | None) -> Parameter:
    """Check one table."""

    def refuse(problem: str, hint: str | None = None) -> InputError:
        return InputError(f"{key}: {problem}", file=file, hint=hint)

    for option in table:
        if option not in OPTIONS:
            raise refuse(f"unknown option '{option}'", nearest(option, OPTIONS))
    if "choices" in table:
        return _choices(key, table, refuse)
    if missing := [end for end in ("low", "high") if end not in table]:
        raise refuse(f"has no '{missing[0]}'", "Give low and high, or choices.")
    low, high, integer = table["low"], table["high"], table.get("integer", False)
    scale = table.get("scale", "linear")
    if scale not in SCALES:
        raise refuse(f"unknown scale '{scale}'", nearest(str(scale), SCALES))
    if not isinstance(integer, bool):
        raise refuse("'integer' is true or false")
    for end in (low, high):
        number = isinstance(end, (int, float)) and not isinstance(end, bool) and math.isfinite(end)
        if not number or (integer and end != int(end)):
            raise refuse(f"{end!r} is no {'whole' if integer else 'finite'} number")
    if low >= high:
        raise refuse(f"low ({low:g}) is not below high ({high:g})")
    if scale == "log" and low <= 0:
        raise refuse(f"a logarithmic range begins above 0, not at {low:g}")
    if scale == "log_complement" and (high >= 1 or integer):
        raise refuse(
            "the scale log_complement is for ranges below 1", "Give the range of the value, not of 1 - value."
        )
    return Parameter(key, float(low), float(high), scale, integer)


def _choices(key: str, table: JsonObject, refuse: Any) -> Parameter:
    choices = table["choices"]
    if len(table) > 1:
        raise refuse("has choices and a range", "Give one of them.")
    if not isinstance(choices, list) or len(choices) < 2:
        raise refuse("'choices' is a list of two values or more")
    if not all(isinstance(choice, (bool, int, float, str)) for choice in choices):
        raise refuse("every choice is a number, a text, true or false")
    if len(set(choices)) < len(choices):
        raise refuse("the same choice stands twice")
    return Parameter(key, choices=tuple(choices))


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
