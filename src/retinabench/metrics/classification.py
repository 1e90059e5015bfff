"""Scores of weighted images: of probabilities and calls, of the order of referral, and of the detection of shifted images.

A score takes `Weighted` images and returns its value (...,), NaN where undefined. `auroc` and `nll` take arrays: label (N,)
0/1, prob (N,) = P(label = 1) and an optional weight (N,). An image is *positive by the model* where prob > 1/2; of sorted
images, by the threshold they were given.

With the images by increasing uncertainty, coverage c the retained fraction, E(c) the wrong predictions among them (as a
fraction of all images), err = E(1) and a = 1 - err:

    selective risk r(c) = E(c) / c          generalised risk g(c) = E(c)

The summaries of these curves are not independent of one another. For correct or wrong predictions PRR = 2 x failure AUROC - 1 and
AUGRC = (1 - failure AUROC) a err + err^2 / 2 hold exactly: with the accuracy they carry one number. Only AURC and
RC-Index weigh the certain end differently (by 1/c), and RC-Index on every count, without ties and closed at 1, is err - AURC; given
the accuracy it lies in [(1-a) ln(1-a), -a ln a], over all accuracies in [-0.368, 0.368], not the poster's [-1, 1].

Sources: Geifman et al., ICLR 2019 (AURC, E-AURC); Traub et al., NeurIPS 2024 (AUGRC); Malinin 2019 (PRR);
Brown, Talbert and Talbert (RC-Index).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import xlogy

from retinabench.core.errors import InputError
from retinabench.metrics.weighted_images import SLACK, Bools, Cases, Floats, Weighted, ratio

EYEPACS_TEST = np.array([31_403, 3_042, 6_282, 977, 966]) / 42_670  # grades 0 to 4, counted in the label file


def auroc(label: ArrayLike, prob: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Return P(a positive image ranks above a negative one) + P(tie) / 2; NaN with one class."""
    return float(auroc_of(Cases(label, prob).weighted(weight)))


