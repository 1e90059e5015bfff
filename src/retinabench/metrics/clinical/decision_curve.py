"""What a decision is worth: predictive values at a stated prevalence, and net benefit (the decision curve).

>>> round(predictive_values(0.9, 0.8, 0.1)[0], 6)
0.333333
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from retinabench.core.errors import InputError
from retinabench.metrics.clinical.operating_points import TwoByTwo
from retinabench.metrics.inference.proportions import binary

Floats = NDArray[np.float64]
THRESHOLDS = np.round(np.arange(0.05, 0.501, 0.01), 2)


def predictive_values(sensitivity: float, specificity: float, prevalence: float) -> tuple[float, float]:
    """Return the predictive values at a stated prevalence q, by Bayes: a study's own values hold at its own mix only.

    PPV = sens q / (sens q + (1 - spec)(1 - q)), NPV = spec (1 - q) / (spec (1 - q) + (1 - sens) q).

    Args:
        sensitivity: In [0, 1].
        specificity: In [0, 1].
        prevalence: In [0, 1].

    Returns:
        PPV and NPV; NaN for 0/0.

    Raises:
        InputError: The prevalence is not in [0, 1].
    """
    if not 0 <= prevalence <= 1:
        raise InputError(f"the prevalence is {prevalence}", hint="A prevalence lies between 0 and 1.")
    found, false_alarm = sensitivity * prevalence, (1 - specificity) * (1 - prevalence)
    cleared, missed = specificity * (1 - prevalence), (1 - sensitivity) * prevalence
    ppv = found / (found + false_alarm) if found + false_alarm else float("nan")
    npv = cleared / (cleared + missed) if cleared + missed else float("nan")
    return ppv, npv


def predictive_value_intervals(
    table: TwoByTwo, prevalence: float, level: float = 0.95
) -> dict[str, tuple[float, float, float]]:
    """Return the predictive values of a 2x2 table of independent cases, with logit intervals.

    var logit PPV = (1 - sens)/(n1 sens) + spec/(n0 (1 - spec)), var logit NPV = sens/(n1 (1 - sens)) + (1 - spec)/(n0 spec),
    with n1 positives and n0 negatives. Where a cell is empty, sens and spec are taken as (k + z^2/2) / (n + z^2) in the
    interval, which is then conservative.

    Args:
        table: The 2x2 table.
        prevalence: The stated prevalence.
        level: Level of the intervals.

    Returns:
        `ppv` and `npv` -> (value, low, high); NaN for an absent class or a prevalence of 0 or 1.

    References:
        Mercaldo, Lau and Zhou, Confidence intervals for predictive values with an emphasis to case-control studies, Stat. Med.
        26:2170 (2007).
    """
    z = float(stats.norm.ppf((1 + level) / 2))
    values = predictive_values(table.sensitivity, table.specificity, prevalence)
    (tp, n1), (tn, n0) = table.counts("sensitivity"), table.counts("specificity")
    if not n1 or not n0 or not 0 < prevalence < 1:
        return {
            name: (value, float("nan"), float("nan"))
            for name, value in zip(("ppv", "npv"), values, strict=True)
        }
    if min(tp, n1 - tp, tn, n0 - tn) == 0:
        sens, spec = (tp + z**2 / 2) / (n1 + z**2), (tn + z**2 / 2) / (n0 + z**2)
    else:
        sens, spec = tp / n1, tn / n0
    variances = (
        (1 - sens) / (n1 * sens) + spec / (n0 * (1 - spec)),
        sens / (n1 * (1 - sens)) + (1 - spec) / (n0 * spec),
    )
    out = {}
    centres = predictive_values(sens, spec, prevalence)
    for name, value, centre, variance in zip(("ppv", "npv"), values, centres, variances, strict=True):
        low, high = special.expit(special.logit(centre) + np.array([-z, z]) * np.sqrt(variance))
        # The adjusted centre may leave an estimate of 0 or 1 outside; an interval holds its estimate.
        out[name] = (value, float(np.fmin(low, value)), float(np.fmax(high, value)))
    return out


@dataclass(frozen=True)
class DecisionCurve:
    """Net benefit at each threshold probability, in true positives per case; (T,) each."""

    threshold: Floats
    model: Floats
    treat_all: Floats
    standardised: Floats
    treat_none: float = 0.0


def net_benefit(
    label: ArrayLike,
    prob: ArrayLike,
    thresholds: ArrayLike = THRESHOLDS,
    *,
    referred: ArrayLike | None = None,
    reader: tuple[float, float] = (1.0, 1.0),
    referral_cost: float = 0.0,
    weight: ArrayLike | None = None,
) -> DecisionCurve:
    """Return the decision curve: NB(t) = TP/n - FP/n * t / (1 - t), positive where prob >= t.

    Treating all has q - (1 - q) t / (1 - t) with q the prevalence, treating none 0; standardised is NB / q. With `referred` the
    model's call counts for the retained only; a reader decides on the referred, and `referral_cost` true positives are paid
    for each of them: NB(t) - referral_cost * referred / n.

    Args:
        label: (N,) 0 or 1.
        prob: (N,) P(label = 1).
        thresholds: (T,) threshold probabilities in [0, 1).
        referred: (N,) whether the image is referred; None: none is.
        reader: Sensitivity and specificity of the reader.
        referral_cost: In true positives per referred image.
        weight: (N,) images that each row stands for; None: 1 each.

    Returns:
        The curve; `standardised` is NaN without positives.

    Raises:
        InputError: A threshold is outside [0, 1), or the arrays do not fit each other.

    References:
        Vickers and Elkin, Decision curve analysis, Med. Decis. Making 26:565 (2006).
    """
    y, p = binary(label, "label"), np.asarray(prob, np.float64)
    t = np.atleast_1d(np.asarray(thresholds, np.float64))
    if ((t < 0) | (t >= 1)).any():
        raise InputError("a threshold probability lies outside [0, 1)")
    sent = np.zeros(len(y), bool) if referred is None else binary(referred, "referred")
    w = np.ones(len(y)) if weight is None else np.asarray(weight, np.float64)
    if not len(y) == len(p) == len(sent) == len(w):
        raise InputError(
            f"{len(p)} probabilities, {len(sent)} referrals and {len(w)} weights for {len(y)} labels"
        )
    n, odds = w.sum(), t / (1 - t)

    def at_least(case: NDArray[np.bool_]) -> Floats:
        order = np.argsort(p[case], kind="stable")
        below = np.append(0.0, np.cumsum(w[case][order]))
        return np.asarray(below[-1] - below[np.searchsorted(p[case][order], t, "left")])

    s, specificity = reader
    tp = at_least(y & ~sent) + s * w[y & sent].sum()
    fp = at_least(~y & ~sent) + (1 - specificity) * w[~y & sent].sum()
    model = (tp - odds * fp) / n - referral_cost * w[sent].sum() / n
    prevalence = float(w[y].sum() / n)
    with np.errstate(invalid="ignore", divide="ignore"):
        standardised = model / prevalence if prevalence > 0 else np.full(len(t), np.nan)
    return DecisionCurve(t, model, prevalence - (1 - prevalence) * odds, standardised)
