"""Anchors: the prior they are drawn from, the drawn score, and the pull towards them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run
from retinabench.methods.ensembles.anchors import Anchors, anchored_objective, prior_std, without_l2
from retinabench.methods.training.likelihood import Gaussian
from retinabench.methods.training.losses import BatchInfo
from support.linear_gaussian import NOISE, POINTS, PRIOR, LinearGaussian, fitted, make_run

LR = "optimizer.lr=0.8"


def test_the_drawn_score_has_the_fisher_information_as_covariance():
    """XᵀX / σ² of all points, 800 draws, each entry within 4 standard errors; its mean is 0."""
    run = make_run("anchored", LR)
    _, batches = fitted(run)
    model = LinearGaussian()
    anchors, generator, scores = Anchors(model, run), torch.Generator().manual_seed(0), []
    for _ in range(800):
        anchors.draw_score(model, batches, run, Gaussian(), generator)
        scores.append(anchors.score.double().numpy())
    x = batches.source.inputs.double().numpy()
    fisher, found = x.T @ x / NOISE**2, np.stack(scores)
    diagonal = fisher.diagonal()
    assert (abs(found.mean(axis=0)) < 4 * np.sqrt(diagonal / 800)).all()
    error = np.sqrt((np.outer(diagonal, diagonal) + fisher**2) / 800)
    assert (abs(np.cov(found.T) - fisher) < 4 * error).all()


@pytest.mark.parametrize("words", [["optimizer.l2=0"], ["optimizer.l2_on=nothing"]])
@pytest.mark.parametrize("method", ["anchored", "sequential_anchored"])
def test_a_run_without_a_prior_is_refused(method, words):
    with pytest.raises(InputError, match=r"draws anchors from the prior.*Set optimizer.l2 above 0"):
        fitted(make_run(method, *words))


def test_weights_without_a_prior_have_no_anchor():
    """With L2 on the `weights` only biases stay free, but their likelihood is drawn like that of all others."""
    run = load_run(None, ["method.name=anchored", "method.anchors=matched"], data="d")
    model = torch.nn.Linear(3, 2)
    anchors = Anchors(model, run)
    assert anchors.anchor.shape == (6,)
    assert anchors.score.shape == (8,)


def test_the_prior_is_that_of_the_l2_term():
    run = make_run("anchored")
    assert prior_std(run, POINTS) == pytest.approx(PRIOR)
    assert without_l2(run.optimizer).l2 == 0


def test_the_objective_is_the_likelihood_and_the_pull():
    run = make_run("anchored", "method.anchors=matched")
    _, batches = fitted(make_run("map", "optimizer.lr=0.1"))
    model = LinearGaussian()
    with torch.no_grad():
        model.fc.weight.copy_(torch.tensor([[0.3, -0.7]]))
    anchors = Anchors(model, run)
    anchors.anchor, anchors.score = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0])
    inputs, labels = next(iter(batches.epoch(0)))
    terms = anchored_objective(model, batches, run, Gaussian(), anchors)(inputs, labels, BatchInfo.of(labels))
    pull = run.optimizer.l2 * (0.7**2 + 2.7**2) - (3 * 0.3 - 5 * 0.7) / POINTS
    assert float(terms["anchor"].detach()) == pytest.approx(pull, rel=1e-5)
    again = Anchors(model, run)
    again.load_state_dict(anchors.state_dict())
    assert torch.equal(again.score, anchors.score)
