"""Every method of `METHODS` through the checks of `experiments/conformance/`, and those checks on faulty methods."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pytest

from retinabench.experiments.config import load_run
from retinabench.experiments.conformance import CHECKS, Subject, checks_of
from retinabench.experiments.execution import Resources
from retinabench.experiments.run import execute
from retinabench.methods.composed import Ensemble
from retinabench.methods.registry import METHODS
from retinabench.predictions.io import read_predictions
from support.helpers import TINY

# Continued after a stop it has the same bits: it is reproducible, too. Likelihoods of these take seconds each.
SLOW = {"is_reproducible": METHODS, "learns_under_its_likelihoods": (
    "sngp", "lora_ensemble", "rank1", "vbll", "gaussian_vi", "head_ensemble", "radial", "dropout_off", "fsvi", "batch_ensemble", "tta",
)}  # fmt: skip


@pytest.fixture(scope="module")
def subjects(prepared, runs, tmp_path_factory):
    """Every method as a subject of the checks; what one check computes, the next ones find."""

    class Shared(Subject):
        """A subject whose run other modules share."""

        @cached_property
        def finished(self):
            return execute(self.run, runs, Resources("cpu"))

    out = tmp_path_factory.mktemp("checks")
    words = {name: [*TINY, f"method.name={name}"] for name in METHODS}
    return {name: Shared(load_run(None, words[name], data=prepared), out / name) for name in METHODS}


@pytest.mark.parametrize(
    ("name", "check"),
    [
        pytest.param(name, check, marks=[pytest.mark.slow] if name in SLOW.get(check, ()) else [])
        for name in METHODS
        for check in checks_of(name)
    ],
)
def test_a_method_keeps_its_contract(subjects, name, check):
    CHECKS[check](subjects[name])


def test_an_ensemble_is_its_members_pooled(subjects):
    pooled, run, out = (
        subjects["ensemble"].predictions,
        subjects["ensemble"].run,
        subjects["ensemble"].finished.parent,
    )
    members = [
        read_predictions(execute(m, out, Resources("cpu")) / "predictions.parquet") for m in Ensemble.member_runs(run)
    ]
    assert pooled.metadata["members"] == pooled.samples == 3
    assert np.array_equal(pooled.probs, np.concatenate([m.probs for m in members], axis=1))
    assert np.allclose(pooled.prob, np.mean([m.prob for m in members], axis=0), atol=1e-15)
    # A member is the single run of its seed: the run with seed 0 was trained once.
    assert np.array_equal(members[0].probs, subjects["map"].predictions.probs)


def test_dropout_samples_differ_and_map_has_one(subjects):
    probs = subjects["dropout"].predictions.probs
    assert probs.shape[1] == 5
    assert (np.ptp(probs, axis=1) > 0).mean() > 0.9
    assert subjects["map"].predictions.samples == 1
