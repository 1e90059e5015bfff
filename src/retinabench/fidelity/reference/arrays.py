"""The content of a reference: what a posterior predicts for the test points, its accuracy and evidence, and how it was made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, StrictInt

from retinabench.core.results import JsonObject
from retinabench.core.settings import Frozen
from retinabench.fidelity.reference.convergence import EnergyErrors, HalfStep

Floats = NDArray[np.floating]
Count = Annotated[int, Field(ge=0, lt=2**63)]


class ReferenceAbout(Frozen):
    """What a reference says of itself, as far as it does; entries of other names are kept."""

    model_config = ConfigDict(extra="allow")

    task: str
    target: str
    data: str
    chains: StrictInt
    kind: Literal["sampled", "quadrature", "external"] = "sampled"
    command: str | None = None
    passed: bool | None = None
    why: tuple[str, ...] | None = None
    seed: int | None = None
    burn_in: Count | None = None
    kept: Count | None = None
    step: float | None = None
    steps: Count | None = None
    prior_variance: float | None = None
    start: str | None = None
    acceptance: tuple[float, ...] | None = None
    energy_error: EnergyErrors | None = None
    half_step: HalfStep | None = None
    thresholds: Mapping[str, int | float | tuple[float, ...] | Mapping[str, float]] | None = None
    rhat: Mapping[str, float] = {}
    split_rhat: Mapping[str, float] = {}
    ess_bulk: Mapping[str, float] = {}
    ess_tail: Mapping[str, float] = {}
    mcse: Mapping[str, float] = {}
    rhat_below: Mapping[str, float] = {}
    weight_rhat: Mapping[str, float] = {}
    weight_split_rhat: Mapping[str, float] = {}
    gradients: Count | None = None
    ceiling: Mapping[str, Mapping[str, tuple[float, ...]]] = {}
    dtype: str | None = None
    threads: int | None = None
    seconds: float | None = None
    machine: str | None = None
    grids: tuple[int, int] | None = None
    error: float | None = None
    origin: str | None = None
    licence: str | None = None
    order: str | None = None
    published_ceiling: Mapping[str, float] | None = None
    accuracy: float | None = None

    @property
    def chain_gradients(self) -> float | None:
        """Gradient evaluations per training example of one chain, burn-in included; None where it has no such chains."""
        if self.burn_in is None or self.kept is None or self.steps is None:
            return None
        return float((self.burn_in + self.kept) * self.steps)

    def changed(self, **entries: Any) -> ReferenceAbout:
        """Return a copy with other entries."""
        stated = {name: value for name, value in self if name in self.model_fields_set}
        return ReferenceAbout(**{**stated, **entries})

    def to_dict(self) -> JsonObject:
        """Return what is said, as JSON; what it does not say is left out."""
        return self.model_dump(mode="json", exclude_unset=True, exclude_none=True)


@dataclass(frozen=True, eq=False)
class ReferenceArrays:
    """The content of a reference file; which arrays there are depends on the likelihood.

    `reference_file.py` lists the arrays; `about` is what it says of itself.
    """

    about: ReferenceAbout
    rhat: Floats
    ess_bulk: Floats
    ess_tail: Floats
    mcse: Floats
    epistemic: Floats
    chain_probs: Floats | None = None
    samples: Floats | None = None
    pairwise_disagreement: Floats | None = None
    chain_draws: Floats | None = None
    states: Floats | None = None
    half_states: Floats | None = None
    history: Floats | None = None
    half_history: Floats | None = None
    start: Floats | None = None
    labels: NDArray[Any] | None = None

    @property
    def external(self) -> bool:
        """Whether it was imported, without chains."""
        return self.about.kind == "external"

    @property
    def chains(self) -> int:
        """Number of chains."""
        return self.about.chains
