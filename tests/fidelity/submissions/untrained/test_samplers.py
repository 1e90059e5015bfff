"""The sampling entries under the budget: they count what they take, and come closer as the budget grows."""

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.core.progress import QUIET
from retinabench.fidelity import distances
from retinabench.fidelity.reference.reference_file import read_reference
from retinabench.fidelity.submissions.runner import run_entry
from retinabench.fidelity.submissions.submission import read_submission
from retinabench.fidelity.submissions.untrained import samplers
from retinabench.fidelity.targets.data import load
from retinabench.fidelity.targets.registry import TARGETS

LOGISTIC = TARGETS["logistic"]


@pytest.mark.parametrize("name", samplers.SAMPLERS)
def test_the_draws_come_closer_with_the_budget_which_is_never_exceeded(name):
    """By quadrature: .21 is the distance of one draw; with 1,500 gradients all are within .04, seed 0."""
    data = load(LOGISTIC)
    truth = read_reference(LOGISTIC, data.sha256).probs
    for budget, most in ((100, 0.2), (1500, 0.04)):
        values, used = samplers.sample(name, LOGISTIC, data, budget, 0, QUIET)
        assert used <= budget
        assert np.allclose(values.sum(axis=2), 1, atol=1e-5)
        assert distances.total_variation(values.mean(axis=0), truth).mean() < most


@pytest.mark.parametrize("name", samplers.SAMPLERS)
@pytest.mark.parametrize("budget", [20, 29])
def test_the_least_budgets_suffice(name, budget):
    values, used = samplers.sample(name, LOGISTIC, load(LOGISTIC), budget, 0, QUIET)
    assert len(values) > 0
    assert used <= budget


@pytest.mark.parametrize("name", samplers.SAMPLERS)
def test_a_budget_that_is_too_small_is_refused(name, tmp_path):
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
    assert first.about.implied.how == samplers.HOW[name]
    assert first.track(LOGISTIC) == "stated"
    assert run_entry(name, LOGISTIC, budget=80, out=tmp_path / "a") != files[0]  # each tier has its own
