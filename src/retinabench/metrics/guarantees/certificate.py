"""Referral thresholds with a finite-sample guarantee, from validation patients alone.

**The claim.** With probability at least 1 - delta over the draw of the validation patients, the certified threshold t satisfies every
goal, E[num(t)] / E[den(t)] <= goal (`risks.py`), for new patients of the same population. Nothing is assumed of the model, the
uncertainty, or of how images of one patient depend on each other; only that patients are independent draws, that the rule
(model, decision threshold, uncertainty, goals) was fixed without their labels, and that no patient has more images than
`most_images` (the largest number among the validation patients, unless it is given).

**One sequence, no planning part.** Candidates are all observed uncertainties, in ascending order (with more than 2,000 images, rounded up
to three digits, which is a part of the rule). Each is tested with all images
(`betting.py`); the last candidate before the first failure is certified. For one goal, let t* be the smallest threshold with a risk
above the goal: a fixed number. The images retained at the largest observed uncertainty <= t* are those retained at t* itself.
A sequence that ends beyond t* has thus passed the test *at t**, a fixed threshold whose null hypothesis is true: that happens with
probability <= delta, however many candidates there are.

**Where it begins.** Of targets that are a share of all images, or of all referable ones, the risk is 0 where all images are referred, and
the sequence begins there. A risk among the retained needs retained images: there the sequence begins at s, the k-th smallest of
the patients' *smallest* uncertainties among images that count, with k fixed by the number of patients who have such an image, goal, delta and
the usual number of images of a patient.

- The risk at s is above the goal: given s, the k - 1 patients with a smaller value are independent draws of those who retain an image at s,
  and patients with a larger one retain none. The test at s is passed with probability <= delta.
- The risk at s is at most the goal, and t* is the first threshold beyond s where it is not: then at least k patients retain an image at
  t*. Given their number they are independent draws, and the test at t* is passed with probability <= delta.

The two cases exclude each other, so that delta covers both. A second sequence with a tenth of delta begins where every patient with an image
that counts retains one (k is the number of these patients). It is run if the first one does not reach the end, and is used only if it does.

**Where the argument is not exact.** (a) The k-th patient, whose smallest uncertainty is s, is no such draw: one of k patients. (b) If many
patients share the value s, the event that the sequence begins there says something about how many of them lie below it. (c) If the
risk is above the goal on several separate stretches of thresholds (of any of the goals), and s falls now on one, now on the other side of
the end of a stretch, the bound is delta times their number. (d) Which uncertainties are rounded, the usual number of images, and `most_images`
where it is not given are read off the validation images, without their labels. In populations made to be such, with the risk just above the goal
wherever it may be, no more certificates than delta were wrong (`benchmarks/guarantees.py --adversarial`).

**Several goals.** The threshold is the smallest of those certified for each goal. If it breaks a goal, it lies beyond the smallest t* of all
goals, and the sequence of the goal with this t*, a fixed one, ended beyond it: still delta, not delta times the number of goals. It must not lie below
the place where the sequence of a goal begins, of which nothing was tested: that is refused. A bound on the share referred pulls the
other way (its sequence begins where no image is referred, and refers more and more): the two directions then have delta / 2 each.

References:
    Angelopoulos, Bates, Candès, Jordan and Lei, Learn then Test: calibrating predictive algorithms to achieve risk control, Ann. Appl.
    Stat. 19:1641 (2025), arXiv 2110.01052, for fixed-sequence testing and several risks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from retinabench.core.errors import InputError
from retinabench.metrics.guarantees.betting import TARGET, evidence, orders
from retinabench.metrics.guarantees.risks import Cases, Goal

Floats = NDArray[np.float64]
MANY = 2000  # images from which on uncertainties are rounded
LEAST_VALUES = 100  # unless that would leave fewer candidates
BATCH = 64  # candidates that are tested together
START = 1.5  # the sequence begins with this many times the patients that could pass without an error …
SHARE = 0.25  # … and with at least this share of the patients
SECOND = 0.1  # share of delta of the sequence that begins where every patient retains an image


@dataclass(frozen=True)
class Step:
    """One test of a sequence.

    Args:
        threshold: Images with a larger uncertainty are referred.
        risk: sum num / sum den of the validation images at the threshold.
        patients: Patients with an image in den.
        p_value: Of "the risk is above the goal".
    """

    threshold: float
    risk: float
    patients: int
    p_value: float


@dataclass(frozen=True)
class Certified:
    """The sequence of one goal.

    Args:
        goal: The goal.
        delta: Level of its tests.
        threshold: The last threshold that passed; infinity: refer no image, minus infinity: every image; None: refused.
        first: The first test.
        last: The last test that passed, or the first one where none did.
        tests: Number of tests.
        why: Why it was refused.
        needed: Patients that would be needed, as far as these data can tell.
    """

    goal: Goal
    delta: float
    threshold: float | None
    first: Step
    last: Step
    tests: int
    why: str | None = None
    needed: int | None = None


@dataclass(frozen=True)
class Certificate:
    """A threshold that satisfies all goals with confidence 1 - delta, or None with the reason.

    Args:
        threshold: Refer where uncertainty > threshold; infinity: no image, minus infinity: every image; None: refused.
        delta: Probability of a wrong certificate.
        goals: The sequence of each goal.
        patients: Number of validation patients.
        most_images: The largest number of images of a patient that the claim covers.
        why: Why it was refused.
        needed: Patients that would be needed, as far as these data can tell; None if no number is expected to suffice.
    """

    threshold: float | None
    delta: float
    goals: tuple[Certified, ...]
    patients: int
    most_images: int
    why: str | None = None
    needed: int | None = None

    @property
    def granted(self) -> bool:
        """Whether a threshold is certified."""
        return self.threshold is not None

    @property
    def begins(self) -> float:
        """The least threshold of which the certificate says anything: all candidates from here to `threshold` are certified too."""
        return max(
            (one.first.threshold for one in self.goals if one.goal.spec.den_retained), default=-math.inf
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain dictionaries."""
        goals = [
            {**vars(one), "goal": one.goal.to_dict(), "first": vars(one.first), "last": vars(one.last)}
            for one in self.goals
        ]
        return {**vars(self), "goals": goals}


