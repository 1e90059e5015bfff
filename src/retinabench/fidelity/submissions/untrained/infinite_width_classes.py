"""The infinite-width limit of a classification: one Gaussian process per class, and the softmax of their values.

The posterior of the C latent functions at the training points has no closed form. It is sampled by Hamiltonian Monte Carlo in coordinates
that are N(0, I) a priori, f_c = F ξ_c with F Fᵀ the covariance of `infinite_width.py`; given them, values at the test points are Gaussian and
drawn exactly. So nothing is approximated but the length of the chains, which must converge: neither a Laplace approximation, nor
a regression on the labels. For a linear network the limit is the network itself, and the result its posterior.

Letters: N training points, M test points, K chains, R coordinates of a class, C classes, S states kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from retinabench.core.progress import QUIET, Progress
from retinabench.core.random_streams import torch_generator
from retinabench.fidelity.submissions.untrained.infinite_width import (
    ProcessCovariances,
    latent_states,
    prior_of,
    square_root,
)
from retinabench.fidelity.targets.data import TargetData, labels
from retinabench.fidelity.targets.target import Target

STATES = 600  # of all chains together: R-hat is checked at all training points and classes
PER_STATE = 2  # draws at the test points given one state


@dataclass(frozen=True)
class ClassLikelihood:
    """Σ log softmax(f)_y of latent values f = F ξ, as a function of ξ.

    Shapes: `labels` (N,), `root` (N, R).
    """

    labels: Tensor
    root: Tensor
    classes: int

    def __call__(self, coordinates: Tensor) -> tuple[Tensor, Tensor]:
        """(K, C R) -> values (K,) and gradients (K, C R)."""
        latent = coordinates.view(len(coordinates), self.classes, -1) @ self.root.T  # (K, C, N)
        logs = latent.log_softmax(dim=1)
        hits = torch.nn.functional.one_hot(self.labels, self.classes).T.to(latent.dtype)
        gradient = (hits - logs.exp()) @ self.root
        return (logs * hits).sum(dim=(1, 2)), gradient.flatten(1)


def sample_classes(
    target: Target, data: TargetData, seed: int = 0, progress: Progress = QUIET, kernel: str = "nngp"
) -> NDArray[np.float32]:
    """Return class probabilities of draws of the process at the test points, (S, M, C)."""
    prior = prior_of(target, data, kernel)
    given = torch.from_numpy(labels(data)[0])
    return class_draws(given, prior, target.outputs, seed, progress).float().numpy()


def class_draws(
    given: Tensor, prior: ProcessCovariances, classes: int, seed: int, progress: Progress = QUIET
) -> Tensor:
    """Draw class probabilities at the test points, (S, M, C).

    Shapes: `given` (N,).
    """
    root, inverse = square_root(prior.train)
    generator = torch_generator("cpu", seed, "infinite_width", "classes")
    likelihood = ClassLikelihood(given, root, classes)

    def at_training_points(chains: Tensor) -> Tensor:
        latent = chains.view(*chains.shape[:2], classes, -1) @ root.T
        return torch.softmax(latent, dim=-2)

    states = latent_states(
        likelihood,
        classes * root.shape[1],
        at_training_points,
        generator,
        progress,
        states=STATES,
        jitter=True,
    )
    explained = inverse.T @ prior.cross  # (R, M)
    rest = square_root(prior.test - explained.T @ explained)[0]
    latent = states.view(len(states), classes, -1) @ explained  # (S, C, M)
    shape = (PER_STATE, *latent.shape[:2], rest.shape[1])
    noise = torch.randn(shape, generator=generator, dtype=torch.float64) @ rest.T
    return torch.softmax((latent + noise).flatten(0, 1), dim=1).transpose(1, 2)
