"""How a score gets its interval: one method per kind of score, named in the registry.

Every table, page and exporter shows the interval of this method. No method gives an interval without width: where the sample
says nothing about the other side, there is either a bound that holds or none, with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from retinabench.metrics.inference.auroc_variance import area_interval, auroc_error
from retinabench.metrics.inference.bootstrap import percentile_interval
from retinabench.metrics.inference.proportions import clustered_proportion
from retinabench.metrics.inference.scaled import Bounds, replicate_error, scaled_interval
from retinabench.metrics.sorted_images import Weighted

Floats = NDArray[np.float64]
Counts = Callable[[Weighted], tuple[NDArray[np.generic], Floats]]
Of = Literal["patients", "classes", "retained", "errors"]
Ranks = Callable[[Weighted], tuple[Floats, Floats, Floats]]

ONE_PATIENT = "no interval: there is a single patient"
ONE_PATIENT_OF_CLASS = "no interval: a single patient has images of one of the classes"
FEWEST_ERRORS = 5
MORE_DEGREES = 5  # chosen by simulation, see `docs/intervals.md`
FEW = {
    "patients": ONE_PATIENT,
    "classes": ONE_PATIENT_OF_CLASS,
    "retained": "no interval: fewer than four patients have images of one of the classes",
    "errors": f"no interval: fewer than {FEWEST_ERRORS} patients have a wrong (or a correct) prediction, which decides the score",
}
UNDEFINED = "no interval: the score is undefined in more than 5 % of the bootstrap replicates"
ALL_ALIKE = (
    "no interval: every bootstrap replicate has the same value, so that an interval would have no width"
)


class Ends(NamedTuple):
    """The ends of an interval, NaN where there is none, and then why."""

    low: float = math.nan
    high: float = math.nan
    why: str | None = None


class IntervalMethod(Protocol):
    """How the interval of a score is computed.

    `resampled` says whether it needs bootstrap replicates.
    """

    @property
    def resampled(self) -> bool:
        """Whether `ends` needs replicates."""

    def ends(self, sets: Sequence[Weighted], value: float, draws: Floats, level: float) -> Ends:
        """Return the interval of the mean of a score over the files of several seeds, most often one.

        Args:
            sets: The images of each file, every image once.
            value: The score, or its mean over the files.
            draws: (R,) its bootstrap replicates, (0,) where it is not resampled.
            level: Level of the interval.

        Returns:
            The ends, or why there are none.
        """


@dataclass(frozen=True)
class Percentile:
    """The percentile interval of the replicates: of a score of which nothing is known, such as that of a plug-in."""

    resampled: bool = True

    def ends(self, sets: Sequence[Weighted], value: float, draws: Floats, level: float) -> Ends:
        """Return the interval, see `IntervalMethod`."""
        if patients_of(sets[0]) < 2:
            return Ends(why=ONE_PATIENT)
        low, high = (float(end) for end in percentile_interval(draws, level))
        return _checked(low, high, draws)


@dataclass(frozen=True)
class Scaled:
    """Student's t interval with the std of the bootstrap replicates, on the logit or logarithmic scale of the bounds; see `scaled_interval`.

    Args:
        low: The least value of the score.
        high: Its largest value.
        of: Whose number, less one, are the degrees of freedom: `patients`; patients of the rarer of the `classes`, where the
            score compares them; `retained`, for an area over referral: 5 more than the patients with a wrong prediction in the surer
            half of the images, because these decide it, at most half of those of the rarer class; or `errors`: patients with the
            rarer of wrong and correct predictions, and no interval below 5 of them.
    """

    low: float = -math.inf
    high: float = math.inf
    of: Of = "patients"
    resampled: bool = True

    def ends(self, sets: Sequence[Weighted], value: float, draws: Floats, level: float) -> Ends:
        """Return the interval, see `IntervalMethod`."""
        patients = min(patients_of(w, self.of) for w in sets)
        if patients < 2:
            return Ends(why=FEW[self.of])
        degrees = min(patients, len(draws)) - 1
        ends = scaled_interval(value, replicate_error(draws), (self.low, self.high), degrees, level)
        return _checked(*ends, draws)


@dataclass(frozen=True)
class Proportion:
    """Jeffreys' interval at an effective number of images, see `clustered_proportion`.

    Args:
        counts: Weighted images -> success of each image in [0, 1] and what it counts for, both (N,).
        resampled: Whether the images that count depend on the sample, so that the replicates tell the variance.
    """

    counts: Counts
    resampled: bool = False

    def ends(self, sets: Sequence[Weighted], value: float, draws: Floats, level: float) -> Ends:
        """Return the interval, see `IntervalMethod`."""
        parts = [self.counts(w) for w in sets]
        success = np.concatenate([y for y, _ in parts])
        weight = np.concatenate([of / of.sum() if of.any() else of for _, of in parts])
        patient = np.concatenate([w.cases.patient for w in sets])
        error = replicate_error(draws) if self.resampled else 0.0
        variance = error**2 if math.isfinite(error) else 0.0
        found = clustered_proportion(success, weight, patient, level, variance=variance)
        if math.isnan(found.low):
            return Ends(why=ONE_PATIENT_OF_CLASS)
        return Ends(found.low, found.high)


@dataclass(frozen=True)
class Ranked:
    """Of an AUROC or a linear function of one: DeLong's or Obuchowski's error, Student's t on the logit scale; see `area_interval`.

    Args:
        parts: Weighted images -> score (N,), and the mass of the positive and of the negative images, both (N,).
        low: The value where the AUROC is 0.
    """

    parts: Ranks
    low: float = 0.0
    resampled: bool = False

    def ends(self, sets: Sequence[Weighted], value: float, draws: Floats, level: float) -> Ends:
        """Return the interval, see `IntervalMethod`."""
        w = sets[0]
        score, positive, negative = self.parts(w)
        patients = _patients(positive, w), _patients(negative, w)
        if min(patients) < 2:
            return Ends(why=ONE_PATIENT_OF_CLASS)
        span = 1 - self.low
        if len(sets) == 1:
            found = auroc_error(positive > 0, score, w.cases.patient, positive + negative)
            error, degrees = found.standard_error, found.degrees
        else:
            error, degrees = replicate_error(draws) / span, min(*patients, len(draws)) - 1.0
        if math.isnan(error):
            return Ends(why=UNDEFINED)
        ends = area_interval((value - self.low) / span, error, degrees, min(patients), level)
        low, high = (self.low + span * end for end in ends)
        return Ends(low, high)


@dataclass(frozen=True)
class Closed:
    """An interval in closed form of the images alone, such as the inverse of a test of squared gaps.

    Args:
        function: Weighted images, level -> low and high end.
        resampled: False.
    """

    function: Callable[[Weighted, float], Bounds]
    resampled: bool = False

    def ends(self, sets: Sequence[Weighted], value: float, draws: Floats, level: float) -> Ends:
        """Return the interval, see `IntervalMethod`."""
        if len(sets) > 1:
            return Ends(why="no interval of a mean over seeds; that of each seed is in its own scores")
        if patients_of(sets[0]) < 2:
            return Ends(why=ONE_PATIENT)
        return Ends(*self.function(sets[0], level))


@dataclass(frozen=True)
class NoInterval:
    """No interval, because none would hold the truth as often as it says: chance makes an ECE larger, in replicates still more.

    Args:
        why: The reason, for the reader.
        resampled: False.
    """

    why: str
    resampled: bool = False

    def ends(self, sets: Sequence[Weighted], value: float, draws: Floats, level: float) -> Ends:
        """Return the reason."""
        return Ends(why=self.why)


def difference_method(method: IntervalMethod) -> Scaled:
    """Return how a difference of two scores gets its interval from replicates that hold the same patients for both.

    Args:
        method: The interval of the score itself.

    Returns:
        Student's t with the standard deviation of the differences, and the degrees of freedom that the score asks for.
    """
    return Scaled(of=method.of if isinstance(method, Scaled) else "patients")


def patients_of(w: Weighted, of: Of = "patients") -> int:
    """Return the number of patients that decide a standard error, 0 where they are too few; see `Scaled`."""
    if of == "classes":  # of those that are there
        return min(filter(None, (_patients(w.positive, w), _patients(w.negative, w))), default=0)
    if of == "errors":
        wrong = w.weight * w.cases.error
        rarer = min(_patients(wrong, w), _patients(w.weight - wrong, w))
        return rarer if rarer >= FEWEST_ERRORS else 0
    if of == "retained":
        return min(patients_of(w, "classes") // 2, _surely_mistaken(w) + MORE_DEGREES + 1)
    return _patients(w.weight, w)


def _surely_mistaken(w: Weighted) -> int:
    """Number of patients with a wrong prediction in the surer half of the images; a block of ties counts where it lies in it wholly."""
    blocks = int(np.searchsorted(w.mass, w.total / 2, side="right")) - 1
    sure = int(w.cases.ends[blocks - 1]) + 1 if blocks else 0
    wrong = w.weight * w.cases.error
    wrong[sure:] = 0
    return _patients(wrong, w)


def _patients(mass: Floats, w: Weighted) -> int:
    """Number of patients with images of this mass."""
    held = mass > 0
    return int(np.count_nonzero(np.bincount(w.cases.patient[held]))) if held.any() else 0


def _checked(low: float, high: float, draws: Floats) -> Ends:
    """The ends of a resampled interval, or why there are none."""
    if high > low:
        return Ends(low, high)
    return Ends(why=UNDEFINED if math.isnan(replicate_error(draws)) else ALL_ALIKE)
