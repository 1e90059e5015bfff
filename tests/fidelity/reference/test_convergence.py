"""The verdict passes a good reference and names every threshold that another misses."""

import re

import numpy as np
import pytest

from retinabench.fidelity.reference import convergence, diagnostics

T, K, N, C = 150, 4, 40, 5


def predictions(seed=0, transitions=T):
    """Independent class probabilities of a posterior, (T, K, N, C)."""
    random = np.random.default_rng(seed)
    logits = random.normal(size=(transitions, K, N, C)) + 2 * np.random.default_rng(99).normal(size=(N, C))
    exp = np.exp(logits)
    return (exp / exp.sum(axis=3, keepdims=True)).astype(np.float32)


def history(seed=0, transitions=T, sd=0.7, shift=0.0):
    """Errors of an equilibrium: H' - H ~ N(s² / 2, s²), for which the mean of exp(H - H') is 1."""
    errors = np.random.default_rng(seed).normal(sd**2 / 2 + shift, sd, (transitions, K))
    acceptance = np.minimum(1, np.exp(-errors))
    return np.stack([acceptance, acceptance > 0.5, errors], axis=1)


def judge(chain_predictions=None, errors=None, half=None, after=None, chains=K, acceptance=None):
    kept = predictions() if chain_predictions is None else chain_predictions
    before = history() if errors is None else errors
    found = convergence.diagnose(kept)
    halved = convergence.half_step(
        kept, before,
        predictions(1, 20) if half is None else half, history(1, 20, sd=0.2) if after is None else after, found.mcse,
    )  # fmt: skip
    rates = before[:, 0].mean(axis=0) if acceptance is None else acceptance
    return convergence.verdict("categorical", chains, found, rates, convergence.energy(before), halved)


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


def test_diagnoses_are_those_of_each_output():
    kept = predictions()
    found = convergence.diagnose(kept)
    one = kept[:, :, 3, 2].T[:, :, None]
    assert found.rhat.shape == (N, C)
    for name, value in (("rank_rhat", found.rhat), ("ess_bulk", found.ess_bulk), ("mcse", found.mcse)):
        assert value[3, 2] == pytest.approx(getattr(diagnostics, name)(one)[0], rel=1e-9)


def test_energy_errors_that_are_no_numbers_count_as_refused():
    errors = history()
    errors[0, 2] = [np.nan, np.inf, 1e5, -0.1]
    found = convergence.energy(errors)
    assert found.diverged == pytest.approx(3 / (T * K))
    assert found.gap < 4
    assert np.isfinite(list(vars(found).values())).all()


def test_z_of_the_half_step_is_standard_normal_where_nothing_changed():
    kept, half = predictions(2, 600), predictions(3, 60)
    found = convergence.half_step(
        kept, history(2, 600), half, history(3, 60), convergence.diagnose(kept).mcse
    )
    # The median of |z| is 0.674; of 200 outputs, not all independent, its standard error is about 0.06.
    assert found.median_z == pytest.approx(0.674, abs=0.2)
    assert found.beyond < 0.02


def test_an_output_that_no_chain_moves_counts_as_converged():
    assert convergence.share_below(np.array([np.nan, 1.0, 1.2, np.inf]), 1.05) == 0.5


def test_divergences_weak_comparisons_and_narrow_starts_are_named():
    errors = history()
    errors[:3, 2] = 25.0  # 12 of 600 trajectories
    found = convergence.later_verdict("categorical", convergence.energy(errors), 0.2, 0.3)
    assert [one.partition(" ")[0] for one in found] == ["2.0%", "the", "the"]
    assert "0.30 times as far apart" in found[2]
    assert convergence.later_verdict("categorical", convergence.energy(history()), 0.1, 1.5) == []
    assert len(convergence.later_verdict("categorical", convergence.energy(history()), np.nan, np.nan)) == 2


def test_the_power_of_the_half_step_is_the_one_stated():
    # A change as large as `detectable` is beyond three standard errors in .8 of the outputs; here with 4,000 independent ones the
    # standard error of that share is .006, and the errors of the stretch are known to 10 %.
    random = np.random.default_rng(0)
    kept, half = random.normal(size=(400, 4, 4000, 1)), random.normal(size=(100, 4, 4000, 1))
    error = np.full((4000, 1), 1 / np.sqrt(1600))
    change = convergence.detectable(error, 4)
    found = convergence.half_step(
        kept, history(transitions=400), half + change, history(transitions=100), error
    )
    assert found.beyond == pytest.approx(0.8, abs=0.03)
    assert found.detectable == pytest.approx(change)


def test_dispersion_is_the_ratio_of_the_stds():
    random = np.random.default_rng(0)
    start, states = 2 * random.normal(size=(400, 30, 2)), random.normal(size=(200, 4, 30, 2))
    states[:, :, 0] = 1.0  # an output that never moves
    assert convergence.dispersion(start, states) == pytest.approx(2, rel=0.05)
