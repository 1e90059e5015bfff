"""HMC, NUTS, MCLMC, MAMS and MILE: their chains, known posteriors, and as entries of the fidelity benchmark."""

import numpy as np
import pytest
import torch
from scipy.special import expit
from torch import nn

from retinabench.core.errors import QUIET, InputError
from retinabench.data.loader import array_batches
from retinabench.fidelity import distances
from retinabench.fidelity.reference.reference_file import read_reference
from retinabench.fidelity.submissions.runner import run_entry
from retinabench.fidelity.submissions.submission import read_submission
from retinabench.fidelity.targets.data import load
from retinabench.fidelity.targets.density import Density
from retinabench.fidelity.targets.target import TARGETS
from retinabench.methods import chains
from retinabench.methods.chains import Counted, Prior
from retinabench.methods.registry import METHODS
from retinabench.methods.samplers import SAMPLERS
from retinabench.methods.settings import Optimizer, TrainingRun
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Bernoulli

TARGET = TARGETS["drawn-head"]


def test_each_chain_of_an_evaluation_counts_once():
    density = Density.of(TARGET, load(TARGET))
    counted = Counted(density)
    weights = Prior(TARGET.parameters, TARGET.prior_variance).starts(3, torch.Generator().manual_seed(0))
    value, gradient = counted(weights)
    assert counted.used == 3
    assert torch.allclose(counted.gradient(weights), gradient, atol=1e-4)  # sums in another order
    assert counted.used == 6
    assert torch.equal(value, density(weights)[0])


def test_the_starts_have_the_variance_of_the_prior():
    """1,000 draws of 45 weights: the standard error of the variance is .7 % of it."""
    draws = Prior(TARGET.parameters, TARGET.prior_variance).starts(1000, torch.Generator().manual_seed(1))
    assert draws.shape == (1000, TARGET.parameters)
    assert abs(float(draws.var()) / TARGET.prior_variance - 1) < 0.03


LOGISTIC = TARGETS["logistic"]
PRIOR = Prior(LOGISTIC.parameters, LOGISTIC.prior_variance)


def run(name, budget, density=None, prior=PRIOR):
    counted = Counted(density or Density.of(LOGISTIC, load(LOGISTIC)))
    generator = torch.Generator().manual_seed(0)
    with QUIET.track("chain", budget, unit="gradients") as advance:
        return chains.SAMPLERS[name](prior, counted, budget, generator, advance), counted.used


@pytest.mark.parametrize("name", chains.EXACT)
def test_the_first_three_tenths_are_dropped_and_no_trajectory_takes_more_than_a_twentieth(name):
    budget = 400
    kept, used = run(name, budget)
    assert used == budget
    assert len(kept) >= 0.7 * budget / (budget / 20) - 1
    assert len(kept) <= 0.7 * budget


@pytest.mark.parametrize("name", chains.EXACT)
def test_a_step_that_the_budget_does_not_find_leaves_the_start(name):
    """A gradient that the values contradict: every trial step is rejected, and each halving takes a gradient."""

    def contradicted(weights):
        return torch.zeros(len(weights)), torch.full_like(weights, 1e30)

    kept, used = run(name, 20, contradicted)
    assert used >= 20
    assert len(kept) == 1


def test_mclmc_keeps_a_state_of_every_gradient_after_the_first_three_tenths():
    kept, used = run("mclmc", 200)
    assert (len(kept), used) == (140, 200)


def test_mclmc_refuses_a_single_weight_which_has_no_direction_to_turn_to():
    with pytest.raises(InputError, match="at least two weights"):
        run("mclmc", 100, prior=Prior(1, 1.0))


STDS = torch.logspace(0, -2, 20)  # a Gaussian of condition 1e4
AXES = {
    "independent": torch.eye(20),
    "correlated": torch.linalg.qr(torch.randn(20, 20, generator=torch.Generator().manual_seed(1)))[0],
}


def narrow(axes):
    """Return the Gaussian along axes, less its prior N(0, I)."""
    precision = (axes.double() / STDS.double().square()) @ axes.double().T

    def log_likelihood(weights):
        slopes = weights.double() - weights.double() @ precision
        return 0.5 * (weights * slopes).sum(dim=1), slopes.to(weights.dtype)

    return log_likelihood


def test_scales_of_a_gaussian_are_exact_wherever_the_trace_is():
    weights = 3 + torch.randn(20, 20, generator=torch.Generator().manual_seed(0))
    trace = [(w, narrow(AXES["independent"])(w)[1]) for w in weights.split(1)]
    assert torch.allclose(chains.scale_of(trace, 1.0), STDS, rtol=1e-3)
    assert chains.scale_of(trace[:3], 1.0) is None


def test_a_matrix_of_scales_is_the_root_of_a_gaussian_s_covariance():
    axes = AXES["correlated"]
    weights = 3 + torch.randn(200, 20, generator=torch.Generator().manual_seed(0))
    found = chains.scale_of([(w, narrow(axes)(w)[1]) for w in weights.split(1)], 1.0)
    within = (axes / STDS).T @ found  # orthogonal, but for the rounding of slopes in single precision
    assert torch.allclose(within @ within.T, torch.eye(20), atol=0.005)


