"""The samplers as methods: their samples are those of a known posterior, and are kept on disk."""

from __future__ import annotations

import filecmp
import math

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run
from retinabench.experiments.resources import Resources
from retinabench.experiments.run import execute
from retinabench.methods.posteriors.collected import (
    evenly_spaced,
)
from retinabench.methods.training.checkpoint import Checkpoint
from support.helpers import TINY, make_prepared
from support.linear_gaussian import fitted, make_run, truth, weights

LR = 0.1


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("sgld", ["method.lr_factor=1"]),
        ("sghmc", ["method.lr_factor=1", "optimizer.momentum=0.5", f"optimizer.lr={LR / 2}"]),
        ("csghmc", ["optimizer.momentum=0.5"]),
        pytest.param("sgld", ["method.lr_factor=1", "optimizer.batch_size=10"], marks=pytest.mark.slow),
    ],
)
def test_the_samples_of_a_linear_gaussian_are_its_posterior(method, words):
    """120 samples, 10 steps apart, of one chain whose slow direction forgets half in 10 steps: an effective sample size above
    36. Mean within 4 standard errors of the deviation / √36, variances within 4 √(2 / 36) and the step's own bias, at
    most 15 % for two points in the batch of ten (`test_langevin.py` measures it). N times too much noise would be 20-fold.
    """
    settings = [f"optimizer.lr={LR}", "method.samples=120", "method.burn_in=0.02", *words]
    epochs = 31 if "optimizer.batch_size=10" in words else 62
    posterior, batches = fitted(make_run(method, *settings, epochs=epochs))
    mean, covariance = truth(batches)
    found, deviation = weights(posterior), np.sqrt(covariance.diagonal())
    assert found.shape == (120, 2)
    assert (abs(found.mean(axis=0) - mean) < 4 * deviation / math.sqrt(36)).all()
    ratio = found.var(axis=0) / deviation**2
    assert (abs(np.log(ratio)) < 4 * math.sqrt(2 / 36) + 0.15).all()
    assert np.corrcoef(found.T)[0, 1] == pytest.approx(covariance[0, 1] / deviation.prod(), abs=0.4)


def test_samples_are_evenly_spaced_or_refused():
    run = load_run(None, ["method.name=sgld"], data="d")
    assert evenly_spaced(10, 20, 4, run) == [12, 15, 17, 20]
    with pytest.raises(InputError, match=r"3 steps are left for the 4 samples.*Lower method.samples"):
        evenly_spaced(10, 13, 4, run)


class StoppedError(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize(
    "words",
    [
        ["method.name=csghmc", "method.preconditioner=rmsprop", "optimizer.lr=1e-4"],
        ["method.name=sequential_anchored", "method.anchors=matched"],
        ["method.name=anchored", "method.anchors=matched"],
        ["method.name=multiswag", "method.path=sgld", "method.components=2"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("epoch", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_every_variant_continues_where_it_was_stopped(tmp_path, monkeypatch, words, epoch):
    """The default settings do in `conformance/test_resume_methods.py`. Samples of a repeated epoch are written again."""
    run = load_run(None, [*TINY, *words], data=str(make_prepared(tmp_path / "data")))
    whole = execute(run, tmp_path / "whole", Resources("cpu"))
    checkpoint = Checkpoint.save

    def stop_before_saving(self, state):
        if state["epoch"] == epoch + 1:
            raise StoppedError
        checkpoint(self, state)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", stop_before_saving)
        with pytest.raises(StoppedError):
            execute(run, tmp_path / "again", Resources("cpu"))
    again = execute(run, tmp_path / "again", Resources("cpu"))
    for file in ("posterior.pt", "predictions.parquet"):
        assert filecmp.cmp(whole / file, again / file, shallow=False)
