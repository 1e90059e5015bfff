"""Ensemble: K members of any method, trained apart; their samples are pooled (Lakshminarayanan et al. 2017).

**Idea.** K members, trained apart from other initial weights and another order of images; their samples are
pooled.

    p(y | x) = 1/K Σ_k 1/S Σ_s p_{k,s}(y | x)

The members may be of any method: MAP gives the deep ensemble, SWAG gives MultiSWAG, IVON a mixture of
Gaussians, `temperature` an ensemble of calibrated members.

    retinabench train --config demo/map method.name=ensemble method.members=3 method.member.name=swag

**Settings.** `members` (K), `member` (a method with its own settings). Seeds are K·seed … K·seed + K - 1: two
ensembles of different seeds share no member, so that their standard error is right.

**Cost.** K trainings, K times a member's prediction. Members are runs of their own: shared with single runs of
the same seed, resumed alone, computed anywhere.

**When it fails.** When the members agree for a reason that all of them share: the same data, the same shortcut.
K = 3 shows little disagreement.

**Source.** Lakshminarayanan et al. 2017; Wilson & Izmailov 2020 (MultiSWAG); Shen et al. 2024 (mixtures of
IVON).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from retinabench.core.errors import InputError
from retinabench.methods.base import FidelitySettings, as_config, log_range
from retinabench.methods.settings import Optimizer, TargetPosterior, TrainingRun, WithMember, member_run
from retinabench.predictions.table import Predictions


class Config(WithMember):
    """members: K. member: the method of every member. Its samples are the members' own, pooled."""

    pools_seeds = True

    name: Literal["ensemble"] = "ensemble"
    members: int = Field(3, ge=2)

    def describe(self, *, titles: bool = True) -> str:
        """Return the method in a few words, its members included."""
        return f"ensemble of {self.members} {self.member.describe(titles=titles)}"

    def target_posterior(self, optimizer: Optimizer, points: int) -> TargetPosterior:
        """Return the target posterior of the members, of which this is a mixture."""
        inner = self.member.target_posterior(optimizer, points)
        return inner._replace(how=f"mixture: {inner.how}")


def member_runs(run: TrainingRun) -> list[TrainingRun]:
    """Return the K runs of an ensemble: seeds K*seed … K*seed + K - 1, so that ensembles share no member."""
    options: Config = as_config(run, Config)
    if isinstance(options.member, Config):
        raise InputError("an ensemble of ensembles is one larger ensemble", hint="Raise method.members.")
    member, first = member_run(run), options.members * run.seed
    return [member.model_copy(update={"seed": first + k}) for k in range(options.members)]


def combine(members: Sequence[Predictions]) -> Predictions:
    """Pool the predictions of K members.

    Shapes: `members` (N, S).
    """
    first = members[0]
    for other in members[1:]:
        same = len(other) == len(first) and bool(
            (other.image_id == first.image_id).all() and (other.label == first.label).all()
        )
        if not same or other.samples != first.samples:
            raise InputError(
                "holds other images, labels or numbers of samples than the first member", file=other.source
            )
    metadata = {**first.metadata, "members": sum(m.metadata["members"] for m in members)}
    own = [m.uncertainty for m in members if m.uncertainty is not None]
    return replace(
        first,
        probs=np.concatenate([m.probs for m in members], axis=1),
        uncertainty=np.mean(own, axis=0) if len(own) == len(members) else None,
        metadata=metadata,
        source=None,
    )


FIDELITY = (
    FidelitySettings(
        name="ensemble",
        title="deep ensemble",
        method={"name": "ensemble", "members": 10, "member": "map"},
        optimizer={"name": "adam", "schedule": "cosine"},
        categorical={"optimizer": {"lr": 0.0068}},
        gaussian={"optimizer": {"lr": 0.0085}, "method": {"members": 5}},
        search={
            "categorical": {
                "method.members": {"choices": [5, 10, 20]},
                "optimizer.lr": log_range(0.0003, 0.01),
            },
            "gaussian": {"method.members": {"choices": [5, 10, 20]}, "optimizer.lr": log_range(0.002, 0.03)},
        },
    ),
)
