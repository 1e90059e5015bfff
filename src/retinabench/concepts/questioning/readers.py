"""Several readers: how their disagreement enters the intervals of an examination.

The questions are drawn, and the answers judged, by one truth: the majority of the readers, one random reader per image, or one reader
(`banks/tables.py`). What the intervals are about:

- **majority**: the rate against the majority of *another panel of as many readers* from whom these were drawn. Let s^2 be the variance
  between panels. A panel's rate T differs from another's, T', by a variance of 2 s^2, and

      T' = T -+ 1.15 t_{R - 1} sqrt(2) s,      s^2 = k / (R - k) mean_j (T_j - mean T)^2,

  where T_j is the rate against the j-th sub-panel of k of the R readers. k is the largest odd number up to (R + 1) / 2: panels
  without one reader would leave ties, which are the hard images, and underestimate s (the majority is a kind of median). Where
  readers are missing, an image with a tie counts half in either class. This is added to the interval of the answers, end by end, as
  the root of the sum of squares.
- **dawid-skene**: the same, with s^2 taken from the majorities of sub-panels.
- **random**: the rate for a new image as a random reader of the panel reads it. Each image brings its own draw, so that the
  confidence sequence for new samples contains the disagreement as it is. That of this bank is about the readings drawn;
  `random reader` beside it averages over all of them.
- a **reader**: the rate against that reader, to whom no uncertainty is ascribed.

The rate against one reader, or the average reader, from the same answers: let w_i >= 0 be the weight of image i, such as 1 where the
reader sees the concept, or the share of the readers who see it:

    rate = sum_i w_i [answer i is right] / sum_i w_i,      right: yes for a sensitivity, no for a specificity.

Images with the same truth of the bank and the same weight are a *stratum*. As images are drawn at random within a truth, those
asked about are a random sample of each stratum in random order, and its share of right answers has a confidence sequence. With S
strata, each at the level 1 - alpha / S, the weighted mean of their ends holds the rate with a probability of at least 1 - alpha at
every number of questions. A stratum whose truth is unknown was never asked about: [0, 1]. Claims are against the chosen truth.

References:
    Shao and Wu, A general theory for jackknife variance estimation, Annals of Statistics 17:1176 (1989): on medians.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from retinabench.concepts.banks.bank import UNKNOWN
from retinabench.concepts.banks.tables import LATENT, MAJORITY, ReaderPanel
from retinabench.concepts.inference.claims import RateEnds
from retinabench.concepts.inference.rates import ALPHA, ANYTHING, CellAnswers, Rate
from retinabench.concepts.questioning.examination import ConceptResult, Disagreement, Examination, Readers
from retinabench.concepts.questioning.transcript import Answered
from retinabench.metrics.clinical.readers import BesideReaders, compare_with_readers
from retinabench.metrics.intervals import auroc_error

SIGNS = {"sensitivity": 1, "specificity": 0}
AVERAGE = "random reader"
CAUTION = 1.15  # times s: sub-panels share the luck of their panel; in simulations s alone misses in up to 7 %, this in at most 6 %


class Strata:
    """The strata of one rate, with what was asked and answered in each."""

    def __init__(
        self,
        answered: Answered,
        truth: NDArray[np.int8],
        weights: NDArray[np.generic],
        sample: NDArray[np.int64],
        right: NDArray[np.bool_],
    ) -> None:
        self.samples = int(np.count_nonzero(weights))
        weight = np.asarray(weights, np.float64)
        total = weight.sum()
        self.cells: list[tuple[float, CellAnswers]] = []
        self.unknown = 0.0
        for sign in (UNKNOWN, 0, 1):
            for value in np.unique(weight[(truth == sign) & (weight > 0)]).tolist():
                mine = (truth == sign) & (weight == value)
                share = float(value * mine.sum() / total)
                if sign == UNKNOWN:
                    self.unknown += share
                else:
                    asked = mine[sample]
                    self.cells.append((share, answered.members(mine, sample[asked], right[asked])))

    @property
    def value(self) -> float | None:
        """The weighted share of right answers; None where a stratum was not asked about."""
        if self.unknown or not self.cells or not all(cell.asked for _, cell in self.cells):
            return None
        return sum(share * cell.right / cell.asked for share, cell in self.cells)

    def bank(self, alpha: float) -> RateEnds:
        """Return the interval for this bank; alpha is the probability of an error."""
        if not self.samples:
            return ANYTHING
        ends = [cell.bank(alpha / len(self.cells)) for _, cell in self.cells]
        low, high = (sum(share * end[k] for (share, _), end in zip(self.cells, ends, strict=True)) for k in (0, 1))
        return RateEnds(min(low, 1.0), min(high + self.unknown, 1.0))


@dataclass(frozen=True)
class PanelError:
    """How a number varies between panels of as many readers: its std, and the largest weight on images never asked about."""

    readers: int
    std: float
    unknown: float

    def widened(self, value: float | None, ends: RateEnds, alpha: float) -> RateEnds:
        """Return the interval that also holds what another panel would say; alpha is the probability of an error."""
        if value is None or not np.isfinite(self.std):
            return ANYTHING
        reach = float(stats.t.ppf(1 - alpha / 2, self.readers - 1)) * np.sqrt(2) * CAUTION * self.std
        # Patients with several samples: their interval counts one of each, so that the share of all may lie outside.
        low = value - np.hypot(max(value - ends.low, 0), reach)
        high = value + np.hypot(max(ends.high - value, 0), reach)
        known = 1 - self.unknown
        return RateEnds(max(0.0, known * low), min(1.0, known * high + self.unknown))


def panel_errors(examined: Examination, panel: ReaderPanel, place: int) -> dict[str, PanelError]:
    """Return how sensitivity, specificity, accuracy and AUROC of a concept differ between panels."""
    chosen = panel.sub_panels()
    truth = np.asarray(examined.bank.truth[:, place])
    sample, _, prob = examined.record.about(place)
    yes, cell = examined.record.said(place), examined.bank.cells[place]
    asked = np.bincount(truth[sample], minlength=2)
    # An image counts for those of its truth that were not asked about; nothing is known where none was, or none at random.
    reached = (asked > 0) & (examined.companion_valid | (asked == cell))
    counts = np.where(truth >= 0, np.where(reached, cell / np.maximum(asked, 1), 0)[truth], 0)
    values: dict[str, list[float]] = {name: [] for name in (*SIGNS, "accuracy", "auroc")}
    unknown = dict.fromkeys(values, 0.0)
    for readers in chosen:
        share = panel.shares(place, readers)
        known = np.isfinite(share)
        weights = {"sensitivity": np.where(known, share, 0), "specificity": np.where(known, 1 - share, 0)}
        weights["accuracy"] = known.astype(np.float64)
        right = {"sensitivity": yes, "specificity": ~yes, "accuracy": np.where(yes, share[sample], 1 - share[sample])}
        for name, weight in weights.items():
            own = (weight * counts)[sample]
            total = own.sum()
            values[name].append(float(np.nansum(own * right[name]) / total) if total else np.nan)
            if weight.any():
                unknown[name] = max(unknown[name], float(weight[counts == 0].sum() / weight.sum()))
        two = [(weights[name] * counts)[sample] for name in SIGNS]
        label = np.repeat([1, 0], len(sample))
        ranked = all(one.any() for one in two)
        values["auroc"].append(
            auroc_error(label, np.tile(prob, 2), weight=np.concatenate(two)).auroc if ranked else np.nan
        )
    unknown["auroc"] = min(1.0, unknown["sensitivity"] + unknown["specificity"])
    size, every = len(chosen[0]), len(panel.readers)
    return {
        name: PanelError(every, float(np.std(some) * np.sqrt(size / (every - size))), unknown[name])
        for name, some in values.items()
    }


def enter_readers(examined: Examination, panel: ReaderPanel) -> Examination:
    results, concepts = dict(examined.concepts), {}
    for place, name in enumerate(examined.bank.concepts):
        votes, truth = panel.votes[:, place], np.asarray(examined.bank.truth[:, place])
        sample, _, _ = examined.record.about(place)
        yes = examined.record.said(place)
        against: dict[str, Mapping[str, Rate]] = {}
        for measure, sign in SIGNS.items():
            strata = partial(Strata, examined.answered, truth, sample=sample, right=yes == bool(sign))
            made = {key: strata(votes[:, k] == sign) for k, key in enumerate(panel.readers)}
            made[AVERAGE] = strata((votes == sign).sum(axis=1) / np.maximum((votes >= 0).sum(axis=1), 1))
            against[measure] = {key: Rate(one.value, *one.bank(ALPHA), of=one.samples) for key, one in made.items()}
        if panel.truth in (MAJORITY, LATENT) and len(panel.readers) > 1:
            results[name] = _widened(results[name], panel_errors(examined, panel, place), examined.rates)
        disputed = int(((votes == 1).any(axis=1) & (votes == 0).any(axis=1)).sum())
        ranges = {measure: _range(against[measure], panel.readers) for measure in SIGNS}
        concepts[name] = Disagreement(disputed, against, ranges, beside(examined, panel, place))
    return replace(examined, readers=Readers(panel.truth, panel.readers, concepts, results))


def beside(examined: Examination, panel: ReaderPanel, place: int) -> dict[str, BesideReaders]:
    """Compare the model with the readers about one concept, each reader and the model against the majority of the other readers.

    The majority contains each reader, who would be judged by himself. Readers and patients are random. Empty until every
    image of two readers was asked about: the intervals are for a number fixed beforehand.
    """
    votes, (sample, _, _) = panel.votes[:, place], examined.record.about(place)
    several = (votes >= 0).sum(axis=1) > 1
    yes = np.zeros(len(votes), np.bool_)
    yes[sample] = examined.record.said(place)
    if not np.isin(np.flatnonzero(several), sample).all():
        return {}
    everyone = range(len(panel.readers))
    others = np.stack([panel.shares(place, [k for k in everyone if k != one]) for one in everyone])
    patient = examined.bank.patient
    codes = np.arange(len(votes)) if patient is None else np.asarray(patient)
    found = {}
    for measure, sign in SIGNS.items():
        weight = np.where((votes.T >= 0) & np.isfinite(others), others if sign else 1 - others, 0.0)
        judged = weight.any(axis=1)
        rows = weight.any(axis=0)
        patients = np.unique(codes[rows], return_inverse=True)[1]
        if judged.sum() > 1 and len(np.unique(patients)) > 1:
            names = [panel.readers[one] for one in np.flatnonzero(judged)]
            right = (votes == sign).T[judged][:, rows].astype(np.float64)
            model = (yes[rows] == bool(sign)).astype(np.float64)
            found[measure] = compare_with_readers(names, right, model, weight[judged][:, rows], patients)
    return found


def _range(against: Mapping[str, Rate], readers: tuple[str, ...]) -> RateEnds | None:
    """The least and the largest rate against a single reader; None where no such rate is known."""
    values = [value for name in readers if (value := against[name].value) is not None]
    return RateEnds(min(values), max(values)) if values else None


def _widened(one: ConceptResult, errors: dict[str, PanelError], rates: int) -> ConceptResult:
    """Let the intervals of a concept hold what another panel would say."""

    def wider(rate: Rate, error: PanelError) -> Rate:
        if rate.low is None or rate.high is None:
            return rate
        low, high = error.widened(rate.value, RateEnds(rate.low, rate.high), ALPHA)
        new, simultaneous = (
            ends and error.widened(rate.value, ends, alpha)  # None for the accuracy
            for ends, alpha in ((rate.new, ALPHA), (rate.simultaneous, ALPHA / rates))
        )
        return replace(rate, low=low, high=high, new=new, simultaneous=simultaneous)

    ends = errors["auroc"].widened(one.auroc.value, RateEnds(one.auroc.low, one.auroc.high), ALPHA)
    rates_of: dict[str, Any] = {name: wider(getattr(one, name), errors[name]) for name in (*SIGNS, "accuracy")}
    return replace(one, auroc=one.auroc._replace(**ends._asdict()), **rates_of)
