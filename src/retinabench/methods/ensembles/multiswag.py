"""SWAG along the iterates of SGD or of SGLD, with Gaussians of several shapes and mixtures of them.

**Idea.** SWAG (`swag`) along the iterates of SGD or of SGLD, as a mixture of Gaussians of several shapes. An
`ensemble` of K of them is MultiSWAG, and with `path = "sgld"` the mixture that came second in the competition
of 2021.

    diagonal    N(θ̄, scale · diag(variance))
    low_rank    N(θ̄, scale · ½ (diag(variance) + D Dᵀ / (K - 1)))
    per_layer   the same in each layer, independently of the others
    all         the three in turn, draw by draw: an ensemble over families from one training

**Target.** Along SGD none: the width is that of the gradient's noise; with full batches it is 0 (tested), and
it depends on learning rate and batch size (`swag`). Along SGLD the iterates are at temperature 1 under the
prior N(0, 1 / (2 N l2)), and `diagonal` has the posterior's marginal variances (tested on a linear-Gaussian
model); correlations are lost but for those that D keeps.

**Settings.** `path` (`sgd`: the run's optimiser; `sgld`: its learning rate, no momentum), `start`, `lr_factor`,
`per_epoch`, `rank` as in `swag`, `covariance`, `components` (M stretches of the path with moments of their own;
a draw chooses one, `per_layer` one for each layer), `scale` (1: the covariance of the iterates), `samples`.

**Cost.** Training as MAP, M (K + 2) P numbers, one pass over the training images for the batch norms at the
mean of all components. A prediction as SWAG's.

**When it fails.** As SWAG. Stretches of one path overlap; components that differ need restarts, that is
members. Layers that choose their components on their own are not a network that was ever trained: with
components far apart its predictions are poor.

**Source.** Wilson & Izmailov 2020, Bayesian Deep Learning and a Probabilistic Perspective of Generalization;
Maddox et al. 2019; Wilson et al. 2022 (the competition's report; its authors' code is not public).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from retinabench.core.errors import InputError
from retinabench.data.loader import Batches
from retinabench.methods.base import FidelitySettings, as_config, log_range
from retinabench.methods.ensembles.swag import PathConfig, set_mean, train_path
from retinabench.methods.ensembles.weight_moments import Moments, draw, flat_weights, named_weights
from retinabench.methods.map import PointPosterior
from retinabench.methods.mcmc.langevin import Langevin
from retinabench.methods.posteriors import DrawnWeights
from retinabench.methods.settings import Optimizer, TargetPosterior, TrainingRun, no_target
from retinabench.methods.training.checkpoint import Checkpoint, TrainingState
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import make_optimizer, parameter_groups
from retinabench.methods.training.posterior import State

FAMILIES = ("diagonal", "low_rank", "per_layer")


class Config(PathConfig):
    """samples: weight draws per prediction. path: what is collected along, `sgd` or `sgld` (at temperature 1).

    covariance, components: see above. scale: on the covariance. The other options are those of `PathConfig`, with `rank`
    deviations for each component.
    """

    title = "SWAG mixture"

    name: Literal["multiswag"] = "multiswag"
    samples: int = Field(6, ge=1)
    path: Literal["sgd", "sgld"] = "sgd"
    start: float = Field(0.5, ge=0, lt=1)
    covariance: Literal["diagonal", "low_rank", "per_layer", "all"] = "all"
    components: int = Field(1, ge=1)
    scale: float = Field(1.0, ge=0)

    def target_posterior(self, optimizer: Optimizer, points: int) -> TargetPosterior:
        """Return the target posterior (see `MethodConfig`)."""
        if self.path == "sgd":
            return no_target(
                "around modes of the loss, as wide as the noise of SGD", optimizer.target(points, "")
            )
        return optimizer.target(points, "Gaussians fitted to draws of Langevin dynamics")


@dataclass
class SwagMixture(DrawnWeights):
    """M components: means and variances (M, P), deviations (M, K, P). The network holds their mean."""

    means: Tensor
    variances: Tensor
    deviations: Tensor
    covariance: str
    scale: float

    @property
    def beside(self) -> State:
        """The moments."""
        return {"means": self.means, "variances": self.variances, "deviations": self.deviations}

    def draw(self, samples: int, generator: torch.Generator) -> Iterator[dict[str, Tensor]]:
        """Yield draws, of the families in turn where there are several."""
        for number in range(samples):
            family = FAMILIES[number % len(FAMILIES)] if self.covariance == "all" else self.covariance
            yield named_weights(self.model, self.sample(family, generator))

    def sample(self, family: str, generator: torch.Generator) -> Tensor:
        """Draw one vector (P,) of a family."""
        if family == "per_layer":
            sizes = layer_sizes(self.model)
            return torch.cat([self._block(family, slice(end - size, end), generator) for size, end in sizes])
        return self._block(family, slice(None), generator)

    def _block(self, family: str, part: slice, generator: torch.Generator) -> Tensor:
        """Draw the weights of `part` of one component, chosen for this part."""
        chosen = int(torch.randint(len(self.means), (), generator=generator, device=generator.device))
        mean, variance = self.means[chosen, part], self.variances[chosen, part]
        if family == "diagonal":
            return draw(mean, variance, self.deviations[chosen, :0, part], self.scale, generator)
        return draw(mean, variance, self.deviations[chosen, :, part], 0.5 * self.scale, generator)


def layer_sizes(model: nn.Module) -> list[tuple[int, int]]:
    """Return size and end of each layer's stretch of the flat weights, which follow the modules."""
    sizes = [sum(p.numel() for p in module.parameters(recurse=False)) for module in model.modules()]
    ends, end = [], 0
    for size in sizes:
        if size:
            end += size
            ends.append((size, end))
    return ends


