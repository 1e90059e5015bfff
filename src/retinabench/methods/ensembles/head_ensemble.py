"""Head ensemble: K last layers on one trunk, each trained from initial weights of its own (Lee et al. 2015).

**Idea.** The trunk of a network is most of its cost, and the last layer decides. K last layers, trained as if each
were alone, read the same features.

    p(y | x) = 1/K Σ_k p(y | W_k h(x)),      loss = Σ_k { mean_n CE(y_n, W_k h(x_n)) + l2 Σ W_k² }

On features that were computed once (`model.trained=head`) each member is a whole head, its hidden layer
(`model.hidden`) included, and the ensemble is K runs of `map` in the time of one, all with the same order of the
images. A trunk that is trained gets the mean of the members' gradients, as if it had one head.

**Settings.** `members` 4.

**Cost.** A pass through the trunk, and K through the heads, for a step and for a prediction.

**When it fails.** The loss of a linear head on fixed features is convex: trained for long, or with a strong L2 term,
the members are one. What differs then is what the training has not finished. A hidden layer, or members of another
kind (`ensemble` of `anchored`), keep them apart.

**Tested.** Against K trainings of `map` from the same heads on the same images; the gradient of the trunk.

**Source.** Lee, Purushwalkam, Cogswell, Crandall & Batra 2015, Why M heads are better than one: training a diverse
ensemble of deep networks; Lakshminarayanan et al. 2017.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import Batches
from retinabench.methods.base import as_config
from retinabench.methods.ensembles.members import MembersConfig, own_layers, sum_of_losses
from retinabench.methods.settings import TrainingRun
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.gradients import BatchInfo, Objective
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import train
from retinabench.methods.training.posterior import NetworkOnly, precision
from retinabench.models.last_layer import SplitNetwork, split_last_layer
from retinabench.models.networks.small import Head
from retinabench.models.stochastic.shared_weights import Members


class Config(MembersConfig):
    """It has no settings beyond those of its members."""

    title = "Head ensemble"

    name: Literal["head_ensemble"] = "head_ensemble"


@dataclass
class HeadsPosterior(NetworkOnly):
    """One trunk, of which posterior sample k is read by the k-th head."""

    model: SplitNetwork
    likelihood: Likelihood

    @torch.no_grad()
    def predict(self, images: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        """Return probabilities (S, B, C) of the first S heads, of all K at most."""
        self.model.eval()
        outputs = heads_of(self.model).each(self.model.features(images), samples)
        return torch.stack([self.likelihood.predictive(one) for one in outputs])


def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> HeadsPosterior:
    """Put K heads where the last layer was, or the whole head that is trained alone, and return the posterior."""
    if isinstance(model, Head):
        width = (model.fc if model.hidden is None else model.hidden).in_features
        network = SplitNetwork(nn.Identity(), model, width, "the head")
    else:
        network = split_last_layer(model)
    streams = [
        torch_generator("cpu", run.seed, "head_ensemble", k) for k in range(as_config(run, Config).members)
    ]
    network.head = Members(own_layers(network.head, streams))
    return HeadsPosterior(network, likelihood)


def fit(
    model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
) -> HeadsPosterior:
    """Train all heads together, and the trunk where it is trained, and return the posterior."""
    posterior = build(model, run, likelihood)
    objective = heads_objective(posterior.model, batches, run, likelihood)
    return train(posterior, batches, run, checkpoint, objective=objective)


def heads_of(network: SplitNetwork) -> Members:
    """Return the heads of a network of `build`."""
    assert isinstance(network.head, Members)
    return network.head


def heads_objective(
    network: SplitNetwork, batches: Batches, run: TrainingRun, likelihood: Likelihood
) -> Objective:
    """Return the sum of the heads' losses, of whose gradients the trunk gets the mean."""
    heads = heads_of(network)

    def objective(images: Tensor, labels: Tensor, batch: BatchInfo) -> dict[str, Tensor]:
        with precision(run, batches.device):
            features = network.features(images)
            if features.requires_grad:
                features.register_hook(lambda gradient: gradient / len(heads.layers))  # type: ignore[no-untyped-call]
            outputs = heads.each(features)
        return {"cross_entropy": sum_of_losses(outputs, labels, likelihood, run, batch)}

    return objective
