"""Targets as functions of their weights: against the density in PyTorch, finite differences, and JAX where it is installed."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import check_grad

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.fidelity.problems import Problem
from retinabench.fidelity.targets.data import load
from retinabench.fidelity.targets.density import Density
from retinabench.fidelity.targets.target import TARGETS
from support.tiny_target import regression_target
from support.traced import Traced, TracedNumPy

NAMES = ("logistic", "banana", "idrid-head", "idrid-head-mlp", "idrid-head-binary", "idrid-head-552", "drawn-head-mlp")
CASES = [*(pytest.param(TARGETS[name], id=name) for name in NAMES), pytest.param(regression_target(), id="regression")]


def draws_of(problem, count=3):
    scale = np.sqrt(problem.prior_variance)
    return scale * np.random.default_rng(0).standard_normal((count, problem.dimension))


@pytest.mark.parametrize("target", CASES)
def test_density_gradient_and_predictions_are_those_of_the_target_in_pytorch(target):
    problem = Problem(target)
    weights = draws_of(problem)
    density = Density.of(target, load(target), dtype=torch.float64)
    w = torch.from_numpy(weights)
    value, gradient = density(w)
    value = value - w.square().sum(dim=1) / (2 * target.prior_variance)
    assert problem.log_density(weights) == pytest.approx(value.numpy(), rel=1e-8)
    expected = (gradient - w / target.prior_variance).numpy()
    assert problem.gradient(weights) == pytest.approx(expected, rel=1e-8, abs=1e-8 * np.abs(expected).max())
    assert problem.predict(weights) == pytest.approx(density.predict(w).numpy(), abs=1e-6)  # those are float32
    assert problem.log_density(weights[0]) == pytest.approx(float(value[0]), rel=1e-8)  # one w, and many


@pytest.mark.parametrize("target", CASES)
def test_the_gradient_is_the_slope_of_the_density(target):
    """By finite differences of a step of 1e-6, whose rounding is 1e-16 of the value over the step."""
    problem = Problem(target)
    (w,) = draws_of(problem, 1)
    error = check_grad(problem.log_density, problem.gradient, w, epsilon=1e-6)
    assert error < 1e-4 * np.linalg.norm(problem.gradient(w)) + 1e-4


@pytest.mark.parametrize("target", CASES)
def test_the_density_uses_the_functions_of_the_namespace_alone(target):
    problem = Problem(target)
    weights = draws_of(problem)
    traced = problem.log_density(Traced(weights), TracedNumPy())
    assert traced.values == pytest.approx(problem.log_density(weights))
    with pytest.raises(TypeError):
        np.exp(Traced(weights))  # what a stray function of NumPy gives


def test_exact_draws_are_submitted_and_stand_among_the_shipped_entries(tmp_path):
    """Rejection from the prior of `logistic`: independent draws of the posterior, .21 / √S away."""
    problem = rb.fidelity.problem("logistic")
    random = np.random.default_rng(0)
    proposed = random.standard_normal((60_000, 6))
    values = problem.log_density(proposed) + 0.5 * (proposed**2).sum(axis=1)
    draws = proposed[np.log(random.random(len(values))) < values - values.max()]
    assert len(draws) > 100
    submitted = problem.submit(draws, gradients=len(proposed) / 1000, method="rejection", out=tmp_path / "runs")
    row = submitted.row
    assert row["total_variation"] < 0.02
    assert row["agreement"] > 0.95
    assert row["variance_ratio"] == pytest.approx(1, abs=0.2)
    assert submitted.title in str(submitted)
    shown = str(submitted)
    assert "NUTS, one chain" in shown
    assert "MAP" in shown


@pytest.mark.parametrize("draws", [np.zeros((4, 5)), np.zeros(6), np.full((4, 6), np.nan), np.zeros((0, 6))])
def test_what_are_no_draws_of_the_weights_is_refused(draws, tmp_path):
    with pytest.raises(InputError, match=r"needed are finite numbers \(S, 6\)"):
        rb.fidelity.problem("logistic").submit(draws, gradients=10, method="m", out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_target_of_many_weights_is_refused_with_those_that_are_known():
    for name in ("fundus", "kit-uci"):
        with pytest.raises(InputError, match="is not written in NumPy") as refused:
            rb.fidelity.problem(name)
        assert "idrid-head" in str(refused.value)


@pytest.mark.parametrize("library", ["BlackJAX", "NumPyro"])
def test_the_example_of_a_library_runs_where_it_is_installed(library, tmp_path):
    pytest.importorskip(library.lower())
    file = Path(__file__).resolve().parents[2] / "examples" / "fidelity" / f"{library.lower()}_nuts.py"
    done = subprocess.run([sys.executable, str(file)], check=True, cwd=tmp_path, capture_output=True, text=True)
    assert f"{library} NUTS" in done.stdout
    assert "(here)" in done.stdout  # in the next line of the cell


@pytest.mark.parametrize("target", CASES)
def test_jax_traces_and_differentiates_the_density(target):
    jax, jnp = pytest.importorskip("jax"), pytest.importorskip("jax.numpy")
    jax.config.update("jax_enable_x64", True)
    problem = Problem(target)
    (w,) = draws_of(problem, 1)
    value, slope = jax.jit(jax.value_and_grad(lambda w: problem.log_density(w, jnp)))(w)
    assert float(value) == pytest.approx(problem.log_density(w), rel=1e-8)
    assert np.asarray(slope) == pytest.approx(problem.gradient(w), rel=1e-6, abs=1e-8)
