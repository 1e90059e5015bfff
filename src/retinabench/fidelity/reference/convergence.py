"""The diagnostics of a reference in function space, and the thresholds that it must reach to give a ranking.

Letters: K chains, T kept transitions, N test points, O predicted quantities (class probabilities, or mean and std). Of the diagnostics
draws are (K, T, P outputs), and every function returns (P,). An output that never changes has an R-hat of NaN and an effective
sample size of all its draws.

A reference is 4 chains from draws of the prior. It passes with rank R-hat below 1.05 for 95 % of the predicted quantities, acceptance
between .5 and .99 and, within its error, twice the share of falling energies, standard errors below .03 (.05 of y), at most 1 %
diverging trajectories (energy errors of 20 or more), and no change at half the step: at most 5 % of the predictions move by more than
three standard errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtri
from scipy.stats import rankdata

Draws = NDArray[np.floating]
Values = NDArray[np.float64]
BLOCK = 4_000_000  # draws worked on at once: some 200 MB


def split_rhat(draws: Draws) -> Values:
    """Return √((B / W + n - 1) / n) over half chains of n draws; B: n times the variance of means, W: mean variance.

    References:
        Gelman et al. 2013, "Bayesian Data Analysis", section 11.4.
    """
    return _blocks(lambda x: _rhat(_halves(x)), draws)


def rank_rhat(draws: Draws) -> Values:
    """Return the larger split R-hat of the rank-normalised draws and of their folded version |x - median|.

    References:
        Vehtari, Gelman, Simpson, Carpenter & Bürkner 2021, "Rank-normalization, folding, and localization", for split R-hat,
        rank normalisation, bulk and tail effective sample sizes.
    """

    def rhat(x: Values) -> Values:
        halves = _halves(x)
        folded = np.abs(halves - np.median(halves, axis=(0, 1)))
        return np.maximum(_rhat(_normal_scores(halves)), _rhat(_normal_scores(folded)))

    return _blocks(rhat, draws)


def ess_mean(draws: Draws) -> Values:
    """Return the effective sample size for the mean: n / τ over half chains, τ by Geyer's monotone sequence."""
    return _blocks(lambda x: _ess(_halves(x)), draws)


def ess_bulk(draws: Draws) -> Values:
    """Return the effective sample size of the rank-normalised draws: for the centre of the distribution; source: `rank_rhat`."""
    return _blocks(lambda x: _ess(_normal_scores(_halves(x))), draws)


def ess_tail(draws: Draws) -> Values:
    """Return the smaller effective sample size of the indicators of the 5 % and the 95 % tail."""

    def ess(x: Values) -> Values:
        # The type-7 quantile over all draws, as elsewhere in NumPy.
        low, high = np.quantile(x, (0.05, 0.95), axis=(0, 1))
        return np.minimum(*(_ess(_halves((x <= q).astype(np.float64))) for q in (low, high)))

    return _blocks(ess, draws)


def mcse(draws: Draws) -> Values:
    """Return the Monte Carlo standard error of the mean: sd / √(effective sample size for the mean)."""
    return np.asarray(np.asarray(draws, np.float64).std(axis=(0, 1), ddof=1) / np.sqrt(ess_mean(draws)))


