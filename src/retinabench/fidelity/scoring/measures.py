"""The measures: how close a submission comes to the reference, and how useful it is.

Letters: N test points, C classes, S posterior samples, n points of one group. Every measure is a function of means over
points (`resampling.Measure`); the distances themselves are those of `distances.py`.

`agreement` (share of argmax p = argmax q) and `total_variation` (½ Σ_c |p_c - q_c|) rank classifications, `wasserstein` (W1 between draws of
y) regressions. Beside them stand rank correlation and error of the mutual information, disagreement gap, miscalibration with q as truth,
regret (missed: 4, needless referral: 1), W2, the competition's `w2_kit` (minus W1) and `w2_as_printed` (√1000 W2), and usefulness against
the labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from retinabench.fidelity import distances
from retinabench.fidelity.scoring.resampling import Measure, Values, mean_of

Probabilities = NDArray[np.floating]
BINS = 15  # of the confidence


class MeasureNote(NamedTuple):
    """What readers need to know of a measure."""

    label: str
    higher: bool
    kind: Literal["fidelity", "utility"]
    unit: str = ""
    most: float = np.inf


MEASURES = {
    "agreement": MeasureNote("agreement", True, "fidelity", most=1.0),
    "total_variation": MeasureNote("total variation", False, "fidelity", most=1.0),
    "epistemic_correlation": MeasureNote("epistemic rank correlation", True, "fidelity"),
    "epistemic_error": MeasureNote("epistemic error", False, "fidelity", "nats"),
    "disagreement_gap": MeasureNote("disagreement gap", False, "fidelity"),
    "miscalibration": MeasureNote("miscalibration", False, "fidelity"),
    "regret": MeasureNote("decision regret", False, "fidelity", "needless referrals"),
    "wasserstein": MeasureNote("Wasserstein-1", False, "fidelity", "stds of y"),
    "w2": MeasureNote("Wasserstein-2", False, "fidelity", "stds of y"),
    "w2_kit": MeasureNote("w2_kit (-W1)", True, "fidelity", "stds of y"),
    "w2_as_printed": MeasureNote("W2 as printed", False, "fidelity"),
    "accuracy": MeasureNote("accuracy", True, "utility"),
    "nll": MeasureNote("NLL", False, "utility", "nats"),
    "referral_area": MeasureNote("referral area", True, "utility"),
    "rmse": MeasureNote("RMSE", False, "utility", "stds of y"),
    "crps": MeasureNote("CRPS", False, "utility", "stds of y"),
    "coverage_90": MeasureNote("coverage of 90 %", True, "utility"),
}
RANKED = {"categorical": ("agreement", "total_variation"), "gaussian": ("wasserstein",)}
"""The measures by which the board ranks, as the competition did."""


@dataclass(frozen=True, eq=False)
class SampleSums:
    """Sums over S posterior samples, from which the information measures follow.

    Shapes: `probs` (N, C), `entropy` (N,), `votes` (N, C).
    """

    samples: int
    probs: Values
    entropy: Values
    votes: Values

    @classmethod
    def of(cls, samples: Probabilities) -> SampleSums:
        """Return the sums of samples (S, N, C)."""
        s, n, classes = samples.shape
        probs, entropy, votes = np.zeros((n, classes)), np.zeros(n), np.zeros((n, classes))
        for one in samples:
            p = one.astype(np.float64)
            probs += p
            entropy += distances.entropy(p)
            votes[np.arange(n), p.argmax(axis=1)] += 1
        return cls(s, probs, entropy, votes)

    @classmethod
    def joined(cls, parts: Sequence[SampleSums]) -> SampleSums:
        """Return the sums over the samples of all parts."""
        return cls(
            sum(part.samples for part in parts),
            np.sum([part.probs for part in parts], axis=0),
            np.sum([part.entropy for part in parts], axis=0),
            np.sum([part.votes for part in parts], axis=0),
        )

    @property
    def epistemic(self) -> Values:
        """The mutual information of `distances.epistemic`, (N,), in nats, clipped at 0 against the rounding of samples."""
        return np.maximum(distances.entropy(self.probs / self.samples) - self.entropy / self.samples, 0)

    @property
    def disagreement(self) -> Values:
        """The disagreement of `distances.pairwise_disagreement`, (N,); 0 for a single sample."""
        pairs = max(1, self.samples * (self.samples - 1))
        return np.asarray(
            1 - (self.votes * (self.votes - 1)).sum(axis=1) / pairs if self.samples > 1 else self.entropy * 0
        )

    def rows(self, rows: NDArray[np.intp]) -> SampleSums:
        """Return the sums of some points."""
        return SampleSums(self.samples, self.probs[rows], self.entropy[rows], self.votes[rows])


def classification(
    probs: Probabilities,
    sums: SampleSums | None,
    reference: Probabilities,
    epistemic: NDArray[np.floating],
    disagreement: NDArray[np.floating],
    *,
    costs: Values | None,
) -> dict[str, Measure]:
    """Return the measures of closeness of a classification, for one group of n points.

    Shapes: `costs` (2, C).
    """
    found = {
        "agreement": mean_of(distances.agreement(probs, reference)),
        "total_variation": mean_of(distances.total_variation(probs, reference)),
        "miscalibration": miscalibration(probs, reference),
    }
    if sums is not None:
        found["epistemic_correlation"] = rank_correlation(sums.epistemic, epistemic)
        found["epistemic_error"] = mean_of(np.abs(sums.epistemic - epistemic))
        gap = sums.disagreement - disagreement
        found["disagreement_gap"] = Measure(gap[:, None], lambda means: np.abs(means[..., 0]))
    if costs is not None:
        found["regret"] = mean_of(distances.decision_regret(probs, reference, costs))
    return found


def regression(draws: Probabilities, reference: Probabilities) -> dict[str, Measure]:
    """Return the measures of closeness of draws of y to those of the reference, for one group.

    The competition called minus the mean of W1 "W2" (`w2_kit`); equation (3) of its paper, taken literally, is the square root
    of a sum over draws without 1/S (`w2_as_printed`). Both are theirs where S = M = 1,000.

    References:
        Wilson, Izmailov, Hoffman, Gal, Li, Pradier, Vikram, Foong, Lotfi & Farquhar 2021, "Evaluating approximate inference
        in Bayesian deep learning".
    """
    first, second = (distances.wasserstein(draws, reference, order) for order in (1, 2))
    return {
        "wasserstein": mean_of(first),
        "w2": mean_of(second),
        "w2_kit": mean_of(-first),
        "w2_as_printed": mean_of(np.sqrt(draws.shape[1]) * second),
    }


def miscalibration(probs: Probabilities, reference: Probabilities) -> Measure:
    """Return the calibration error with the reference as truth.

    Over `BINS` bins of equal width of the confidence max p: the weighted mean |mean of max p - mean reference
    probability of that class|. Its terms are the gaps between confidence and reference by bin.
    """
    named, rows = probs.argmax(axis=1), np.arange(len(probs))
    confidence, truth = probs[rows, named], reference[rows, named]
    gaps = np.zeros((len(probs), BINS))
    gaps[rows, np.minimum((confidence * BINS).astype(int), BINS - 1)] = confidence - truth
    return Measure(gaps, lambda means: np.asarray(np.abs(means).sum(axis=-1)))


def rank_correlation(a: NDArray[np.floating], b: NDArray[np.floating]) -> Measure:
    """Return Spearman's correlation of a and b, (n,); NaN where one is constant. Replicates use the ranks of the sample."""
    x, y = ((rankdata(v) - (len(v) + 1) / 2) / len(v) for v in (a, b))

    def correlation(means: Values) -> Values:
        mx, my, xx, yy, xy = np.moveaxis(means, -1, 0)
        product = (xx - mx**2) * (yy - my**2)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(
                np.where(product > 1e-12, (xy - mx * my) / np.sqrt(np.maximum(product, 0)), np.nan)
            )

    return Measure(np.stack([x, y, x * x, y * y, x * y], axis=1), correlation)
