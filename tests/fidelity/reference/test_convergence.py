import numpy as np
import pytest

from retinabench.fidelity.reference import convergence
from retinabench.fidelity.reference.convergence import ess_bulk, ess_mean, ess_tail, mcse, rank_rhat, split_rhat
from support.sampled_chains import C, K, N, T, history, predictions

try:
    import arviz as az
except FileNotFoundError:  # of two processes that import it for the first time of a day, one finds the other's file
    import arviz as az


def chains(seed=0, chains=4, draws=200, persistence=(0.0, 0.5, 0.95, -0.6), offset=0.0):
    """Autoregressive chains; `offset` shifts the first one."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(chains, draws, len(persistence)))
    for t in range(1, draws):
        x[:, t] += np.array(persistence) * x[:, t - 1]
    x[0] += offset
    return x


CASES = {
    "mixed": chains(), "apart": chains(1, offset=3.0), "odd": chains(2, draws=101), "short": chains(3, draws=12),
    "ties": np.round(chains(4)), "many": chains(5, chains=8, draws=50),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (split_rhat, lambda x: az.rhat(x, method="split")), (rank_rhat, lambda x: az.rhat(x, method="rank")),
        (ess_mean, lambda x: az.ess(x, method="mean")), (ess_bulk, lambda x: az.ess(x, method="bulk")),
        (ess_tail, lambda x: az.ess(x, method="tail")), (mcse, lambda x: az.mcse(x, method="mean")),
    ],
)  # fmt: skip
def test_every_diagnostic_equals_arviz(case, ours, theirs):
    x = CASES[case]
    # an array of one where Numba is installed
    truth = [np.asarray(theirs(x[:, :, p])).item() for p in range(x.shape[2])]
    assert ours(x) == pytest.approx(truth, rel=1e-8)


def test_diagnoses_are_those_of_each_output():
    kept = predictions()
    found = convergence.diagnose(kept)
    one = kept[:, :, 3, 2].T[:, :, None]
    assert found.rhat.shape == (N, C)
    for name, value in (("rank_rhat", found.rhat), ("ess_bulk", found.ess_bulk), ("mcse", found.mcse)):
        assert value[3, 2] == pytest.approx(getattr(convergence, name)(one)[0], rel=1e-9)


def test_energy_errors_that_are_no_numbers_count_as_refused():
    errors = history()
    errors[0, 2] = [np.nan, np.inf, 1e5, -0.1]
    found = convergence.energy(errors)
    assert found.diverged == pytest.approx(3 / (T * K))
    assert found.gap < 4
    assert np.isfinite(list(vars(found).values())).all()


def test_z_of_the_half_step_is_standard_normal_where_nothing_changed():
    kept, half = predictions(2, 600), predictions(3, 60)
    found = convergence.half_step(kept, history(2, 600), half, history(3, 60), convergence.diagnose(kept).mcse)
    # The median of |z| is 0.674; of 200 outputs, not all independent, its standard error is about 0.06.
    assert found.median_z == pytest.approx(0.674, abs=0.2)
    assert found.beyond < 0.02


def test_an_output_that_no_chain_moves_counts_as_converged():
    assert convergence.share_below(np.array([np.nan, 1.0, 1.2, np.inf]), 1.05) == 0.5


def test_the_power_of_the_half_step_is_the_one_stated():
    # A change as large as `detectable` is beyond three standard errors in .8 of the outputs; here with 4,000 independent ones the
    # standard error of that share is .006, and the errors of the stretch are known to 10 %.
    random = np.random.default_rng(0)
    kept, half = random.normal(size=(400, 4, 4000, 1)), random.normal(size=(100, 4, 4000, 1))
    error = np.full((4000, 1), 1 / np.sqrt(1600))
    change = convergence.detectable(error, 4)
    found = convergence.half_step(kept, history(transitions=400), half + change, history(transitions=100), error)
    assert found.beyond == pytest.approx(0.8, abs=0.03)
    assert found.detectable == pytest.approx(change)


def test_dispersion_is_the_ratio_of_the_stds():
    random = np.random.default_rng(0)
    start, states = 2 * random.normal(size=(400, 30, 2)), random.normal(size=(200, 4, 30, 2))
    states[:, :, 0] = 1.0  # an output that never moves
    assert convergence.dispersion(start, states) == pytest.approx(2, rel=0.05)
