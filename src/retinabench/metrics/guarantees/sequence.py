"""Guarantees that hold at every look: betting and confidence sequences.

X is a patient's sum over images, num - goal * den (`goals`), so that E[X] <= 0 says that the risk E[num] / E[den] is at most the
goal. X is at most `bound`; nothing else is assumed of its distribution, so that images of one patient may depend on each other in
any way. A bettor who expects less owns W = prod_p (1 - l_p X_p), with 0 <= l_p <= 1 / bound chosen from the patients before p. If
E[X] >= 0, then E[W] <= 1, and by Markov's inequality P(W >= 1 / delta) <= delta (Waudby-Smith and Ramdas).

**Bets that aim at the deadline.** All patients are there at once, so that only the wealth after the last one matters. The stake is that
of the option that pays a fixed target if the risk turns out low, and nothing else: with mu the number of errors still expected at a
risk equal to the goal, each patient bringing one with chance q, and w = wealth / target, the wealth is kept near
P(Binomial <= m) with the m of w = Phi(2 (sqrt(m) - sqrt(mu)) / sqrt(1 - q)) (the square-root approximation): l is chosen so that an
error leaves this for m - 1 and mu - q.
Patients without an image that counts, such as healthy ones for a sensitivity, bring nothing: which they are is known beforehand, and with
it how many errors are still to come. The size of an error of a patient (two eyes may fail together) is the mean of those before, weighted by itself, of which the
first two are guessed. This decides only how large
the bets are: the test is valid for any of them, and for one image per patient it nearly agrees with the binomial test.

**No order.** A wealth depends on the order of the patients; the mean over many orders depends on it hardly, and a mean of wealths is
again at most 1 in expectation. Patients are first sorted by their content, then shuffled by fixed random numbers: neither the
order of the rows nor the names of the patients, nor a seed, change a result. So that the mean reaches 1 / delta where most orders
do, the target of each is 1.25 / delta.

**Few patients.** A bettor who reckons with two errors at once needs more patients than the binomial test of one image of each. Where
few count (`FEW`) for a goal whose images are known beforehand, such as the referable ones for a sensitivity, that test is used: of every
patient, random numbers choose one of as many places as a patient has images, so that every image has the same chance. Given
how many of the chosen images count, their errors are independent, with the risk that the goal bounds: the test is exact, and so is a
choice of the test by this number. The seed is a hash of all images: numbers that are the same in every study would choose by the sorted
uncertainty, and thus by the errors.

The bets of `follow_up` are others, because wealth counts there after every patient and for ever: they have no deadline,
no fixed number of patients, and start anew at every time.

References:
    Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting, J. R. Stat. Soc. B 86:1 (2024). Voráček and
    Orabona, STaR-Bets: sequential target-recalculating bets for tighter confidence intervals, arXiv 2505.22422 (2025), whose
    bets aim at a deadline as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import special
from scipy.special import ndtr, ndtri

from retinabench.core.errors import InputError
from retinabench.metrics.guarantees.goals import Goal, ReferralCases
from retinabench.metrics.weighted_images import Floats

ORDERS = (8, 32)  # fewest and most orders; with many patients, one order hardly differs from another
PATIENT_ORDERS = 64_000
STEPS = 150  # bets are revised this many times, if there are as many patients
TARGET = 1.25  # wealth aimed at, in units of 1 / delta
PRIOR_SIZE = 2.0  # errors that the first guess of the size of an error counts as
PRIOR_RATE = 3.0  # patients that the first guess of the goal's errors per patient counts as
USUAL = 0.8  # that guess, in units of the largest number of a patient
ALMOST = 1e-9


def orders(patients: int) -> NDArray[np.intp]:
    """Return the (R, patients) fixed orders, R between `ORDERS`; a function of the number of patients alone."""
    rng = np.random.default_rng([0xBE7, patients])
    count = min(max(PATIENT_ORDERS // patients, ORDERS[0]), ORDERS[1])
    return np.stack([rng.permutation(patients) for _ in range(count)])


def evidence(
    sums: Floats, goal_errors: Floats, bound: float, delta: float, order: NDArray[np.intp], size: float | None = None
) -> Floats:
    """Return the evidence against E[X] >= 0 in each of T tests of P patients; `sums`, `goal_errors` (T, P), `order` (R, P), `size` a first guess of an error."""
    tests, patients = sums.shape
    first = bound if size is None else size
    counts = goal_errors > 0
    share = np.full((tests, len(order)), delta / TARGET)  # wealth / target
    rate_sum = np.full_like(share, PRIOR_RATE * min(goal_errors.max(initial=0.0), bound) * USUAL)
    error_sum, square_sum = np.full_like(share, PRIOR_SIZE * first), np.full_like(share, PRIOR_SIZE * first**2)
    seen = 0.0 * share
    cuts = np.unique(np.linspace(0, patients, min(STEPS, patients) + 1).round().astype(np.intp))
    for start, stop in pairwise(cuts):
        rate = np.maximum(rate_sum / (PRIOR_RATE + seen), ALMOST)
        error = square_sum / error_sum
        left = np.maximum(counts.sum(axis=1)[:, None] - seen, 1)
        stake = _stake(share, left, rate / (rate + error)) / error
        rows = order[:, start:stop]
        x = sums[:, rows]
        share *= np.prod(1 - np.minimum(stake, (1 - ALMOST) / bound)[..., None] * x, axis=-1)
        np.minimum(share, 1.0, out=share)
        rate_sum += goal_errors[:, rows].sum(axis=-1)
        seen += counts[:, rows].sum(axis=-1)
        np.maximum(x, 0, out=x)
        error_sum += x.sum(axis=-1)
        square_sum += (x * x).sum(axis=-1)
    return np.asarray(share.mean(axis=1) * TARGET / delta)


def _stake(share: Floats, remaining: Floats, chance: Floats) -> Floats:
    """Share of the wealth that an error must cost; the formulas are at the top of this file."""
    open_ = np.clip(share, 1e-12, 1 - ALMOST)
    scale = np.sqrt(1 - chance) / 2
    allowed = np.maximum(np.sqrt(remaining * chance) + scale * ndtri(open_), 0) ** 2
    later = np.sqrt((remaining - 1) * chance)
    after = np.where(allowed < 1, 0.0, ndtr((np.sqrt(np.maximum(allowed - 1, 0)) - later) / scale))
    return np.asarray(np.where(share >= 1, 0.0, np.clip(1 - after / open_, 0, 1)))


BATCH = 64  # tests that are done together
START = 1.5  # the sequence begins with this many times the patients that could pass without an error …
SHARE = 0.4  # … and with at least this share of the patients: of fewer, errors of which the model is sure are too large a part
STUDIES, POWER = 40, 0.8  # drawn studies, and the share of them that must pass
MOST_NEEDED = 50_000  # patients of the largest drawn study
FEW = 1.3  # images, in units of those that pass without an error: below, the binomial test of one image of each patient answers more
SECOND = 0.1  # share of delta of the sequence that begins where every patient retains an image


@dataclass(frozen=True)
class SequenceStep:
    """One test of a sequence."""

    threshold: float
    risk: float
    patients: int
    p_value: float


@dataclass(frozen=True)
class GoalSequence:
    """The sequence of one goal."""

    goal: Goal
    delta: float
    threshold: float | None
    first: SequenceStep
    last: SequenceStep
    tests: int
    why: str | None = None
    needed: int | None = None
    one_image: bool = False


@dataclass(frozen=True, eq=False)
class _Path:
    """Images as they are retained (or referred, for the share referred), and what each adds to its patient: (N,), `always` at every place."""

    place: Floats
    patient: NDArray[np.intp]
    num: Floats
    den: Floats
    always: Floats
    patients: int

    @property
    def base(self) -> Floats:
        return np.asarray(np.bincount(self.patient, self.always, self.patients), np.float64)

    @classmethod
    def of(cls, cases: ReferralCases, goal: Goal) -> _Path:
        spec = goal.spec
        among = spec.among(cases) * cases.weight
        num = spec.counted(cases) * cases.weight
        den = among if spec.den_retained else np.zeros(len(cases))
        always = np.zeros(len(cases)) if spec.den_retained else among
        place = -cases.uncertainty if spec.of_referred else cases.uncertainty
        patient = _by_content(np.column_stack([place, num, den, always]), cases.patient)
        order = np.lexsort((always, den, num, patient, place))
        ids = patient[order]
        return cls(place[order], ids, num[order], den[order], np.asarray(always[order], np.float64), int(ids.max()) + 1)

    def one_image(self, places: int | NDArray[np.intp]) -> _Path:
        """Return what one of the places of each patient holds, each place with the same chance; `places` of all, or (P,)."""
        content = (self.place, self.patient.astype(np.float64), self.num, self.den, self.always)
        seed = int.from_bytes(sha256(b"".join(values.tobytes() for values in content)).digest())
        chosen = np.random.default_rng(seed).random(self.patients) * places
        by_patient = np.argsort(self.patient, kind="stable")
        sizes = np.bincount(self.patient, minlength=self.patients)
        within = np.empty(len(by_patient))
        within[by_patient] = np.arange(len(by_patient)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        rows = within == np.floor(chosen)[self.patient]
        num, den, always = (np.sign(values[rows]) for values in (self.num, self.den, self.always))
        return _Path(self.place[rows], self.patient[rows], num, den, always, self.patients)


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


def certified(cases: ReferralCases, goal: Goal, delta: float, most_images: int, share: float) -> GoalSequence:
    path, binomial = _Path.of(cases, goal), most_images == 1
    patients = path.patients
    per_image = bool(np.all(cases.weight == 1))  # the images of a patient add up
    if not binomial and not goal.spec.den_retained:
        one = path.one_image(most_images if per_image else np.bincount(path.patient))
        least = math.log(delta) / math.log1p(-goal.max_risk)
        if binomial := bool(least <= one.always.sum() < FEW * least):
            path = one
    bound = (1 - goal.max_risk) * (most_images if per_image else 1)
    usual = max(1, round(len(cases) / patients))
    size = bound * min(usual / most_images, 1.0) if per_image else bound
    # The weight that a patient with retained images usually retains.
    retained = (1 + usual) / 2 / (1 if per_image else usual)
    possible = math.ceil(math.log(TARGET / delta) / math.log1p(goal.max_risk * retained / bound))
    begins = [(-math.inf, delta)]
    if goal.spec.den_retained:
        first, second = _starts(path, math.ceil(START * possible), share)
        begins = [(first, (1 - SECOND) * delta), (second, SECOND * delta)]

    def run(start: float, level: float) -> tuple[GoalSequence, bool]:
        """The result of a sequence, and whether it reached the end."""
        tested: list[SequenceStep] = []  # up to the first failure, which is included
        for step in _steps(path, start, goal.max_risk, (bound, size), level, binomial=binomial):
            tested.append(step)
            if step.p_value > level:
                break
        if not tested or not tested[0].patients:
            raise InputError(f"no validation image counts for {goal.target}")
        ended = tested[-1].p_value <= level
        passed = tested if ended else tested[:-1]
        if not passed:
            why, few = _refusal(tested[0], goal.max_risk)
            needed = None
            if few and level == begins[0][1]:  # of the second sequence nobody hears where it fails
                needed = _needed(path, tested[0], goal.max_risk, (bound, size), level, binomial=binomial)
            return GoalSequence(goal, level, None, tested[0], tested[0], 1, why, needed), False
        rule = _rule(passed[-1].threshold, cases, goal)
        few = binomial and most_images > 1
        return GoalSequence(goal, level, rule, tested[0], passed[-1], len(tested), one_image=few), ended

    found, ended = run(*begins[0])
    if not ended and len(begins) > 1:
        later, ended = run(*begins[1])
        return later if ended else found
    return found


def _rule(place: float, cases: ReferralCases, goal: Goal) -> float:
    """The threshold of the uncertainty that the last place of a sequence stands for."""
    u = cases.uncertainty
    if goal.spec.of_referred:  # refers u >= -place: the threshold is the next smaller value
        below = u[u < -place]
        return float(below.max()) if len(below) else -math.inf
    return math.inf if place >= u.max() else place


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
    path: _Path, start: float, goal: float, error: tuple[float, float], delta: float, *, binomial: bool
) -> Iterator[SequenceStep]:
    """The tests in ascending order from `start` on, each with its p-value; an error of a patient is at most, and usually, `error`."""
    ends = np.flatnonzero(np.append(path.place[1:] != path.place[:-1], True)) + 1
    ends = ends[path.place[ends - 1] >= start]
    if start == -math.inf:
        ends = np.append(0, ends)
    # Images that do not count change no test: several candidates share one.
    counted = np.append(0, np.cumsum((path.num > 0) | (path.den > 0)))[ends]
    first = np.flatnonzero(np.diff(counted, prepend=-1))
    order, done, sums = orders(path.patients), 0, np.stack([np.zeros(path.patients), path.base])
    batches = [8, 16, 32, *[BATCH] * (len(first) // BATCH)]  # few at first, since most sequences are short
    for tests in filter(len, np.split(np.arange(len(first)), np.cumsum(batches))):
        after = np.append(first, len(ends))[tests + 1]
        both = np.empty((len(tests), *sums.shape))
        for row, end in enumerate(ends[first[tests]]):
            for column, of in zip(sums, (path.num, path.den), strict=True):
                np.add.at(column, path.patient[done:end], of[done:end])
            both[row], done = sums, int(end)
        nums, dens = both[:, 0], both[:, 1]
        if binomial:
            p_values = _at_most(nums.sum(axis=1), dens.sum(axis=1), goal)
        else:
            p_values = 1 / np.maximum(evidence(nums - goal * dens, goal * dens, error[0], delta, order, error[1]), 1)
        for begin, stop, n, d, p in zip(first[tests], after, nums, dens, p_values, strict=True):
            total, patients = float(d.sum()), int((d > 0).sum())
            for end in ends[begin:stop]:
                place = float(path.place[end - 1]) if end else -math.inf
                yield SequenceStep(place, float(n.sum()) / total if total else math.nan, patients, float(p))


def _at_most(events: Floats, trials: Floats, goal: float) -> Floats:
    """P(at most so many events) of independent trials, each with the chance `goal`; 1 without trials."""
    k, n = events.round(), trials.round()
    return np.where(k < n, special.betainc(np.maximum(n - k, 1), k + 1, 1 - goal), 1.0)


def _refusal(first: SequenceStep, goal: float) -> tuple[str, bool]:
    """Why the first test failed, and whether more patients of this kind would let it pass."""
    found = f"{first.risk:.3g} in the {first.patients:,} patients of the first test"
    if not first.risk < goal:
        return f"the risk is {found}, no lower than {goal:.3g}", False
    return f"the risk is {found}; they are too few to show at most {goal:.3g}", True


def _needed(
    path: _Path, first: SequenceStep, goal: float, error: tuple[float, float], level: float, *, binomial: bool
) -> int | None:
    """Return the number of patients, in steps of a fifth, with which `POWER` of the studies pass the first test; None beyond `MOST_NEEDED`."""
    seen, patients, rng = path.place <= first.threshold, path.patients, np.random.default_rng([0x80, path.patients])
    num = np.bincount(path.patient[seen], path.num[seen], patients)
    den = path.base + np.bincount(path.patient[seen], path.den[seen], patients)
    size = patients
    while (size := math.ceil(1.2 * size)) <= MOST_NEEDED:
        rows = rng.integers(0, patients, (STUDIES, size))
        n, d = num[rows], den[rows]
        if binomial:
            passed = _at_most(n.sum(axis=1), d.sum(axis=1), goal) <= level
        else:
            passed = evidence(n - goal * d, goal * d, error[0], level, orders(size)[: ORDERS[0]], error[1]) >= 1 / level
        if np.mean(passed) >= POWER:
            return size
    return None