def certify(
    cases: Cases,
    goals: Sequence[Goal],
    delta: float = 0.1,
    *,
    most_images: int | None = None,
    share: float = SHARE,
) -> Certificate:
    """Certify the threshold that refers the fewest images and satisfies every goal with confidence 1 - delta.

    Claim, assumptions and proof are at the top of this file. The result does not depend on the order of the rows, on the names of the
    patients, or on a seed.

    Args:
        cases: The validation images.
        goals: What to satisfy; a goal for `referral_rate` alone certifies the threshold that refers the most.
        delta: In (0, 1).
        most_images: The largest number of images that a patient can have; None: that of the validation patients.
        share: Share of the patients with which the sequence of a risk among the retained begins, fixed beforehand.

    Returns:
        The certificate, with a threshold or the reason why there is none.

    Raises:
        InputError: A goal or delta is not in (0, 1), or a patient has more images than `most_images`.

    Examples:
        >>> import numpy as np
        >>> from retinabench.metrics.guarantees.risks import Cases, Goal
        >>> right, n = np.arange(200) % 2 == 0, 200
        >>> cases = Cases(right, right, np.linspace(0, 1, n), np.arange(n), np.ones(n))
        >>> certify(cases, [Goal("selective_risk", 0.05)], 0.1).threshold
        inf
    """
    for name, value in [("delta", delta), *((goal.target, goal.value) for goal in goals)]:
        if not 0 < value < 1:
            raise InputError(f"{name} is {value:g}", hint="To be certified, it lies between 0 and 1.")
    largest = cases.most_images
    if most_images is not None and most_images < largest:
        raise InputError(f"a patient has {largest} images, more than {most_images}", column="patient_id")
    most = most_images or largest
    cases = replace(cases, uncertainty=rounded_up(cases.uncertainty))
    two_ways = len({goal.spec.of_referred for goal in goals}) == 2
    level = delta / 2 if two_ways else delta
    found = tuple(_certified(cases, goal, level, most, share) for goal in goals)
    certificate = Certificate(None, delta, found, int(cases.patient.max()) + 1, most)
    refused = [one for one in found if one.threshold is None]
    if refused:
        needed = [one.needed for one in refused if one.needed is not None]
        return replace(
            certificate,
            why="; ".join(f"for {one.goal.words}, {one.why}" for one in refused),
            needed=max(needed) if len(needed) == len(refused) else None,
        )
    return replace(certificate, **_together(certificate))


