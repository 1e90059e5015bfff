"""Images needed for a sensitivity or specificity: for an interval of stated width, and for a test of stated power.

Both count independent images of one class; `clusters.py` turns them into images and patients.

>>> images_for_half_width(0.9, 0.05)
158
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from retinabench.core.errors import InputError
from retinabench.metrics.proportions import clopper_pearson

MOST = 10_000_000
"""No study has more images."""


def images_for_half_width(expected: float, half_width: float, level: float = 0.95) -> int:
    """Return the fewest independent images whose Clopper-Pearson interval is narrow enough at the expected proportion.

    The interval is that of `expected` x n successes in n (a fraction of a success where that is no whole number), which is
    the interval that `clinic` will report.

    References:
        Buderer, Statistical methodology: I. Incorporating the prevalence of disease into the sample size calculation for
        sensitivity and specificity, Acad. Emerg. Med. 3:895 (1996), with the Wald interval.
    """
    check_share("expected proportion", expected)
    if not 0 < half_width < 0.5:
        raise InputError(f"the half-width is {half_width:g}", hint="It lies between 0 and 0.5, such as 0.05.")

    def wide(n: int) -> bool:
        low, high = clopper_pearson(expected * n, n, level)
        return bool((high - low) / 2 > half_width)

    low, high = 0, 1
    while wide(high):
        low, high = high, 2 * high
        if high > MOST:
            raise InputError(f"a half-width of {half_width:g} needs more than {MOST:,} images")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if wide(middle) else (low, middle)
    return high


def images_for_power(expected: float, above: float, power: float = 0.8, level: float = 0.95) -> int:
    """Return the fewest independent images with which an exact test shows that a proportion is above a goal.

    The one-sided binomial test rejects "proportion <= above" at the level (1 - level) / 2: the lower end of the
    Clopper-Pearson interval of level `level` then lies above the goal. The power of an exact test goes up and down with n; from
    the returned n on it does not fall below `power` again.

    References:
        Chernick and Liu, The saw-toothed behavior of power versus sample size and software solutions: single binomial
        proportion using exact methods, Am. Stat. 56:149 (2002).
    """
    check_share("expected proportion", expected)
    check_share("power", power)
    if not 0 <= above < expected:
        raise InputError(
            f"an expected {expected:g} cannot be shown to be above {above:g}",
            hint="Expect a value above the goal.",
        )
    needed = stats.norm.ppf((1 + level) / 2) * np.sqrt(above * (1 - above))
    needed += stats.norm.ppf(power) * np.sqrt(expected * (1 - expected))
    approximate = (needed / (expected - above)) ** 2
    if not approximate < MOST:
        raise InputError(f"to tell {expected:g} from {above:g} needs more than {MOST:,} images")
    short = np.flatnonzero(
        exact_power(np.arange(1, int(2 * approximate) + 300), expected, above, level) < power
    )
    return int(short[-1]) + 2 if len(short) else 1


def exact_power(images: ArrayLike, expected: float, above: float, level: float = 0.95) -> NDArray[np.float64]:
    """Return the power of the exact one-sided binomial test of "proportion <= above".

    Shapes: `images` (K,), returns (K,).
    """
    n = np.asarray(images)
    most_without = stats.binom.isf((1 - level) / 2, n, above)  # P(more successes | above) <= (1 - level) / 2
    return np.asarray(stats.binom.sf(most_without, n, expected), np.float64)


def check_share(name: str, value: float) -> None:
    """Raise `InputError` unless a share lies in [0, 1]."""
    if not 0 <= value <= 1:
        raise InputError(f"the {name} is {value:g}", hint="It lies between 0 and 1.")
