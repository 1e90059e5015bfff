"""Densities whose moments are known: their truth against independent integration, and what is concluded of right and of biased draws."""

import json
import re

import numpy as np
import pytest
from scipy import integrate, optimize, stats

import retinabench as rb
from retinabench.cli.main import run
from retinabench.core.errors import InputError
from retinabench.fidelity.densities.density import SCHOOLS, density_names, find_density
from retinabench.fidelity.densities.moments import moments_of
from support.traced import Traced, TracedNumPy

NAMES = density_names()


def exact(name, count, random):
    """Independent draws, (count, P)."""
    known = find_density(name)
    w = random.standard_normal((count, known.dimension))
    if name.startswith("gaussian"):
        w *= known.data["stds"]
        return w @ np.transpose(known.data["axes"]) if "axes" in known.data else w
    if name == "funnel":
        w[:, 0] *= 3
        w[:, 1:] *= np.exp(w[:, :1] / 2)
    if name == "mixture":
        w[:, 0] += np.where(random.random(count) < 1 / 3, -4, 4)
    if name.startswith("eight"):
        y, variance = (np.array(SCHOOLS["y"]), np.square(SCHOOLS["sigma"]))
        grid = np.linspace(-14, 5, 4001)
        density, mean, width = of_log_tau(grid)
        place = random.choice(len(grid), count, p=density / density.sum())
        tau = np.exp(grid[place] + (random.random(count) - 0.5) * (grid[1] - grid[0]))[:, None]
        mu = (mean[place] + np.sqrt(width[place]) * w[:, 0])[:, None]
        centre, narrow = (mu * variance + y * tau**2) / (variance + tau**2), variance * tau**2 / (variance + tau**2)
        theta = centre + np.sqrt(narrow) * w[:, 2:]
        w = np.concatenate([mu, np.log(tau), theta if "centred" in name else (theta - mu) / tau], axis=1)
    return w


def of_log_tau(log_tau):
    """Return the density of log tau with mu integrated out, and mean and variance of mu given it (Gelman et al. 2013, section 5.4)."""
    y, tau = np.array(SCHOOLS["y"]), np.exp(np.atleast_1d(log_tau))[:, None]
    total = np.square(SCHOOLS["sigma"]) + tau**2
    width = 1 / ((1 / total).sum(axis=1) + 1 / 25)
    mean = width * (y / total).sum(axis=1)
    log = 0.5 * np.log(width) + 0.5 * mean**2 / width - 0.5 * (np.log(total) + y**2 / total).sum(axis=1)
    return np.exp(log + 30) * tau[:, 0] / (1 + tau[:, 0] ** 2 / 25), mean, width


@pytest.mark.parametrize("name", NAMES)
def test_gradient_namespace_and_program_agree_with_the_density(name):
    problem = rb.fidelity.problem(name)
    weights = 0.5 * problem.start * np.random.default_rng(0).standard_normal((3, problem.dimension))
    values = problem.log_density(weights)
    for w in weights:
        error = optimize.check_grad(problem.log_density, problem.gradient, w, epsilon=1e-6)
        assert error < 1e-4 * np.linalg.norm(problem.gradient(w))
    assert problem.gradient(weights)[1] == pytest.approx(problem.gradient(weights[1]))
    assert problem.log_density(Traced(weights), TracedNumPy()).values == pytest.approx(values)
    program = {}
    exec(problem.python, program)
    function = program[re.search(r"def (\w+)", problem.python)[1]]
    data = json.loads(json.dumps(problem.data))
    assert function(weights, np, **data) == pytest.approx(values)
    declared = re.search(r"data \{(.*?)\}\nparameters", problem.stan, re.DOTALL)
    assert set(data) == set(re.findall(r"(\w+);", declared[1] if declared else ""))


def test_closed_forms_are_those_of_scipy():
    random = np.random.default_rng(0)
    for name in ("gaussian", "gaussian-correlated"):
        known = find_density(name)
        w, stds = exact(name, 4, random), np.array(known.data["stds"])
        axes = np.array(known.data.get("axes", np.eye(50)))
        law = stats.multivariate_normal(np.zeros(50), axes @ np.diag(stds**2) @ axes.T)
        assert np.diff(known.log_density(w)) == pytest.approx(np.diff(law.logpdf(w)), rel=1e-6)
        assert moments_of(exact(name, 1000, random), known, 1000).verdict == "unbiased"
        assert stds.max() ** 2 / stds.min() ** 2 == pytest.approx(1e4)
    w = exact("funnel", 4, random)
    logs = stats.norm.logpdf(w[:, 0], 0, 3) + stats.norm.logpdf(w[:, 1:], 0, np.exp(w[:, :1] / 2)).sum(axis=1)
    assert np.diff(find_density("funnel").log_density(w)) == pytest.approx(np.diff(logs))


