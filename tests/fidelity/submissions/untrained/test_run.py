"""Entries that train no network."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.core.progress import QUIET
from retinabench.fidelity import distances
from retinabench.fidelity.reference.reference_file import read_reference
from retinabench.fidelity.submissions.runner import run_entry
from retinabench.fidelity.submissions.submission import Budget, read_submission
from retinabench.fidelity.submissions.untrained import run as untrained
from retinabench.fidelity.targets.data import labels, load
from retinabench.fidelity.targets.target import TARGETS
from support.tiny_target import TEST, regression_target

LOGISTIC = TARGETS["logistic"]


def test_the_infinite_width_limit_is_no_network_and_counts_its_likelihood(monkeypatch, tmp_path):
    target = regression_target()
    file = run_entry("nngp", target, budget=5, out=tmp_path)
    submission = read_submission(file, target, TEST, load(target).sha256)
    assert submission.draws.shape == (TEST, 1000)
    used = submission.about.budget.used
    assert submission.about.budget == Budget(limit=None, used=used)
    assert used > 4 * (60 + 50)  # four chains of 60 transitions and 50, several evaluations each
    assert submission.track(target) == "infinite"
    # The line of the tiny target, noise 0.1 of a deviation of 1, is learnt.
    truth = labels(load(target))[1]
    assert np.abs(submission.draws.mean(axis=1) - truth).mean() < 0.5 * np.abs(truth).mean()
    with monkeypatch.context() as patch:
        patch.setattr(untrained.infinite_width, "sample", None)  # nothing is computed twice
        assert run_entry("nngp", target, budget=5, out=tmp_path) == file
    with pytest.raises(InputError, match="has no settings"):
        run_entry("nngp", target, budget=5, out=tmp_path, overrides=["optimizer.lr=1"])
    with pytest.raises(InputError, match="infinite-width limit of 'lenet-smooth' is not known"):
        run_entry("nngp", TARGETS["fundus"], budget=5, out=tmp_path)


@pytest.mark.parametrize("name", untrained.SAMPLERS)
def test_the_draws_come_closer_with_the_budget_which_is_never_exceeded(name):
    """By quadrature: .21 is the distance of one draw; with 1,500 gradients all are within .04, seed 0."""
    data = load(LOGISTIC)
    truth = read_reference(LOGISTIC, data.sha256).probs
    for budget, most in ((100, 0.2), (1500, 0.04)):
        values, used = untrained.sample(name, LOGISTIC, data, budget, 0, QUIET)
        assert used <= budget
        assert np.allclose(values.sum(axis=2), 1, atol=1e-5)
        assert distances.total_variation(values.mean(axis=0), truth).mean() < most


@pytest.mark.parametrize("name", untrained.SAMPLERS)
def test_a_budget_of_twenty_suffices_and_less_is_refused(name, tmp_path):
    for budget in (20, 29):
        values, used = untrained.sample(name, LOGISTIC, load(LOGISTIC), budget, 0, QUIET)
        assert len(values) > 0
        assert used <= budget
    with pytest.raises(InputError, match="budget of at least 20"):
        run_entry(name, LOGISTIC, budget=19, out=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["nuts", "mclmc"])
def test_a_run_is_repeated_bit_for_bit_and_says_what_it_took(name, tmp_path):
    data = load(LOGISTIC)
    files = [run_entry(name, LOGISTIC, budget=60, out=tmp_path / folder) for folder in "ab"]
    first, again = (read_submission(file, LOGISTIC, len(data.test), data.sha256) for file in files)
    assert np.array_equal(first.probs, again.probs)
    assert first.about.counted
    assert 30 < first.about.budget.used <= 60
    assert first.about.implied.how == untrained.HOW[name]
    assert first.track(LOGISTIC) == "stated"
    assert run_entry(name, LOGISTIC, budget=80, out=tmp_path / "a") != files[0]  # each tier has its own
