"""Several readers: how their disagreement enters the intervals of an examination.

The questions are drawn, and the answers judged, by one truth: the majority of the readers, one random reader per image, or one reader
(`banks/tables.py`). What the intervals are about:

- **majority**, **dawid-skene**: of five or more readers, the rate against the truth of *another panel of as many readers* who read the
  same images. What such a panel would find is forecast by drawing panels from these readers (`ReaderPanel.drawn`): with the rate T of
  the panel of R readers, and T_b against the majority of the drawn ones, with median m and 2.5 % and 97.5 % quantiles q,

      T - f (max(T, m) - q_low) < T' < T + f (q_high - min(T, m)),      f = 1.1 sqrt((R + 1) / (R - 1)) t_{R - 1} / z.

  For a mean over readers, (R - 1) / (R + 1) of the variance of T' is the bootstrap's, and T and few readers need Student's t instead
  of z; the 1.1 is what simulations need. The majority of drawn panels is less sharp, as a reader may be in one twice; hence m. Both
  ends are added to the interval of the answers as the root of the sum of squares. Where readers are missing, a tie counts half in
  either class. Of fewer readers, nothing is said of other panels: all of them may share a habit that half of the others do not have
  (if readers belong to two schools, all of three belong to one in a quarter of panels). The rate is then that against these readers.
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
from retinabench.concepts.banks.tables import FEWEST, LATENT, MAJORITY, PANELS, ReaderPanel
from retinabench.concepts.inference.claims import RateEnds
from retinabench.concepts.inference.rates import ALPHA, ANYTHING, CellAnswers, Rate
from retinabench.concepts.questioning.examination import ConceptResult, Disagreement, Examination, Readers
from retinabench.concepts.questioning.transcript import Answered
from retinabench.metrics.classification import ordered_share
from retinabench.metrics.clinical.readers import BesideReaders, compare_with_readers
from retinabench.metrics.weighted_images import RankedImages, ratio

SIGNS = {"sensitivity": 1, "specificity": 0}
AVERAGE = "random reader"
CAUTION = 1.1
BLOCK = 4_000_000  # numbers of a table of panels by images that are in memory at a time
Floats = NDArray[np.float64]


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
        self.samples, self.unknown = int(np.count_nonzero(weights)), 0.0
        weight = np.asarray(weights, np.float64)
        self.cells: list[tuple[float, CellAnswers]] = []
        for sign in (UNKNOWN, 0, 1):
            for value in np.unique(weight[(truth == sign) & (weight > 0)]).tolist():
                mine = (truth == sign) & (weight == value)
                share = float(value * mine.sum() / weight.sum())
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
        if not self.samples:
            return ANYTHING
        ends = [cell.bank(alpha / len(self.cells)) for _, cell in self.cells]
        low, high = (sum(share * end[k] for (share, _), end in zip(self.cells, ends, strict=True)) for k in (0, 1))
        return RateEnds(min(low, 1.0), min(high + self.unknown, 1.0))


@dataclass(frozen=True)
class PanelError:
    """How far another panel of as many readers may be below and above, at 95 %; the largest weight on images never asked about."""

    readers: int
    below: float
    above: float
    unknown: float

    @classmethod
    def of(cls, readers: int, value: float, drawn: Floats, unknown: float) -> PanelError:
        """Return the error of a rate from those against drawn panels (B,), NaN where a panel has none."""
        factor = (
            CAUTION * np.sqrt((readers + 1) / (readers - 1)) * stats.t.ppf(0.975, readers - 1) / stats.norm.ppf(0.975)
        )
        middle = value if np.isnan(drawn).all() else float(np.nanmedian(drawn))
        low = np.quantile(np.where(np.isnan(drawn), -np.inf, drawn), 0.025, method="lower")
        high = np.quantile(np.where(np.isnan(drawn), np.inf, drawn), 0.975, method="higher")
        below, above = max(value, middle) - low, high - min(value, middle)
        return cls(readers, float(factor * below), float(factor * above), unknown)

    def widened(self, value: float | None, ends: RateEnds, alpha: float) -> RateEnds:
        """Return the interval that also holds what another panel would say; alpha is the probability of an error."""
        if value is None:
            return ANYTHING
        more = stats.t.ppf(1 - alpha / 2, self.readers - 1) / stats.t.ppf(0.975, self.readers - 1)
        # Patients with several samples: their interval counts one of each, so that the share of all may lie outside.
        low = value - np.hypot(max(value - ends.low, 0), more * self.below)
        high = value + np.hypot(max(ends.high - value, 0), more * self.above)
        known = 1 - self.unknown
        return RateEnds(max(0.0, known * low), min(1.0, known * high + self.unknown))


def panel_errors(examined: Examination, panel: ReaderPanel, place: int, one: ConceptResult) -> dict[str, PanelError]:
    """Return how sensitivity, specificity, accuracy and AUROC of a concept differ between panels."""
    truth = np.asarray(examined.bank.truth[:, place])
    sample, _, prob = examined.record.about(place)
    if not len(sample):
        return dict.fromkeys((*SIGNS, "accuracy", "auroc"), PanelError(len(panel.readers), np.inf, np.inf, 1.0))
    yes, cell, ranked = examined.record.said(place), examined.bank.cells[place], RankedImages(prob)
    asked = np.bincount(truth[sample], minlength=2)
    # An image counts for those of its truth that were not asked about; nothing is known where none was, or none at random.
    reached = (asked > 0) & (examined.companion_valid | (asked == cell))
    counts = np.where(truth >= 0, np.where(reached, cell / np.maximum(asked, 1), 0)[truth], 0)
    values: dict[str, list[Floats]] = {name: [] for name in (*SIGNS, "accuracy", "auroc")}
    unknown = dict.fromkeys(values, 0.0)
    for some in np.array_split(panel.drawn(), 1 + PANELS * len(truth) // BLOCK):
        share = panel.shares(place, some)
        known = np.isfinite(share)
        weight = {"sensitivity": np.where(known, share, 0), "specificity": np.where(known, 1 - share, 0)}
        seen, unseen = ((some * counts)[:, sample] for some in weight.values())
        right = {"sensitivity": seen * yes, "specificity": unseen * ~yes, "accuracy": seen * yes + unseen * ~yes}
        for name, own in (("sensitivity", seen), ("specificity", unseen), ("accuracy", seen + unseen)):
            values[name].append(ratio(right[name].sum(axis=1), own.sum(axis=1)))
        values["auroc"].append(ordered_share(ranked.cumulate(seen), ranked.cumulate(unseen)))
        weight["accuracy"] = known.astype(np.float64)
        for name, whole in weight.items():
            lost = ratio(whole[:, counts == 0].sum(axis=1), whole.sum(axis=1))
            unknown[name] = max(unknown[name], float(np.nan_to_num(lost).max()))
    unknown["auroc"] = min(1.0, unknown["sensitivity"] + unknown["specificity"])
    errors = {}
    for name, parts in values.items():
        rate = getattr(one, name).value
        value = np.nan if rate is None else rate
        errors[name] = PanelError.of(len(panel.readers), value, np.concatenate(parts), unknown[name])
    return errors


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
        if panel.truth in (MAJORITY, LATENT) and len(panel.readers) >= FEWEST:
            errors = panel_errors(examined, panel, place, results[name])
            results[name] = _widened(results[name], errors, examined.rates)
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
    others = panel.shares(place, 1 - np.eye(len(panel.readers), dtype=np.int64))
    patient = examined.bank.patient
    codes = np.arange(len(votes)) if patient is None else np.asarray(patient)
    found = {}
    for measure, sign in SIGNS.items():
        weight = np.where((votes.T >= 0) & np.isfinite(others), others if sign else 1 - others, 0.0)
        judged, rows = weight.any(axis=1), weight.any(axis=0)
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