def test_the_moments_of_the_mixture_are_its_integrals():
    known = find_density("mixture")

    def expected(power, centre=0.0, low=-15.0):
        def density(x):
            return (x - centre) ** power * np.exp(known.log_density(np.append(x, np.zeros(9))))

        return integrate.quad(density, low, 15, points=(-4, 0, 4))[0]

    mean = expected(1) / expected(0)
    variance, fourth = (expected(power, mean) / expected(0) for power in (2, 4))
    assert known.truth.mean[0] == pytest.approx(mean)
    assert known.truth.std[0] == pytest.approx(np.sqrt(variance))
    assert known.truth.of_squares[0] == pytest.approx(np.sqrt(fourth / variance**2 - 1))
    assert known.modes[1] == pytest.approx(expected(0, low=0.0) / expected(0))


@pytest.mark.parametrize("name", ["eight-schools", "eight-schools-centred"])
def test_the_moments_of_eight_schools_are_those_with_mu_integrated_out(name):
    def expected(function):
        return integrate.quad(lambda t: float(function(t, *(part[0] for part in of_log_tau(t)))), -24, 6, limit=200)[0]

    total = expected(lambda t, p, *_: p)
    mu = expected(lambda t, p, m, v: p * m) / total
    log_tau = expected(lambda t, p, *_: p * t) / total
    truth = find_density(name).truth
    assert truth.mean[:2] == pytest.approx([mu, log_tau], abs=1e-6)
    assert truth.std[0] ** 2 == pytest.approx(expected(lambda t, p, m, v: p * ((m - mu) ** 2 + v)) / total)
    assert truth.of_squares[1] == pytest.approx(
        np.sqrt(expected(lambda t, p, *_: p * (t - log_tau) ** 4) / total / truth.std[1] ** 4 - 1)
    )

    def first_effect(t, p, m, v):
        shrunk = 225 / (225 + np.exp(2 * t))
        return p * (shrunk * m + (1 - shrunk) * 28)

    assert truth.mean[2] == pytest.approx(expected(first_effect) / total, abs=1e-6)


def test_the_moments_of_the_logistic_regression_are_those_of_independent_importance_sampling():
    """Within 5 standard errors of 40,000 draws of another proposal."""
    known = find_density("logistic-regression")
    found = optimize.minimize(lambda w: -known.log_density(w), np.zeros(11), jac=lambda w: -known.gradient(w))
    law = stats.multivariate_t(found.x, 1.2 * found.hess_inv, df=6, seed=0)
    w = law.rvs(40_000)
    logs = known.log_density(w) - law.logpdf(w)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    z, truth = (w - known.truth.mean) / known.truth.std, known.truth
    error = 5 * np.sqrt(np.square(weights).sum()) + 5 * truth.error
    assert weights @ z == pytest.approx(np.zeros(11), abs=error)
    assert (weights @ z**2 - 1) / truth.of_squares == pytest.approx(np.zeros(11), abs=error)
    assert truth.error < 0.005


@pytest.mark.parametrize("name", [name for name in NAMES if name not in {"gaussian-correlated", "logistic-regression"}])
def test_exact_draws_are_called_unbiased(name):
    """At the level of .1 %, 1,000 independent draws: in at least 9 of 10 seeds."""
    known = find_density(name)
    found = [moments_of(exact(name, 1000, np.random.default_rng(seed)), known, 1000) for seed in range(10)]
    assert sum(one.verdict == "unbiased" for one in found) >= 9
    assert np.mean([one.ess_per_gradient for one in found]) == pytest.approx(0.85, abs=0.15)


def langevin(step, count, *, adjusted, seed=0):
    """A chain on the Gaussian by the Langevin equation, in units of the stds; its variance is 1 / (1 - step / 4) without adjustment."""
    known, random = find_density("gaussian"), np.random.default_rng(seed)
    stds = np.array(known.data["stds"])
    w, kept = stds * random.standard_normal(50), np.empty((count, 50))

    def log_move(to, start):
        ahead = start + 0.5 * step * stds**2 * known.gradient(start)
        return -0.5 * np.square((to - ahead) / stds).sum() / step

    for k in range(count):
        moved = w + 0.5 * step * stds**2 * known.gradient(w) + np.sqrt(step) * stds * random.standard_normal(50)
        if adjusted:
            odds = known.log_density(moved) - known.log_density(w) + log_move(w, moved) - log_move(moved, w)
            moved = moved if np.log(random.random()) < odds else w
        w = kept[k] = moved
    return kept


def test_a_step_that_is_too_large_is_called_biased_and_its_correction_is_not():
    known = find_density("gaussian")
    biased = moments_of(langevin(0.5, 3000, adjusted=False), known, 3000)
    assert biased.verdict == "biased"
    assert biased.mean_bias_of_variance == pytest.approx(0.143, abs=0.03)
    assert re.fullmatch(
        r"z of \d+\.\d on the variance of coordinate \d+ \(bias \+0\.\d+\): the draws are biased", biased.conclusion
    )
    right = moments_of(langevin(0.15, 3000, adjusted=True), known, 3000)
    assert right.verdict != "biased"


