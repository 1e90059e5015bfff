"""Quadrature against one dimension in closed form, and Hamiltonian Monte Carlo against quadrature."""

from dataclasses import replace

import numpy as np
import pytest

from retinabench.fidelity.reference.make_reference import make_reference
from retinabench.fidelity.reference.quadrature import PROBLEMS, known, quadrature_reference
from retinabench.fidelity.reference.reference_file import judge, read_reference
from retinabench.fidelity.targets.data import load
from retinabench.fidelity.targets.target import TARGETS


@pytest.fixture
def coarse(monkeypatch):
    """Few grid points: enough for 1e-4."""
    for network, steps in (("head-2", (61, 51)), ("banana", (121, 101))):
        monkeypatch.setitem(PROBLEMS, network, replace(PROBLEMS[network], steps=steps))


@pytest.mark.parametrize("name", ["logistic", "banana"])
def test_the_shipped_reference_is_that_of_the_grid(coarse, name):
    target = TARGETS[name]
    data = load(target)
    assert known(target)
    shipped = read_reference(target, data.sha256)
    assert shipped.judgement.verdict == "passed"
    found = quadrature_reference(target, data)
    assert np.abs(found.probs - shipped.probs).max() < 1e-3


def test_the_posterior_without_information_is_the_prior_s_prediction(coarse):
    """Where b alone varies the logit is v b; far from the data only the prior and the bent ridge matter, and P is symmetric."""
    target = TARGETS["banana"]
    data = load(target)
    found = quadrature_reference(target, data).probs[:, 1]
    along = data.test.groups == "along"
    # v and -v have the same density, so that P at b and at -b sum to 1.
    assert found[along] + found[along][::-1] == pytest.approx(np.ones(along.sum()), abs=1e-9)


@pytest.mark.parametrize(("name", "step", "keep"), [("logistic", 0.25, 100), ("banana", 0.2, 50)])
def test_hamiltonian_chains_agree_with_quadrature(tmp_path, name, step, keep):
    """Five standard errors of each probability at most, 4 chains, seed 1."""
    target = TARGETS[name]
    data = load(target)
    truth = read_reference(target, data.sha256).probs
    made = make_reference(target, data, tmp_path, chains=4, burn_in=20, keep=keep, step=step, seed=1)
    assert (np.abs(made.probs - truth) < 5 * made.mcse + 1e-4).all()


def test_grids_that_disagree_give_no_ranking():
    target = TARGETS["logistic"]
    shipped = read_reference(target, load(target).sha256)
    moved = shipped.chain_probs + np.array([[[0.0, 0.0]], [[0.01, -0.01]]])
    found = judge(replace(shipped, chain_probs=moved))
    assert found.verdict == "failed"
    assert "two grids differ by 0.01" in found.why[0]