class Stretches:
    """The moments of M stretches of a path, filled one after the other."""

    def __init__(self, components: int, size: int, rank: int, device: torch.device) -> None:
        self.moments = [Moments(size, rank, device) for _ in range(components)]

    def state_dict(self) -> TrainingState:
        """All that was collected."""
        return {"moments": [moments.state_dict() for moments in self.moments]}

    def load_state_dict(self, state: TrainingState) -> None:
        """Continue from what was collected."""
        for moments, saved in zip(self.moments, state["moments"], strict=True):
            moments.load_state_dict(saved)


def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> SwagMixture:
    """Return the network as the mean of one Gaussian of width 0."""
    method, mean = as_config(run, Config), flat_weights(model)[None]
    empty = mean.new_zeros(1, 0, mean.shape[1])
    return SwagMixture(
        model, likelihood, mean, torch.zeros_like(mean), empty, method.covariance, method.scale
    )


def fit(
    model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
) -> SwagMixture:
    """Train, collect, take batch norm's statistics anew at the mean, and return the mixture.

    The checkpoint's validation is that of the path.
    """
    method, posterior = as_config(run, Config), build(model, run, likelihood)
    total = run.optimizer.epochs * batches.steps
    first, every = method.phase(total, batches.steps)
    ends = list(range(first + every, total + 1, every))
    if len(ends) < 2 * method.components:
        raise InputError(
            f"{len(ends)} iterates are too few for {method.components} components of two and more",
            hint="Lower method.components or method.start, or raise optimizer.epochs.",
        )
    stretches = Stretches(method.components, posterior.means.shape[1], method.rank, batches.device)

    def collect(number: int) -> None:
        stretches.moments[number * method.components // len(ends)].collect(flat_weights(model))

    train_path(
        PointPosterior(model, likelihood), batches, run, checkpoint,
        ends=ends, collect=collect, extra=stretches, optimizer=_path_optimizer(model, batches, run),
    )  # fmt: skip
    if ends[-1] == total:
        collect(len(ends) - 1)
    moments = stretches.moments
    posterior.means = torch.stack([m.mean for m in moments])
    posterior.variances = torch.stack([m.variance for m in moments])
    fewest = min(len(m.deviations) for m in moments)
    posterior.deviations = torch.stack([m.deviations[-fewest:] for m in moments])
    set_mean(model, posterior.means.mean(dim=0), batches, run)
    return posterior


def _path_optimizer(model: nn.Module, batches: Batches, run: TrainingRun) -> torch.optim.Optimizer:
    """Return the run's own optimiser, or SGLD at temperature 1 (`langevin.py`)."""
    if as_config(run, Config).path == "sgd":
        return make_optimizer(model, run.optimizer)
    return Langevin(
        parameter_groups(model, run.optimizer),
        lr=run.optimizer.lr,
        momentum=0.0,
        images=len(batches.train),
        temperature=1.0,
        adapt=0,
        seed=run.seed,
    )


FIDELITY = (
    FidelitySettings(
        name="multiswag",
        title="MultiSWAG along SGLD",
        method={
            "name": "multiswag",
            "samples": 100,
            "path": "sgld",
            "start": 0.3,
            "per_epoch": 1,
            "components": 4,
        },
        categorical={"optimizer": {"lr": 0.079}, "method": {"lr_factor": 0.11, "scale": 0.67}},
        gaussian={"optimizer": {"lr": 0.0022}, "method": {"lr_factor": 0.21, "scale": 0.58}},
        search={
            "categorical": {
                "method.lr_factor": log_range(0.1, 1.0),
                "method.scale": {"low": 0.3, "high": 1.0},
                "optimizer.lr": log_range(0.01, 0.2),
            },
            "gaussian": {
                "method.lr_factor": log_range(0.1, 1.0),
                "method.scale": {"low": 0.3, "high": 1.0},
                "optimizer.lr": log_range(0.001, 0.03),
            },
        },
    ),
)
