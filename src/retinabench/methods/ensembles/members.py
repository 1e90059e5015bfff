"""What ensembles whose members are parts of one network have in common: their number, and how they predict."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from retinabench.methods.posteriors import SampledPosterior
from retinabench.methods.settings import MethodConfig, Optimizer, TargetPosterior, TrainingRun, no_target
from retinabench.methods.training.gradients import BatchInfo, cross_entropy
from retinabench.methods.training.likelihood import Likelihood
from retinabench.models.build import initialise
from retinabench.models.stochastic.drawing import Draw, use_draws


class MembersConfig(MethodConfig):
    """members: K. samples: the same number, since each member is one posterior sample."""

    members: int = Field(4, ge=1)
    samples: int = Field(4, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _a_sample_per_member(cls, given: Any) -> Any:
        if isinstance(given, dict) and "samples" not in given:
            return {**given, "samples": given.get("members", cls.model_fields["members"].default)}
        return given

    @model_validator(mode="after")
    def _equal(self) -> MembersConfig:
        if self.samples != self.members:
            raise ValueError(
                f"samples ({self.samples}) is not members ({self.members}), each of which is one sample. Leave out samples"
            )
        return self

    def target_posterior(self, optimizer: Optimizer, points: int) -> TargetPosterior:
        """Return the target posterior (see `MethodConfig`)."""
        return no_target("members that share most of their weights, which are points")


@dataclass
class MembersPosterior(SampledPosterior):
    """One network with K members, of which posterior sample k is the k-th."""

    members: int = 1

    @torch.no_grad()
    def predict(self, images: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        """Return probabilities (S, B, C) of the first S members, of all K at most."""
        return super().predict(images, min(samples, self.members), generator)


def use_members(network: nn.Module, numbers: Sequence[int], device: torch.device) -> None:
    """Let the next pass compute these members, each for its share of the rows; members draw nothing."""
    unused = torch.Generator(device)
    use_draws(network, [Draw(unused, number) for number in numbers])


def own_layers(layer: nn.Module, generators: Iterable[torch.Generator]) -> list[nn.Module]:
    """Return a copy of a layer for each generator, drawn as the last layers of networks are."""
    device, made = next(layer.parameters()).device, []
    for generator in generators:
        twin = copy.deepcopy(layer).cpu()
        initialise(twin, generator)
        made.append(twin.to(device))
    return made


def sum_of_losses(
    outputs: Tensor, labels: Tensor, likelihood: Likelihood, run: TrainingRun, batch: BatchInfo
) -> Tensor:
    """Return the sum of the members' mean losses, a scalar: its gradient trains each member as if it were alone.

    Shapes: `outputs` (K, B, O), `labels` (B,).
    """
    losses = [cross_entropy(one, labels, likelihood, run.optimizer.reweight, batch) for one in outputs]
    return torch.stack(losses).sum()
