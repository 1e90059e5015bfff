"""Ensembles whose members are parts of one network: BatchEnsemble, head ensemble and LoRA ensemble."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import Batches
from retinabench.methods.base import as_config
from retinabench.methods.posteriors import SampledPosterior
from retinabench.methods.settings import MethodConfig, Optimizer, TrainingRun
from retinabench.methods.training.gradients import BatchInfo, Objective, cross_entropy
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import TrainedByObjective, likelihood_only
from retinabench.methods.training.posterior import NetworkOnly, precision
from retinabench.models.build import initialise
from retinabench.models.last_layer import SplitNetwork, split_last_layer
from retinabench.models.networks.small import Head
from retinabench.models.pretrained import freeze
from retinabench.models.stochastic.drawing import Draw, swap, use_draws
from retinabench.models.stochastic.shared_weights import BatchEnsembleLayer, LowRank, Members


class MembersConfig(MethodConfig):
    """members: K. samples: the same number, since each member is one posterior sample."""

    without_target = "members that share most of their weights, which are points"

    members: int = Field(4, ge=1)
    samples: int = Field(4, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _a_sample_per_member(cls, given: Any) -> Any:
        if isinstance(given, dict) and "samples" not in given:
            return {**given, "samples": given.get("members", cls.model_fields["members"].default)}
        return given

    @model_validator(mode="after")
    def _equal(self) -> Self:
        if self.samples != self.members:
            raise ValueError(
                f"samples ({self.samples}) is not members ({self.members}), each of which is one sample. Leave out samples"
            )
        return self


@dataclass
class MembersPosterior(SampledPosterior):
    """One network with K members, of which posterior sample k is the k-th."""

    members: int = 1

    @torch.no_grad()
    def predict(self, images: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        """Return probabilities (S, B, C) of the first S members, of all K at most."""
        return super().predict(images, min(samples, self.members), generator)


def use_members(network: nn.Module, numbers: Iterable[int], device: torch.device) -> None:
    """Let the next pass compute these members, each for its share of the rows; members draw nothing."""
    use_draws(network, [Draw(torch.Generator(device), number) for number in numbers])


def own_layers(layer: nn.Module, generators: Iterable[torch.Generator]) -> list[nn.Module]:
    """Return a copy of a layer for each generator, drawn as the last layers of networks are."""
    device, made = next(layer.parameters()).device, []
    for generator in generators:
        twin = copy.deepcopy(layer).cpu()
        initialise(twin, generator)
        made.append(twin.to(device))
    return made


def sum_of_losses(outputs: Tensor, labels: Tensor, likelihood: Likelihood, batch: BatchInfo) -> Tensor:
    """Return the sum of the members' mean losses, a scalar: its gradient trains each member as if it were alone; `outputs` (K, B, O), `labels` (B,)."""
    return torch.stack([cross_entropy(one, labels, likelihood, batch) for one in outputs]).sum()


