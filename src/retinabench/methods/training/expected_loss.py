"""Upper bounds of the expected negative log-likelihood where the outputs are Gaussian: E[-log p(y | f)], f ~ N(m, diag(v)).

They are closed forms, so that a variational last layer is trained without sampling. Of a Gaussian likelihood the expectation is
exact; of labels it is bounded:

    bernoulli     -(y - ½) m + log 2 cosh(ξ / 2), ξ² = m² + v: never above Jensen's bound of the logits ±f / 2
    categorical   log Σ_c exp(m_c + v_c / 2) - m_y: Jensen's inequality for the log of the sum

References:
    Jaakkola and Jordan (2000), "Bayesian parameter estimation via variational methods", Statistics and Computing 10;
    Harrison, Willes and Snoek (2024), "Variational Bayesian last layers", ICLR (regression and classes).
"""

from __future__ import annotations

from functools import singledispatch

import torch
from torch import Tensor
from torch.nn.functional import softplus

from retinabench.methods.training.likelihood import Bernoulli, Categorical, Gaussian, Likelihood, MultiLabel


@singledispatch
def expected_loss(likelihood: Likelihood, mean: Tensor, variance: Tensor, labels: Tensor) -> Tensor:
    """Return an upper bound of E[-log p(y | f)] in nats, (B,).

    Args:
        likelihood: What the outputs mean.
        mean: Of the outputs, (B, O).
        variance: Of the first `random_outputs(likelihood)` outputs, (B, V); the others are known.
        labels: As the likelihood takes them.

    Raises:
        TypeError: The likelihood is none of those of `training/likelihood.py`, which all have a bound here.
    """
    raise TypeError(f"no bound of the expected loss is known for the likelihood '{likelihood.name}'")


def random_outputs(likelihood: Likelihood) -> int:
    """Return the number V of outputs that may be random: of a Gaussian the mean alone, of the others all."""
    return 1 if isinstance(likelihood, Gaussian) else likelihood.outputs


@expected_loss.register
def _(likelihood: Gaussian, mean: Tensor, variance: Tensor, labels: Tensor) -> Tensor:
    noise = likelihood.std(mean[:, 1]).square()
    return likelihood.negative_log_likelihood(mean, labels) + 0.5 * variance[:, 0] / noise


@expected_loss.register
def _(likelihood: Bernoulli, mean: Tensor, variance: Tensor, labels: Tensor) -> Tensor:
    return _jaakkola_jordan(mean, variance, labels[:, None])[:, 0]


@expected_loss.register
def _(likelihood: Categorical, mean: Tensor, variance: Tensor, labels: Tensor) -> Tensor:
    return torch.logsumexp(mean + 0.5 * variance, dim=1) - mean.gather(1, labels[:, None])[:, 0]


@expected_loss.register
def _(likelihood: MultiLabel, mean: Tensor, variance: Tensor, labels: Tensor) -> Tensor:
    known = ~labels.isnan()
    losses = _jaakkola_jordan(mean, variance, labels.nan_to_num())
    return (losses * known).sum(dim=1) / known.sum(dim=1).clamp(min=1)


def _jaakkola_jordan(mean: Tensor, variance: Tensor, labels: Tensor) -> Tensor:
    """-(y - ½) m + log 2 cosh(ξ / 2), of any shape."""
    xi = (mean.square() + variance).sqrt()
    return (0.5 - labels) * mean + 0.5 * xi + softplus(-xi)
