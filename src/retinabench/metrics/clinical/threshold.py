"""The referral threshold that reaches a target on given images, by its plain estimate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError, nearest
from retinabench.metrics.inference.proportions import binary
from retinabench.metrics.uncertainty import uncertainties

TARGETS = ("accuracy", "selective_risk", "sensitivity", "referral_rate")


@dataclass(frozen=True)
class Choice:
    """A threshold (refer iff uncertainty > threshold), what it does on the validation images; None where none serves."""

    target: str
    goal: float
    threshold: float | None
    value: float | None
    referral_rate: float | None
    why: str | None = None


def choose_threshold(
    label: ArrayLike, positive: ArrayLike, uncertainty: ArrayLike, target: str, goal: float
) -> Choice:
    """The threshold that reaches `target` on these images, by its plain estimate.

    label, positive: (N,) truth and the model's call; uncertainty: (N,). Candidates: every distinct uncertainty, and minus
    infinity (refer all) for sensitivity. The one that refers *fewest* among those with

    - `accuracy`: accuracy of the retained >= goal,
    - `selective_risk`: error rate of the retained <= goal,
    - `sensitivity`: (true positives retained + positives referred) / positives >= goal: an expert reads the referred;

    or, for `referral_rate`, the one that refers *most* among those that refer at most a share `goal`.

    An estimate chosen as the best of many is optimistic: about every second such threshold misses its goal on new
    patients. `certify_threshold` gives a bound instead.
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

    def kept(case: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.asarray(np.append(0, np.cumsum(case[order])[ends]))

    rate = 1 - retained / len(u)
    with np.errstate(invalid="ignore", divide="ignore"):
        risk = kept(y != said) / retained  # NaN where nothing is retained
        # Counted, not subtracted from 1, as far as it goes: a goal met exactly is met.
        accuracy = kept(y == said) / retained
        found = (int(y.sum()) - kept(y & ~said)) / np.float64(y.sum())
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
