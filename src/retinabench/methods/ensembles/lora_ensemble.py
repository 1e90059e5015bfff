"""LoRA ensemble: K low-rank adaptations of one pretrained network, each with a head of its own (Wang et al. 2023).

**Idea.** An ensemble of large networks does not fit into memory K times, and fine-tuning moves a pretrained weight
little. Each member moves it by a matrix of rank r, and all share what is pretrained, which stays as it is, norms and
their running statistics included.

    W_k = W + (α / r) B_k A_k for every linear layer and 2-d convolution of the trunk,      p(y | x) = 1/K Σ_k p(y | x, W_k)

Every B_k starts at 0, so that all members start as the pretrained network with another head. The loss is the sum of
the members' losses: each is trained as if alone, on all images, in the same order.

**Settings.** `members` 4. `rank` 8: r, cut to the rank that a layer can have. `alpha` 8. With `model.trained` = k the
last k stages have adapters; `model.trunk_lr` is the learning rate of the adapters over that of the heads. The L2 term
acts on A, B and the heads.

**Cost.** r (inputs + outputs) numbers per layer and member; the trunk is stored once. A training step is K of MAP's.
A prediction is K passes.

**When it fails.** It needs a pretrained trunk: without `model.weights` the weights that stay are random. Members
differ by their initial A and their heads alone; on few images of an easy task, they agree. Features that are computed
once have no layers to adapt: `head_ensemble` is for these.

**Tested.** At full rank a step is that of the dense weight; only adapters and heads are trained; members trained
together are the members trained apart; the state of K members is the trunk and K times the adapters.

**Source.** Hu et al. 2021, LoRA: Low-Rank Adaptation of Large Language Models; Wang, Aitchison & Rudolph 2023, LoRA
ensembles for large language model fine-tuning.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import Batches
from retinabench.methods.base import as_config
from retinabench.methods.ensembles.members import (
    MembersConfig,
    MembersPosterior,
    own_layers,
    sum_of_losses,
    use_members,
)
from retinabench.methods.settings import Optimizer, TrainingRun
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.gradients import BatchInfo, Objective
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import train
from retinabench.methods.training.posterior import precision
from retinabench.models.last_layer import split_last_layer
from retinabench.models.pretrained import freeze
from retinabench.models.stochastic.drawing import swap
from retinabench.models.stochastic.shared_weights import LowRank, Members


class Config(MembersConfig):
    """rank: r, of the adapters. alpha: α; the adapters' product is multiplied by α / r."""

    title = "LoRA ensemble"
    needs_images = True
    keeps_trunk = True

    name: Literal["lora_ensemble"] = "lora_ensemble"
    rank: int = Field(8, ge=1)
    alpha: float = Field(8.0, gt=0)

    def gradients_per_example(self, optimizer: Optimizer) -> float:
        """Return the epochs, once for each member."""
        return float(optimizer.epochs * self.members)


def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> MembersPosterior:
    """Freeze the trunk, put the members' adapters into its layers and their heads behind it; return the posterior."""
    options, network = as_config(run, Config), split_last_layer(model)
    drawn = torch_generator("cpu", run.seed, "lora_ensemble", "adapters")
    network.trunk = swap(
        network.trunk, lambda layer: LowRank(layer, options.members, options.rank, options.alpha, drawn)
    )
    freeze(network.trunk)
    for module in network.trunk.modules():
        if isinstance(module, LowRank):
            for parameter in module.adapters():
                parameter.requires_grad_(True)
    streams = [torch_generator("cpu", run.seed, "lora_ensemble", k) for k in range(options.members)]
    network.head = Members(own_layers(network.head, streams))
    return MembersPosterior(network, likelihood, members=options.members)


def fit(
    model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
) -> MembersPosterior:
    """Train adapters and heads of all members and return the posterior."""
    posterior = build(model, run, likelihood)
    objective = members_objective(posterior, batches, run)
    return train(posterior, batches, run, checkpoint, objective=objective)


def members_objective(posterior: MembersPosterior, batches: Batches, run: TrainingRun) -> Objective:
    """Return the sum of the members' losses, each of the whole batch."""
    model, members = posterior.model, posterior.members

    def objective(images: Tensor, labels: Tensor, batch: BatchInfo) -> dict[str, Tensor]:
        use_members(model, range(members), batches.device)
        with precision(run, batches.device):
            outputs = model(torch.cat([images] * members))
        parts = outputs.view(members, len(images), -1)
        return {"cross_entropy": sum_of_losses(parts, labels, posterior.likelihood, run, batch)}

    return objective
