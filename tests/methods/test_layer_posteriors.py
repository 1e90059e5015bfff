"""MFVI, radial and rank-1, and the mean-field Gaussian of all weights."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import optimize
from torch import nn
from torch.distributions import Normal, kl_divergence

from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run
from retinabench.methods.gaussian_vi import Scales, bound
from retinabench.methods.layer_posteriors import Mfvi, Radial, Rank1, elbo, fast_parameters, kl_weight
from retinabench.methods.training.gradients import BatchInfo
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.methods.training.loop import make_optimizer, set_pace
from retinabench.models.build import build_model
from retinabench.models.networks.resnet import resnet18
from retinabench.models.stochastic.drawing import kl, use_generator
from support.helpers import generator


def run(name, *words):
    return load_run(None, [f"method.name={name}", *words], data="d")


def batches(images):
    return SimpleNamespace(steps=1, train=np.arange(images), device=torch.device("cpu"))


def quadrature_elbo(mean, stddev, x, y, prior):
    """-ELBO of logistic regression with a mean-field Gaussian: x·w is normal, so one-dimensional quadrature is exact."""
    nodes, mass = np.polynomial.hermite_e.hermegauss(60)
    logits = (x @ mean)[:, None] + np.sqrt(x**2 @ stddev**2)[:, None] * nodes
    loss = np.logaddexp(0, np.where(y[:, None] > 0.5, -logits, logits)) @ (mass / mass.sum())
    divergence = np.log(prior / stddev) + (stddev**2 + mean**2) / (2 * prior**2) - 0.5
    return loss.sum() + divergence.sum()


def test_logistic_regression_reaches_the_oracle_s_optimum():
    source = np.random.default_rng(0)
    x = source.normal(size=(80, 2)) @ np.array([[1.5, 0.5], [0, 1.0]])
    y = (source.random(80) < 1 / (1 + np.exp(-x @ [1.2, -0.8]))).astype(float)
    oracle = optimize.minimize(lambda v: quadrature_elbo(v[:2], np.exp(v[2:]), x, y, 1.0), np.zeros(4), tol=1e-10)
    mean, stddev = oracle.x[:2], np.exp(oracle.x[2:])

    settings = run("mfvi", "method.prior_mean=zero", "method.prior_stddev=1.0", "method.annealing=none",
                   "method.train_samples=4", "method.stddev_mean_init=0.2", "optimizer.reweight=none")  # fmt: skip
    posterior = Mfvi.build(nn.Linear(2, 1, bias=False), settings, Bernoulli())
    model = posterior.model
    nn.init.zeros_(model.weight)  # the network's own start is drawn from the generator of the process
    use_generator(model, generator(1))
    objective = elbo(posterior, batches(80), settings)
    images, labels = torch.from_numpy(x).float(), torch.from_numpy(y).float()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, 250)
    for step in range(250):
        optimizer.zero_grad()
        sum(objective(images, labels, BatchInfo.of(labels, step)).values()).backward()
        optimizer.step()
        schedule.step()
    found = model.weight[0].detach().numpy().astype(float), model.stddev[0].detach().numpy().astype(float)
    best, reached = quadrature_elbo(mean, stddev, x, y, 1.0), quadrature_elbo(*found, x, y, 1.0)
    # Noise of the last steps: over six seeds the bound was within 0.007 nats, the mean within 0.03 σ, σ within 6 %.
    assert best - 1e-6 <= reached < best + 0.02
    assert (np.abs(found[0] - mean) < 0.1 * stddev).all()
    assert np.allclose(found[1], stddev, rtol=0.12)


def test_the_objective_is_the_bound_term_by_term():
    settings = run("mfvi", "method.kl_temperature=0.3", "method.annealing=linear_released", "method.train_samples=3")
    posterior = Mfvi.build(nn.Sequential(nn.Flatten(), nn.Linear(12, 1)), settings, Bernoulli())
    model = posterior.model
    use_generator(model, generator())
    images, labels = torch.randn(5, 3, 2, 2, generator=generator(1)), torch.tensor([1.0, 0, 0, 1, 0])
    terms = elbo(posterior, batches(700), settings)(images, labels, BatchInfo.of(labels, 49, "minibatch"))
    assert list(terms) == ["cross_entropy", "kl"]
    assert float(terms["kl"].detach()) == pytest.approx(0.3 * (50 / 200) * float(kl(model).detach()) / 700, rel=1e-5)
    # The likelihood part is the mean over three passes, reweighted by class as MAP's.
    model.rho = None
    use_generator(model, generator())
    losses = []
    for _ in range(3):
        logits = model(images).squeeze(1)
        each = nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")
        losses.append((each[labels == 1].mean() + each[labels == 0].mean()) / 2)
    assert float(terms["cross_entropy"].detach()) == pytest.approx(float(torch.stack(losses).mean().detach()), rel=1e-5)


@pytest.mark.parametrize(("prior", "decayed"), [("tied", {"weight"}), ("zero", set())])
@pytest.mark.parametrize("method", [Mfvi, Radial])
def test_l2_acts_on_means_that_no_kl_acts_on(method, prior, decayed):
    settings = run(method.__name__.lower(), f"method.prior_mean={prior}")
    model = method.build(resnet18(width=4), settings, Bernoulli()).model
    groups = make_optimizer(model, settings.optimizer).param_groups
    inside = {id(p) for group in groups if group["weight_decay"] for p in group["params"]}
    assert {name.rpartition(".")[2] for name, p in model.named_parameters() if id(p) in inside} == decayed


def weights(annealing, steps=137, epochs=90):
    return [kl_weight(step, steps, epochs, annealing) for step in range(steps * epochs)]


def test_the_released_weight_is_linear_over_200_epochs_and_ends_at_0_45():
    got = weights("linear_released")
    assert got[0] == pytest.approx(1 / (137 * 200))
    assert got[-1] == pytest.approx(0.45)
    assert kl_weight(137 * 250, 137, 300, "linear_released") == 1


def test_linear_reaches_one_half_way_and_stays_and_cyclical_rises_four_times():
    got = weights("linear", steps=10, epochs=4)
    assert got[:3] == pytest.approx([0.05, 0.10, 0.15])
    assert got[19:] == [1.0] * 21
    got = weights("cyclical", steps=10, epochs=8)
    assert got[:20] == got[20:40] == got[40:60] == got[60:]
    assert got[:20] == pytest.approx([min(1, k / 10) for k in range(1, 21)])


def test_samples_must_give_every_component_its_share():
    with pytest.raises(InputError, match="not a multiple of components"):
        run("rank1", "method.components=4", "method.samples=5")


def test_rank1_sets_the_pace_of_its_distributions_alone():
    settings = run("rank1")
    model = Rank1.build(resnet18(width=4), settings, Bernoulli()).model
    groups = {}
    for norms in (False, True):
        optimizer = make_optimizer(model, settings.optimizer)
        set_pace(optimizer, fast_parameters(model, norms=norms), 0.6)
        places = {id(p): group for group in optimizer.param_groups for p in group["params"]}
        assert len(places) == sum(len(group["params"]) for group in optimizer.param_groups)
        assert len(places) == len(list(model.parameters()))
        groups[norms] = {name: places[id(p)] for name, p in model.named_parameters()}
    for name, group in groups[False].items():
        fast = name.endswith(("_mean", "_rho"))
        assert group.get("lr_factor", 1.0) == (0.6 if fast else 1.0)
        decayed = name.endswith(("conv1.weight", "conv2.weight", "downsample.0.weight", "fc.weight"))
        assert (group["weight_decay"] > 0) == decayed
    factors = [{name: one.get("lr_factor") for name, one in groups[k].items()} for k in (True, False)]
    changed = {name for name in groups[True] if factors[0][name] != factors[1][name]}
    assert changed == {name for name in groups[True] if ".bn" in f".{name}" or "downsample.1" in name}


def test_the_bound_of_all_parameters_is_its_two_terms(opened):
    """With no width to speak of the likelihood is the network's; the divergence, biases included, is over N images."""
    words = "model.name=lenet", "method.name=gaussian_vi", "method.std=1e-6"
    run, data = opened(*words, "optimizer.l2=0.01", "optimizer.reweight=none")
    model = build_model(run.model, 0)
    images, labels = next(data.epoch(0))
    terms = bound(model, Scales(model, 1e-6), data, run, Bernoulli())(images, labels, BatchInfo.of(labels))
    plain = nn.functional.binary_cross_entropy_with_logits(model(images).squeeze(1), labels)
    assert terms["cross_entropy"].item() == pytest.approx(plain.item(), rel=1e-4)
    prior_precision = 2 * 64 * 0.01
    prior = Normal(0.0, prior_precision**-0.5)
    expected = sum(kl_divergence(Normal(p, 1e-6), prior).sum().item() for p in model.parameters())
    assert terms["kl"].item() == pytest.approx(expected / 64, rel=1e-4)
    cold = run.model_copy(update={"method": run.method.model_copy(update={"kl_temperature": 0.25})})
    quarter = bound(model, Scales(model, 1e-6), data, cold, Bernoulli())(images, labels, BatchInfo.of(labels))["kl"]
    assert quarter.item() == pytest.approx(0.25 * terms["kl"].item(), rel=1e-6)
