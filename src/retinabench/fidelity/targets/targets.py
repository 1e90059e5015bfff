"""Targets: the posteriors of the fidelity benchmark, each defined once, for the reference and for every method alike."""

from __future__ import annotations

import hashlib
import tomllib
from functools import cache
from importlib import resources
from typing import Literal

from pydantic import Field

from retinabench.core.errors import InputError, nearest
from retinabench.core.settings import Frozen


class Target(Frozen):
    """One posterior: π(w) ∝ exp(Σ_n log p(y_n | x_n, w)) N(w; 0, prior_variance I), over all `parameters` weights.

    loader, network: names of `data.LOADERS` and `networks.NETWORKS`. outputs: of the network, C classes, or 2 of the
    `gaussian` likelihood: mean μ and r, the deviation is softplus(r) + deviation_floor. train: number of training points. groups: kinds of
    test points, scored apart. mean, deviation: of the channels in [0, 1], None for those of the training points. sha256: of the arrays (`data.Data.sha256`), "" where the user brings the data.
    """

    name: str
    title: str
    loader: str
    preprocessing: str
    network: str
    parameters: int = Field(ge=1)
    outputs: int = Field(ge=1)
    likelihood: Literal["categorical", "gaussian"]
    prior_variance: float = Field(gt=0)
    temperature: float = Field(1.0, ge=1, le=1)
    train: int = Field(ge=1)
    groups: tuple[str, ...]
    deviation_floor: float | None = Field(None, gt=0)
    mean: tuple[float, ...] | None = None
    deviation: tuple[float, ...] | None = None
    sha256: str = ""

    @property
    def floor(self) -> float:
        """The least deviation of the `gaussian` likelihood, in the standardised unit of the target."""
        return self.deviation_floor or 0.0

    def identity(self, data: str) -> str:
        """Return 12 digits of the SHA-256 of the definition, with the hash of the arrays that were found."""
        content = self.model_copy(update={"sha256": data}).model_dump_json(exclude_none=True)
        return hashlib.sha256(content.encode()).hexdigest()[:12]


@cache
def targets() -> dict[str, Target]:
    """Return all targets by name."""
    text = (
        resources.files("retinabench.fidelity.targets").joinpath("targets.toml").read_text(encoding="utf-8")
    )
    return {name: Target(name=name, **table) for name, table in tomllib.loads(text).items()}


def target(name: str) -> Target:
    """Return one target. Raises `InputError` where there is none of that name."""
    if name not in targets():
        raise InputError(f"unknown fidelity task '{name}'", hint=nearest(name, targets()))
    return targets()[name]
