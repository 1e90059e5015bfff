"""The referral threshold that reaches a target on given images, and what a frozen threshold does to others."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError, nearest
from retinabench.metrics.clinical.screening import referral_view_intervals
from retinabench.metrics.guarantees.resemblance import Resemblance
from retinabench.metrics.inference.bootstrap import cluster_bootstrap, percentile_interval
from retinabench.metrics.inference.interval import Interval
from retinabench.metrics.inference.proportions import binary
from retinabench.metrics.uncertainty import uncertainties

Floats = NDArray[np.float64]
TARGETS = ("accuracy", "selective_risk", "sensitivity", "referral_rate")


@dataclass(frozen=True)
class Choice:
    """A threshold (refer where uncertainty > threshold) and what it does on the validation images.

    Args:
        target: What was to be reached.
        goal: The value to reach.
        threshold: The threshold; None where none reaches the goal.
        value: The value of the target at the threshold.
        referral_rate: Share of the images referred at the threshold.
        why: Why there is no threshold.
    """

    target: str
    goal: float
    threshold: float | None
    value: float | None
    referral_rate: float | None
    why: str | None = None


def choose_threshold(
    label: ArrayLike, positive: ArrayLike, uncertainty: ArrayLike, target: str, goal: float
) -> Choice:
    """Choose the threshold that reaches a target on these images, by its plain estimate.

    Candidates are every distinct uncertainty, and minus infinity (refer all) for sensitivity. For `accuracy` (of the
    retained, at least the goal), `selective_risk` (error rate of the retained, at most the goal) and `sensitivity` ((true
    positives retained + positives referred) / positives, at least the goal: an expert reads the referred), the threshold
    that refers the fewest images is chosen; for `referral_rate` the one that refers most, but at most a share `goal`.

    An estimate chosen as the best of many is optimistic: about every second such threshold misses its goal on new
    patients. `certify_threshold` gives a bound instead.

    Args:
        label: (N,) 0 or 1.
        positive: (N,) the model's call.
        uncertainty: (N,) finite.
        target: One of `TARGETS`.
        goal: The value to reach, in [0, 1].

    Returns:
        The threshold, or why there is none.

    Raises:
        InputError: The target is unknown or the goal is not in [0, 1].
    """
    if target not in TARGETS:
        raise InputError(f"unknown target '{target}'", hint=nearest(target, TARGETS))
    if not 0 <= goal <= 1:
        raise InputError(f"the goal is {goal}", hint="A goal lies between 0 and 1.")
    y, said = binary(label, "label"), binary(positive, "positive")
    u = uncertainties(uncertainty, len(y))
    order = np.argsort(u, kind="stable")
    ranked = u[order]
    ends = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))
    thresholds = np.append(-np.inf, ranked[ends])
    retained = np.append(0, ends + 1)

    def retained_count(case: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.asarray(np.append(0, np.cumsum(case[order])[ends]))

    rate = 1 - retained / len(u)
    with np.errstate(invalid="ignore", divide="ignore"):
        risk = retained_count(y != said) / retained  # NaN where nothing is retained
        # Counted, not subtracted from 1, as far as it goes: a goal met exactly is met.
        accuracy = retained_count(y == said) / retained
        found = (int(y.sum()) - retained_count(y & ~said)) / np.float64(y.sum())
    value = {"accuracy": accuracy, "selective_risk": risk, "sensitivity": found, "referral_rate": rate}[
        target
    ]
    with np.errstate(invalid="ignore"):
        met = value <= goal if target in ("selective_risk", "referral_rate") else value >= goal
    if not met.any():
        best = np.nanmin(value) if target == "selective_risk" else np.nanmax(value, initial=-np.inf)
        why = f"no threshold reaches it; the best is {best:.4f}" if np.isfinite(best) else "no positive image"
        return Choice(target, goal, None, None, None, why)
    places = np.flatnonzero(met)
    k = int(places[0] if target == "referral_rate" else places[-1])
    return Choice(target, goal, float(thresholds[k]), float(value[k]), float(rate[k]))


@dataclass(frozen=True)
class Realised:
    """What a frozen threshold does to a set.

    Args:
        images: Number of images.
        referred: Number of images referred.
        referral_rate: Share of the images that is referred.
        selective_risk: Share of wrong calls among the retained.
        readings: Reading of "referred" -> rate -> value with its interval; see `referral_views`.
        resemblance: Test of whether the uncertainty of the set resembles validation's; None on validation itself.
        guarantee: `not refuted`, `void` or `none`; None on validation itself.
    """

    images: int
    referred: int
    referral_rate: Interval
    selective_risk: Interval
    readings: Mapping[str, Mapping[str, Interval]]
    resemblance: Resemblance | None = None
    guarantee: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the set's part of the JSON of `retinabench transfer`."""
        content: dict[str, Any] = {
            "images": self.images,
            "referred": self.referred,
            "referral_rate": self.referral_rate.to_dict(),
            "selective_risk": self.selective_risk.to_dict(),
            "readings": {
                name: {rate: one.to_dict() for rate, one in rates.items()}
                for name, rates in self.readings.items()
            },
        }
        if self.resemblance is not None:
            content |= {"resemblance": self.resemblance.to_dict(), "guarantee": self.guarantee}
        return content


def realised(
    label: ArrayLike,
    positive: ArrayLike,
    uncertainty: ArrayLike,
    threshold: float,
    cluster: ArrayLike | Sequence[Hashable] | None = None,
    *,
    reader: tuple[float, float] = (0.9, 0.95),
    bootstrap: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> Realised:
    """Return what a frozen threshold does to a set, with intervals clustered by patient.

    Args:
        label: (N,) 0 or 1.
        positive: (N,) the model's call.
        uncertainty: (N,) finite.
        threshold: Images with a larger uncertainty are referred.
        cluster: (N,) patients; None: every image its own.
        reader: Sensitivity and specificity of the human who reads the referred images.
        bootstrap: Number of replicates.
        seed: Seed of the bootstrap.
        level: Level of the intervals.

    Returns:
        Referral rate, selective risk and the four readings.
    """
    y, said = binary(label, "label"), binary(positive, "positive")
    sent = uncertainties(uncertainty, len(y)) > threshold
    ids: Any = np.arange(len(y)) if cluster is None else cluster
    wrong = (y != said) & ~sent

    def statistic(weight: Floats) -> Floats:
        retained = float(weight[~sent].sum())
        risk = float(weight[wrong].sum()) / retained if retained else np.nan
        return np.array([1 - retained / float(weight.sum()), risk])

    values = statistic(np.ones(len(y)))
    low, high = percentile_interval(cluster_bootstrap(statistic, ids, replicates=bootstrap, seed=seed), level)
    rate, risk = (Interval(*map(float, ends)) for ends in zip(values, low, high, strict=True))
    readings = referral_view_intervals(y, said, sent, ids, reader=reader, level=level)
    return Realised(len(y), int(sent.sum()), rate, risk, readings)
