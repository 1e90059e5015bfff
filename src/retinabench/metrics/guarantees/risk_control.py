"""A referral threshold with a finite-sample guarantee.

**The claim.** With probability at least 1 - delta over the draw of the validation patients, the certified threshold t
satisfies  R(t) = P(the model is wrong | uncertainty <= t) <= max_risk,  for a random image of a *new* patient of the same
population. Nothing is assumed of the model, the uncertainty or their distribution; only that patients are exchangeable.

**The theorem.** Fixed-sequence testing inside Learn then Test (Angelopoulos, Bates, Candes, Jordan, Lei, arXiv 2110.01052,
Ann. Appl. Stat. 2025): if p_1, p_2, … are valid p-values of H_k: R(t_k) > max_risk, in an order fixed without the data they
are computed from, then rejecting in that order at level delta each, until the first failure, rejects any true H_k with
probability at most delta. No further price is paid for the number of thresholds. What makes the conditions hold:

1. *One image per patient*, drawn by the seed. Two eyes of one patient are not two independent trials; one eye each is.
2. *A planning part.* The thresholds, and where the sequence begins, come from a random share of the patients, who take no
   part in the tests. The thresholds are thus fixed numbers for the testing part, ties or no ties.
3. *Exact p-values.* Of the n_k testing images with uncertainty <= t_k, the wrong ones are Binomial(n_k, R(t_k)) given n_k.
   p_k = P(Binomial(n_k, max_risk) <= errors); p_k <= delta says that the one-sided Clopper-Pearson bound is <= max_risk.

The sequence runs from a cautious threshold, the one that the planning part finds easiest to certify, to bolder ones. The
last certified threshold refers the fewest images. If the first one fails there is no guarantee, and this is said.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from retinabench.core.errors import InputError
from retinabench.metrics.inference.bootstrap import cluster_codes
from retinabench.metrics.inference.proportions import binary
from retinabench.metrics.uncertainty import uncertainties

Floats = NDArray[np.float64]
STEPS = 100  # candidate thresholds: percentiles of the planning part's uncertainty


@dataclass(frozen=True)
class Tested:
    """One test of the sequence: of `retained` images with uncertainty <= threshold, `errors` are wrong."""

    threshold: float
    retained: int
    errors: int
    p_value: float


@dataclass(frozen=True)
class Certificate:
    """The outcome: a threshold (refer iff uncertainty > threshold; infinity: nobody), or None with the reason why not."""

    threshold: float | None
    max_risk: float
    delta: float
    planning_patients: int
    testing_patients: int
    tested: tuple[Tested, ...]
    why: str | None = None

    @property
    def granted(self) -> bool:
        """Whether a threshold is certified."""
        return self.threshold is not None


def certify_threshold(
    label: ArrayLike,
    positive: ArrayLike,
    uncertainty: ArrayLike,
    patient: ArrayLike | Sequence[Hashable] | None,
    max_risk: float,
    delta: float = 0.1,
    *,
    planning: float = 0.2,
    seed: int = 0,
) -> Certificate:
    """Certify the threshold that refers fewest, with selective risk at most `max_risk` at confidence 1 - delta.

    Theorem and conditions are at the top of this file.

    Args:
        label: (N,) 0 or 1, of validation images.
        positive: (N,) the model's call.
        uncertainty: (N,) finite, high ones are referred.
        patient: (N,) patients; None where every image is a patient of its own.
        max_risk: In (0, 1).
        delta: In (0, 1).
        planning: Share of the patients that choose the sequence of thresholds.
        seed: Of the split and of the image drawn per patient; trying seeds until one certifies voids the guarantee.

    Returns:
        The certificate, with a threshold or the reason why there is none.

    Raises:
        InputError: A risk, delta or share is not in (0, 1).

    References:
        Angelopoulos, Bates, Candes, Jordan and Lei, Learn then Test, Ann. Appl. Stat. 19:1641 (2025), arXiv 2110.01052.
    """
    _check_share(max_risk=max_risk, delta=delta, planning=planning)
    wrong = binary(label, "label") != binary(positive, "positive")
    u = uncertainties(uncertainty, len(wrong))
    codes, patients = cluster_codes(np.arange(len(u)) if patient is None else patient)
    rng = np.random.default_rng([seed, 0x7E57])
    chosen = rng.permutation(patients) < round(planning * patients)
    if chosen.all() or not chosen.any():
        why = f"{patients} patients cannot be split into a planning and a testing part"
        return Certificate(None, max_risk, delta, 0, patients, (), why)
    one = _one_image_each(codes, rng)
    testing = one[~chosen[codes[one]]]
    sequence = _sequence(u[chosen[codes]], wrong[chosen[codes]], len(testing), max_risk, delta)
    tested: list[Tested] = []
    for threshold in sequence:
        kept = u[testing] <= threshold
        retained, errors = int(kept.sum()), int(wrong[testing][kept].sum())
        p = float(stats.binom.cdf(errors, retained, max_risk)) if retained else 1.0
        tested.append(Tested(float(threshold), retained, errors, p))
        if p > delta:
            break
    parts = int(chosen.sum()), int((~chosen).sum())
    passed = [test for test in tested if test.p_value <= delta]
    if passed:
        return Certificate(passed[-1].threshold, max_risk, delta, *parts, tuple(tested))
    return Certificate(None, max_risk, delta, *parts, tuple(tested), _refusal(tested[0], max_risk, delta))


def _check_share(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < 1:
            raise InputError(f"{name} is {value}", hint="It lies between 0 and 1.")


def _one_image_each(codes: NDArray[np.intp], rng: np.random.Generator) -> NDArray[np.intp]:
    """Rows of one image per patient, uniformly drawn."""
    order = rng.permutation(len(codes))
    return np.asarray(order[np.unique(codes[order], return_index=True)[1]])


def _sequence(u: Floats, wrong: NDArray[np.bool_], testing: int, max_risk: float, delta: float) -> Floats:
    """Ascending thresholds, from the one of the greatest expected test statistic on; the last is infinity."""
    grid = np.quantile(u, np.arange(1, STEPS + 1) / STEPS, method="inverted_cdf")
    grid = np.unique(np.append(grid[:-1], np.inf))
    order = np.argsort(u, kind="stable")
    retained = np.searchsorted(u[order], grid, side="right")
    errors = np.append(0, np.cumsum(wrong[order]))[retained]
    expected = testing * retained / len(u)
    # How many standard deviations below max_risk the testing part should find itself; half an error is added.
    distance = (max_risk - (errors + 0.5) / (retained + 1)) * np.sqrt(expected)
    hopeless = expected < _least(max_risk, delta)
    if not hopeless.all():
        distance[hopeless] = -np.inf
    return np.asarray(grid[int(np.argmax(distance)) :])


def _least(max_risk: float, delta: float) -> int:
    """The fewest images that can show the risk, if none of them is wrong: (1 - max_risk)^n <= delta."""
    return int(np.ceil(np.log(delta) / np.log1p(-max_risk)))


def _refusal(first: Tested, max_risk: float, delta: float) -> str:
    least = _least(max_risk, delta)
    found = f"{first.errors} of {first.retained} retained patients are wrong at the most promising threshold"
    if first.retained < least:
        return (
            f"{found}; even without an error {least} are needed for a risk of {max_risk:g} at {1 - delta:g}"
        )
    return f"{found}: a risk of at most {max_risk:g} is not shown with confidence {1 - delta:g}"
