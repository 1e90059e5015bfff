"""Convergence diagnostics of Markov chains, vectorised over thousands of outputs.

Draws are (K chains, T draws, P outputs), and every function returns (P,). An output that never changes has an R-hat of NaN
and an effective sample size of all its draws.
"""

from __future__ import annotations

from collections.abc import Callable

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
    """Return the effective sample size of the rank-normalised draws: for the centre of the distribution.

    References:
        Vehtari, Gelman, Simpson, Carpenter & Bürkner 2021, "Rank-normalization, folding, and localization", for split R-hat,
        rank normalisation, bulk and tail effective sample sizes.
    """
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
    parts = [
        function(np.asarray(draws[:, :, k : k + step], np.float64)) for k in range(0, draws.shape[2], step)
    ]
    return np.concatenate(parts) if parts else np.empty(0)


def _halves(x: Values) -> Values:
    """Cut every chain into its halves, (K, T, P) -> (2K, T // 2, P): a drifting chain disagrees with itself."""
    half = x.shape[1] // 2
    return np.concatenate([x[:, :half], x[:, -half:]])


def _normal_scores(x: Values) -> Values:
    """Replace draws by the normal quantiles of their ranks over all chains, Φ⁻¹((r - 3/8) / (n + 1/4))."""
    flat = x.reshape(-1, x.shape[2])
    ranks = rankdata(flat, axis=0)
    return np.asarray(ndtri((ranks - 0.375) / (len(flat) + 0.25))).reshape(x.shape)


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
