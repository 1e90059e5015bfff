"""An exact test of a mean by betting, for whole patients: may E[X] >= 0 be rejected?

X is a patient's sum over images, num - goal * den (`risks.py`), so that E[X] <= 0 says that the risk E[num] / E[den] is at most the
goal. X is at most `bound`; nothing else is assumed of its distribution, so that images of one patient may depend on each other in
any way. A bettor who expects less owns W = prod_p (1 - l_p X_p), with 0 <= l_p <= 1 / bound chosen from the patients before p. If
E[X] >= 0, then E[W] <= 1, and by Markov's inequality P(W >= 1 / delta) <= delta (Waudby-Smith and Ramdas).

**Bets that aim at the deadline.** All patients are there at once, so that only the wealth after the last one matters. The stake is that
of the option that pays a fixed target if the risk turns out low, and nothing else: with mu the number of errors still expected at a
risk equal to the goal, each patient bringing one with chance q, and w = wealth / target, the wealth is kept near
P(Binomial <= m) with the m of w = Phi(2 (sqrt(m) - sqrt(mu)) / sqrt(1 - q)) (the square-root approximation): l is chosen so that an
error leaves this for m - 1 and mu - q.
The size of an error of a patient (two eyes may fail together) is estimated from the patients before. This decides only how large
the bets are: the test is valid for any of them, and for one image per patient it nearly agrees with the binomial test.

**No order.** A wealth depends on the order of the patients; the mean over many orders depends on it hardly, and a mean of wealths is
again at most 1 in expectation. Patients are first sorted by their content, then shuffled by fixed random numbers: neither the
order of the rows nor the names of the patients, nor a seed, change a result. So that the mean reaches 1 / delta where most orders
do, the target of each is 1.25 / delta.

The bets of `monitoring.e_process` are others, because wealth counts there after every patient and for ever: they have no deadline,
no fixed number of patients, and start anew at every time.

References:
    Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting, J. R. Stat. Soc. B 86:1 (2024). Voráček and
    Orabona, STaR-Bets: sequential target-recalculating bets for tighter confidence intervals, arXiv 2505.22422 (2025), whose
    bets aim at a deadline as well.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

Floats = NDArray[np.float64]
ORDERS = (8, 32)  # fewest and most orders; with many patients, one order hardly differs from another
PATIENT_ORDERS = 64_000
STEPS = 150  # bets are revised this many times, if there are as many patients
TARGET = 1.25  # wealth aimed at, in units of 1 / delta
PRIOR_SIZE = 20.0  # patients that the first guess of the size of an error counts as
PRIOR_RATE = 3.0  # and the first guess of the goal's errors per patient
ALMOST = 1e-9


def orders(patients: int) -> NDArray[np.intp]:
    """Return the (R, patients) fixed orders, R between `ORDERS`; a function of the number of patients alone."""
    rng = np.random.default_rng([0xBE7, patients])
    count = min(max(PATIENT_ORDERS // patients, ORDERS[0]), ORDERS[1])
    return np.stack([rng.permutation(patients) for _ in range(count)])


def evidence(
    sums: Floats, goal_errors: Floats, bound: float, delta: float, order: NDArray[np.intp]
) -> Floats:
    """Return the evidence against E[X] >= 0 in each of T tests of P patients.

    Shapes: `sums` (T, P), `goal_errors` (T, P), `order` (R, P), returns (T,).
    """
    tests, patients = sums.shape
    share = np.full((tests, len(order)), delta / TARGET)  # wealth / target
    rate_sum = np.full_like(share, PRIOR_RATE * min(goal_errors.max(initial=0.0), bound) * 0.5)
    square_sum = np.zeros_like(share)
    cuts = np.unique(np.linspace(0, patients, min(STEPS, patients) + 1).round().astype(np.intp))
    for start, stop in pairwise(cuts):
        rate = np.maximum(rate_sum / (PRIOR_RATE + start), ALMOST)
        size = (PRIOR_SIZE * bound + square_sum / rate) / (PRIOR_SIZE + start)
        stake = _stake(share, patients - start, rate / (rate + size)) / size
        x = sums[:, order[:, start:stop]]
        share *= np.prod(1 - np.minimum(stake, (1 - ALMOST) / bound)[..., None] * x, axis=-1)
        np.minimum(share, 1.0, out=share)
        rate_sum += goal_errors[:, order[:, start:stop]].sum(axis=-1)
        square_sum += (x * x).sum(axis=-1)
    return np.asarray(share.mean(axis=1) * TARGET / delta)


def _stake(share: Floats, remaining: int, chance: Floats) -> Floats:
    """Share of the wealth that an error must cost; the formulas are at the top of this file."""
    open_ = np.clip(share, 1e-12, 1 - ALMOST)
    scale = np.sqrt(1 - chance) / 2
    allowed = np.maximum(np.sqrt(remaining * chance) + scale * ndtri(open_), 0) ** 2
    later = np.sqrt((remaining - 1) * chance)
    after = np.where(allowed < 1, 0.0, ndtr((np.sqrt(np.maximum(allowed - 1, 0)) - later) / scale))
    return np.asarray(np.where(share >= 1, 0.0, np.clip(1 - after / open_, 0, 1)))
