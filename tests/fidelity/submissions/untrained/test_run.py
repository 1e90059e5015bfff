"""Entries that train no network."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.fidelity.submissions.runner import run_entry
from retinabench.fidelity.submissions.submission import Budget, read_submission
from retinabench.fidelity.submissions.untrained import run as untrained
from retinabench.fidelity.targets.data import labels, load
from support.tiny_target import TEST, classification_target, regression_target


def submission_of(file, target):
    return read_submission(file, target, TEST, load(target).sha256)


def test_the_infinite_width_limit_needs_no_training(monkeypatch, tmp_path):
    target = regression_target()
    file = run_entry("nngp", target, budget=5, out=tmp_path)
    submission = submission_of(file, target)
    assert submission.draws.shape == (TEST, 1000)
    assert submission.about.budget == Budget(limit=5, used=0.0, over=False)
    # The line of the tiny target, noise 0.1 of a deviation of 1, is learnt.
    truth = standardised_truth(target)
    assert np.abs(submission.draws.mean(axis=1) - truth).mean() < 0.5 * np.abs(truth).mean()
    with monkeypatch.context() as patch:
        patch.setitem(untrained.UNTRAINED, "nngp", None)  # nothing is computed twice
        assert run_entry("nngp", target, budget=5, out=tmp_path) == file
    with pytest.raises(InputError, match="has no settings"):
        run_entry("nngp", target, budget=5, out=tmp_path, overrides=["optimizer.lr=1"])
    images = classification_target()
    with pytest.raises(InputError, match="infinite-width limit of 'lenet-smooth' is not known"):
        run_entry("nngp", images, budget=5, out=tmp_path)


def standardised_truth(target):
    return labels(load(target))[1]
