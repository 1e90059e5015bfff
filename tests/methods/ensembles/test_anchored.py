"""Anchored ensembles on a linear-Gaussian model, member by member and as a whole; sequential ones on the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from retinabench.core.random_streams import torch_generator
from retinabench.methods.training.likelihood import Bernoulli, Categorical
from support.linear_gaussian import FEATURES, PRIOR, fitted, make_run, truth

LR = "optimizer.lr=0.8"  # the mean loss has curvatures near 1: 20 steps of plain gradient descent arrive; an epoch has as many


def anchor(seed):
    draws = torch_generator("cpu", seed, "anchor", 0)
    return PRIOR * torch.zeros(FEATURES).normal_(generator=draws).double().numpy()


def test_a_member_is_where_its_anchor_pulls_it():
    """w = Σ (Xᵀ y / σ² + a / s²), up to float32."""
    for seed in (0, 1, 2):
        posterior, batches = fitted(make_run("anchored", LR, seed=seed, epochs=2))
        mean, covariance = truth(batches)
        expected = mean + covariance @ anchor(seed) / PRIOR**2
        assert posterior.model.fc.weight.detach().numpy()[0] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("anchors", ["prior", "matched"])
def test_the_law_of_the_members(anchors):
    """100 members: N(mean, Σ) with matched anchors, N(mean, Σ² / s²) with the prior's. Each entry within 4 standard errors.

    Σ is the posterior's covariance. Σ² / s² is a twentieth of it here: the prior's anchors alone are not its draws.
    """
    epochs = 2 if anchors == "matched" else 1
    members = np.stack(
        [
            posterior.model.fc.weight.detach().double().numpy()[0]
            for seed in range(100)
            for posterior, _ in [
                fitted(make_run("anchored", LR, f"method.anchors={anchors}", seed=seed, epochs=epochs))
            ]
        ]
    )
    _, batches = fitted(make_run("anchored", LR))
    mean, covariance = truth(batches)
    if anchors == "prior":
        covariance = covariance @ covariance / PRIOR**2
    spread = np.sqrt(covariance.diagonal())
    assert (abs(members.mean(axis=0) - mean) < 4 * spread / np.sqrt(100)).all()
    error = np.sqrt((np.outer(spread**2, spread**2) + covariance**2) / 100)
    assert (abs(np.cov(members.T) - covariance) < 4 * error).all()


@pytest.mark.parametrize("outputs", [1, 5])
def test_labels_are_drawn_from_the_network_s_own_probabilities(outputs):
    """20,000 draws; shares within 4 standard errors."""
    logits = torch.randn(outputs, generator=torch.Generator().manual_seed(2))
    likelihood = Bernoulli() if outputs == 1 else Categorical(outputs)
    drawn = likelihood.sample(logits.expand(20_000, outputs), torch.Generator().manual_seed(3))
    probs = (
        torch.softmax(logits, 0)
        if outputs > 1
        else torch.stack([1 - logits.sigmoid()[0], logits.sigmoid()[0]])
    )
    shares = torch.bincount(drawn.long(), minlength=len(probs)) / 20_000
    assert drawn.dtype == (torch.float32 if outputs == 1 else torch.int64)
    assert ((shares - probs).abs() < 4 * (probs * (1 - probs) / 20_000).sqrt()).all()


@pytest.mark.parametrize(("anchors", "extra"), [("prior", 0), ("matched", 1)])
def test_passes_beside_the_epochs_are_told(anchors, extra):
    for method, passes in (("anchored", 1), ("sequential_anchored", 7)):
        run = make_run(method, f"method.anchors={anchors}", f"method.samples={passes}", epochs=30)
        assert run.method.gradients_per_example(run.optimizer) == 30 + extra * passes
