"""One chain under the budget: it counts what it takes, and comes closer as the budget grows."""

import numpy as np
import pytest

from retinabench.core.progress import QUIET
from retinabench.fidelity import distances
from retinabench.fidelity.reference.reference_file import read_reference
from retinabench.fidelity.submissions.runner import run_entry
from retinabench.fidelity.submissions.submission import read_submission
from retinabench.fidelity.submissions.untrained import exact_samplers
from retinabench.fidelity.targets.data import load
from retinabench.fidelity.targets.registry import TARGETS

LOGISTIC = TARGETS["logistic"]


@pytest.mark.parametrize("name", exact_samplers.SAMPLERS)
def test_the_chain_comes_closer_with_its_budget_and_never_exceeds_it(name):
    """By quadrature: .21 is the distance of one draw; with 1,500 gradients both are within .03, seed 0."""
    data = load(LOGISTIC)
    truth = read_reference(LOGISTIC, data.sha256).probs
    for budget, most in ((30, 0.25), (1500, 0.03)):
        values, used = exact_samplers.sample(name, LOGISTIC, data, budget, 0, QUIET)
        assert used <= budget
        assert distances.total_variation(values.mean(axis=0), truth).mean() < most


def test_a_run_is_repeated_bit_for_bit_and_says_what_it_took(tmp_path):
    data = load(LOGISTIC)
    files = [run_entry("nuts", LOGISTIC, budget=60, out=tmp_path / name) for name in "ab"]
    first, again = (read_submission(file, LOGISTIC, len(data.test), data.sha256) for file in files)
    assert np.array_equal(first.probs, again.probs)
    assert first.about.counted
    assert 30 < first.about.budget.used <= 60
    assert first.track(LOGISTIC) == "stated"
    assert run_entry("nuts", LOGISTIC, budget=80, out=tmp_path / "a") != files[0]  # each tier has its own
