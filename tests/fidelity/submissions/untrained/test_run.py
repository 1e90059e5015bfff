"""Entries that train no network."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.fidelity.submissions.runner import run_entry
from retinabench.fidelity.submissions.submission import Budget, read_submission
from retinabench.fidelity.submissions.untrained import run as untrained
from retinabench.fidelity.targets.data import labels, load
from retinabench.fidelity.targets.target import TARGETS
from support.tiny_target import TEST, regression_target


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
