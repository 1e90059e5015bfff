"""The check of a method under each likelihood that it declares: it learns a few points that a linear layer can tell."""

from __future__ import annotations

import torch
from torch import Tensor

from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import array_batches
from retinabench.experiments.conformance.subject import Subject, require
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Bernoulli, Categorical, Gaussian, Likelihood, MultiLabel
from retinabench.models.build import initialise
from retinabench.models.networks.mlp import MLP

_LIKELIHOODS = (Bernoulli(), Categorical(3), Gaussian(floor=0.3), MultiLabel(3))


def learns_under_its_likelihoods(subject: Subject) -> None:
    """Under every likelihood that `Config` declares, a small network learns to predict easy points."""
    for likelihood in _LIKELIHOODS:
        if likelihood.name in subject.run.method.supported():
            _learns_under(subject, likelihood)


def _learns_under(subject: Subject, likelihood: Likelihood) -> None:
    """Train on 120 points of three features, and compare the loss with that of the best constant prediction."""
    inputs, targets = easy_points(likelihood.name)
    settings = {
        "epochs": 30,
        "batch_size": 20,
        "lr": 0.02,
        "warmup": 0.0,
        "reweight": "none",
        "select": "last",
    }
    optimizer = subject.run.optimizer.model_copy(update=settings)
    run, cpu = subject.run.model_copy(update={"optimizer": optimizer}), torch.device("cpu")
    network: torch.nn.Module = MLP(3, 16, likelihood.outputs, torch.nn.ReLU)
    if subject.run.method.needs_images:  # of one colour each
        inputs = inputs[:, :, None, None].repeat(1, 1, 4, 4)
        network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), network)
    initialise(network, torch_generator(cpu, run.seed, "weights"))
    batches = array_batches(inputs.numpy(), targets.numpy(), 20, run.seed, cpu)
    posterior = subject.method.fit(network, batches, run, Checkpoint(), likelihood)
    with torch.no_grad():
        drawn = posterior.predict(inputs, 8, torch.Generator().manual_seed(1))
    found, asked = tuple(drawn.shape), f"{likelihood.name}: 8 samples of 120 points"
    width = max(2, likelihood.outputs)
    require(
        found in {(8, 120, width), (found[0], 120, width)},
        f"{asked} have the shape {found}, not (8, 120, {width})",
    )
    require(bool(drawn.isfinite().all()), f"{asked} are not finite")
    error, constant = errors_of(likelihood.name, drawn.mean(dim=0), targets)
    require(
        error < 0.85 * constant,
        f"{likelihood.name}: the error on easy training points is {error:.3f}; that of a constant is {constant:.3f}",
    )


def easy_points(likelihood: str) -> tuple[Tensor, Tensor]:
    """Return 120 points (120, 3) and their targets, which a linear layer can tell, as the likelihood of that name takes them."""
    inputs = torch.randn(120, 3, generator=torch.Generator().manual_seed(0))
    targets = {
        "bernoulli": (inputs[:, 0] > 0).float(),
        "categorical": inputs.argmax(dim=1),
        "gaussian": inputs[:, 0],
        "multilabel": (inputs > 0).float(),
    }
    return inputs, targets[likelihood]


def errors_of(name: str, predicted: Tensor, targets: Tensor) -> tuple[float, float]:
    """Return the mean squared error of predicted means or probabilities, and that of the best constant.

    Args:
        name: Of the likelihood.
        predicted: Mean over the posterior samples, (N, C), or mean and standard deviation of a Gaussian one.
        targets: As the likelihood takes them.
    """
    if name == "gaussian":
        predicted = predicted[:, 0]
    elif name == "bernoulli":
        predicted = predicted[:, 1]
    elif name == "categorical":
        targets = torch.nn.functional.one_hot(targets, predicted.shape[1]).float()
    return float((predicted - targets).square().mean()), float(
        (targets - targets.mean(dim=0)).square().mean()
    )
