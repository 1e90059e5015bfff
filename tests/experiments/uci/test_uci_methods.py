"""The three methods: networks trained together end as if alone, the parts against closed forms, the whole on easy data."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Normal, kl_divergence

from retinabench.core.random_streams import torch_generator
from retinabench.data.datasets.uci import Regression, draw_splits
from retinabench.experiments.uci import dropout, ensemble, variational
from retinabench.experiments.uci.comparison import METHODS
from retinabench.experiments.uci.folds import final_fold
from retinabench.experiments.uci.likelihood import measure
from retinabench.experiments.uci.networks import forward, initial, streams

NOISE = 0.5


def make_data(points=200, splits=3, seed=0):
    """y = 3 + 4 sin(x0) + 2 x1 + noise of deviation 0.5."""
    random = np.random.default_rng(seed)
    inputs = random.uniform(-2, 2, (points, 2))
    target = 3 + 4 * np.sin(inputs[:, 0]) + 2 * inputs[:, 1] + random.normal(0, NOISE, points)
    train, test = draw_splits(points, splits)
    return Regression("made", inputs, target, train, test, "")


def only(data, split):
    return replace(data, train=data.train[[split]], test=data.test[[split]])


@pytest.mark.parametrize("name", METHODS)
def test_a_split_trained_among_others_ends_as_if_alone(name, monkeypatch):
    """Split 0 of three: same streams, same batches; sums of another order differ in the last bits of float32."""
    monkeypatch.setattr(dropout, "SAMPLES", 20)
    monkeypatch.setattr(variational, "SAMPLES", 20)
    data = make_data()
    means, variances, chosen = METHODS[name].compute(data, 10, 5, 0)
    lone_means, lone_variances, lone_chosen = METHODS[name].compute(only(data, 0), 10, 5, 0)
    np.testing.assert_allclose(lone_means[:, 0], means[:, 0], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(lone_variances[:, 0], variances[:, 0], rtol=1e-4)
    assert lone_chosen[0] == pytest.approx(chosen[0], rel=1e-4)
    assert np.abs(means[:, 0] - means[:, 1]).max() > 0.01


@pytest.mark.parametrize("name", METHODS)
def test_test_targets_change_neither_choice_nor_prediction(name, monkeypatch):
    monkeypatch.setattr(dropout, "SAMPLES", 5)
    monkeypatch.setattr(variational, "SAMPLES", 5)
    data = only(make_data(), 0)
    target = data.targets.copy()
    target[data.test[0]] = np.nan
    seen, blind = (METHODS[name].compute(one, 5, 2, 0) for one in (data, replace(data, target=target)))
    np.testing.assert_array_equal(seen[0], blind[0])
    np.testing.assert_array_equal(seen[1], blind[1])
    assert seen[2] == blind[2]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_learns_function_and_noise(name):
    """600 points of known truth; its own log-likelihood is that of N(f(x), 0.5²) at most, -0.726 on average."""
    data = make_data(points=600, splits=2)
    means, variances, _ = METHODS[name].compute(data, 30, 150, 0)
    for k, rows in enumerate(data.test):
        found = measure(data.targets[rows], means[:, k], variances[:, k])
        x = data.inputs[rows]
        truth = stats.norm.logpdf(data.targets[rows], 3 + 4 * np.sin(x[:, 0]) + 2 * x[:, 1], NOISE).mean()
        # 60 test points; a fit without the noise has an RMSE of 0, one without the function 3.5.
        assert 0.35 < found["rmse"] < 0.7
        assert truth - 0.3 < found["log_likelihood"] < truth + 0.1
    assert np.sqrt(variances.mean()) == pytest.approx(NOISE, rel=0.35)


def test_the_forward_pass_is_that_of_one_network():
    generators = [torch_generator("cpu", 0, k) for k in range(3)]
    weights = initial(generators, 3, 4, 6, outputs=2)
    x = torch.randn(3, 5, 4, generator=generators[0])
    for k in range(3):
        one = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))
        with torch.no_grad():
            one[0].weight.copy_(weights["hidden.weight"][k].T)
            one[0].bias.copy_(weights["hidden.bias"][k, 0])
            one[2].weight.copy_(weights["output.weight"][k].T)
            one[2].bias.copy_(weights["output.bias"][k, 0])
        torch.testing.assert_close(forward(weights, x)[k], one(x[k]), atol=1e-6, rtol=1e-6)
    assert not weights["hidden.weight"][0].equal(weights["hidden.weight"][1])


def test_dropout_keeps_the_mean_and_drops_its_share():
    """A linear layer of ones: with inverted dropout the mean over draws is the input's sum, at both layers' places."""
    weights = {
        "hidden.weight": torch.ones(2, 3, 1), "hidden.bias": torch.zeros(2, 1, 1),
        "output.weight": torch.ones(2, 1, 1), "output.bias": torch.zeros(2, 1, 1),
    }  # fmt: skip
    rates = torch.tensor([0.1, 0.4])
    generators = streams(1, 0, "test")
    drawn = dropout.predict(weights, torch.ones(1, 50, 3), rates, 2000, generators)
    assert drawn.shape == (2000, 2, 50)
    # Variance of a draw: E[m²]·E[s²]-9 < 12; 100,000 draws: standard error 0.011.
    torch.testing.assert_close(drawn.mean(dim=(0, 2)), torch.tensor([3.0, 3.0]), atol=0.05, rtol=0)
    dropped = (drawn == 0).float().mean(dim=(0, 2))
    expected = [rate + (1 - rate) * rate**3 for rate in (0.1, 0.4)]
    torch.testing.assert_close(dropped, torch.tensor(expected), atol=0.007, rtol=0)


def test_the_likelihood_of_a_precision_is_the_mixture_s():
    fold = final_fold(make_data(splits=2))
    random = torch.Generator().manual_seed(0)
    truth = torch.from_numpy((fold.held_target - fold.centre[:, None]) / fold.scale[:, None]).float()
    noise = torch.randn(200, 2, 20, generator=random)
    # Networks of the two rates of a split stand together: (T, 4, 20).
    drawn = torch.stack([truth + 0.3 * noise, truth + 0.1 * noise], dim=2).flatten(1, 2)
    found = dropout.likelihoods(drawn, fold)
    constant = math.log(200) + 0.5 * math.log(2 * math.pi)  # left out there
    for network, (split, column) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1)]):
        for number in (0, 20, 33):
            variance = 1 / dropout.PRECISIONS[number]
            deviation = (0.3, 0.1)[column] * noise[:, split].numpy()
            logs = np.log(np.mean(stats.norm.pdf(deviation, 0, math.sqrt(variance)), axis=0)).mean()
            assert float(found[network, number]) == pytest.approx(logs + constant, abs=1e-4)


def posterior_of(features=3, hidden=4, seed=0):
    g = torch.Generator().manual_seed(seed)
    shapes = {
        "hidden.weight": (2, features, hidden), "hidden.bias": (2, 1, hidden),
        "output.weight": (2, hidden, 1), "output.bias": (2, 1, 1),
    }  # fmt: skip
    posterior = {name: torch.randn(shape, generator=g) for name, shape in shapes.items()}
    for name, shape in shapes.items():
        posterior[f"{name}.log_deviation"] = -1 + 0.3 * torch.randn(shape, generator=g)
    posterior["log_noise"] = torch.tensor([-1.0, 0.5])
    return posterior, torch.randn(2, 5, features, generator=g), torch.randn(2, 5, generator=g)


def test_the_divergence_is_that_of_torch():
    posterior, _, _ = posterior_of()
    expected = sum(
        kl_divergence(
            Normal(posterior[name], posterior[f"{name}.log_deviation"].exp()), Normal(0.0, 1.0)
        ).sum(dim=(1, 2))
        for name in variational.WEIGHTS
    )
    torch.testing.assert_close(variational.divergence(posterior), expected)


def test_the_bound_and_the_prediction_have_their_closed_forms():
    """A unit is relu of a Gaussian, whose moments are known (Wu et al. 2019); the output weights are independent of it."""
    posterior, x, y = posterior_of()
    mean, variance = (part.double() for part in variational._moments(posterior, "hidden", x))
    deviation = variance.sqrt()
    ratio = mean / deviation
    density = torch.exp(-0.5 * ratio**2) / math.sqrt(2 * math.pi)
    share = 0.5 * (1 + torch.erf(ratio / math.sqrt(2)))
    first = mean * share + deviation * density
    second = (mean**2 + variance) * share + mean * deviation * density
    w = posterior["output.weight"].double().transpose(1, 2)
    w_variance = (2 * posterior["output.weight.log_deviation"]).double().exp().transpose(1, 2)
    bias_variance = (2 * posterior["output.bias.log_deviation"]).double().exp()
    f = (first * w).sum(2) + posterior["output.bias"].double()[:, :, 0]
    f_variance = (second * w_variance + (second - first**2) * w**2).sum(2) + bias_variance[:, :, 0]

    means, variances = variational.predict(posterior, x, 10_000, streams(2, 0, "test"))
    error = (f_variance / 10_000).sqrt()
    assert ((means.double().mean(dim=0) - f).abs() < 5 * error).all()
    noise = posterior["log_noise"].double().exp()[:, None]
    total = variances.double().mean(dim=0) + means.double().var(dim=0)
    # 5 standard errors of a variance whose draws are not quite Gaussian.
    torch.testing.assert_close(total, f_variance + noise, rtol=0.06, atol=0)

    exact = 0.5 * (math.log(2 * math.pi) + noise.log() + ((y - f) ** 2 + f_variance) / noise).mean(dim=1)
    wide_x, wide_y = x.repeat(1, 4000, 1), y.repeat(1, 4000)
    drawn = variational.expected_negative_log_likelihood(posterior, wide_x, wide_y, streams(2, 1, "test"))
    torch.testing.assert_close(drawn.double(), exact, rtol=0.02, atol=0)


def test_variational_inference_of_one_weight_finds_the_posterior():
    """With all weights but the output's known, y = w relu(x) + noise is Bayesian regression: prior N(0, 1), known noise.

    The posterior is Gaussian with precision 1 + Σx²/σ² and mean Σxy / σ² / precision, and mean-field VI holds it.
    """
    random = np.random.default_rng(0)
    x = torch.from_numpy(random.uniform(0.5, 3, 60)).float()
    variance = 0.5
    y = 0.7 * x + math.sqrt(variance) * torch.from_numpy(random.normal(size=60)).float()
    precision = 1 + float((x**2).sum()) / variance
    free = {
        "output.weight": torch.zeros(1, 1, 1, requires_grad=True),
        "output.weight.log_deviation": torch.zeros(1, 1, 1, requires_grad=True),
    }
    known = {
        name: torch.full((1, 1, 1), value)
        for part, mean in (("hidden.weight", 1.0), ("hidden.bias", 0.0), ("output.bias", 0.0))
        for name, value in ((part, mean), (f"{part}.log_deviation", -12.0))
    }
    posterior = known | free | {"log_noise": torch.tensor([math.log(variance)])}
    optimizer = torch.optim.LBFGS(free.values(), max_iter=200, tolerance_grad=1e-9, tolerance_change=1e-12)

    def closure():
        optimizer.zero_grad()
        expected = variational.expected_negative_log_likelihood(
            posterior, x.view(1, -1, 1), y.view(1, -1), streams(1, 0, "test")
        )
        loss = (expected + variational.divergence(posterior) / len(x)).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    mean, deviation = (
        float(value)
        for value in (free["output.weight"].detach(), free["output.weight.log_deviation"].detach().exp())
    )
    assert mean == pytest.approx(float((x * y).sum()) / variance / precision, rel=1e-3)
    assert deviation == pytest.approx(precision**-0.5, rel=1e-3)


def test_an_ensemble_s_likelihood_is_that_of_torch():
    generators = [torch_generator("cpu", 0, k) for k in range(2)]
    weights = initial(generators, 2, 3, 4, outputs=2)
    x, y = torch.randn(2, 6, 3, generator=generators[0]), torch.randn(2, 6, generator=generators[0])
    mean, variance = ensemble.moments(weights, x)
    expected = -Normal(mean, variance.sqrt()).log_prob(y).mean(dim=1)
    torch.testing.assert_close(ensemble.negative_log_likelihood(weights, x, y), expected)
    means, variances = ensemble.predict(weights, x[:1])
    assert means.shape == variances.shape == (2, 1, 6)
    torch.testing.assert_close(means[1, 0], ensemble.moments(weights, x[[0, 0]])[0][1])
