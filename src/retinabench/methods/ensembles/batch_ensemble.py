"""BatchEnsemble (Wen et al. 2020): K members in one network that differ by a rank-1 factor of each weight.

**Idea.** The members of an ensemble share their weights W; each has two vectors per layer of its own, with which W is multiplied.

    W_k = W ∘ (s_k r_kᵀ):   y = s_k ∘ (W (r_k ∘ x)) + b_k,      p(y | x) = 1/K Σ_k p(y | x, W_k)

W, r_k, s_k and b_k are trained by gradient descent; norms are shared. While training, each member has its share of every batch;
a prediction is one pass per member. Wherever the network has a linear layer or a 2-d convolution whose weight is trained, it
becomes such a layer, whatever network it is.

**Settings.** `members` 4. `std` 0.5: the factors start at N(1, std²). Noise of this size in every layer destroys the features of a
pretrained network: those of EfficientNet-Lite0 on 24 photographs keep a correlation of .88 with the original ones at 0.02, .50 at 0.05 and .12
at 0.1. Such a network wants 0.02. The L2 term acts on W and, with `optimizer.l2_on`, on biases and norms,
never on the factors.

**Cost.** K (inputs + 2 outputs) more parameters per layer. A training step multiplies every layer's input and output once
more. A prediction is K passes.

**When it fails.** The factors are free of the L2 term and can undo it: where the term must be strong, as for a head on the features of few
images, the fit is looser than MAP's. A member sees 1 / K of the images in each epoch, so that K members want a longer training: half as many epochs more
in the paper. Where the shared weights explain the data alone, the factors hardly move, and the members predict nearly the
same; their disagreement is then no measure of what the data leave undetermined.

**Tested.** Members against K networks whose weights are multiplied out, to the last bit, convolutions with groups and
networks of timm included; the gradients of a training batch against those of these networks.

**Source.** Wen, Tran & Ba 2020, BatchEnsemble: an Alternative Approach to Efficient Ensemble and Lifelong Learning.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import nn

from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import Batches
from retinabench.methods.base import as_config
from retinabench.methods.ensembles.members import MembersConfig, MembersPosterior
from retinabench.methods.settings import TrainingRun
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import train
from retinabench.models.stochastic.batch_ensemble import BatchEnsemble
from retinabench.models.stochastic.surgery import swap


class Config(MembersConfig):
    """std: of the factors' initial values, around 1."""

    title = "BatchEnsemble"

    name: Literal["batch_ensemble"] = "batch_ensemble"
    std: float = Field(0.5, ge=0)


def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> MembersPosterior:
    """Put the members' factors into every layer and return the posterior."""
    options = as_config(run, Config)
    generator = torch_generator("cpu", run.seed, "batch_ensemble")
    network = swap(model, lambda layer: BatchEnsemble(layer, options.members, options.std, generator))
    return MembersPosterior(network, likelihood, members=options.members)


def fit(
    model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
) -> MembersPosterior:
    """Put the members' factors into every layer, train all of them together and return the posterior."""
    return train(build(model, run, likelihood), batches, run, checkpoint)
