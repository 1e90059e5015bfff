"""FSVI and VBLL."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from torch import nn
from torch.func import functional_call, jacrev

from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import BatchLimits, array_batches
from retinabench.experiments.config import load_run
from retinabench.methods import last_layer_variational
from retinabench.methods.last_layer_variational import Fsvi, Vbll
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.gradients import BatchInfo, describe_batch
from retinabench.methods.training.gradients import gradients as gradients_of
from retinabench.methods.training.likelihood import Bernoulli, Gaussian
from retinabench.models.build import build_model
from retinabench.models.networks.resnet import resnet18
from support.helpers import TINY, generator


def tiny_run(*words, data="d"):
    return load_run(None, [*TINY, "method.name=fsvi", *words], data=str(data))


@pytest.fixture
def batches(opened):
    return opened(*TINY, "method.name=fsvi")


def test_the_diagonal_kl_is_the_released_one(shared):
    golden = np.load(shared("golden", "retina", "fsvi_kl.npz"))
    names = ("in_mean_q", "in_cov_q", "in_mean_p", "in_cov_p")
    kl = last_layer_variational.kl_diagonal(*(torch.from_numpy(golden[name]) for name in names))
    assert float(kl) == pytest.approx(float(golden["out_kl"]), rel=1e-6)  # both in float32


def test_the_full_kl_is_that_of_the_multivariate_normals():
    draw = torch.randn(3, 4, 6, generator=generator())  # two ranks more than inputs: no covariance is singular
    covariance = (draw @ draw.mT).float()
    mean = torch.randn(4, 3, generator=generator(1))
    normal, prior = torch.distributions.MultivariateNormal, (torch.zeros(4), 7.0 * torch.eye(4))
    kls = [torch.distributions.kl_divergence(normal(mean[:, c], covariance[c]), normal(*prior)) for c in range(3)]
    expected = sum(kls)
    # The jitter adds a millionth of the variance to each: the KL moves by about its size over the smallest eigenvalue.
    assert float(last_layer_variational.kl_full(mean, covariance, 7.0)) == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_moments_of_the_function_are_those_of_the_explicit_jacobian(outputs):
    """J diag(σ²) Jᵀ with J by automatic differentiation of the whole network, as the released code builds it."""
    run = tiny_run()
    posterior = Fsvi.build(resnet18(width=4, outputs=outputs, stem="small"), run, Bernoulli())
    network, head = posterior.model.eval(), posterior.head
    images = torch.rand(6, 3, 16, 16, generator=generator())

    jacobian = jacrev(lambda mean: functional_call(network, {"head.mean": mean}, (images,)))(head.mean.detach())
    variance = head.log_variance.detach().exp()
    covariance = torch.einsum("ickd,kd,jakd->icja", jacobian, variance, jacobian)

    features = network.features(images).detach()
    diagonal = torch.einsum("icic->ic", covariance).detach()
    assert torch.allclose(head.variance(features).detach(), diagonal, rtol=1e-4)
    full = head.covariance(features).detach()
    for c in range(outputs):
        assert torch.allclose(full[c], covariance[:, c, :, c], rtol=1e-4)
        for other in set(range(outputs)) - {c}:
            assert covariance[:, c, :, other].abs().max() == 0
    # The samples have these moments: 20,000 draws give a variance within 5 standard errors, √(2 / 20,000) each.
    drawn, mean = head.sample(features, 20_000, generator()).detach(), head(features).detach()
    assert torch.allclose(drawn.var(dim=0), diagonal, rtol=5 * (2 / 20_000) ** 0.5)
    assert torch.allclose(drawn.mean(dim=0), mean, atol=5 * float(diagonal.max() / 20_000) ** 0.5)


@pytest.mark.parametrize(
    ("words", "covariance"),
    [((), "diagonal"), (("method.kl_weight=released",), "diagonal"), (("method.covariance=full",), "full")],
)
def test_the_objective_is_the_evidence_bound(batches, words, covariance):
    """Both terms of one step against brute force: the integral over f by quadrature, the KL point by point."""
    run, data = batches
    run = tiny_run(*words, "method.train_samples=4000", "optimizer.reweight=none", data=run.data)
    posterior = Fsvi.build(build_model(run.model, 0), run, Bernoulli())
    images, labels = next(data.epoch(0))
    with torch.no_grad():
        posterior.head.mean += 0.3 * torch.randn(posterior.head.mean.shape, generator=generator())
        posterior.head.log_variance += 4
        posterior.model.train()
        terms = Fsvi.objective(posterior, data, run)(images, labels, BatchInfo.of(labels))
        posterior.model.train()
        features = posterior.model.features(images)
        mean, deviation = posterior.head(features)[:, 0], posterior.head.variance(features)[:, 0].sqrt()

        nodes, weights = np.polynomial.hermite_e.hermegauss(60)
        f = mean + deviation * torch.from_numpy(nodes).float()[:, None]
        sign = 1 - 2 * labels
        per_image = torch.from_numpy(weights / weights.sum()).float() @ nn.functional.softplus(sign * f)
        # One draw of the weights serves the whole batch: its loss spreads by less than 1 from draw to draw.
        assert float(terms["cross_entropy"]) == pytest.approx(float(per_image.mean()), abs=5 / 4000**0.5 * 0.5)

        # The step's first draw names the inducing pictures.
        chosen = torch.randperm(len(images), generator=torch_generator("cpu", run.seed, "fsvi", 0))[:10]
        if covariance == "full":
            kl = last_layer_variational.kl_full(mean[chosen, None], posterior.head.covariance(features[chosen]), 10.0)
        else:
            normal, prior = torch.distributions.Normal, torch.distributions.Normal(0.0, 10**0.5)
            one = [torch.distributions.kl_divergence(normal(mean[i], deviation[i]), prior) for i in chosen]
            kl = torch.stack(one).sum()
        scale = 10 * len(images) / 4 if "method.kl_weight=released" in words else len(data.train)
        assert float(terms["function_kl"]) == pytest.approx(float(kl) / scale, rel=1e-4)


def test_the_released_variance_stays_where_it_started(batches):
    """d KL / d log σ² sums to ½ M over the weights: at SGD's rate, log σ² = -19 moves by less than 0.1 in a training."""
    run, data = batches
    spread = {}
    for rate, start in ((1, -19), (100, -5)):
        words = (f"method.variance_rate={rate}", f"method.log_variance={start}", "optimizer.select=last")
        again = tiny_run(*words, data=run.data)
        posterior = Fsvi.fit(build_model(run.model, 0), data, again, Checkpoint(), Bernoulli())
        fresh = Fsvi.build(build_model(run.model, 0), tiny_run(*words, data=run.data), Bernoulli())
        spread[rate] = (posterior.head.log_variance - fresh.head.log_variance).abs().max().item()
    assert spread[1] < 0.1 < spread[100]


