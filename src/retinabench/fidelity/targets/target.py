"""A target and the registry of targets."""

from __future__ import annotations

import hashlib
import json
import tomllib
from functools import cache
from importlib import resources
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from retinabench.core.registry import Registry
from retinabench.core.results import JsonObject
from retinabench.core.settings import Frozen


class Decision(Frozen):
    """Whether to refer a patient to an expert, at unequal costs of the two errors."""

    refer: tuple[int, ...]
    missed: float = Field(4.0, gt=0)
    needless: float = Field(1.0, gt=0)

    def needs_expert(self, classes: int) -> NDArray[np.bool_]:
        """Return which of C classes need an expert, (C,)."""
        return np.isin(np.arange(classes), self.refer)

    def costs(self, classes: int) -> NDArray[np.float64]:
        """Return the costs (2, C) of not referring and of referring, by the true class."""
        needs = self.needs_expert(classes)
        return np.stack([self.missed * needs, self.needless * ~needs])


class Target(Frozen):
    """One posterior: π(w) ∝ exp(Σ_n log p(y_n | x_n, w)) N(w; 0, prior_variance I), over all weights."""

    name: str
    title: str
    data_name: str
    read: str
    read_options: JsonObject = Field(default_factory=dict)
    preprocessing: str
    network: str
    parameters: int = Field(ge=1)
    outputs: int = Field(ge=1)
    likelihood: Literal["categorical", "gaussian"]
    prior_variance: float = Field(gt=0)
    temperature: float = Field(1.0, ge=1, le=1)
    train: int = Field(ge=1)
    groups: tuple[str, ...]
    std_floor: float | None = Field(None, gt=0)
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    sha256: str = ""
    competition: str = ""
    points: dict[str, int] = Field(default_factory=dict)
    note: str = ""
    decision: Decision | None = None

    @property
    def floor(self) -> float:
        """The least std of the `gaussian` likelihood, 0 where there is no floor."""
        return self.std_floor or 0.0

    def fingerprint(self, data: str) -> str:
        """Return 12 digits of the SHA-256 of the definition, with the hash `data` of the arrays that were found.

        The hashed text is that of version 0.1, whose names of three fields and two words differed, so that references
        and submissions of that version remain valid.
        """
        left_out = {"read", "read_options", "competition", "decision", "note", "points"}
        content = self.model_copy(update={"sha256": data}).model_dump(exclude_none=True, exclude=left_out)
        content["preprocessing"] = self.preprocessing.replace("image", "picture").replace("std", "deviation")
        earlier = {"data_name": "loader", "std_floor": "deviation_floor", "std": "deviation"}
        content = {earlier.get(key, key): value for key, value in content.items()}
        return hashlib.sha256(json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()).hexdigest()[:12]


@cache
def tables(name: str = "targets") -> dict[str, JsonObject]:
    """Return the tables of a TOML file of this folder."""
    file = resources.files("retinabench.fidelity.targets").joinpath(f"{name}.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def __getattr__(name: str) -> Target:
    """Return the target of a table of `targets.toml`: what the registry imports from this module."""
    if name.startswith("_") or name not in tables():
        raise AttributeError(name)
    return Target(name=name, **tables()[name])


TARGETS: Registry[Target] = Registry(
    "retinabench.targets", "fidelity target", {name: f"{__name__}:{name}" for name in tables()}
)