@pytest.mark.parametrize("name", chains.SAMPLERS)
def test_a_gaussian_of_condition_ten_thousand_is_known_from_two_thousand_gradients(name):
    """With one step for all weights, the mean errors were .2 stds and more with five times the gradients."""
    axes = AXES["correlated"]  # the matrix of scales turns them to independent ones
    kept, used = run(name, 2000, narrow(axes), Prior(20, 1.0))
    draws = torch.cat(kept) @ axes
    assert used <= 2000
    assert float((draws.mean(dim=0) / STDS).abs().mean()) < 0.12
    assert float((draws.std(dim=0) / STDS).log().abs().mean()) < 0.1


N, L2 = 40, 0.1  # the prior says as much as the points: a wrong one shifts the mean by a std
VARIANCE = 1 / (2 * N * L2)


def settings(name):
    return {"name": "mclmc", "adjusted": True} if name == "mams" else {"name": name}


def draws(name, network, x, y, likelihood, gradients=1000, **optimizer):
    method = {**settings(name), "gradients": gradients, "samples": gradients}
    run = TrainingRun(method=method, optimizer=Optimizer(l2=L2, augment="none", **optimizer))
    batches = array_batches(x, y, 20, 0, torch.device("cpu"))
    posterior = METHODS[run.method.name].fit(network, batches, run, Checkpoint(), likelihood)
    names = [name for name, _ in network.named_parameters()]
    return torch.stack([torch.cat([one[n].flatten() for n in names]) for one in posterior.samples]).double().numpy()


@pytest.mark.parametrize(
    ("name", "optimizer"), [("nuts", {"l2_on": "weights"}), ("mclmc", {"l2_on": "everything", "reweight": "constant"})]
)
def test_two_weights_of_a_logistic_regression_are_those_of_quadrature(name, optimizer):
    random = np.random.default_rng(0)
    x = random.normal(size=(N, 1)).astype(np.float32)
    y = (random.random(N) < expit(1.5 * x[:, 0] - 1)).astype(np.float32)
    found = draws(name, nn.Linear(1, 1), x, y, Bernoulli(), **optimizer)
    assert len(found) == 1000  # however few its states are, so that folds can be joined

    weight, bias = np.meshgrid(*[np.linspace(-8, 8, 801)] * 2, indexing="ij")
    share = y.mean()
    of_class = np.where(y == 1, 0.5 / share, 0.5 / (1 - share)) if "reweight" in optimizer else np.ones(N)
    log = -(weight**2 + bias**2 * (optimizer["l2_on"] == "everything")) / (2 * VARIANCE)
    for x_n, y_n, c in zip(x[:, 0], y, of_class, strict=True):
        log -= c * np.logaddexp(0, (1 - 2 * y_n) * (weight * x_n + bias))
    p = np.exp(log - log.max())
    p /= p.sum()
    mean = np.array([(p * weight).sum(), (p * bias).sum()])
    square = np.array([(p * weight**2).sum(), (p * bias**2).sum()])
    std = np.sqrt(square - mean**2)
    # Four standard errors of 75 independent draws. The seed is 0, but the order of a sum, as of other threads, makes another chain.
    assert (np.abs(found.mean(axis=0) - mean) < 4 / 75**0.5 * std).all()
    assert (np.abs(found.std(axis=0) / std - 1) < 4 / 150**0.5).all()


def test_a_flat_prior_is_refused():
    x, y = np.zeros((4, 1), np.float32), np.zeros(4, np.float32)
    run = TrainingRun(method="nuts", optimizer=Optimizer(l2=0))
    batches = array_batches(x, y, 4, 0, torch.device("cpu"))
    with pytest.raises(InputError, match="needs a prior"):
        METHODS["nuts"].fit(nn.Linear(1, 1), batches, run, Checkpoint(), Bernoulli())


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_draws_come_closer_with_the_budget_which_is_never_exceeded(name, tmp_path):
    """By quadrature: .21 is the distance of one draw; with 700 gradients all are within .06, seed 0."""
    data = load(LOGISTIC)
    truth = read_reference(LOGISTIC, data.sha256).probs
    for budget, most in ((100, 0.2), (700, 0.06)):
        file = run_entry(name, LOGISTIC, budget=budget, out=tmp_path)
        found = read_submission(file, LOGISTIC, len(data.test), data.sha256)
        assert found.about.budget.used <= budget
        assert distances.total_variation(found.probs, truth).mean() < most


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_budget_of_twenty_suffices_and_less_is_refused(name, tmp_path):
    for budget in (20, 29):
        assert run_entry(name, LOGISTIC, budget=budget, out=tmp_path).is_file()
    with pytest.raises(InputError, match="budget of at least 20"):
        run_entry(name, LOGISTIC, budget=19, out=tmp_path)


@pytest.mark.parametrize("name", ["nuts", "mclmc"])
def test_a_run_is_repeated_bit_for_bit_and_says_what_it_took(name, tmp_path):
    data = load(LOGISTIC)
    files = [run_entry(name, LOGISTIC, budget=60, out=tmp_path / folder) for folder in "ab"]
    first, again = (read_submission(file, LOGISTIC, len(data.test), data.sha256) for file in files)
    assert np.array_equal(first.probs, again.probs)
    assert first.about.counted
    assert 30 < first.about.budget.used <= 60
    assert first.about.implied.how == METHODS[name].Config().target_posterior(Optimizer(l2_on="everything"), 60).how
    assert first.track(LOGISTIC) == "stated"
    assert run_entry(name, LOGISTIC, budget=80, out=tmp_path / "a") != files[0]  # each tier has its own