@pytest.mark.parametrize("weight", ["training_set", "released"])
def test_a_batch_in_parts_has_the_kl_of_the_whole(batches, weight):
    """Of 16 copies of one picture every choice of inducing inputs is the same, so that parts must add up exactly."""
    _, data = batches
    tiny = [word for word in TINY if not word.startswith("model.")]
    words = [*tiny, "model.name=lenet", "method.name=fsvi", f"method.kl_weight={weight}", "method.inducing=10"]
    run = load_run(None, words, data="d")
    posterior = Fsvi.build(build_model(run.model, 0), run, Bernoulli())
    both = Fsvi.objective(posterior, data, run)
    images = torch.rand(1, 3, 16, 16, generator=generator()).expand(16, -1, -1, -1)
    labels = torch.tensor([1.0, 0, 0, 0]).repeat(4)

    def kl_alone(*batch):
        return {"function_kl": both(*batch)["function_kl"]}

    totals, gradients = [], []
    for parts in (1, 4):
        optimizer = torch.optim.SGD(posterior.model.parameters(), lr=1.0)
        whole = describe_batch(labels, 0, data, "none")
        given = images, labels, whole, generator(), BatchLimits(), parts
        seen = gradients_of(kl_alone, posterior.model, optimizer, *given)
        totals.append(sum(terms["function_kl"].item() * part for terms, part in seen) / 16)
        gradients.append(torch.cat([p.grad.flatten() for p in posterior.model.parameters() if p.grad is not None]))
    # float32 sums in another order.
    assert totals[0] == pytest.approx(totals[1], rel=1e-5)
    assert torch.allclose(*gradients, rtol=1e-4, atol=1e-6)


NOISE, PRIOR = 0.5, 0.25  # std of the targets, prior variance


@pytest.fixture
def layer():
    made = last_layer_variational.VariationalLinear(nn.Linear(5, 2), 2, 3, generator())
    with torch.no_grad():
        made.mean.normal_(generator=generator(1))
        made.log_scale.normal_(generator=generator(2))
        made.root.normal_(generator=generator(3))
    return made


def covariance(layer):
    scale, root = layer.log_scale.exp().detach(), layer.root.detach()
    inner = torch.linalg.inv(torch.eye(root.shape[1]) + root @ root.mT)
    return (scale[:, :, None] * inner * scale[:, None]).double()