def nll(label: ArrayLike, prob: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Return the mean of -ln P(label), nats per image; probabilities are clipped to [1e-15, 1 - 1e-15]."""
    return float(nll_of(Cases(label, prob).weighted(weight)))


def accuracy_of(w: Weighted) -> Floats:
    """Share of correct predictions, sum of w over correct predictions / W.

    References:
        Band et al., Benchmarking Bayesian deep learning on diabetic retinopathy detection tasks, NeurIPS (2021).
    """
    return w.mean(~w.cases.error)


def nll_of(w: Weighted) -> Floats:
    """Mean negative log likelihood -ln p(y), nats per image.

    References:
        Good, Rational decisions, J. R. Stat. Soc. B 14:107 (1952).
    """
    return w.mean(w.cases.log_loss)


def brier_of(w: Weighted) -> Floats:
    """Mean squared error (p - y)^2 of the probability.

    References:
        Brier, Verification of forecasts expressed in terms of probability, Mon. Weather Rev. 78:1 (1950).
    """
    return w.mean(w.cases.squared_error)


def brier_skill_of(w: Weighted) -> Floats:
    """1 - Brier / (pi (1 - pi)), pi the share of positive images: 0 for a forecast of pi, NaN with one class.

    References:
        Murphy, A new vector partition of the probability score, J. Appl. Meteorol. 12:595 (1973).
    """
    return 1 - ratio(brier_of(w), w.positives * w.negatives / w.total**2)


def false_alarm_price(threshold: float) -> float:
    """Return what a false alarm costs in true alarms, for someone who acts from this probability on: t / (1 - t)."""
    bounded = min(max(threshold, 1e-6), 1 - 1e-6)  # a rule can choose a threshold beyond all probabilities
    return bounded / (1 - bounded)


def net_benefit_gain_of(w: Weighted) -> Floats:
    """Net benefit at the decision threshold beyond the better of two defaults: calling every image referable, or none.

    NB = (TP - FP t / (1 - t)) / n at the threshold t. At t = 1/2 it is the accuracy beyond that of the larger class.

    References:
        Vickers and Elkin, Decision curve analysis: a novel method for evaluating prediction models, Med. Decis. Making 26:565
        (2006).
    """
    price, called = false_alarm_price(w.cases.threshold), w.cases.called
    benefit = w.sum(w.cases.label & called) - price * w.sum(~w.cases.label & called)
    return (benefit - np.maximum(0.0, w.positives - price * w.negatives)) / w.total


def sensitivity_of(w: Weighted) -> Floats:
    """Share TP / (TP + FN) of positive images that are positive by the model; NaN without positives.

    References:
        Altman and Bland, Diagnostic tests 1: sensitivity and specificity, BMJ 308:1552 (1994).
    """
    return ratio(w.sum(w.cases.label & w.cases.called), w.positives)


def specificity_of(w: Weighted) -> Floats:
    """Share TN / (TN + FP) of negative images that are negative by the model; NaN without negatives.

    References:
        Altman and Bland, Diagnostic tests 1: sensitivity and specificity, BMJ 308:1552 (1994).
    """
    return ratio(w.sum(~(w.cases.label | w.cases.called)), w.negatives)


def auroc_of(w: Weighted) -> Floats:
    """Area under the ROC curve of the probability: P(a positive image ranks higher) + P(tie) / 2.

    References:
        Hanley and McNeil, The meaning and use of the area under a receiver operating characteristic (ROC) curve, Radiology
        143:29 (1982).
    """
    return ordered_share(*w.ranked)


def auprc_of(w: Weighted) -> Floats:
    """Average precision of the probability: sum over thresholds of the gain in sensitivity times the precision.

    References:
        Davis and Goadrich, The relationship between precision-recall and ROC curves, ICML (2006).
    """
    step = np.append(0, w.cases.positive_steps + 1)  # between them the sensitivity stays
    hit, false = (np.take(mass, step, axis=-1) for mass in w.ranked)
    return average_precision(hit, hit + false)


def ood_auroc_of(w: Weighted) -> Floats:
    """P(a shifted image is more uncertain than an in-domain one) + P(tie) / 2; NaN outside joint sets.

    References:
        Hendrycks and Gimpel, A baseline for detecting misclassified and out-of-distribution examples in neural networks,
        ICLR (2017).
    """
    shifted = _shifted_mass(w)
    return ordered_share(w.mass - shifted, shifted)


def ood_auprc_of(w: Weighted) -> Floats:
    """Average precision of the uncertainty as a detector of shifted images; its chance level is their share.

    References:
        Hendrycks and Gimpel, A baseline for detecting misclassified and out-of-distribution examples in neural networks,
        ICLR (2017).
    """
    hit, called = (sums[..., -1:] - sums[..., ::-1] for sums in (_shifted_mass(w), w.mass))
    return average_precision(hit, called)


def ood_fpr95_of(w: Weighted) -> Floats:
    """Share of the shifted images that look in-domain at the uncertainty below which 95 % of the in-domain images are.

    References:
        Liang, Li and Srikant, Enhancing the reliability of out-of-distribution image detection in neural networks, ICLR (2018).
    """
    shifted = _shifted_mass(w)
    inside = w.mass - shifted
    reached = inside >= (0.95 - SLACK) * inside[..., -1:]
    step = reached.argmax(axis=-1)
    below = np.take_along_axis(shifted, step[..., None], axis=-1)[..., 0]
    return ratio(np.where(inside[..., -1] > 0, below, np.nan), shifted[..., -1])


def ordered_share(first: Floats, second: Floats) -> Floats:
    """(...,) share of the pairs in which the image of the first kind comes before that of the second, ties half.

    first, second: (..., G+1) masses of both kinds, cumulated over G steps of an order and led by 0. NaN where one has no mass.
    """
    pairs = (np.diff(second) * (first[..., 1:] + first[..., :-1])).sum(axis=-1)
    return ratio(pairs / 2, first[..., -1] * second[..., -1])


def average_precision(hit: Floats, called: Floats) -> Floats:
    """(...,) average precision: a step sum, because the trapezoid is too high between points.

    hit, called: (..., G+1) mass of the positive and of all images at or above each threshold, led by 0. NaN without positives.
    """
    return ratio((np.diff(hit) * precision(hit, called)[..., 1:]).sum(axis=-1), hit[..., -1])


def precision(hit: Floats, called: Floats) -> Floats:
    """The share of the mass called positive that is, 0 where none is called; a division that leaves places out is slow."""
    return hit / np.maximum(called, 1e-300)


def _shifted_mass(w: Weighted) -> Floats:
    """(..., B+1) mass of shifted images in the blocks before; 0 outside joint sets."""
    return w.block_sums(w.weight * w.cases.shifted)


def ranked_domains(w: Weighted) -> tuple[Floats, Floats, Floats]:
    return w.cases.uncertainty, w.weight * w.cases.shifted, w.weight * ~w.cases.shifted


@dataclass(frozen=True)
class Roc:
    """Points (G+1,) from (0, 0) to (1, 1): positive by the model where score >= threshold; the first is +inf."""

    false_positive_rate: Floats
    sensitivity: Floats
    threshold: Floats


def roc_curve(label: ArrayLike, prob: ArrayLike, weight: ArrayLike | None = None) -> Roc:
    """Return every exact point of the ROC curve, one per distinct probability; refused with one class."""
    w = Cases(label, prob).weighted(weight)
    if w.positives <= 0 or w.negatives <= 0:
        raise InputError("an ROC curve needs images of both classes", column="label")
    hit, false = w.ranked
    return Roc(false / w.negatives, hit / w.positives, np.append(np.inf, w.cases.by_prob.values))


def sensitivity_on_chords(curve: Roc, rates: ArrayLike) -> Floats:
    """Return the sensitivity (G,) at false-positive rates (G,), on the chords between the curve's points; at a jump its upper end."""
    x = np.asarray(rates, np.float64)
    rate, sensitivity = curve.false_positive_rate, curve.sensitivity
    last = np.append(np.flatnonzero(np.diff(rate)), len(rate) - 1)  # the top of every vertical piece
    first = np.append(0, last[:-1] + 1)  # its foot
    right = np.searchsorted(rate[last], x, side="left").clip(max=len(last) - 1)
    left = np.maximum(right - 1, 0)
    span = rate[last[right]] - rate[last[left]]
    part = np.divide(x - rate[last[left]], span, out=np.ones(len(x)), where=span > 0)
    between = sensitivity[last[left]] + part * (sensitivity[first[right]] - sensitivity[last[left]])
    return np.asarray(np.where(x >= rate[last[right]], sensitivity[last[right]], between))


def sensitivity_within(w: Weighted, rates: Floats) -> Floats:
    """Return the highest sensitivity (..., G) that a threshold reaches within each false-positive rate (G,), without interpolation; NaN without both classes."""
    hit, false = w.ranked
    both = np.asarray((w.positives > 0) & (w.negatives > 0))[..., None]
    reached = false / np.where(both, false[..., -1:], 1.0)
    rows = np.atleast_2d(reached)
    last = np.stack([np.searchsorted(row, rates + 1e-12, side="right") - 1 for row in rows])
    found = np.take_along_axis(hit, last.reshape(*hit.shape[:-1], len(rates)), axis=-1)
    return np.where(both, found / np.where(both, hit[..., -1:], 1.0), np.nan)


def sensitivity_at_of(w: Weighted, specificity: float) -> Floats:
    """Highest sensitivity of a threshold with at least this specificity, on the steps of the ROC curve.

    References:
        Pepe, The statistical evaluation of medical tests for classification and prediction, Oxford (2003), chapter 4.
    """
    return sensitivity_within(w, np.array([1 - specificity]))[..., 0]


def specificity_at_of(w: Weighted, sensitivity: float) -> Floats:
    """Highest specificity of a threshold with at least this sensitivity, on the steps of the ROC curve.

    References:
        Pepe, The statistical evaluation of medical tests for classification and prediction, Oxford (2003), chapter 4.
    """
    hit, false = w.ranked
    first = np.argmax(hit >= sensitivity * hit[..., -1:] - 1e-12, axis=-1)[..., None]
    return 1 - ratio(np.take_along_axis(false, first, axis=-1)[..., 0], np.where(w.positives > 0, w.negatives, 0.0))


def counts_at(w: Weighted, rate: float, of: str) -> tuple[Bools, Floats]:
    """Return what `of` (sensitivity or specificity) counts where the other one is at least `rate`: (N,) of a mass (N,)."""
    hit, false = w.ranked
    if of == "sensitivity":
        steps = int(np.flatnonzero(false <= (1 - rate) * w.negatives + 1e-12)[-1])
    else:
        steps = int(np.argmax(hit >= rate * w.positives - 1e-12))
    called = w.cases.prob >= (w.cases.by_prob.values[steps - 1] if steps else np.inf)
    return (called, w.positive) if of == "sensitivity" else (~called, w.negative)


def partial_auroc_of(w: Weighted, specificity: float) -> Floats:
    """Area under the ROC curve where the specificity is at least this, standardised: 1/2 for a random order, 1 at best.

    With the area A over false-positive rates up to m = 1 - specificity: (1 + (A - m^2 / 2) / (m - m^2 / 2)) / 2.

    References:
        McClish, Analyzing a portion of the ROC curve, Med. Decis. Making 9:190 (1989).
    """
    hit, false = w.ranked
    most = 1 - specificity
    end = most * false[..., -1:]
    width, rise = np.diff(false), np.diff(hit)
    inside = np.minimum(false[..., 1:], end) - np.minimum(false[..., :-1], end)
    top = hit[..., :-1] + rise * np.divide(inside, width, out=np.ones_like(width), where=width > 0)
    area = ratio((inside * (hit[..., :-1] + top)).sum(axis=-1) / 2, hit[..., -1] * false[..., -1])
    return (1 + (area - most**2 / 2) / (most - most**2 / 2)) / 2


def balanced_weight(shifted: Bools, weight: Floats | None = None) -> Floats:
    """(..., N) weights that give both domains the same mass: shifted images count (mass in domain) / (mass shifted) fold.

    weight: (..., N) multiplicities to start from, such as those of bootstrap replicates; None: 1 each. A row in which one domain
    has no mass is NaN. No image is drawn at random: a score of the balanced set is a function of the predictions. Replaces the
    random duplication of the published protocol, see `docs/deviations.md`.
    """
    weight = np.ones(len(shifted)) if weight is None else weight
    here, there = (np.compress(part, weight, axis=-1).sum(axis=-1, keepdims=True) for part in (~shifted, shifted))
    factor = np.divide(here, there, out=np.full(here.shape, np.nan), where=(here > 0) & (there > 0))
    return np.where(shifted, weight * factor, np.where(np.isnan(factor), np.nan, weight))


def grade_weight(grade: ArrayLike, proportion: ArrayLike = EYEPACS_TEST) -> Floats:
    """(N,) weights that give the grades 0 … 4 these proportions, total N: APTOS as if graded like EyePACS.

    The exact form of the resampling with replacement of the published protocol (paper B.5): its expectation, without
    the random draw. A grade that is missing here leaves its share to the others. Raises `InputError` for a grade
    without proportion.
    """
    g, share = np.asarray(grade, np.intp), np.asarray(proportion, np.float64)
    if g.min() < 0 or g.max() >= len(share):
        problem = f"grades {g.min()} to {g.max()} where proportions are for 0 to {len(share) - 1}"
        raise InputError(problem, column="grade")
    count = np.bincount(g, minlength=len(share))
    weight = np.divide(share, count, out=np.zeros(len(share)), where=count > 0)[g]
    return np.asarray(weight * (len(g) / weight.sum()))


RC_GRID: Floats = np.asarray(np.arange(10) * 0.1, np.float64)  # removed fractions; nothing is left at 1


def aurc_of(w: Weighted) -> Floats:
    """Area under selective risk over coverage: trapezoid over the distinct uncertainties, the first risk kept to c = 0.

    Lower is better, in [0, 1]; the random order has err. The convention of fd-shifts (there often x 1000).

    References:
        Geifman, Uziel and El-Yaniv, Bias-reduced uncertainty estimation for deep neural classifiers, ICLR (2019).
        Jaeger et al., A call to reflect on evaluation practices for failure detection in image classification, ICLR (2023).
    """
    mass, wrong = w.mass, w.wrong_mass
    risk = np.divide(wrong, mass, out=np.zeros_like(wrong), where=mass > 0)
    # Blocks without weight repeat the risk before them; before the first with weight its own risk is kept.
    first = np.argmax(mass > 0, axis=-1)[..., None]
    risk = np.where(mass > 0, risk, np.take_along_axis(risk, first, axis=-1))
    area: Floats = (np.diff(mass) * (risk[..., 1:] + risk[..., :-1])).sum(axis=-1)
    return area / (2 * w.total)


def e_aurc_of(w: Weighted) -> Floats:
    """AURC beyond the oracle of the same accuracy in the limit of many images: AURC - (err + (1 - err) ln(1 - err)).

    Few images or few distinct uncertainties can bring it below 0: the trapezoid then cuts the corner of the curve.

    References:
        Geifman, Uziel and El-Yaniv, Bias-reduced uncertainty estimation for deep neural classifiers, ICLR (2019).
    """
    err = w.mean(w.cases.error)
    right = np.maximum(1 - err, 0.0)  # a weighted mean of ones can lie above 1 by rounding
    return w.derived(aurc_of) - (err + xlogy(right, right))


def augrc_of(w: Weighted) -> Floats:
    """Area under generalised risk over coverage; random err/2, best err^2/2, worst err - err^2/2.

    References:
        Traub et al., Overcoming common flaws in the evaluation of selective classification systems, NeurIPS (2024).
    """
    pairs: Floats = (np.diff(w.mass) * (w.wrong_mass[..., 1:] + w.wrong_mass[..., :-1])).sum(axis=-1)
    return pairs / 2 / w.total**2


def failure_auroc_of(w: Weighted) -> Floats:
    """P(a wrong prediction is more uncertain than a correct one) + P(tie) / 2; NaN if all are right or all wrong.

    References:
        Hendrycks and Gimpel, A baseline for detecting misclassified and out-of-distribution examples in neural networks,
        ICLR (2017).
    """
    return ordered_share(w.mass - w.wrong_mass, w.wrong_mass)


def ranked_errors(w: Weighted) -> tuple[Floats, Floats, Floats]:
    wrong = w.weight * w.cases.error
    return w.cases.uncertainty, wrong, w.weight - wrong


def prr_of(w: Weighted) -> Floats:
    """Prediction rejection ratio (A_random - A) / (A_random - A_oracle) of areas under generalised risk; at most 1.

    A_random = err/2, A_oracle = err^2/2. NaN where all are right or all wrong.

    References:
        Malinin et al., Incorporating uncertainty into deep learning for spoken language assessment, ACL (2017).
    """
    random = w.mean(w.cases.error) / 2
    possible = random - 2 * random**2
    return ratio(random - w.derived(augrc_of), np.where(possible > 1e-15, possible, 0.0))


def rc_index_of(w: Weighted) -> Floats:
    """Rejection Classification Index on the grid 0, 0.1, … 0.9: RC-Index@0.9.

    Area under the gain in accuracy y(x) - y(0) over the removed fraction x, trapezoid. Positive: removing uncertain images
    helps; 0 in expectation for a random order; negative: harmful. Its true range over all models is [-1/e, 1/e]; at accuracy a
    it lies in [(1-a) ln(1-a), -a ln a], so models of different accuracy are not comparable. Its value depends on the grid. The poster
    prints a range of -1 to 1.

    References:
        Brown, Talbert and Talbert (poster); their sample is averaged vertically over folds, with `rc_area` of the mean
        (`vertical_accuracy`). The index is linear in the curve, so that this equals the mean of the folds' indices.
    """
    return rc_area(RC_GRID, accuracy_at(w, 1 - RC_GRID))


def rc_area(x: Floats, accuracy: Floats) -> Floats:
    """RC-Index (...,) of accuracies (..., M) at x (M,): sum over i of (x_i - x_{i-1}) (y_i + y_{i-1} - 2 y_0) / 2."""
    gain = accuracy - accuracy[..., :1]
    return np.asarray(np.einsum("...m,m->...", gain[..., 1:] + gain[..., :-1], np.diff(x)))[()] / 2


def accuracy_at(w: Weighted, coverage: Floats) -> Floats:
    """(..., M) accuracy of the retained at coverages (M,) in (0, 1], blocks of ties shared evenly."""
    retained = np.asarray(coverage * w.total[..., None])
    return 1 - w.locate(retained).retained(w.wrong_mass) / retained


def referred_names(referred: float = 0.5) -> tuple[str, ...]:
    """Return the names of `referred_values`, such as ``gain_at_50``; each is defined in `metrics/definitions.toml`."""
    parts = ("accuracy", "gain", "closed", "perfect_accuracy", "sensitivity", "specificity", "prevalence", "missed")
    return tuple(f"{part}_at_{100 * referred:g}" for part in parts)


def referred_values(w: Weighted, referred: float = 0.5) -> Floats:
    """Return the (..., 8) values of the retained images named by `referred_names`, where at least this share is referred; NaN where undefined."""
    cases, weight = w.cases, w.weight
    number = ((1 - referred) * w.count + 1e-9).astype(np.intp)
    kept = number * w.step
    at = w.at_points.chosen(np.maximum(number, 1)[..., None] - 1)

    def retained(sums: Floats) -> Floats:
        return at.retained(sums)[..., 0]

    positives = retained(w.positive_mass)
    called = retained(w.block_sums(weight * (cases.label & cases.called), whole=w.whole))
    passed = retained(w.block_sums(weight * ~(cases.label | cases.called), whole=w.whole))
    accuracy, sensitivity = ratio(kept - retained(w.wrong_mass), kept), ratio(called, positives)
    overall = 1 - w.wrong_mass[..., -1] / w.total
    perfect = np.minimum(1.0, overall * w.count / np.maximum(number, 1))
    missed = np.where(positives > 0, (1 - sensitivity) * positives, 0.0)
    closed, specificity = ratio(accuracy - overall, perfect - overall), ratio(passed, retained(w.mass) - positives)
    shares = ratio(positives, kept), ratio(missed, w.positives)
    values = np.stack([accuracy, accuracy - overall, closed, perfect, sensitivity, specificity, *shares], axis=-1)
    values[number == 0] = np.nan
    return values


def referred_value(w: Weighted, name: str, referred: float = 0.5) -> Floats:
    """Return one of `referred_values`; those of a share are computed together, once for the same weights.

    References:
        Filos et al., A systematic comparison of Bayesian deep learning robustness in diabetic retinopathy tasks,
        arXiv:1912.10481 (2019).
    """
    return w.derived(referred_values, referred)[..., referred_names(referred).index(name)]


def retained_counts(w: Weighted, success: str, of: str = "images", referred: float = 0.5) -> tuple[Floats, Floats]:
    """Return what a proportion of the retained images counts, for its interval.

    `success`: `right`, `called`, `not called` or `label`; `of`: `images`, `positives` or `negatives`.
    Shapes: returns (N,) success, 0 or 1, and (N,) what remains of the weight.
    """
    label = w.cases.label
    hit = {"right": ~w.cases.error, "called": w.cases.called, "not called": ~w.cases.called, "label": label}
    among = {"images": np.ones_like(label), "positives": label, "negatives": ~label}
    kept = w.retained(int((1 - referred) * w.count + 1e-9))
    return hit[success].astype(np.float64), np.where(among[of], kept, 0.0)


def retained_errors(w: Weighted, referred: float = 0.5) -> tuple[Floats, Floats]:
    return _retained_share(w, referred), w.weight * w.cases.error


def closed_scale(w: Weighted, referred: float = 0.5) -> tuple[float, float]:
    """Return a and b: the share of the possible gain is a + b x the share of the wrong predictions that is retained."""
    return 1.0, -float(w.count) / max(1, int((1 - referred) * w.count + 1e-9))


def missed_counts(w: Weighted, referred: float = 0.5) -> tuple[Floats, Floats]:
    return np.where(w.cases.called, 0.0, _retained_share(w, referred)), w.positive


def _retained_share(w: Weighted, referred: float) -> Floats:
    kept = retained_counts(w, "right", referred=referred)[1]
    return np.divide(kept, w.weight, out=np.zeros_like(kept), where=w.weight > 0)