def _blocks(function: Callable[[Values], Values], draws: Draws) -> Values:
    """Apply `function` to blocks of outputs, so that memory does not grow with their number."""
    if draws.ndim != 3 or draws.shape[1] < 4:
        raise ValueError(f"draws {draws.shape} are not (chains, at least 4 draws, outputs)")
    step = max(1, BLOCK // (draws.shape[0] * draws.shape[1]))
    parts = [function(np.asarray(draws[:, :, k : k + step], np.float64)) for k in range(0, draws.shape[2], step)]
    return np.concatenate(parts) if parts else np.empty(0)


def _halves(x: Values) -> Values:
    """Cut every chain into its halves, (K, T, P) -> (2K, T // 2, P): a drifting chain disagrees with itself."""
    half = x.shape[1] // 2
    return np.concatenate([x[:, :half], x[:, -half:]])


def _normal_scores(x: Values) -> Values:
    """Replace draws by the normal quantiles of their ranks over all chains, Φ⁻¹((r - 3/8) / (n + 1/4))."""
    flat = x.reshape(-1, x.shape[2])
    return np.asarray(ndtri((rankdata(flat, axis=0) - 0.375) / (len(flat) + 0.25))).reshape(x.shape)


def _rhat(x: Values) -> Values:
    n = x.shape[1]
    between = n * x.mean(axis=1).var(axis=0, ddof=1)
    within = x.var(axis=1, ddof=1).mean(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.sqrt((between / within + n - 1) / n))


def _ess(x: Values) -> Values:
    """Effective sample size of (K, n, P) draws; autocorrelations from all chains, cut and made monotone as by Geyer."""
    chains, n, _ = x.shape
    autocovariance = _autocovariance(x).mean(axis=0)
    within = autocovariance[0] * n / (n - 1)
    total = autocovariance[0] + (x.mean(axis=1).var(axis=0, ddof=1) if chains > 1 else 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = 1 - (within - autocovariance) / total
    rho[0] = 1
    tau = np.maximum(_time(rho), 1 / np.log10(chains * n))
    constant = np.ptp(x, axis=(0, 1)) < np.finfo(np.float64).resolution
    return np.asarray(np.where(constant, chains * n, chains * n / tau))


def _time(rho: Values) -> Values:
    """Return the integrated autocorrelation time τ = -1 + 2 Σ ρ of (n, P) autocorrelations.

    Pairs Γ_k = ρ_2k + ρ_2k+1 of a reversible chain are positive and fall. The sum ends before the first pair K that
    is not positive (or for which no draws are left), with the pairs replaced by their running minimum; ρ_2K is added
    once, an unbiased half step for antithetic chains.
    """
    n = len(rho)
    usable = max(1, -(-(n - 4) // 2) + 1)
    pairs = rho[0 : 2 * usable : 2] + rho[1 : 2 * usable : 2]
    ends = pairs <= 0
    ends[-1] = True
    last = ends.argmax(axis=0)
    falling = np.minimum.accumulate(pairs, axis=0)
    inside = np.arange(usable)[:, None] < last
    even = np.take_along_axis(rho, 2 * last[None], axis=0)[0]
    negative = np.take_along_axis(pairs, last[None], axis=0)[0] < 0
    return np.asarray(-1 + 2 * (falling * inside).sum(axis=0) + np.where(negative, np.maximum(even, 0), even))


def _autocovariance(x: Values) -> Values:
    """Return the biased autocovariances (K, n, P) by the fast Fourier transform."""
    n = x.shape[1]
    size = next_fast_len(2 * n, real=True)
    spectrum = rfft(x - x.mean(axis=1, keepdims=True), size, axis=1)
    return np.asarray(irfft(spectrum.real**2 + spectrum.imag**2, size, axis=1)[:, :n] / n)


POWER_80 = 0.84  # standard errors beyond a threshold at which a test finds a change four times in five


@dataclass(frozen=True)
class Thresholds:
    """What a reference must reach; `energy` and `half_step_z` are in standard errors, those by likelihood of probabilities or of y.

    mcse: greatest 95 % quantile. dispersion: least median ratio of the std of the first predictions over chains to that of the
    posterior. detectable: greatest median change that the comparison with half the step misses one time in five.
    """

    chains: int = 4
    rank_rhat: float = 1.05
    rank_rhat_share: float = 0.95
    acceptance: tuple[float, float] = (0.5, 0.99)
    energy: float = 4.0
    mcse: Mapping[str, float] = field(default_factory=lambda: {"categorical": 0.03, "gaussian": 0.05})
    half_step_z: float = 3.0
    half_step_share: float = 0.05
    diverged: float = 0.01
    dispersion: float = 1.0
    detectable: Mapping[str, float] = field(default_factory=lambda: {"categorical": 0.15, "gaussian": 0.15})


THRESHOLDS = Thresholds()


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Diagnostics of each predicted quantity, (N, O) each; `rhat` is the rank-normalised one."""

    rhat: Values
    split_rhat: Values
    ess_bulk: Values
    ess_tail: Values
    mcse: Values


def diagnose(predictions: NDArray[np.floating]) -> Diagnosis:
    """Return the diagnostics of predictions (T, K, N, O), which may be on disk: they are read in blocks."""
    transitions, chains, *shape = predictions.shape
    draws = predictions.reshape(transitions, chains, -1).transpose(1, 0, 2)
    return Diagnosis(*(measure(draws).reshape(shape) for measure in (rank_rhat, split_rhat, ess_bulk, ess_tail, mcse)))


@dataclass(frozen=True)
class EnergyErrors:
    """Summary of the energy errors H' - H of proposals."""

    mean: float
    median: float
    sd: float
    diverged: float
    mean_exp: float
    acceptance: float
    falling: float
    gap: float


def energy(history: Values) -> EnergyErrors:
    """Summarise the energy errors in the history (T, 3, K) of the kept transitions.

    In equilibrium the density of the errors obeys p(x) = exp(x) p(-x), as trajectories are reversible, so that the mean of
    exp(H - H') is 1 and the mean acceptance is twice the share of falling energies. The first mean depends on errors that
    are too rare to be observed once some trajectories diverge; the second is bounded, and is what is tested.

    References:
        Creutz 1988, "Global Monte Carlo algorithms for many-fermion systems".
    """
    errors = np.nan_to_num(history[:, 2].ravel(), nan=np.inf)
    weights = np.exp(-np.clip(errors, -700, None))
    difference = np.minimum(weights, 1) - 2 * (errors < 0)
    error = float(difference.std(ddof=1) / np.sqrt(len(difference)))
    near, median = errors[np.abs(errors) < 20], float(np.median(errors))
    return EnergyErrors(
        mean=float(near.mean()) if len(near) else 0.0,
        median=median if np.isfinite(median) else 1e9,
        sd=float(near.std()) if len(near) else 0.0,
        diverged=float(1 - len(near) / len(errors)),
        mean_exp=float(weights.mean()),
        acceptance=float(np.minimum(weights, 1).mean()),
        falling=float((errors < 0).mean()),
        gap=abs(float(difference.mean())) / max(error, 1e-12),
    )


@dataclass(frozen=True)
class HalfStep:
    """Comparison of the kept transitions with some at half the step."""

    transitions: float
    acceptance_before: float
    acceptance: float
    median_z: float
    beyond: float
    mean_difference: float
    detectable: float | None = None


def half_step(
    predictions: NDArray[np.floating],
    history: NDArray[np.floating],
    half: NDArray[np.floating],
    after: NDArray[np.floating],
    mcse: Values,
) -> HalfStep:
    """Compare the kept transitions, predictions (T, K, N, O) and history (T, 3, K), with some at half the step.

    z is the difference of the two means in its standard error, for which both are taken to mix equally fast.
    """
    stretch = mcse * np.sqrt(len(predictions) / len(half))
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.nan_to_num((_mean(half) - _mean(predictions)) / np.hypot(mcse, stretch))
    return HalfStep(
        transitions=float(len(half)),
        acceptance_before=float(history[:, 0].mean()),
        acceptance=float(after[:, 0].mean()),
        median_z=float(np.median(np.abs(z))),
        beyond=float((np.abs(z) > THRESHOLDS.half_step_z).mean()),
        mean_difference=float(np.abs(_mean(half) - _mean(predictions)).mean()),
        detectable=detectable(mcse, len(predictions) / len(half)),
    )


def detectable(mcse: Values, length: float) -> float:
    """Return the median change at half the step that is found with a power of .8, by the standard errors (N, O)."""
    known = mcse[~np.isnan(mcse)]
    median = np.median(known) if known.size else np.nan
    return float(median * np.sqrt(1 + length) * (THRESHOLDS.half_step_z + POWER_80))


def dispersion(start: NDArray[np.floating], states: NDArray[np.floating]) -> float:
    """Return the median ratio of the std of the first predictions (K, N, O) over chains to that of the kept states (T, K, N, O).

    R-hat can only find a region that some chain begins in: chains should begin farther apart than the posterior is wide.
    """
    wide = start.std(axis=0, ddof=1, dtype=np.float64)
    posterior = states.std(axis=(0, 1), dtype=np.float64)
    moving = posterior > 1e-4  # an output that never moves has no width to compare with
    return float(np.median(wide[moving] / posterior[moving])) if moving.any() else 0.0


def share_below(rhat: Values, limit: float) -> float:
    """Return the share of values below the limit. NaN, the value of an output that never changes, counts as below."""
    return float(np.mean(np.isnan(rhat) | (rhat < limit)))


def summary(values: NDArray[np.floating]) -> dict[str, float]:
    """Return the least value, the median, the tails and the greatest value, for the metadata of a file."""
    finite = np.asarray(values, np.float64)[np.isfinite(values)]
    if not finite.size:
        return {}
    levels = {"least": 0, "q05": 0.05, "median": 0.5, "q95": 0.95, "greatest": 1}
    return {name: float(np.quantile(finite, level)) for name, level in levels.items()}


def _mean(predictions: NDArray[np.floating]) -> Values:
    return np.asarray(predictions.mean(axis=(0, 1), dtype=np.float64))