def test_a_chain_that_stays_in_one_mode_is_called_biased_with_the_weights_that_it_has():
    draws = np.random.default_rng(0).standard_normal((2000, 10)) + np.eye(10)[0] * 4
    found = moments_of(draws, find_density("mixture"), 2000)
    assert found.verdict == "biased"
    assert found.modes == pytest.approx((0, 1), abs=1e-3)


def test_chains_that_disagree_show_nothing():
    shifts = np.linspace(-0.4, 0.4, 4)[:, None, None]
    draws = 0.9 * np.random.default_rng(0).standard_normal((4, 60, 50)) + shifts
    found = moments_of(draws * find_density("gaussian").data["stds"], find_density("gaussian"), 240)
    assert found.verdict == "too few draws"
    assert "R-hat" in found.conclusion


def test_draws_are_scored_listed_and_shown_by_the_commands(tmp_path, capsys):
    out, draws = tmp_path / "runs", exact("funnel", 1000, np.random.default_rng(1))
    submitted = rb.fidelity.problem("funnel").submit(draws, gradients=4000, method="exact [mine]", out=out)
    assert "exact [mine] (here)" in str(submitted)
    assert submitted.row["verdict"] == "unbiased"
    half = tmp_path / "half.npz"
    np.savez(half, draws=draws[np.abs(draws[:, 0]) < 2])
    report = tmp_path / "found.json"
    assert run(["fidelity", "score", str(half), str(submitted.path), "--task", "funnel", "--json", str(report)]) == 0
    found = json.loads(report.read_text())
    assert {title: runs[0]["verdict"] for title, runs in found["runs"].items()} == {
        "half": "biased",
        "exact [mine]": "unbiased",
    }
    assert found["runs"]["half"][0]["moment"] == "variance of v"
    assert "the draws are biased" in " ".join(capsys.readouterr().out.split())
    assert run(["fidelity", "run", "nuts", "--task", "gaussian", "--budget", "600", "--out", str(out), "--quiet"]) == 0
    assert run(["fidelity", "board", str(out), "--out", str(tmp_path / "board")]) == 0
    page = (tmp_path / "board" / "index.html").read_text()
    assert "Neal&#39;s funnel: no bias of exact [mine] is seen" in page
    assert "exact [mine]: unbiased as far as" in page
    assert "Gaussian of condition 1e4, independent" in page
    assert {one["density"] for one in json.loads((tmp_path / "board" / "board.json").read_text())["densities"]} == {
        "funnel",
        "gaussian",
    }
    capsys.readouterr()
    assert run(["fidelity", "tasks", "--json", "-"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert set(NAMES) <= set(listed)
    assert run(["fidelity", "score", str(submitted.path), "--task", "mixture"]) == 2


@pytest.mark.parametrize("draws", [np.zeros((100, 3)), np.full((100, 10), np.nan), np.zeros((7, 10))])
def test_what_are_no_draws_is_refused(draws, tmp_path):
    with pytest.raises(InputError, match=r"needed are finite numbers \(chains, draws, 10\)"):
        rb.fidelity.problem("funnel").submit(draws, method="m", out=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_jax_traces_and_differentiates_a_density(name):
    jax, jnp = pytest.importorskip("jax"), pytest.importorskip("jax.numpy")
    jax.config.update("jax_enable_x64", True)
    problem = rb.fidelity.problem(name)
    w = 0.5 * np.random.default_rng(0).standard_normal(problem.dimension)
    slope = jax.jit(jax.grad(lambda w: problem.log_density(w, jnp)))(w)
    assert np.asarray(slope) == pytest.approx(problem.gradient(w), rel=1e-6, abs=1e-8)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of PyStan
@pytest.mark.parametrize("name", NAMES)
def test_stan_compiles_the_text_of_a_density_and_agrees(name):
    """Up to a constant, at 20 points; PyStan takes minutes to compile one. Both are sums of float64: observed are 1e-15, relative."""
    stan = pytest.importorskip("stan", reason="PyStan is not installed")
    problem = rb.fidelity.problem(name)
    model = stan.build(problem.stan, data=problem.data)
    weights = 0.5 * problem.start * np.random.default_rng(0).standard_normal((20, problem.dimension))
    values = np.array([model.log_prob(w) for w in weights.tolist()]) - problem.log_density(weights)
    assert values == pytest.approx(
        np.full(20, values[0]), rel=1e-12, abs=1e-12 * np.abs(problem.log_density(weights)).max()
    )
    slopes = np.array([model.grad_log_prob(w) for w in weights.tolist()])
    assert slopes == pytest.approx(problem.gradient(weights), rel=1e-10, abs=1e-12 * np.abs(slopes).max())