def _together(certificate: Certificate) -> dict[str, Any]:
    """The threshold that the sequences of all goals certify, or why there is none."""
    found = certificate.goals
    up = [
        float(one.threshold) for one in found if one.threshold is not None and not one.goal.spec.of_referred
    ]
    down = [float(one.threshold) for one in found if one.threshold is not None and one.goal.spec.of_referred]
    if up and down and min(up) < max(down):
        why = "no threshold satisfies both the bound on referral and the other goals with this confidence"
        return {"why": why}
    if up and -math.inf < min(up) < certificate.begins:
        narrow = next(one.goal for one in found if one.threshold == min(up))
        late = max((one for one in found if one.goal.spec.den_retained), key=lambda one: one.first.threshold)
        why = f"{narrow} is certified for fewer images only than those with which the tests of {late.goal} begin"
        return {"why": why}
    return {"threshold": min(up) if up else max(down)}


def rounded_up(uncertainty: Floats) -> Floats:
    """Return the (N,) uncertainties, those of many images rounded up to three digits: such a value retains the same images."""
    if len(uncertainty) <= MANY:
        return uncertainty
    with np.errstate(divide="ignore"):
        place = np.where(uncertainty != 0, np.floor(np.log10(np.abs(uncertainty))), 0.0)
    unit = 10.0 ** (place - 2)
    rounded = np.maximum(np.ceil(uncertainty / unit - 1e-9) * unit, uncertainty)
    return np.asarray(rounded if len(np.unique(rounded)) >= LEAST_VALUES else uncertainty)


# ------------------------------------------------------------------------------------------- the sequence of a goal


@dataclass(frozen=True, eq=False)
class _Path:
    """Images in the order in which they are retained (referred, for the share referred), and what each adds to its patient.

    Args:
        place: (N,) thresholds in ascending order of the sequence: uncertainty, or minus it.
        patient: (N,) patients, numbered by their content.
        num: (N,) what the image adds to num.
        den: (N,) what it adds to den.
        base: (P,) den of each patient where nothing is retained.
    """

    place: Floats
    patient: NDArray[np.intp]
    num: Floats
    den: Floats
    base: Floats

    @classmethod
    def of(cls, cases: Cases, goal: Goal) -> _Path:
        spec = goal.spec
        among = spec.among(cases) * cases.weight
        num = spec.counted(cases) * cases.weight
        den = among if spec.den_retained else np.zeros(len(cases))
        always = np.zeros(len(cases)) if spec.den_retained else among
        place = -cases.uncertainty if spec.of_referred else cases.uncertainty
        patient = _by_content(np.column_stack([place, num, den, always]), cases.patient)
        order = np.lexsort((always, den, num, patient, place))
        base = np.bincount(patient[order], always[order])
        return cls(place[order], patient[order], num[order], den[order], np.asarray(base, np.float64))


def _by_content(content: Floats, patient: NDArray[np.intp]) -> NDArray[np.intp]:
    """(N,) patients renumbered by what they hold: (N, D) `content` of the images decides, not names or rows."""
    rank = np.unique(content, axis=0, return_inverse=True)[1].reshape(-1)
    order = np.lexsort((rank, patient))
    counts = np.bincount(patient)
    within = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    table = np.full((len(counts), counts.max()), -1)
    table[patient[order], within] = rank[order]
    new = np.empty(len(counts), np.intp)
    new[np.lexsort(table.T[::-1])] = np.arange(len(counts))
    return np.asarray(new[patient])