class BatchEnsemble(TrainedByObjective):
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

    **Source.** Wen, Tran & Ba 2020, BatchEnsemble: an Alternative Approach to Efficient Ensemble and Lifelong Learning;
    Zamyatin, Indri, Malhotra & Gärtner 2026, Is BatchEnsemble a Single Model?
    """

    class Config(MembersConfig):
        """std: of the factors' initial values, around 1."""

        title = "BatchEnsemble"

        name: Literal["batch_ensemble"] = "batch_ensemble"
        std: float = Field(0.5, ge=0)

    @classmethod
    def build(cls, model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> MembersPosterior:
        options = as_config(run, BatchEnsemble.Config)
        generator = torch_generator("cpu", run.seed, "batch_ensemble")
        network = swap(model, lambda layer: BatchEnsembleLayer(layer, options.members, options.std, generator))
        return MembersPosterior(network, likelihood, members=options.members)

    @staticmethod
    def objective(posterior: MembersPosterior, batches: Batches, run: TrainingRun) -> Objective:
        """Return the objective of MAP, before which the member that gets the first share of the batch changes with every step.

        Where a batch is cut into parts of fewer images than members, the others would get none.
        """
        data = likelihood_only(posterior.model, batches, run, posterior.likelihood)

        def terms_of(images: Tensor, labels: Tensor, batch: BatchInfo) -> dict[str, Tensor]:
            use_members(posterior.model, [batch.step], batches.device)
            return data(images, labels, batch)

        return terms_of


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


class HeadEnsemble(TrainedByObjective):
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

    **Source.** Lee, Purushwalkam, Cogswell, Crandall & Batra 2015, Why M heads are better than one: training a diverse
    ensemble of deep networks; Lakshminarayanan et al. 2017.
    """

    class Config(MembersConfig):
        """It has no settings beyond those of its members."""

        title = "Head ensemble"

        name: Literal["head_ensemble"] = "head_ensemble"

    @classmethod
    def build(cls, model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> HeadsPosterior:
        """Put K heads where the last layer was, or the whole head that is trained alone, and return the posterior."""
        if isinstance(model, Head):
            width = (model.fc if model.hidden is None else model.hidden).in_features
            network = SplitNetwork(nn.Identity(), model, width, "the head")
        else:
            network = split_last_layer(model)
        members = range(as_config(run, HeadEnsemble.Config).members)
        streams = [torch_generator("cpu", run.seed, "head_ensemble", k) for k in members]
        network.head = Members(own_layers(network.head, streams))
        return HeadsPosterior(network, likelihood)

    @staticmethod
    def objective(posterior: HeadsPosterior, batches: Batches, run: TrainingRun) -> Objective:
        """Return the sum of the heads' losses, of whose gradients the trunk gets the mean."""
        network, heads = posterior.model, heads_of(posterior.model)

        def terms_of(images: Tensor, labels: Tensor, batch: BatchInfo) -> dict[str, Tensor]:
            with precision(run, batches.device):
                features = network.features(images)
                if features.requires_grad:
                    features.register_hook(lambda gradient: gradient / len(heads.layers))  # type: ignore[no-untyped-call]
                outputs = heads.each(features)
            return {"cross_entropy": sum_of_losses(outputs, labels, posterior.likelihood, batch)}

        return terms_of


def heads_of(network: SplitNetwork) -> Members:
    """Return the heads of a network of `build`."""
    assert isinstance(network.head, Members)
    return network.head


class LoraEnsemble(TrainedByObjective):
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

    **Source.** Hu et al. 2021, LoRA: Low-Rank Adaptation of Large Language Models; Wang, Aitchison & Rudolph 2023, LoRA
    ensembles for large language model fine-tuning.
    """

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

    @classmethod
    def build(cls, model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> MembersPosterior:
        """Freeze the trunk, put the members' adapters into its layers and their heads behind it; return the posterior."""
        options, network = as_config(run, LoraEnsemble.Config), split_last_layer(model)
        drawn = torch_generator("cpu", run.seed, "lora_ensemble", "adapters")
        network.trunk = swap(
            network.trunk, lambda layer: LowRank(layer, options.members, options.rank, options.alpha, drawn)
        )
        freeze(network.trunk)
        adapted = (module for module in network.trunk.modules() if isinstance(module, LowRank))
        for parameter in (one for module in adapted for one in module.adapters()):
            parameter.requires_grad_(True)
        streams = [torch_generator("cpu", run.seed, "lora_ensemble", k) for k in range(options.members)]
        network.head = Members(own_layers(network.head, streams))
        return MembersPosterior(network, likelihood, members=options.members)

    @staticmethod
    def objective(posterior: MembersPosterior, batches: Batches, run: TrainingRun) -> Objective:
        model, members = posterior.model, posterior.members

        def terms_of(images: Tensor, labels: Tensor, batch: BatchInfo) -> dict[str, Tensor]:
            use_members(model, range(members), batches.device)
            with precision(run, batches.device):
                outputs = model(torch.cat([images] * members))
            parts = outputs.view(members, len(images), -1)
            return {"cross_entropy": sum_of_losses(parts, labels, posterior.likelihood, batch)}

        return terms_of
