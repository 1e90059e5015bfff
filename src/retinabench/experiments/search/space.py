"""A search space as data, and its quasi-random points: trial i is point i of one scrambled Sobol sequence.

A space is a TOML file of dotted keys, each with a range or a list of choices:

    optimizer.lr = { low = 1e-3, high = 0.5, scale = "log" }
    optimizer.momentum = { low = 0.95, high = 0.995, scale = "log_complement" }
    method.inducing = { low = 5, high = 30, integer = true }
    optimizer.final_lr = { choices = [0.001, 0.01, 0.1] }

Scales: `linear` (default); `log`, uniform in the logarithm; `log_complement`, 1 - value uniform in the logarithm, for
momenta and the like. `search.py` checks the meaning of the keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError, model_validator
from scipy.stats import qmc

from retinabench.core.errors import InputError, nearest
from retinabench.core.random_streams import numpy_generator
from retinabench.core.results import JsonObject
from retinabench.core.settings import Frozen, first_problem, read_toml

HERE = Path(__file__).parent / "spaces"
DIGITS = 6  # of a drawn value: the last bits of a logarithm differ between machines, and a run is its hash
MOST_DOTS = 100  # of a key; no setting of a run has a tenth of them
Value = bool | int | float | str
Point = Mapping[str, Value]  # Dotted key -> value.


class Range(Frozen):
    """Values from `low` to `high` (both may be drawn), uniform on a scale."""

    low: float = Field(strict=True)
    high: float = Field(strict=True)
    scale: Literal["linear", "log", "log_complement"] = "linear"
    integer: bool = Field(False, strict=True)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low ({self.low:g}) is not below high ({self.high:g})")
        if self.integer and not (self.low.is_integer() and self.high.is_integer()):
            raise ValueError("low and high of an integer are whole numbers")
        if self.scale == "log" and self.low <= 0:
            raise ValueError(f"a logarithmic range begins above 0, not at {self.low:g}")
        if self.scale == "log_complement" and (self.high >= 1 or self.integer):
            raise ValueError("the scale log_complement is for the range of a value below 1")
        return self

    def value(self, u: float) -> Value:
        """Return the value at u in [0, 1): 6 significant digits, integers in equal parts."""
        # The integer n stands for [n, n + 1), so that both ends are as likely as the others.
        low, high = self._there(self.low), self._there(self.high + 1 if self.integer else self.high)
        drawn = self._back(low + u * (high - low))
        if self.integer:
            return int(min(math.floor(drawn), self.high))
        return float(min(max(drawn, self.low), self.high))

    def bounds(self) -> tuple[Value, ...]:
        return (int(self.low), int(self.high)) if self.integer else (self.low, self.high)

    def to_dict(self) -> JsonObject:
        low, high = self.bounds()
        return {"low": low, "high": high, "scale": self.scale, "integer": self.integer}

    def _there(self, value: float) -> float:
        if self.scale == "log":
            return math.log(value)
        return -math.log(1 - value) if self.scale == "log_complement" else float(value)

    def _back(self, place: float) -> float:
        if self.scale == "log_complement":
            return round(1 - _rounded(math.exp(-place)), 12)
        drawn = math.exp(place) if self.scale == "log" else place
        return drawn if self.integer else _rounded(drawn)


class Choices(Frozen):
    """A list of values in equal parts."""

    choices: tuple[Value, ...] = Field(min_length=2)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if len(set(self.choices)) < len(self.choices):
            raise ValueError("the same choice appears twice")
        return self

    def value(self, u: float) -> Value:
        """Return the choice at u in [0, 1)."""
        return self.choices[int(u * len(self.choices))]

    def bounds(self) -> tuple[Value, ...]:
        return self.choices

    def to_dict(self) -> JsonObject:
        return {"choices": list(self.choices)}


@dataclass(frozen=True)
class Space:
    """Ranges and choices by dotted key, in the order of the file, which is that of the sequence's dimensions."""

    parameters: Mapping[str, Range | Choices]
    name: str = "space"
    file: Path | None = None

    def __iter__(self) -> Iterator[str]:
        return iter(self.parameters)

    def __len__(self) -> int:
        return len(self.parameters)

    def to_dict(self) -> JsonObject:
        """Return key -> table, in order."""
        return {key: parameter.to_dict() for key, parameter in self.parameters.items()}


def spaces() -> list[str]:
    return sorted(path.relative_to(HERE).with_suffix("").as_posix() for path in HERE.glob("*/*.toml"))


def read_space(source: str | Path) -> Space:
    """Read a space by its name, such as `demo/dropout`, or from a path ending in .toml; `InputError` names file and key."""
    name, path = str(source), Path(source)
    if path.suffix != ".toml":
        if name not in (known := spaces()):
            raise InputError(f"unknown space '{name}'", hint=f"{nearest(name, known)} Or name a .toml file.")
        path = HERE / f"{name}.toml"
    return space_of(read_toml(path), name=name, file=path)


def space_of(tree: JsonObject, *, name: str = "space", file: Path | None = None) -> Space:
    """Build a space from nested or dotted tables; `file` stands in messages."""
    parameters: dict[str, Range | Choices] = {}
    for key, table in _tables(tree, "", file):
        if key in parameters:
            raise InputError(f"{key} appears twice, dotted and as a table", file=file)
        kind: type[Range] | type[Choices] = Choices if "choices" in table else Range
        options = list(kind.model_fields)
        try:
            parameters[key] = kind.model_validate(table)
        except ValidationError as error:
            wrong = first_problem(error, None, lambda _, options=options: options)  # type: ignore[misc]
            raise InputError(f"{key}: {wrong.problem}", file=file, hint=wrong.hint) from None
    if not parameters:
        raise InputError("the space is empty", file=file, hint="Give ranges or choices of one key or more.")
    return Space(parameters, name, file)


def points(space: Space, first: int, stop: int, seed: int) -> list[Point]:
    """Return points first … stop - 1 of the space's sequence: dotted key -> value. Point i depends on space, seed and i alone, so that a longer search begins with the shorter."""
    unit = unit_points(len(space), first, stop, seed).tolist()
    parameters = space.parameters.items()
    return [{key: one.value(u) for (key, one), u in zip(parameters, row, strict=True)} for row in unit]


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


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
