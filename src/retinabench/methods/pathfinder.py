"""Pathfinder: Gaussians along the paths of an optimiser, by its own estimates of the curvature, and draws of them.

Zhang, Carpenter, Gelman & Vehtari 2022, "Pathfinder: Parallel quasi-Newton variational inference", JMLR 23.
Letters: P weights, T points of a path, M remembered steps, S draws.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from retinabench.methods.chains import Advance, Counted, Prior, Scaled

PER_PATH, MOST_PATHS = 50, 100  # gradients of a path
CLIMB = 0.6  # share of them that the optimiser may take; half of the others judge the Gaussians, and half weigh draws of the best
ELBO_DRAWS = 5
HISTORY = 100  # most steps that an estimate of the curvature remembers
DRAWS = 1000
RELIABLE = 0.7  # Pareto's k up to which importance weights are used


@dataclass(frozen=True)
class PathGaussian:
    """N(mean, diag(scale) (I + Q (L Lᵀ - I) Qᵀ) diag(scale)): mean and scale (P,), Q (P, K) of orthonormal columns, L (K, K) triangular."""

    mean: Tensor
    scale: Tensor
    q: Tensor
    factor: Tensor

    def draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return draws (S, P) and their log densities (S,)."""
        noise = torch.randn(count, len(self.mean), generator=generator, dtype=torch.float64)
        within = noise @ self.q
        moved = noise + (within @ self.factor.T - within) @ self.q.T
        constant = 0.5 * len(self.mean) * math.log(2 * math.pi)
        volume = self.scale.log().sum() + self.factor.diagonal().log().sum() + constant
        return self.mean + self.scale * moved, -0.5 * noise.square().sum(dim=1) - volume


class _Spent(Exception):  # noqa: N818
    """The optimiser has taken its share of the budget."""


