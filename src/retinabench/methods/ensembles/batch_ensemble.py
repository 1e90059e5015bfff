"""BatchEnsemble (Wen et al. 2020): K members in one network that differ by a rank-1 factor of each weight.

**Idea.** The members of an ensemble share their weights W; each has two vectors per layer of its own, with which W is
multiplied.

    W_k = W ∘ (s_k r_kᵀ):   y = s_k ∘ (W (r_k ∘ x)) + b_k,      p(y | x) = 1/K Σ_k p(y | x, W_k)

W, r_k, s_k and b_k are trained by gradient descent; norms are shared. While training, each member has its share of
every batch, which changes from step to step; a prediction is one pass per member. Wherever the network has a linear layer or a 2-d
convolution whose weight is trained, it becomes such a layer, whatever network it is.

**Settings.** `members` 4. `std` 0.5: the factors start at N(1, std²). Noise of this size in every layer destroys the
features of a pretrained network: those of EfficientNet-Lite0 on 24 photographs keep a correlation of .88 with the
original ones at 0.02, .50 at 0.05 and .12 at 0.1. Such a network needs 0.02. The L2 term acts on W and, with
`optimizer.l2_on`, on biases and norms, never on the factors.

**Cost.** K (inputs + 2 outputs) more parameters per layer. A training step multiplies every layer's input and output
once more. A prediction is K passes.

**When it fails.** The factors are free of the L2 term and can undo it: where the term must be strong, as for a head
on the features of few images, the fit is looser than MAP's. A member sees 1 / K of the images in each epoch, so that
K members want a longer training. Where the shared weights explain the data alone, the factors hardly move, and the
members predict nearly the same (Zamyatin et al. 2026); their disagreement is then no measure of what the data leave
undetermined.

**Tested.** Members against K networks whose weights are multiplied out, to the last bit, convolutions with groups
included (of timm by hand: resnet18, convnext_atto, vit_tiny, swin_tiny, efficientnet_b0); the gradients of a training
batch against those of these networks.

**Source.** Wen, Tran & Ba 2020, BatchEnsemble: an Alternative Approach to Efficient Ensemble and Lifelong Learning;
Zamyatin, Indri, Malhotra & Gärtner 2026, Is BatchEnsemble a Single Model?
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor, nn

from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import Batches
from retinabench.methods.base import as_config
from retinabench.methods.ensembles.members import MembersConfig, MembersPosterior, use_members
from retinabench.methods.settings import TrainingRun
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.gradients import BatchInfo, Objective
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import likelihood_only, train
from retinabench.models.stochastic.drawing import swap
from retinabench.models.stochastic.shared_weights import BatchEnsemble


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
    posterior = build(model, run, likelihood)
    objective = members_objective(posterior, batches, run)
    return train(posterior, batches, run, checkpoint, objective=objective)


def members_objective(posterior: MembersPosterior, batches: Batches, run: TrainingRun) -> Objective:
    """Return the objective of MAP, before which the member that gets the first share of the batch changes with every step.

    Where a batch is cut into parts of fewer images than members, the others would get none.
    """
    data = likelihood_only(posterior.model, batches, run, posterior.likelihood)

    def objective(images: Tensor, labels: Tensor, batch: BatchInfo) -> dict[str, Tensor]:
        use_members(posterior.model, [batch.step], batches.device)
        return data(images, labels, batch)

    return objective