def test_variance_and_divergence_are_those_of_the_dense_covariance(layer):
    dense, mean = covariance(layer), layer.mean.detach().double()
    features = torch.randn(7, 5, generator=generator(4))
    expected = torch.einsum("bi,cij,bj->bc", features.double(), dense, features.double())
    assert torch.allclose(layer.variance(features).double(), expected, rtol=1e-4)
    prior = torch.distributions.MultivariateNormal(torch.zeros(5).double(), PRIOR * torch.eye(5).double())
    posteriors = [torch.distributions.MultivariateNormal(m, S) for m, S in zip(mean, dense, strict=True)]
    kl = sum(torch.distributions.kl_divergence(one, prior) for one in posteriors)
    assert float(layer.divergence(PRIOR).detach()) == pytest.approx(float(kl.detach()), rel=1e-5)


def test_draws_have_mean_and_covariance(layer):
    """1,500 draws of weights; 5 standard errors of a covariance."""
    draws, source = [], generator(5)
    with torch.no_grad():
        draws = torch.stack([layer.draw(source) for _ in range(1_500)]).double()
    for row, dense in enumerate(covariance(layer)):
        spread = dense.diagonal()
        error = ((spread[:, None] * spread + dense.square()) / len(draws)).sqrt()
        assert ((draws[:, row].T.cov() - dense).abs() < 5 * error).all()
        assert ((draws[:, row].mean(0) - layer.mean[row].double()).abs() < 5 * (spread / len(draws)).sqrt()).all()


@pytest.fixture(scope="module")
def regression():
    """30 points in 3 dimensions with correlated inputs; the noise is known, and there is no bias."""
    random = np.random.default_rng(0)
    x = random.normal(size=(30, 3)) @ np.array([[1, 0.8, 0], [0, 1, -0.6], [0, 0, 1]])
    y = x @ [0.4, -0.8, 0.3] + NOISE * random.normal(size=30)
    return x.astype(np.float32), y.astype(np.float32)


def objective(regression, rank):
    """The loss of a linear layer whose bias is 0 and whose noise is known, and the layer."""
    x, y = (torch.from_numpy(values) for values in regression)
    batches = array_batches(*regression, len(y), 0, torch.device("cpu"))
    network = nn.Linear(3, 2)
    with torch.no_grad():
        network.weight[:], network.bias[:] = 0, torch.tensor([0, math.log(math.expm1(NOISE))])
    run = load_run(None, ["method.name=vbll", f"method.rank={rank}", "optimizer.reweight=none"], data="points")
    posterior = Vbll.build(network, run, Gaussian())
    with torch.no_grad():
        posterior.head.log_scale.fill_(0.5 * math.log(PRIOR))
    posterior.head.mean.register_hook(lambda gradient: gradient * torch.tensor([[1.0], [0.0]]))
    terms = Vbll.objective(posterior, batches, run, PRIOR)
    return lambda: sum(terms(x, y, BatchInfo.of(y)).values()), posterior


def minimised(loss, head):
    optimizer = torch.optim.LBFGS([head.mean, head.log_scale, head.root], max_iter=300, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    optimizer.step(closure)
    return loss().item()


def test_of_a_conjugate_regression_it_is_the_posterior_and_its_bound_the_evidence(regression):
    """With R = D any covariance is in the family; float32 and the stopping rule of L-BFGS: 1e-2 relative."""
    x, y = (values.astype(np.float64) for values in regression)
    evidence = multivariate_normal(np.zeros(30), NOISE**2 * np.eye(30) + PRIOR * x @ x.T).logpdf(y)
    exact = np.linalg.inv(x.T @ x / NOISE**2 + np.eye(3) / PRIOR)
    loss, posterior = objective(regression, 3)
    assert -30 * loss().item() < evidence - 1
    found = -30 * minimised(loss, posterior.head)
    assert found == pytest.approx(evidence, abs=2e-3)
    mean = posterior.head.mean[0].detach().numpy()
    assert np.allclose(mean, exact @ x.T @ y / NOISE**2, atol=2e-3)
    assert np.allclose(covariance(posterior.head)[0], exact, rtol=1e-2, atol=1e-4)


def test_a_smaller_rank_has_a_lower_bound_and_mean_field_the_inverse_of_the_precision_s_diagonal(regression):
    """float32 and the stopping rule of L-BFGS: 1e-2 relative."""
    x = regression[0].astype(np.float64)
    bounds = []
    for rank in (0, 1, 3):
        loss, posterior = objective(regression, rank)
        bounds.append(-30 * minimised(loss, posterior.head))
        if rank == 0:
            precision = (x.T @ x / NOISE**2 + np.eye(3) / PRIOR).diagonal()
            assert np.allclose(covariance(posterior.head)[0].diagonal(), 1 / precision, rtol=1e-2)
    assert bounds[0] < bounds[1] - 0.01
    assert bounds[1] < bounds[2] + 1e-3
