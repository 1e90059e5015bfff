"""The certificate of a threshold, and what refutes it.

**The claim.** With probability at least 1 - delta over the draw of the validation patients, the certified threshold t satisfies every
goal, E[num(t)] / E[den(t)] <= goal (`goals`), for new patients of the same population. Nothing is assumed of the model, the
uncertainty, or of how images of one patient depend on each other; only that patients are independent draws, that the rule
(model, decision threshold, uncertainty, goals) was fixed without their labels, and that no patient has more images than
`most_images` (the largest number among the validation patients, unless it is given).

**One sequence, no planning part.** Candidates are all observed uncertainties, in ascending order (with more than 2,000 images, rounded up
to three digits, which is a part of the rule). Each is tested with all images
(`sequence`); the last candidate before the first failure is certified. For one goal, let t* be the smallest threshold with a risk
above the goal: a fixed number. The images retained at the largest observed uncertainty <= t* are those retained at t* itself.
A sequence that ends beyond t* has thus passed the test *at t**, a fixed threshold whose null hypothesis is true: that happens with
probability <= delta, however many candidates there are.

**Where it begins.** Of targets that are a share of all images, or of all referable ones, the risk is 0 where all images are referred, and
the sequence begins there. A risk among the retained needs retained images: there the sequence begins at s, the k-th smallest of
the patients' *smallest* uncertainties among images that count, with k fixed by the number of patients who have such an image, goal, delta and
the usual number of images of a patient. It is two fifths of these patients or more: with fewer, errors of which the model is sure are a large part of the images.

- The risk at s is above the goal: given s, the k - 1 patients with a smaller value are independent draws of those who retain an image at s,
  and patients with a larger one retain none. The test at s is passed with probability <= delta.
- The risk at s is at most the goal, and t* is the first threshold beyond s where it is not: then at least k patients retain an image at
  t*. Given their number they are independent draws, and the test at t* is passed with probability <= delta.

The two cases exclude each other, so that delta covers both. A second sequence with a tenth of delta begins where every patient with an image
that counts retains one (k is the number of these patients). It is run if the first one does not reach the end, and is used only if it does.

**Where the argument is not exact.** (a) The k-th patient, whose smallest uncertainty is s, was not drawn independently: it is one of k patients. (b) If many
patients share the value s, the event that the sequence begins there says something about how many of them lie below it. (c) If the
risk is above the goal on several separate stretches of thresholds (of any of the goals), and s falls now on one, now on the other side of
the end of a stretch, the bound is delta times their number. (d) Which uncertainties are rounded, the usual number of images, and `most_images`
where it is not given are read off the validation images, without their labels. In populations made to be such, with the risk just above the goal
wherever it may be, no more certificates than delta were wrong (`benchmarks/guarantees.py --adversarial`).

**Several goals.** The threshold is the smallest of those certified for each goal. If it breaks a goal, it lies beyond the smallest t* of all
goals, and the sequence of the goal with this t*, a fixed one, ended beyond it: still delta, not delta times the number of goals. A threshold
below the place where the sequence of a goal begins is refused, since nothing was tested there. A bound on the share referred pulls the
other way (its sequence begins where no image is referred, and refers more and more): the two directions then have delta / 2 each.

References:
    Angelopoulos, Bates, Candès, Jordan and Lei, Learn then Test: calibrating predictive algorithms to achieve risk control, Ann. Appl.
    Stat. 19:1641 (2025), arXiv 2110.01052, for fixed-sequence testing and several risks.

The risk is that of the very estimand that was certified: for the error of the retained images, num and den are 1 for a wrong
retained and for a retained image (per image), or these divided by the number of images of the patient (per image of a random
patient). With the ratio r and the effective number of images m of `metrics.intervals`, which allows for the dependence of
the images of a patient, and k = r m, the tests are those of Clopper and Pearson: P(Binomial(m, goal) >= k) refutes the bound where
it is small, P(Binomial(m, goal) <= k) confirms it, both continued to real k and m by the incomplete beta function. The exact
interval of `clustered_proportion` is what these tests do not reject. `benchmarks/new_data.py` has their error rates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from retinabench.core.errors import InputError
from retinabench.core.results import Document, JsonObject
from retinabench.metrics.guarantees.goals import Goal, ReferralCases
from retinabench.metrics.guarantees.sequence import SHARE, GoalSequence, certified
from retinabench.metrics.intervals import effective_images
from retinabench.metrics.p_values import holm
from retinabench.metrics.weighted_images import Floats, cluster_codes

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
    """A certified risk on N labelled images. Shapes: `num` (N,), `den` (N,), `patient` (N,)."""

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
    """Judge certified bounds by the labels of their sets: of kept ones one is called broken, of broken ones one held, each with probability `LEVEL` at most."""
    if not risks:
        return []
    pairs = np.array([ratio_p_values(one, LEVEL) for one in risks])
    broken, holds = holm(pairs[:, 0]) <= LEVEL, holm(pairs[:, 1]) <= LEVEL
    found = []
    for one, (p_broken, p_holds), refuted, confirmed in zip(risks, pairs.tolist(), broken, holds, strict=True):
        den = np.asarray(one.den, np.float64)
        ratio = float(np.sum(one.num) / den.sum()) if den.sum() > 0 else math.nan
        patients = len(np.unique(np.asarray(one.patient)[den > 0]))
        verdict: Verdict = "broken" if refuted else "holds" if confirmed else "not refuted"
        found.append(Refutation(ratio, one.goal, patients, p_broken, p_holds, verdict, len(risks), LEVEL))
    return found


MANY = 2000  # images from which on uncertainties are rounded
LEAST_VALUES = 100  # unless that would leave fewer candidates


@dataclass(frozen=True)
class Certificate:
    """A threshold that satisfies all goals with confidence 1 - delta, or None with the reason."""

    threshold: float | None
    delta: float
    goals: tuple[GoalSequence, ...]
    patients: int
    most_images: int
    why: str | None = None
    needed: int | None = None

    @property
    def granted(self) -> bool:
        return self.threshold is not None

    @property
    def begins(self) -> float:
        """The least threshold of which the certificate says anything: all candidates from here to `threshold` are certified too."""
        return max((one.first.threshold for one in self.goals if one.goal.spec.den_retained), default=-math.inf)

    def to_dict(self) -> JsonObject:
        goals = [
            {**vars(one), "goal": one.goal.to_dict(), "first": vars(one.first), "last": vars(one.last)}
            for one in self.goals
        ]
        return {**vars(self), "goals": goals}


def certify(
    cases: ReferralCases,
    goals: Sequence[Goal],
    delta: float = 0.1,
    most_images: int | None = None,
    share: float = SHARE,
) -> Certificate:
    """Certify the threshold that refers the fewest images and satisfies every goal with confidence 1 - delta.

    Claim, assumptions and proof stand at the top of this file. The result does not depend on the order of the rows, on the names of the
    patients, or on a seed.

    Examples:
        >>> import numpy as np
        >>> from retinabench.metrics.guarantees.goals import ReferralCases
        >>> from retinabench.metrics.guarantees.goals import Goal
        >>> right, n = np.arange(200) % 2 == 0, 200
        >>> cases = ReferralCases(right, right, np.linspace(0, 1, n), np.arange(n), np.ones(n))
        >>> certify(cases, [Goal("selective_risk", 0.05)], 0.1).threshold
        inf
    """
    for name, value in [("delta", delta), *((goal.target, goal.value) for goal in goals)]:
        if not 0 < value < 1:
            raise InputError(f"{name} is {value:g}", hint="To be certified, it lies between 0 and 1.")
    largest = cases.most_images
    if most_images is not None and most_images < largest:
        problem = f"a patient has {largest} images, more than {most_images}"
        hint = f"Say --most-images {largest} or more, or leave it out."
        raise InputError(problem, column="patient_id", hint=hint)
    most = most_images or largest
    cases = replace(cases, uncertainty=rounded_up(cases.uncertainty))
    two_ways = len({goal.spec.of_referred for goal in goals}) == 2
    level = delta / 2 if two_ways else delta
    found = tuple(certified(cases, goal, level, most, share) for goal in goals)
    certificate = Certificate(None, delta, found, int(cases.patient.max()) + 1, most)
    refused = [one for one in found if one.threshold is None]
    if refused:
        needed = [one.needed for one in refused if one.needed is not None]
        reasons = "; ".join(f"for {one.goal.text}, {one.why}" for one in refused)
        return replace(certificate, why=reasons, needed=max(needed) if len(needed) == len(refused) else None)
    threshold, why = _together(certificate)
    return replace(certificate, threshold=threshold, why=why)


def _together(certificate: Certificate) -> tuple[float | None, str | None]:
    """The threshold that the sequences of all goals certify, or None and why there is none."""
    found = certificate.goals
    up = [float(one.threshold) for one in found if one.threshold is not None and not one.goal.spec.of_referred]
    down = [float(one.threshold) for one in found if one.threshold is not None and one.goal.spec.of_referred]
    if up and down and min(up) < max(down):
        return None, "no threshold satisfies both the bound on referral and the other goals with this confidence"
    if up and -math.inf < min(up) < certificate.begins:
        narrow = next(one.goal for one in found if one.threshold == min(up))
        late = max((one for one in found if one.goal.spec.den_retained), key=lambda one: one.first.threshold)
        why = f"{narrow} is certified for fewer images only than those with which the tests of {late.goal} begin"
        return None, why
    return min(up) if up else max(down), None


def rounded_up(uncertainty: Floats) -> Floats:
    """Return the (N,) uncertainties, those of many images rounded up to three digits: such a value retains the same images."""
    if len(uncertainty) <= MANY:
        return uncertainty
    with np.errstate(divide="ignore"):
        place = np.where(uncertainty != 0, np.floor(np.log10(np.abs(uncertainty))), 0.0)
    unit = 10.0 ** (place - 2)
    rounded = np.maximum(np.ceil(uncertainty / unit - 1e-9) * unit, uncertainty)
    return np.asarray(rounded if len(np.unique(rounded)) >= LEAST_VALUES else uncertainty)
