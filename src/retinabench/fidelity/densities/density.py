"""The registry of densities whose moments are known: their functions, data, and the truth of what is judged.

Judged are *quantities* q(w) (..., Q), not always the coordinates: of the funnel v and x_k exp(-v / 2), since x_k² has a variance of
3 exp(18), so that no number of draws tells its mean; of both forms of eight schools the effects theta. Of the mixture the share of draws
in each mode follows.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Any

import numpy as np
from scipy import special, stats

from retinabench.core.errors import InputError, nearest
from retinabench.core.random_streams import numpy_generator
from retinabench.core.results import JsonObject
from retinabench.fidelity.densities import functions
from retinabench.fidelity.densities.functions import Array, Floats


@dataclass(frozen=True, eq=False)
class Truth:
    """Means and stds of quantities (Q,), and stds of z² for z = (q - mean) / std; `error` is that of both moments, in stds of q and of z²."""

    mean: Floats
    std: Floats
    of_squares: Floats
    error: float = 0.0

    @classmethod
    def of_moments(cls, mean: Floats, variance: Floats, fourth: Floats, error: float = 0.0) -> Truth:
        """Return the truth of central moments of second and fourth order."""
        return cls(mean, np.sqrt(variance), np.sqrt(fourth / variance**2 - 1), error)


@dataclass(frozen=True, eq=False)
class KnownDensity:
    """A density of `dimension` coordinates. Chains start from N(0, start² I); `modes` are the true shares of the last quantities."""

    name: str
    dimension: int
    log_of: Callable[..., Array]
    slope_of: Callable[..., Floats]
    truth_of: Callable[[JsonObject], Truth]
    data: JsonObject
    labels: tuple[str, ...]
    quantities: Callable[[Floats], Floats] = lambda w: w
    start: float = 1.0
    modes: tuple[float, ...] = ()
    mode_of: Callable[[Floats], Floats] | None = None  # (..., P) -> which mode (...,)

    @cached_property
    def truth(self) -> Truth:
        return self.truth_of(self.data)

    @cached_property
    def about(self) -> JsonObject:
        """Its title, what it decides, how its truth is known, and its text in Stan."""
        return dict(_texts()[self.name])

    @property
    def python(self) -> str:
        return f"from __future__ import annotations\n\nimport numpy as np\n\n\n{inspect.getsource(self.log_of)}"

    def log_density(self, w: Array, xp: Any = np) -> Array:
        return self.log_of(w, xp, **self.data)

    def gradient(self, w: Floats) -> Floats:
        return self.slope_of(w, **self.data)


@cache
def _texts() -> JsonObject:
    file = resources.files("retinabench.fidelity.densities").joinpath("densities.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def density_names() -> tuple[str, ...]:
    return tuple(_texts())


@cache
def find_density(name: str) -> KnownDensity:
    if name not in _texts():
        raise InputError(f"unknown density '{name}'", hint=nearest(name, density_names()))
    made = _MAKERS[name]()
    assert made.name == name
    return made


# ------------------------------------------------------------------------------------------------- closed forms


def _numbered(word: str, count: int, first: int = 0) -> tuple[str, ...]:
    return tuple(f"{word} {k}" for k in range(first, first + count))


def _normal(std: Any) -> Truth:
    std = np.asarray(std, np.float64)
    return Truth(np.zeros_like(std), std, np.full_like(std, np.sqrt(2)))


def _gaussian(name: str = "gaussian", dimension: int = 50) -> KnownDensity:
    stds = np.logspace(0, -2, dimension)
    return KnownDensity(
        name, dimension, functions.gaussian, functions.gaussian_slope, lambda data: _normal(data["stds"]),
        {"stds": stds.tolist()}, _numbered("coordinate", dimension),
    )  # fmt: skip


def _gaussian_correlated(dimension: int = 50) -> KnownDensity:
    """Axes are the cosines of the discrete cosine transform: the widest is the mean, the narrowest alternates from neighbour to neighbour."""
    place, wave = np.meshgrid(np.arange(dimension) + 0.5, np.arange(dimension), indexing="ij")
    axes = np.sqrt(2 / dimension) * np.cos(np.pi * place * wave / dimension)
    axes[:, 0] = np.sqrt(1 / dimension)
    stds = np.logspace(0, -2, dimension)
    return KnownDensity(
        "gaussian-correlated", dimension, functions.gaussian, functions.gaussian_slope, lambda data: _normal(data["stds"]),
        {"stds": stds.tolist(), "axes": axes.tolist()}, _numbered("direction", dimension), quantities=lambda w: w @ axes,
    )  # fmt: skip


def _funnel(dimension: int = 10) -> KnownDensity:
    def quantities(w: Floats) -> Floats:
        return np.concatenate([w[..., :1], w[..., 1:] * np.exp(-w[..., :1] / 2)], axis=-1)

    labels = ("v", *(f"x{k} / exp(v / 2)" for k in range(1, dimension)))
    return KnownDensity(
        "funnel", dimension, functions.funnel, functions.funnel_slope, lambda _: _normal([3.0] + [1.0] * (dimension - 1)),
        {}, labels, quantities, start=3.0,
    )  # fmt: skip


def _mixture(dimension: int = 10) -> KnownDensity:
    weights, centres = (1 / 3, 2 / 3), (-4.0, 4.0)
    mean = float(np.dot(weights, centres))
    apart = np.array(centres) - mean
    variance, fourth = np.ones(dimension), np.full(dimension, 3.0)
    variance[0] += np.dot(weights, apart**2)
    fourth[0] = np.dot(weights, apart**4 + 6 * apart**2 + 3)
    known = Truth.of_moments(np.append(mean, np.zeros(dimension - 1)), variance, fourth)
    below = float(np.dot(weights, special.ndtr([4.0, -4.0])))  # the share on the side of the first mode
    return KnownDensity(
        "mixture", dimension, functions.mixture, functions.mixture_slope, lambda _: known,
        {"weights": list(weights), "centres": list(centres)}, _numbered("coordinate", dimension), start=4.0,
        modes=(below, 1 - below), mode_of=lambda w: (w[..., 0] > 0).astype(np.float64),
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------- eight schools

# Rubin 1981, "Estimation in parallel randomized experiments", Journal of Educational Statistics 6(4), table 1.
SCHOOLS = {"y": [28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0], "sigma": [15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]}


def _schools(centred: bool) -> KnownDensity:
    def effects(w: Floats) -> Floats:
        return np.concatenate([w[..., :2], w[..., :1] + np.exp(w[..., 1:2]) * w[..., 2:]], axis=-1)

    name = "eight-schools-centred" if centred else "eight-schools"
    slope = functions.eight_schools_centred_slope if centred else functions.eight_schools_slope
    return KnownDensity(
        name, 10, functions.eight_schools_centred if centred else functions.eight_schools, slope, _of_schools,
        dict(SCHOOLS), ("mu", "log tau", *_numbered("theta", 8, 1)), (lambda w: w) if centred else effects,
        start=5.0 if centred else 1.0,
    )  # fmt: skip


def _of_schools(data: JsonObject, points: int = 401) -> Truth:
    """Return the moments by the trapezoid rule over (mu, log tau), given which the effects are independent Gaussians."""
    y, variance = np.array(data["y"]), np.square(data["sigma"])
    mu, log_tau = (a[..., None] for a in np.meshgrid(np.linspace(-45, 55, points), np.linspace(-24, 6, points)))
    tau = np.exp(log_tau)
    total = variance + tau**2
    log = -(mu**2) / 50 + log_tau - np.log1p(tau**2 / 25)
    log = log[..., 0] - 0.5 * (np.log(total) + (y - mu) ** 2 / total).sum(axis=-1)
    density = np.exp(log - log.max())
    # Given mu and tau an effect is N(centre, width).
    centre, width = (mu * variance + y * tau**2) / total, variance * tau**2 / total
    centre = np.concatenate([mu, log_tau, centre], axis=-1)
    width = np.concatenate([np.zeros_like(mu), np.zeros_like(mu), width], axis=-1)

    weights = density[..., None] / density.sum()

    def expected(values: Floats) -> Floats:
        return np.asarray((weights * values).sum(axis=(0, 1)))

    mean = expected(centre)
    apart = centre - mean
    second, fourth = apart**2 + width, apart**4 + 6 * apart**2 * width + 3 * width**2
    return Truth.of_moments(mean, expected(second), expected(fourth))


# ------------------------------------------------------------------------------------------------- regression


def _logistic_regression(points: int = 100, features: int = 10) -> KnownDensity:
    """Features of correlation .8 between neighbours, with an intercept; classes drawn at weights from the prior's half."""
    generator = numpy_generator(2031, "logistic-regression")
    noise = generator.standard_normal((points, features))
    for k in range(1, features):
        noise[:, k] = 0.8 * noise[:, k - 1] + 0.6 * noise[:, k]
    x = np.column_stack([np.ones(points), np.rint(noise * 64) / 64])
    logits = x @ np.array([0.5, *np.tile([1.0, -1.0, 0.0, 0.5, -0.5], features // 5)])
    y = (generator.random(points) < special.expit(logits)).astype(int)
    data = {"x": x.tolist(), "y": y.tolist(), "prior_std": 2.5}
    return KnownDensity(
        "logistic-regression", features + 1, functions.logistic_regression, functions.logistic_regression_slope,
        _by_importance, data, ("intercept", *_numbered("weight", features, 1)),
    )  # fmt: skip


REPEATS, POWER = 8, 13  # scrambled sets of 2^13 points


def _by_importance(data: JsonObject) -> Truth:
    """Return the moments by importance sampling from Student's t (8 degrees of freedom) about the mode, its scale from the curvature there.

    The points are Sobol's, scrambled; the error is that of the mean over scrambled sets.
    """
    x, y = np.array(data["x"]), np.array(data["y"])
    dimension = x.shape[1]
    mode, degrees = np.zeros(dimension), 8
    for _ in range(30):  # Newton's method: the log density is concave
        p = special.expit(x @ mode)
        precision = (x.T * (p * (1 - p))) @ x + np.eye(dimension) / data["prior_std"] ** 2
        mode = mode + np.linalg.solve(precision, x.T @ (y - p) - mode / data["prior_std"] ** 2)
    root = np.linalg.cholesky(np.linalg.inv(precision))

    def moments(seed: int) -> Floats:
        u = stats.qmc.Sobol(dimension + 1, rng=numpy_generator(seed, "importance")).random_base2(POWER)
        heavy = np.sqrt(degrees / stats.chi2.ppf(u[:, :1], degrees))
        step = heavy * special.ndtri(u[:, 1:])
        w = mode + step @ root.T
        log = functions.logistic_regression(w, np, **data) + 0.5 * (degrees + dimension) * np.log1p(
            np.square(step).sum(axis=1) / degrees
        )
        weight = np.exp(log - log.max())
        weight /= weight.sum()
        mean = weight @ w
        return np.stack([mean, weight @ w**2, weight @ (w - mean) ** 4])

    found = np.stack([moments(seed) for seed in range(REPEATS)])
    mean, square, fourth = found.mean(axis=0)
    made = Truth.of_moments(mean, square - mean**2, fourth)
    variance = found[:, 1] - 2 * mean * found[:, 0] + mean**2
    errors = found[:, 0].std(axis=0, ddof=1) / made.std, variance.std(axis=0, ddof=1) / made.std**2 / made.of_squares
    return Truth(made.mean, made.std, made.of_squares, float(np.max(errors)) / np.sqrt(REPEATS))


_MAKERS: dict[str, Callable[[], KnownDensity]] = {
    "gaussian": _gaussian,
    "gaussian-correlated": _gaussian_correlated,
    "funnel": _funnel,
    "eight-schools": lambda: _schools(False),
    "eight-schools-centred": lambda: _schools(True),
    "mixture": _mixture,
    "logistic-regression": _logistic_regression,
}
