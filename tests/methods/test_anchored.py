import math

import numpy as np
import pytest
import torch

from retinabench.core.errors import InputError
from retinabench.core.random_streams import torch_generator
from retinabench.methods import anchored
from retinabench.methods.anchored import Anchors, guided_walk
from retinabench.methods.training.likelihood import Gaussian
from support.linear_gaussian import FEATURES, NOISE, PRIOR, LinearGaussian, fitted, make_run, truth, weights

LR = "optimizer.lr=0.8"


def test_the_drawn_score_has_the_fisher_information_as_covariance():
    """XᵀX / σ² of all points, 400 draws, each entry within 4 standard errors; its mean is 0."""
    run = make_run("anchored", LR)
    _, batches = fitted(run)
    model = LinearGaussian()
    anchors, generator, scores = Anchors(model, run), torch.Generator().manual_seed(0), []
    for _ in range(400):
        anchors.draw_score(model, batches, run, Gaussian(), generator)
        scores.append(anchors.score.double().numpy())
    x = batches.source.inputs.double().numpy()
    fisher, found = x.T @ x / NOISE**2, np.stack(scores)
    diagonal = fisher.diagonal()
    assert (abs(found.mean(axis=0)) < 4 * np.sqrt(diagonal / 400)).all()
    error = np.sqrt((np.outer(diagonal, diagonal) + fisher**2) / 400)
    assert (abs(np.cov(found.T) - fisher) < 4 * error).all()


@pytest.mark.parametrize("words", [["optimizer.l2=0"], ["optimizer.l2_on=nothing"]])
@pytest.mark.parametrize("method", ["anchored", "sequential_anchored"])
def test_a_run_without_a_prior_is_refused(method, words):
    with pytest.raises(InputError, match=r"draws anchors from the prior.*Set optimizer.l2 above 0"):
        fitted(make_run(method, *words))


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


@pytest.mark.parametrize("anchors", ["prior", pytest.param("matched", marks=pytest.mark.slow)])
def test_the_law_of_the_members(anchors):
    """48 members: N(mean, Σ) with matched anchors, N(mean, Σ² / s²) with the prior's. Each entry within 4 standard errors. Σ is the
    posterior's covariance. Σ² / s² is a twentieth of it here: the prior's anchors alone are not its draws."""
    epochs = 2 if anchors == "matched" else 1
    runs = [make_run("anchored", LR, f"method.anchors={anchors}", seed=seed, epochs=epochs) for seed in range(48)]
    members = np.stack([fitted(one)[0].model.fc.weight.detach().double().numpy()[0] for one in runs])
    _, batches = fitted(make_run("anchored", LR))
    mean, covariance = truth(batches)
    if anchors == "prior":
        covariance = covariance @ covariance / PRIOR**2
    spread = np.sqrt(covariance.diagonal())
    assert (abs(members.mean(axis=0) - mean) < 4 * spread / np.sqrt(48)).all()
    error = np.sqrt((np.outer(spread**2, spread**2) + covariance**2) / 48)
    assert (abs(np.cov(members.T) - covariance) < 4 * error).all()


@pytest.mark.parametrize(("case", "seed"), [("small", 2022), ("large", 2023)])
def test_the_recorded_chain_is_followed_step_by_step(shared, case, seed):
    """Its numbers come from NumPy's legacy generator: start, directions, then e and u of every step."""
    golden = np.load(shared("golden", "fidelity", "golden_guided_walk.npz"))
    std, step = float(golden[f"{case}_std"]), float(golden[f"{case}_step"])
    size = golden[f"{case}_x0"].shape
    random = np.random.RandomState(seed)
    assert np.array_equal(random.normal(0, std, size), golden[f"{case}_x0"])
    assert np.array_equal(random.choice([-1.0, 1.0], size=size), golden[f"{case}_dir0"])
    position, direction = (torch.from_numpy(golden[f"{case}_{name}0"]) for name in ("x", "dir"))
    for expected, towards in zip(golden[f"{case}_x"], golden[f"{case}_dir"], strict=True):
        noise, uniform = random.normal(0, step, size), random.uniform(0, 1, size)
        position, direction = guided_walk(position, direction, torch.from_numpy(noise), torch.from_numpy(uniform), std)
        assert np.array_equal(position, expected)
        assert np.array_equal(direction, towards)


def test_the_prior_is_its_stationary_law():
    """20,000 coordinates after 60 steps of size s / 2 from the prior: variance, fourth moment and direction, within 4 SE."""
    random, count, s = torch.Generator().manual_seed(0), 20_000, 0.3
    x = s * torch.randn(count, generator=random)
    start, d = x.clone(), torch.ones(count).where(torch.rand(count, generator=random) < 0.5, -torch.ones(1))
    for _ in range(60):
        e, u = s / 2 * torch.randn(count, generator=random), torch.rand(count, generator=random)
        x, d = guided_walk(x, d, e, u, s)
    z = (x / s).double()
    for moment, expected, variance in ((z, 0, 1), (z**2, 1, 2), (z**4, 3, 96), (d.double(), 0, 1)):
        assert abs(float(moment.mean()) - expected) < 4 * math.sqrt(variance / count)
    assert abs(np.corrcoef(start, x)[0, 1]) < 0.1  # and it has moved


@pytest.mark.parametrize("anchors", [pytest.param("prior", marks=pytest.mark.slow), "matched"])
def test_the_law_of_sequential_members(anchors):
    """100 members, each trained for 10 steps from the last one's weights: the law of fresh ones, within 4 standard errors. Matched:
    the noise is drawn anew for each member, and only the twentieth of the variance that the anchors bring is correlated along the
    chain: they count as 75. Prior: a walk of 1.5 deviations forgets in about 7 members: they count as 15."""
    words = [LR, f"method.anchors={anchors}", "method.samples=100", "method.walk=1.5", "method.first=0.01"]
    posterior, batches = fitted(make_run("sequential_anchored", *words, epochs=50))
    members = weights(posterior)
    mean, covariance = truth(batches)
    count = 75 if anchors == "matched" else 15
    if anchors == "prior":
        covariance = covariance @ covariance / PRIOR**2
    spread = np.sqrt(covariance.diagonal())
    assert (abs(members.mean(axis=0) - mean) < 4 * spread / np.sqrt(count)).all()
    error = np.sqrt((np.outer(spread**2, spread**2) + covariance**2) / count)
    assert (abs(np.cov(members.T) - covariance) < 4 * error).all()


def test_every_member_has_its_own_cosine():
    run = make_run("sequential_anchored", "method.lr_factor=0.5", "optimizer.warmup=1")
    ends = [10, 14, 18]

    def rates(*steps):
        return [anchored.rate(step, 4, run, ends) for step in steps]

    assert rates(0, 2, 4, 7) == pytest.approx([0, 0.5, 1, 0.5])
    assert rates(10, 12, 14, 16) == pytest.approx([0.5, 0.25, 0.5, 0.25])
    assert rates(9)[0] < 0.07
    assert rates(17)[0] < 0.08
