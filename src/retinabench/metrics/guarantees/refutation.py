"""Whether labelled new patients refute or confirm a bound on a risk, E[num] / E[den] <= goal.

The risk is that of the very estimand that was certified: for the error of the retained images, num and den are 1 for a wrong
retained and for a retained image (per image), or these divided by the number of images of the patient (per image of a random
patient). With the ratio r and the effective number of images m of `inference.proportions`, which allows for the dependence of
the images of a patient, and k = r m, the tests are those of Clopper and Pearson: P(Binomial(m, goal) >= k) refutes the bound where
it is small, P(Binomial(m, goal) <= k) confirms it, both continued to real k and m by the incomplete beta function. The exact
interval of `clustered_proportion` is what these tests do not reject. `benchmarks/new_data.py` has their error rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from retinabench.core.errors import InputError
from retinabench.core.results import Document
from retinabench.metrics.bootstrap import cluster_codes
from retinabench.metrics.intervals import holm
from retinabench.metrics.proportions import effective_images

Verdict = Literal["broken", "holds", "not refuted"]
LEVEL = 0.05


@dataclass(frozen=True)
class Refutation(Document):
    """What the labels of a set say about one certified bound."""

    risk: float
    goal: float
    patients: int
    p_broken: float
    p_holds: float
    verdict: Verdict
    tests: int
    level: float


@dataclass(frozen=True, eq=False)
class LabelledRisk:
    """A certified risk on N labelled images.

    Shapes: `num` (N,), `den` (N,), `patient` (N,).
    """

    num: ArrayLike
    den: ArrayLike
    patient: ArrayLike
    goal: float


def ratio_p_values(risk: LabelledRisk, level: float = LEVEL) -> tuple[float, float]:
    """Return the p-values of "at most the goal" and of "at least the goal"."""
    num, den = np.asarray(risk.num, np.float64), np.asarray(risk.den, np.float64)
    if not 0 < risk.goal < 1:
        raise InputError(f"the goal is {risk.goal}", hint="It lies between 0 and 1.")
    if np.any(num < 0) or np.any(num > den + 1e-9):
        raise InputError("a numerator lies outside 0 … its denominator")
    counted = den > 0
    if not counted.any():
        return 1.0, 1.0
    codes, _ = cluster_codes(np.asarray(risk.patient)[counted])
    success = np.minimum(num[counted] / den[counted], 1.0)
    trials = effective_images(success, den[counted], codes, 1 - 2 * level)
    hits = trials * float(num.sum() / den.sum())
    broken = special.betainc(hits, max(trials - hits, 0) + 1, risk.goal) if hits > 0 else 1.0
    holds = special.betaincc(hits + 1, trials - hits, risk.goal) if hits < trials else 1.0
    return float(broken), float(holds)


def judge(risks: Sequence[LabelledRisk]) -> list[Refutation]:
    """Judge several certified bounds, on one or several sets, by the labels of these sets.

    `broken` and `holds` are each given at the family-wise level `LEVEL`: among all bounds that are kept, one is called broken with
    at most this probability, and among all that are not kept one is called held.
    """
    if not risks:
        return []
    pairs = np.array([ratio_p_values(one, LEVEL) for one in risks])
    broken, holds = holm(pairs[:, 0]) <= LEVEL, holm(pairs[:, 1]) <= LEVEL
    found = []
    for one, (p_broken, p_holds), refuted, confirmed in zip(risks, pairs, broken, holds, strict=True):
        den = np.asarray(one.den, np.float64)
        ratio = float(np.sum(one.num) / den.sum()) if den.sum() > 0 else float("nan")
        verdict: Verdict = "broken" if refuted else "holds" if confirmed else "not refuted"
        found.append(
            Refutation(
                ratio, one.goal, len(np.unique(np.asarray(one.patient)[den > 0])), float(p_broken), float(p_holds), verdict,
                len(risks), LEVEL,
            )
        )  # fmt: skip
    return found
