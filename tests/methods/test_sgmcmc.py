import math

import numpy as np
import pytest
import torch
from torch import nn

from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run
from retinabench.methods.posteriors import evenly_spaced
from retinabench.methods.sgmcmc import CyclicalSghmc, Langevin, Sgld
from support.linear_gaussian import fitted, make_run, truth, weights

COPIES, IMAGES = 5_000, 50
PRECISIONS = torch.tensor([1.0, 4.0, 20.0])  # of U
MEAN = torch.tensor([0.5, -1.0, 2.0])


def walk(steps, *, lr, momentum=0.0, temperature=1.0, adapt=0, decay=0.0, gradient=None):
    """Start `COPIES` chains at the exact posterior, and return where they are after `steps` (C, D)."""
    random = torch.Generator().manual_seed(1)
    start = MEAN + torch.randn(COPIES, 3, generator=random) / PRECISIONS.sqrt()
    p = nn.Parameter(start)
    optimizer = Langevin(
        [{"params": [p], "weight_decay": decay}], lr=lr, momentum=momentum, images=IMAGES,
        temperature=temperature, adapt=adapt, seed=0,
    )  # fmt: skip
    for _ in range(steps):
        p.grad = (gradient or (lambda w: PRECISIONS * (w - MEAN) / IMAGES))(p.detach())  # of the mean loss, U / N
        optimizer.step()
    return p.detach().double()


def agrees(found, variance, mean=MEAN):
    """Mean and variance of every coordinate within 4 standard errors, √(v / C) and v √(2 / C)."""
    assert ((found.mean(dim=0) - mean).abs() < 4 * (variance / COPIES).sqrt()).all()
    assert ((found.var(dim=0) / variance - 1).abs() < 4 * math.sqrt(2 / COPIES)).all()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("share", [0.4, 0.2])
def test_the_stationary_law_is_the_posterior_but_for_an_error_of_the_order_of_the_step(momentum, share):
    """On U = a (w - μ)² / 2 the variance is 1 / (a (1 - h a / (2 (1 + b)))): the posterior's as h → 0, at the rate h. For b = 0 the
    law of w ← (1 - h a) w + √(2h) ξ; for b > 0 the Lyapunov equation of (w, v), solved by hand. The largest h a / (1 - b) is
    `share`; after 60 / share steps the slowest coordinate remembers exp(-6) of how it started."""
    h = share * (1 - momentum) / float(PRECISIONS.max())
    found = walk(round(3 / (share / 20)), lr=h * IMAGES, momentum=momentum)
    agrees(found, 1 / (PRECISIONS * (1 - h * PRECISIONS / (2 * (1 + momentum)))))


def test_the_prior_is_the_decay_of_its_group():
    """U has the precision a - 3 without the prior, which brings 3: weight decay 3 / N of the mean loss."""
    h = 0.1 / 20
    found = walk(600, lr=h * IMAGES, decay=3 / IMAGES, gradient=lambda w: (PRECISIONS * (w - MEAN) - 3 * w) / IMAGES)
    agrees(found, 1 / (PRECISIONS * (1 - h * PRECISIONS / 2)))


@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_a_frozen_preconditioner_leaves_the_law_alone(momentum):
    """With C fixed the step of a coordinate is h / C: the same formula. Without the noise's C^½ it would be off by C."""
    p = nn.Parameter(torch.zeros(COPIES, 3))
    optimizer = Langevin(
        [{"params": [p], "weight_decay": 0.0}], lr=0.02, momentum=momentum, images=IMAGES, temperature=1.0,
        adapt=30, seed=0,
    )  # fmt: skip
    for _ in range(900):
        p.grad = PRECISIONS * (p.detach() - MEAN) / IMAGES
        optimizer.step()
    scale = (optimizer.state[p]["squares"] / (1 - 0.99**30)).sqrt() + 1e-7
    reduced = 0.02 / IMAGES / scale * PRECISIONS / (2 * (1 + momentum))
    assert 0.001 < float(reduced.mean()) < 0.5
    scaled = (p.detach() - MEAN) * (PRECISIONS * (1 - reduced)).sqrt()
    agrees(scaled.double(), torch.ones(3), torch.zeros(3))


LR = 0.1


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("sgld", ["method.lr_factor=1"]),
        *(
            pytest.param(*slow, marks=pytest.mark.slow)
            for slow in (
                ("sghmc", ["method.lr_factor=1", "optimizer.momentum=0.5", f"optimizer.lr={LR / 2}"]),
                ("csghmc", ["optimizer.momentum=0.5"]),
                ("sgld", ["method.lr_factor=1", "optimizer.batch_size=10"]),
            )
        ),
    ],
)
def test_the_samples_of_a_linear_gaussian_are_its_posterior(method, words):
    """120 samples, 10 steps apart, of one chain whose slow direction forgets half in 10 steps: an effective sample size above 36.
    Mean within 4 standard errors of the deviation / √36, variances within 4 √(2 / 36) and the step's own bias, at most 15 % for two
    points in the batch of ten (measured above). N times too much noise would be 20-fold."""
    settings = [f"optimizer.lr={LR}", "method.samples=120", "method.burn_in=0.02", *words]
    epochs = 31 if "optimizer.batch_size=10" in words else 62
    posterior, batches = fitted(make_run(method, *settings, epochs=epochs))
    mean, covariance = truth(batches)
    found, deviation = weights(posterior), np.sqrt(covariance.diagonal())
    assert found.shape == (120, 2)
    assert (abs(found.mean(axis=0) - mean) < 4 * deviation / math.sqrt(36)).all()
    ratio = found.var(axis=0) / deviation**2
    assert (abs(np.log(ratio)) < 4 * math.sqrt(2 / 36) + 0.15).all()
    assert np.corrcoef(found.T)[0, 1] == pytest.approx(covariance[0, 1] / deviation.prod(), abs=0.4)


def test_samples_are_evenly_spaced_or_refused():
    run = load_run(None, ["method.name=sgld"], data="d")
    assert evenly_spaced(10, 20, 4, run) == [12, 15, 17, 20]
    with pytest.raises(InputError, match=r"3 steps are left for the 4 samples.*Lower method.samples"):
        evenly_spaced(10, 13, 4, run)


def test_the_step_falls_along_a_cosine_and_is_then_constant():
    factor = Sgld.Config(lr_factor=0.1).factor(10, [15, 20])
    assert [factor(0), factor(5), factor(10), factor(19)] == pytest.approx([1, 0.55, 0.1, 0.1])


def test_the_step_of_a_cycle_is_a_cosine_from_1_to_0():
    factor = CyclicalSghmc.Config().factor(10, [14, 18])
    assert [factor(step) for step in (0, 9, 10, 12, 14, 16)] == pytest.approx([1, 1, 1, 0.5, 1, 0.5])
    assert 0 < factor(13) < 0.15