def climb(density: Scaled, start: Tensor, limit: int) -> tuple[Tensor, Tensor]:
    """Return points and slopes of log π, (T, P) each, on the path of L-BFGS from a start (P,) until `limit` evaluations are counted."""
    path, slopes = [start.double().numpy()], dict[bytes, Tensor]()

    def minus(w: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        if density.counted.used >= limit:
            raise _Spent
        value, slope = density(torch.from_numpy(w)[None].to(start.dtype))
        slopes[w.tobytes()] = slope[0].double()
        return -float(value), -slope[0].double().numpy()

    options = {"maxcor": HISTORY, "maxiter": limit, "maxfun": limit, "ftol": 1e-8, "gtol": 1e-8}
    with suppress(_Spent):
        minimize(  # type: ignore[call-overload]  # the stubs want arrays whose number of axes is known
            minus, path[0], jac=True, method="L-BFGS-B", callback=lambda w: path.append(w.copy()), options=options
        )
    path = [w for w in path if w.tobytes() in slopes]
    return torch.from_numpy(np.stack(path)), torch.stack([slopes[w.tobytes()] for w in path])


def gaussian_at(points: Tensor, slopes: Tensor, variance: float) -> PathGaussian | None:
    """Return N(w + H ∇ log π, H) at the last of points (T, P), H the inverse Hessian that the path tells; None where it tells nothing.

    H = D + A G Aᵀ is the one of L-BFGS, with a diagonal D that follows the curvature from the prior's variance on (the paper's
    algorithm 3, after Gilbert & Lemaréchal 1989).
    """
    diagonal, kept = torch.full_like(points[0], variance), list[int]()
    steps, bends = points.diff(dim=0), -slopes.diff(dim=0)
    for place, (s, y) in enumerate(zip(steps, bends, strict=True)):
        curvature, a = s @ y, y @ (diagonal * y)
        if curvature > 1e-12 * (y @ y) and bool(a.isfinite()):
            rank_one = a * s.square() / (diagonal.square() * (s @ (s / diagonal)))
            diagonal = curvature / (a / diagonal + y.square() - rank_one)
            kept.append(place)
    if not kept:
        return None
    s, y = steps[kept[-HISTORY:]].T, bends[kept[-HISTORY:]].T  # (P, M)
    products = s.T @ y
    inverse, none = torch.linalg.inv(products.triu()), torch.zeros_like(products)
    inner = inverse.T @ (products.diagonal().diag() + y.T @ (diagonal[:, None] * y)) @ inverse
    g = torch.cat([torch.cat([none, -inverse], 1), torch.cat([-inverse.T, inner], 1)])
    a = torch.cat([diagonal[:, None] * y, s], 1)
    q, r = torch.linalg.qr(a / diagonal.sqrt()[:, None])
    factor, _ = torch.linalg.cholesky_ex(torch.eye(len(r), dtype=r.dtype) + r @ g @ r.T)
    slope = slopes[-1]
    return PathGaussian(points[-1] + diagonal * slope + a @ (g @ (a.T @ slope)), diagonal.sqrt(), q, factor)


def smoothed(logs: Tensor) -> tuple[Tensor, float]:
    """Return importance weights (S,) that sum to 1 from their logarithms, the largest smoothed, and the k of their tail.

    The min(S / 5, 3 √S) largest become quantiles of the generalised Pareto distribution that fits them (Vehtari, Simpson, Gelman, Yao &
    Gabry 2024, "Pareto smoothed importance sampling"; Zhang & Stephens 2009 for the fit). Fewer than 5 tell no k, which is then ∞.
    """
    ordered, places = (logs.double() - logs.max()).sort()
    size = math.ceil(min(0.2 * len(logs), 3 * math.sqrt(len(logs))))
    weights, k = torch.empty_like(ordered), math.inf
    if size >= 5:
        cut = ordered[-size - 1].exp().clamp(min=torch.finfo(torch.float64).tiny)
        x = (ordered[-size:].exp() - cut).clamp(min=1e-300)
        count = 30 + int(math.sqrt(size))
        grid = 1 - (count / (torch.arange(count, dtype=torch.float64) + 0.5)).sqrt()
        theta = grid / (3 * x[int(size / 4 + 0.5) - 1]) + 1 / x[-1]
        shapes = torch.log1p(-theta[:, None] * x).mean(dim=1)
        best = theta @ torch.softmax(size * ((-theta / shapes).log() - shapes - 1), 0)
        k = float(torch.log1p(-best * x).mean())
        scale, k = -k / float(best), (size * k + 5) / (size + 10)  # a prior of ten weights at k = .5
        levels = (torch.arange(size, dtype=torch.float64) + 0.5) / size
        ordered[-size:] = (cut + scale * torch.expm1(-k * torch.log1p(-levels)) / k).log().clamp(max=0)
    weights[places] = torch.softmax(ordered, 0)
    return weights, k


def pathfinder(
    prior: Prior, counted: Counted, budget: int, generator: torch.Generator, advance: Advance
) -> list[Tensor]:
    """Return draws (1, P): by importance among those that were evaluated, or in equal parts of the Gaussians of all paths.

    The latter where Pareto's k is above `RELIABLE`, as it is for more than some twenty parameters; without the paths whose evidence bound
    is more than P nats below the best.
    """
    density = Scaled(counted, prior.variance, torch.ones(prior.parameters))

    def weighed(one: PathGaussian, count: int) -> tuple[Tensor, Tensor]:
        """Return draws (S, P) and log π - log q (S,), -∞ where it is not finite."""
        draws, log_q = one.draw(count, generator)
        ratio = density(draws.float())[0] - log_q
        return draws, torch.where(ratio.isfinite(), ratio, -math.inf)

    starts = prior.starts(int(np.clip(budget // PER_PATH, 1, MOST_PATHS)), generator)
    found: list[tuple[float, PathGaussian]] = []
    evaluated: list[tuple[Tensor, Tensor]] = []
    for number, start in enumerate(starts):
        before = counted.used
        end = before + (budget - before) // (len(starts) - number)
        points, slopes = climb(density, start, before + int(CLIMB * (end - before)))
        count = max(1, (end - counted.used) // (2 * ELBO_DRAWS))
        rows = np.unique(np.linspace(len(points), 2 + (len(points) - 2) // 2, count).round().astype(int))
        known = [one for row in rows if (one := gaussian_at(points[:row], slopes[:row], prior.variance))]
        scored = [(float(weighed(one, ELBO_DRAWS)[1].mean()), one) for one in known]
        if scored and math.isfinite(max(bound for bound, _ in scored)):
            found.append(max(scored, key=lambda one: one[0]))
            evaluated.append(weighed(found[-1][1], max(1, end - counted.used)))
        advance(counted.used - before)
    if not found:
        return [starts[:1]]
    weights, k = smoothed(torch.cat([logs for _, logs in evaluated]))
    if k <= RELIABLE:
        taken = torch.multinomial(weights, DRAWS, replacement=True, generator=generator)
        draws = torch.cat([some for some, _ in evaluated])[taken]
    else:
        top = max(bound for bound, _ in found)
        arrived = [one for bound, one in found if bound >= top - prior.parameters]
        draws = torch.cat([one.draw(-(-DRAWS // len(arrived)), generator)[0] for one in arrived])
    return list(torch.split(draws.to(starts.dtype), 1))
