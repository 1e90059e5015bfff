"""Which thresholds of convergence chains miss."""

import re

import numpy as np
import pytest

from retinabench.fidelity.reference import convergence
from retinabench.fidelity.reference.verdict import later_verdict, verdict
from support.sampled_chains import K, history, predictions


def judge(chain_predictions=None, errors=None, half=None, after=None, chains=K, acceptance=None):
    kept = predictions() if chain_predictions is None else chain_predictions
    before = history() if errors is None else errors
    found = convergence.diagnose(kept)
    halved = convergence.half_step(
        kept, before,
        predictions(1, 20) if half is None else half, history(1, 20, sd=0.2) if after is None else after, found.mcse,
    )  # fmt: skip
    rates = before[:, 0].mean(axis=0) if acceptance is None else acceptance
    return verdict("categorical", chains, found, rates, convergence.energy(before), halved)


def test_a_good_reference_passes():
    assert judge() == []


def apart():
    shifted = predictions().copy()
    shifted[:, 0] = np.roll(shifted[:, 0], 1, axis=-1)
    return shifted


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ({"chains": 3}, "3 chains; at least 4"),
        ({"chain_predictions": apart()}, "the chains disagree"),
        ({"acceptance": np.array([0.7, 0.7, 0.7, 0.3])}, "chain 3 accepts 30%.*smaller"),
        ({"acceptance": np.array([1.0, 0.7, 0.7, 0.7])}, "chain 0 accepts 100%.*larger"),
        ({"errors": history(shift=-0.5)}, "lower the energy"),
        ({"chain_predictions": predictions(transitions=8)}, "the predictions are known to"),
        ({"half": apart()[:20, :1].repeat(4, 1)}, "at half the step"),
        ({"after": history(1, 20, sd=3.0)}, "accepted less often"),
    ],
)
def test_every_threshold_can_be_missed(what, reason):
    reasons = judge(**what)
    assert any(re.search(reason, one) for one in reasons), reasons


def test_divergences_weak_comparisons_and_narrow_starts_are_named():
    errors = history()
    errors[:3, 2] = 25.0  # 12 of 600 trajectories
    found = later_verdict("categorical", convergence.energy(errors), 0.2, 0.3)
    assert [one.partition(" ")[0] for one in found] == ["2.0%", "the", "the"]
    assert "0.30 times as far apart" in found[2]
    assert later_verdict("categorical", convergence.energy(history()), 0.1, 1.5) == []
    assert len(later_verdict("categorical", convergence.energy(history()), np.nan, np.nan)) == 2
