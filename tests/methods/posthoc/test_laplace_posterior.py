"""Samples of the linearised network."""

from __future__ import annotations

import torch
from torch import nn
from torch.func import functional_call, jacrev

from retinabench.methods.posthoc.laplace_posterior import DiagonalPosterior
from retinabench.methods.training.likelihood import Bernoulli


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_diagonal_samples_are_those_of_the_linearised_network():
    """f + J ε / √(h + δ): covariance of 4,000 sampled logits against J diag(σ²) Jᵀ, 5 standard errors."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.Tanh(), nn.Linear(5, 1))
    draws = generator()
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(0, 0.5, generator=draws)
    deviations = {name: torch.rand(p.shape, generator=draws) for name, p in model.named_parameters()}
    images = torch.randn(3, 3, 2, 2, generator=draws)
    logits = (
        DiagonalPosterior(model, Bernoulli(), deviations)
        .predict(images, 4000, draws)[..., 1]
        .double()
        .logit()
    )
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    jacobian = jacrev(lambda p: functional_call(model, p, (images,))[:, 0])(parameters)
    rows = torch.cat([(jacobian[n] * deviations[n]).flatten(1) for n in deviations], dim=1).double()
    expected = rows @ rows.T
    diagonal = expected.diagonal()
    error = ((diagonal[:, None] * diagonal + expected.square()) / 4000).sqrt()
    assert ((logits.T.cov() - expected).abs() < 5 * error).all()
    mean = model(images)[:, 0].detach().double()
    assert ((logits.mean(dim=0) - mean).abs() < 5 * (diagonal / 4000).sqrt()).all()