def _certified(cases: Cases, goal: Goal, delta: float, most_images: int, share: float) -> Certified:
    """Run the sequences of a goal."""
    path = _Path.of(cases, goal)
    patients = len(path.base)
    per_image = bool(np.all(cases.weight == 1))  # the images of a patient add up
    bound = (1 - goal.max_risk) * (most_images if per_image else 1)
    usual = max(1, round(len(cases) / patients))
    # The weight that a patient with retained images usually retains.
    retained = (1 + usual) / 2 / (1 if per_image else usual)
    possible = math.ceil(math.log(TARGET / delta) / math.log1p(goal.max_risk * retained / bound))
    begins = [(-math.inf, delta)]
    if goal.spec.den_retained:
        first, second = _starts(path, math.ceil(START * possible), share)
        begins = [(first, (1 - SECOND) * delta), (second, SECOND * delta)]

    def run(start: float, level: float) -> tuple[Certified, bool]:
        """The result of a sequence, and whether it reached the end."""
        steps = _steps(path, start, goal.max_risk, bound, level, binomial=most_images == 1)
        tested = _until_failure(steps, level)
        if not tested or not tested[0].patients:
            raise InputError(f"no validation image counts for {goal.target}")
        ended = tested[-1].p_value <= level
        passed = tested if ended else tested[:-1]
        if not passed:
            why, needed = _refusal(tested[0], goal.max_risk, delta, possible, patients)
            return Certified(goal, level, None, tested[0], tested[0], 1, why, needed), False
        rule = _rule(passed[-1].threshold, cases, goal)
        return Certified(goal, level, rule, tested[0], passed[-1], len(tested)), ended

    found, ended = run(*begins[0])
    if not ended and len(begins) > 1:
        later, ended = run(*begins[1])
        return later if ended else found
    return found


def _rule(place: float, cases: Cases, goal: Goal) -> float:
    """The threshold of the uncertainty that the last place of a sequence stands for."""
    u = cases.uncertainty
    if goal.spec.of_referred:  # refers u >= -place: the threshold is the next smaller value
        below = u[u < -place]
        return float(below.max()) if len(below) else -math.inf
    return math.inf if place >= u.max() else place


def _until_failure(steps: Iterator[Step], delta: float) -> list[Step]:
    """The tests up to the first failure, which is included."""
    tested: list[Step] = []
    for step in steps:
        tested.append(step)
        if step.p_value > delta:
            break
    return tested


def _starts(path: _Path, least: int, share: float) -> tuple[float, float]:
    """The places at which `least` patients, or a share of all, and at which all retain an image that counts."""
    counts = path.den > 0
    smallest = np.full(len(path.base), np.inf)
    np.minimum.at(smallest, path.patient[counts], path.place[counts])
    smallest = np.sort(smallest[np.isfinite(smallest)])
    if not len(smallest):
        return math.inf, math.inf
    k = min(max(least, math.ceil(share * len(smallest))), len(smallest))
    return float(smallest[k - 1]), float(smallest[-1])


def _steps(
    path: _Path, start: float, goal: float, bound: float, delta: float, *, binomial: bool
) -> Iterator[Step]:
    """The tests in ascending order from `start` on, each with its p-value."""
    ends = np.flatnonzero(np.append(path.place[1:] != path.place[:-1], True)) + 1
    ends = ends[path.place[ends - 1] >= start]
    order = orders(len(path.base))
    num, den = np.zeros(len(path.base)), path.base.copy()
    done = 0
    if start == -math.inf:
        ends = np.append(0, ends)
    for batch in (ends[k : k + BATCH] for k in range(0, len(ends), BATCH)):
        nums, dens = np.empty((len(batch), len(num))), np.empty((len(batch), len(num)))
        for row, end in enumerate(batch):
            np.add.at(num, path.patient[done:end], path.num[done:end])
            np.add.at(den, path.patient[done:end], path.den[done:end])
            nums[row], dens[row], done = num, den, int(end)
        if binomial:
            p_values = stats.binom.cdf(nums.sum(axis=1).round(), dens.sum(axis=1).round(), goal)
            p_values[dens.sum(axis=1) == 0] = 1
        else:
            p_values = 1 / np.maximum(evidence(nums - goal * dens, goal * dens, bound, delta, order), 1)
        for end, n, d, p in zip(batch, nums, dens, p_values, strict=True):
            total = float(d.sum())
            place = float(path.place[end - 1]) if end else -math.inf
            yield Step(place, float(n.sum()) / total if total else math.nan, int((d > 0).sum()), float(p))


def _refusal(first: Step, goal: float, delta: float, possible: int, patients: int) -> tuple[str, int | None]:
    """Why the first test failed, and about how many patients of this kind would let it pass."""
    found = f"{first.risk:.3g} in the {first.patients} patients of the first test"
    if not first.risk < goal:
        return f"the risk is {found}, no lower than {goal:.3g}", None
    z = float(stats.norm.isf(delta / 2))
    spread = max(first.risk, 0.2 * goal) * z**2 / (goal - first.risk) ** 2
    needed = math.ceil(max(START * possible, spread) * patients / first.patients)
    return f"the risk is {found}; they are too few to show at most {goal:.3g}", max(needed, patients + 1)
