"""The registry of densities whose moments are known: their functions, data, and the truth of what is judged.

Judged are *quantities* q(w) (..., Q), not always the coordinates: of the funnel v and x_k exp(-v / 2), since x_k² has a variance of
3 exp(18), so that no number of draws tells its mean; of both forms of eight schools the effects theta. Of the mixture the share of draws
in each mode follows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
from scipy.fft import dct
from scipy.special import expit, ndtr

from retinabench.core.errors import InputError, nearest
from retinabench.core.random_streams import numpy_generator
from retinabench.core.results import JsonObject
from retinabench.fidelity.densities import functions
from retinabench.fidelity.densities.functions import Array, Floats
from retinabench.fidelity.targets.target import tables


@dataclass(frozen=True, eq=False)
class Truth:
    """Means and stds of quantities (Q,), and stds of z² for z = (q - mean) / std; `error` is that of both moments, in stds of q and of z²."""

    mean: Floats
    std: Floats
    of_squares: Floats
    error: float = 0.0

    @classmethod
    def of_moments(cls, mean: Floats, variance: Floats, fourth: Floats) -> Truth:
        """Return the truth of central moments of second and fourth order."""
        return cls(mean, np.sqrt(variance), np.sqrt(fourth / variance**2 - 1))


@dataclass(frozen=True, eq=False)
class KnownDensity:
    """A density of `dimension` coordinates. Chains start from N(0, start² I); `modes` are the true shares of the last quantities."""

    name: str
    dimension: int
    log_of: Callable[..., Array]
    slope_of: Callable[..., Floats]
    truth_of: Callable[[], Truth]
    data: JsonObject
    labels: tuple[str, ...]
    quantities: Callable[[Floats], Floats] = lambda w: w
    start: float = 1.0
    modes: tuple[float, ...] = ()
    mode_of: Callable[[Floats], Floats] | None = None  # (..., P) -> which mode (...,)

    @cached_property
    def truth(self) -> Truth:
        return self.truth_of()

    @property
    def about(self) -> JsonObject:
        """Its title, what it decides, how its truth is known, and its text in Stan."""
        return tables("densities")[self.name]

    @property
    def python(self) -> str:
        return f"from __future__ import annotations\n\nimport numpy as np\n\n\n{inspect.getsource(self.log_of)}"

    def log_density(self, w: Array, xp: Any = np) -> Array:
        return self.log_of(w, xp, **self.data)

    def gradient(self, w: Floats) -> Floats:
        return self.slope_of(w, **self.data)


def density_names() -> tuple[str, ...]:
    return tuple(tables("densities"))


@cache
def find_density(name: str) -> KnownDensity:
    if name not in density_names():
        raise InputError(f"unknown density '{name}'", hint=nearest(name, density_names()))
    return dict(zip(density_names(), _MAKERS, strict=True))[name]()


def _numbered(word: str, count: int, first: int = 0) -> tuple[str, ...]:
    return tuple(f"{word} {k}" for k in range(first, first + count))


def _normal(std: Floats) -> Truth:
    return Truth(np.zeros_like(std), std, np.full_like(std, np.sqrt(2)))


def _gaussian() -> KnownDensity:
    stds = np.logspace(0, -2, 50)
    return KnownDensity(
        "gaussian", 50, functions.gaussian, functions.gaussian_slope, lambda: _normal(stds), {"stds": stds.tolist()},
        _numbered("coordinate", 50),
    )  # fmt: skip


def _gaussian_correlated() -> KnownDensity:
    """Axes are those of the discrete cosine transform: the widest is the mean, the narrowest alternates between neighbours."""
    alike, axes = _gaussian(), dct(np.eye(50), norm="ortho")
    return replace(
        alike, name="gaussian-correlated", data={**alike.data, "axes": axes.tolist()}, labels=_numbered("direction", 50),
        quantities=lambda w: w @ axes,
    )  # fmt: skip


def _funnel() -> KnownDensity:
    def quantities(w: Floats) -> Floats:
        return np.concatenate([w[..., :1], w[..., 1:] * np.exp(-w[..., :1] / 2)], axis=-1)

    return KnownDensity(
        "funnel", 10, functions.funnel, functions.funnel_slope, lambda: _normal(np.array([3.0] + [1.0] * 9)), {},
        ("v", *(f"x{k} / exp(v / 2)" for k in range(1, 10))), quantities, start=3.0,
    )  # fmt: skip


def _mixture() -> KnownDensity:
    weights, centres = np.array([1 / 3, 2 / 3]), np.array([-4.0, 4.0])
    mean, variance, fourth = np.zeros(10), np.ones(10), np.full(10, 3.0)
    mean[0] = weights @ centres
    apart = centres - mean[0]
    variance[0] += weights @ apart**2
    fourth[0] = weights @ (apart**4 + 6 * apart**2 + 3)
    first = float(weights @ ndtr(-centres))  # the share on the side of the first mode
    return KnownDensity(
        "mixture", 10, functions.mixture, functions.mixture_slope, lambda: Truth.of_moments(mean, variance, fourth),
        {"weights": weights.tolist(), "centres": centres.tolist()}, _numbered("coordinate", 10), start=4.0,
        modes=(first, 1 - first), mode_of=lambda w: (w[..., 0] > 0).astype(np.float64),
    )  # fmt: skip


# Rubin 1981, "Estimation in parallel randomized experiments", Journal of Educational Statistics 6(4), table 1.
SCHOOLS = {"y": [28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0], "sigma": [15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]}


def _schools() -> KnownDensity:
    def effects(w: Floats) -> Floats:
        return np.concatenate([w[..., :2], w[..., :1] + np.exp(w[..., 1:2]) * w[..., 2:]], axis=-1)

    return KnownDensity(
        "eight-schools", 10, functions.eight_schools, functions.eight_schools_slope, _of_schools, SCHOOLS,
        ("mu", "log tau", *_numbered("theta", 8, 1)), effects,
    )  # fmt: skip


def _schools_centred() -> KnownDensity:
    return replace(
        _schools(), name="eight-schools-centred", log_of=functions.eight_schools_centred, start=5.0,
        slope_of=functions.eight_schools_centred_slope, quantities=lambda w: w,
    )  # fmt: skip


@cache
def _of_schools() -> Truth:
    """Return the moments by the trapezoid rule over (mu, log tau), given which the effects are independent Gaussians."""
    y, variance = np.array(SCHOOLS["y"]), np.square(SCHOOLS["sigma"])
    mu, log_tau = (a[..., None] for a in np.meshgrid(np.linspace(-45, 55, 401), np.linspace(-24, 6, 401)))
    tau = np.exp(log_tau)
    total = variance + tau**2
    log = -(mu**2) / 50 + log_tau - np.log1p(tau**2 / 25)
    log -= 0.5 * (np.log(total) + (y - mu) ** 2 / total).sum(axis=-1, keepdims=True)
    weights = np.exp(log - log.max())
    weights /= weights.sum()
    none = np.zeros_like(mu)
    centre = np.concatenate([mu, log_tau, (mu * variance + y * tau**2) / total], axis=-1)
    width = np.concatenate([none, none, variance * tau**2 / total], axis=-1)
    mean = (weights * centre).sum(axis=(0, 1))
    apart = np.square(centre - mean)
    second, fourth = apart + width, apart**2 + 6 * apart * width + 3 * width**2
    return Truth.of_moments(mean, (weights * second).sum(axis=(0, 1)), (weights * fourth).sum(axis=(0, 1)))


def _logistic_regression() -> KnownDensity:
    """100 rows of features of correlation .8 between neighbours, with an intercept."""
    generator = numpy_generator(2031, "logistic-regression")
    noise = generator.standard_normal((100, 10))
    for k in range(1, 10):
        noise[:, k] = 0.8 * noise[:, k - 1] + 0.6 * noise[:, k]
    x = np.column_stack([np.ones(100), np.rint(noise * 64) / 64])
    logits = x @ np.array([0.5, *np.tile([1.0, -1.0, 0.0, 0.5, -0.5], 2)])
    y = (generator.random(100) < expit(logits)).astype(int)
    known = {name: np.array(values) for name, values in tables("densities")["logistic-regression"]["moments"].items()}
    return KnownDensity(
        "logistic-regression", 11, functions.logistic_regression, functions.logistic_regression_slope,
        lambda: Truth(**known, error=4e-4), {"x": x.tolist(), "y": y.tolist(), "prior_std": 2.5},
        ("intercept", *_numbered("weight", 10, 1)),
    )  # fmt: skip


_MAKERS = (_gaussian, _gaussian_correlated, _funnel, _schools, _schools_centred, _mixture, _logistic_regression)
