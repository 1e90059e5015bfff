"""How well the answers rank the samples, and other thresholds than one half: computed from the exact answers.

These are no findings: nothing controls how often another threshold is named for a model that does not need it, and its rates are
those on the very answers that chose it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from retinabench.concepts.report.concept_rates import ExaminationReport, recognition
from retinabench.metrics.clinical.operating_points import operating_points


@dataclass(frozen=True)
class CutOff:
    """A threshold on P(yes) that serves a concept better than one half, chosen on the very answers it is stated for.

    Attributes:
        concept: The concept.
        auroc: AUROC of the answers.
        threshold: Yes is P(yes) of this or more: the shortest decimal between two answers that yields the largest sum of
            sensitivity and specificity.
        sensitivity: With this threshold.
        specificity: With this threshold.
    """

    concept: str
    auroc: float
    threshold: str
    sensitivity: float
    specificity: float


def ranks_better_than_chance(answers: Mapping[str, Sequence[float]]) -> bool:
    """Whether the answers rank samples with the concept above those without, more than chance alone often does.

    Mann and Whitney's test, 2.5 % one-sided, for each concept by itself: it decides whether another threshold is worth a try on new
    images, and is no finding. The interval of the AUROC does not serve here: it closes to a point where two samples happen to
    rank above two others.
    """
    without, having = _arrays(answers)
    if not len(without) or not len(having) or np.ptp(np.concatenate([without, having])) == 0:
        return False
    # The normal approximation needs samples; the exact distribution is that without ties, which make it cautious.
    method: Literal["exact", "asymptotic"] = "exact" if len(having) * len(without) <= 1000 else "asymptotic"
    return bool(stats.mannwhitneyu(having, without, alternative="greater", method=method).pvalue < 0.025)


def _arrays(answers: Mapping[str, Sequence[float]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The answers about samples without the concept and about those with it."""
    without, having = (np.asarray(answers[kind], np.float64) for kind in ("without", "with"))
    return without, having


def cut_offs(report: ExaminationReport) -> list[CutOff]:
    """Return better thresholds for the concepts that one half does not serve although the answers rank them.

    These are the concepts whose answers rank samples better than by chance, and which are not recognised at one half or
    miss a goal there.
    """
    better = []
    missed = {rate.concept for rate in report.judged if rate.standing == "missed"}
    for pair in report.rates:
        concept = pair[0].concept
        one, served = report.examination[concept], recognition(*pair) == "recognised"
        if (served and concept not in missed) or not ranks_better_than_chance(one.answers):
            continue
        without, having = _arrays(one.answers)
        label = np.repeat([0, 1], [len(without), len(having)])
        threshold, sensitivity, specificity = operating_points(label, np.concatenate([without, having]))
        best = 1 + int(np.argmax(sensitivity[1:] + specificity[1:]))
        below = max(
            (answer for answer in np.concatenate([without, having]) if answer < threshold[best]), default=0.0
        )
        cut = short_decimal(float(below), float(threshold[best]))
        assert one.auroc.value is not None  # both kinds were asked, otherwise nothing is ranked
        reached = float(sensitivity[best]), float(specificity[best])
        better.append(CutOff(concept, one.auroc.value, cut, *reached))
    return better


def short_decimal(below: float, at_most: float) -> str:
    """Return the decimal with the fewest significant digits that is above `below` and at most `at_most`."""
    for digits in range(1, 18):
        step = 10.0 ** (np.floor(np.log10(at_most)) - digits + 1) if at_most > 0 else 1.0
        text = f"{np.floor(at_most / step + 1e-9) * step:.{digits}g}"
        if below < float(text) <= at_most:
            return text
    return repr(at_most)
