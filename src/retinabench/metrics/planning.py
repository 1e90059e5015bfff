"""`plan`: how many patients a study needs for every question that is put to it, from what is assumed or from a pilot.

The variance of an AUROC A is that of DeLong's and Obuchowski's placement values: with V1 and V0 their variances among the images of the
classes (`placement_variances`), n1 and n0 images, and D1 and D0 the design effects of a correlation of .8 within a patient,

    variance = D1 V1 / n1 + D0 V0 / n0

A study is large enough where the interval that `score` prints, pseudo-patients included, has the stated half-width at this variance; a pilot's own
variance is taken where there is one. About every second study then reaches the half-width.

The others count independent images of one class, which are then turned into images and patients.

The four criteria of Riley et al., each as the number of independent images whose standard error gives a 95 % interval of
the stated width. What a model's linear predictors logit(p) look like is taken from a pilot; or from the AUROC and the
prevalence, as those of a calibrated model with normal scores (logit(p) is normal in each class, with standard deviation
d = sqrt(2) Phi^-1(AUROC) and means logit(prevalence) +- d^2/2).

>>> aims = Aims(half_width=0.05)
>>> plan_study(Assumptions(prevalence=0.2, sensitivity=0.9, specificity=0.9), aims)["sensitivity"].patients
561

References:
    Riley, Debray, Collins, Archer, Ensor, van Smeden and Snell, Minimum sample size for external validation of a clinical
    prediction model with a binary outcome, Stat. Med. 40:4230 (2021).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.optimize import brentq
from scipy.special import expit, logit, owens_t

from retinabench.core.errors import InputError
from retinabench.core.results import BLUE, Document, JsonObject, Row, Tabular, axes_or_new
from retinabench.metrics.clinical.screening_table import two_by_two
from retinabench.metrics.image_sets import DEFAULT, DecisionThreshold, FrozenThreshold
from retinabench.metrics.intervals import auroc_error, auroc_interval, binary, clopper_pearson
from retinabench.metrics.weighted_images import EPS, Floats, check_level, cluster_codes, is_positive
from retinabench.predictions.table import Predictions

if TYPE_CHECKING:
    from matplotlib.axes import Axes


MOST = 10_000_000  # No study has more images.
EYES = 0.8  # correlation of the placements of a patient's images of one class, as of a real model's two eyes
Z = float(stats.norm.ppf(0.975))


@dataclass(frozen=True)
class Clusters:
    """How images are shared by patients.

    A design effect D says that D dependent images tell as much as one independent image: 1 + (size - 1) x correlation, with
    the size of the group of images that share a patient *and* a label, as met by a random image of that label.
    """

    images_per_patient: float = 2.0  # mean
    correlation: float = 0.5  # of being right on two images of a patient with the same label
    disease_correlation: float = 0.8  # of the labels of two images of a patient; 1: both eyes or neither
    mates: float | None = None  # mean number of images of the patient of a random image; None: all have equally many

    def __post_init__(self) -> None:
        if not 1 <= self.images_per_patient < np.inf:
            hint = "The mean is 1 or more, such as 2."
            raise InputError(f"a patient has {self.images_per_patient:g} images", hint=hint)
        for name in ("correlation", "disease_correlation"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"the {name.replace('_', ' ')} is {getattr(self, name):g}", hint="It lies in [0, 1].")

    def positive_effect(self, prevalence: float) -> float:
        return self._effect(prevalence + self.disease_correlation * (1 - prevalence))

    def negative_effect(self, prevalence: float) -> float:
        return self._effect(1 - prevalence + self.disease_correlation * prevalence)

    @property
    def effect(self) -> float:
        return self._effect(1.0)

    def _effect(self, shared: float) -> float:
        """Return 1 + (m - 1) x P(another image of the patient has the label of this one) x correlation."""
        size = self.images_per_patient if self.mates is None else self.mates
        return 1 + (size - 1) * shared * self.correlation


def intra_patient_correlation(success: ArrayLike, cluster: ArrayLike) -> float:
    """Return the correlation of a yes/no outcome between images of a patient.

    With Y_i successes among the m_i images of patient i, M images, G patients and p = sum Y_i / M:
    1 - sum Y_i (m_i - Y_i) / m_i / ((M - G) p (1 - p)), cut to [0, 1].

    References:
        Fleiss and Cuzick, The reliability of dichotomous judgments: unequal numbers of judges per subject, Appl. Psychol.
        Meas. 3:537 (1979).
    """
    hit = binary(success, "success")
    codes, patients = cluster_codes(cluster)
    images = np.bincount(codes, minlength=patients)
    successes = np.bincount(codes, hit, patients)
    p = float(hit.mean())
    scale = (len(hit) - patients) * p * (1 - p)
    if scale <= 0:
        return float("nan")
    within = float(np.sum(successes * (images - successes) / images))
    return float(np.clip(1 - within / scale, 0, 1))


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
        hint = "Expect a value above the goal."
        raise InputError(f"an expected {expected:g} cannot be shown to be above {above:g}", hint=hint)
    needed = stats.norm.ppf((1 + level) / 2) * np.sqrt(above * (1 - above))
    needed += stats.norm.ppf(power) * np.sqrt(expected * (1 - expected))
    approximate = (needed / (expected - above)) ** 2
    if not approximate < MOST:
        raise InputError(f"to tell {expected:g} from {above:g} needs more than {MOST:,} images")
    short = np.flatnonzero(exact_power(np.arange(1, int(2 * approximate) + 300), expected, above, level) < power)
    return int(short[-1]) + 2 if len(short) else 1


def exact_power(images: ArrayLike, expected: float, above: float, level: float = 0.95) -> Floats:
    """Return the power of the exact one-sided binomial test of "proportion <= above"; `images` (K,) -> (K,)."""
    n = np.asarray(images)
    most_without = stats.binom.isf((1 - level) / 2, n, above)  # P(more successes | above) <= (1 - level) / 2
    return np.asarray(stats.binom.sf(most_without, n, expected), np.float64)


def check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise InputError(f"the {name} is {value:g}", hint="It lies between 0 and 1.")


def images_for_auroc(given: Assumptions, half_width: float, level: float) -> float:
    """Return the images, of both classes, whose AUROC has an interval of the stated half-width."""
    auroc, q, clusters, variance = given.auroc, given.prevalence, given.clusters, given.auroc_variance
    m, placements = clusters.images_per_patient, replace(clusters, correlation=EYES)
    if variance is None:
        of_positives, of_negatives = placement_variances(auroc)
        variance = of_positives * placements.positive_effect(q) / q
        variance += of_negatives * placements.negative_effect(q) / (1 - q)
        variance /= m
    spread = 1 + (m - 1) * (1 - clusters.disease_correlation) * np.array([1 - q, q])
    held = np.minimum(np.array([q, 1 - q]) * spread, 1.0)  # share of the patients with an image of each class

    def too_wide(patients: float) -> float:
        diseased, healthy = np.maximum(held * patients, 1.0).tolist()
        low, high = auroc_interval(auroc, math.sqrt(variance / patients), diseased, healthy, level)
        return (high - low) / 2 - half_width

    least, most = 2.0, float(MOST)
    if too_wide(most) > 0:
        return math.inf
    return float(brentq(too_wide, least, most, xtol=0.5)) * m if too_wide(least) > 0 else least * m


def placement_variances(auroc: float) -> tuple[float, float]:
    """Return the variances of the placements of positive and of negative images at an AUROC of A.

    Of negative images the binormal Q - A^2, with Q = Phi(z) - 2 T(z, sqrt(1/3)), z = Phi^-1(A) and Owen's T. Models miss some disease entirely:
    of positive images it is the mean of that and of a model that ranks a share 2 (1 - A) of them at random, 1 - 4 (1 - A) / 3 - A^2.

    >>> [round(one, 4) for one in placement_variances(0.95)]  # a real model of this AUROC: 0.0183 and 0.0045
    [0.0203, 0.0097]
    """
    z = float(stats.norm.ppf(auroc))
    binormal = float(stats.norm.cdf(z) - 2 * owens_t(z, np.sqrt(1 / 3))) - auroc**2
    return (binormal + 1 - 4 * (1 - auroc) / 3 - auroc**2) / 2, binormal


def images_for_observed_over_expected(prevalence: float, width: float = 0.2) -> float:
    """Return the images for a 95 % interval of observed/expected of the stated width.

    SE(ln O/E) = sqrt((1 - prevalence) / (n prevalence)), the interval exp(-+ z SE) has the width 2 sinh(z SE).
    """
    error = math.asinh(width / 2) / Z
    return (1 - prevalence) / (prevalence * error**2)


def images_for_calibration_slope(predictors: ArrayLike, weight: ArrayLike, width: float = 0.2) -> float:
    """Return the images for a 95 % interval of the calibration slope of the stated width, for a calibrated model.

    n = I_a / (SE^2 (I_a I_b - I_ab^2)), with the means I_a of v, I_ab of v x and I_b of v x^2 over the linear predictors x
    and v = p (1 - p).
    """
    x, w = np.asarray(predictors, np.float64), np.asarray(weight, np.float64)
    v = w / w.sum() * expit(x) * expit(-x)
    a, ab, b = float(v.sum()), float(v @ x), float(v @ x**2)
    if a * b - ab**2 <= 0:
        raise InputError("the calibration slope needs probabilities that differ")
    return a / ((width / (2 * Z)) ** 2 * (a * b - ab**2))


def images_for_c_statistic(auroc: float, prevalence: float) -> float:
    """Return the images for a 95 % interval of the C-statistic (the AUROC) of width 0.1, by Newcombe's formula.

    SE^2 = C (1 - C) (1 + (n/2 - 1) ((1 - C) / (2 - C) + C / (1 + C))) / (n^2 prevalence (1 - prevalence)).

    References:
        Newcombe, Confidence intervals for an effect size measure based on the Mann-Whitney statistic, part 2, Stat. Med.
        25:559 (2006).
    """
    slope = (1 - auroc) / (2 - auroc) + auroc / (1 + auroc)
    scale = auroc * (1 - auroc) / (prevalence * (1 - prevalence) * (0.1 / (2 * Z)) ** 2)
    # n^2 = scale (1 + (n / 2 - 1) slope)
    half = scale * slope / 4
    return half + math.sqrt(half**2 + scale * (1 - slope))


def images_for_net_benefit(sensitivity: float, specificity: float, prevalence: float, threshold: float) -> float:
    """Return the images for a 95 % interval of the standardised net benefit of width 0.2.

    With w = (1 - q) / q x t / (1 - t), q the prevalence and t the threshold probability, n SE^2 =
    sens (1 - sens) / q + w^2 spec (1 - spec) / (1 - q) + w^2 (1 - spec)^2 / (q (1 - q)).

    References:
        Marsh, Janes and Pepe, Statistical inference for net benefit measures in biomarker validation studies, Biometrics
        76:843 (2020).
    """
    check_share("threshold", threshold)
    w = (1 - prevalence) / prevalence * threshold / (1 - threshold)
    unit = sensitivity * (1 - sensitivity) / prevalence
    unit += w**2 * specificity * (1 - specificity) / (1 - prevalence)
    unit += w**2 * (1 - specificity) ** 2 / (prevalence * (1 - prevalence))
    return unit / (0.1 / Z) ** 2


def calibrated_predictors(auroc: float, prevalence: float) -> tuple[Floats, Floats]:
    """Return the linear predictors of a calibrated binormal model, as points (K,) and their probabilities (K,)."""
    distance = math.sqrt(2) * float(stats.norm.ppf(auroc))
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    centre, shift = float(logit(prevalence)), distance**2 / 2
    points = [centre + sign * shift + distance * nodes for sign in (1, -1)]
    return np.concatenate(points), np.concatenate([prevalence * weights, (1 - prevalence) * weights])


def threshold_of_sensitivity(auroc: float, prevalence: float, sensitivity: float) -> tuple[float, float]:
    """Return the threshold probability at which a calibrated binormal model has a sensitivity, and its specificity there."""
    distance = math.sqrt(2) * float(stats.norm.ppf(auroc))
    cut = float(stats.norm.isf(sensitivity))  # in standard deviations from the mean of the positives
    threshold = float(expit(logit(prevalence) + distance**2 / 2 + distance * cut))
    return threshold, float(stats.norm.cdf(cut + distance))


SCHEMA = "retinabench.plan/1"


@dataclass(frozen=True)
class Assumptions:
    """What is expected of the model and of the images."""

    prevalence: float  # share of referable images
    sensitivity: float = 0.9  # per image, at the decision threshold
    specificity: float = 0.9
    auroc: float = 0.95
    clusters: Clusters = field(default_factory=Clusters)
    threshold: float | None = None  # as a probability; None: that of a calibrated model with this AUROC and sensitivity
    auroc_variance: float | None = None  # of a pilot's AUROC, times its patients; None: that of a usual model
    predictors: Floats | None = None  # logit(p) of a pilot; None: those of a calibrated model with this AUROC
    origin: str = "stated"

    def __post_init__(self) -> None:
        if not 0 < self.prevalence < 1:
            raise InputError(f"the prevalence is {self.prevalence:g}", hint="It lies between 0 and 1.")
        for title, least in (("sensitivity", 0.0), ("specificity", 0.0), ("AUROC", 0.5)):
            value = getattr(self, title.lower())
            if not least < value < 1:
                raise InputError(
                    f"the {title} is {value:g} ({self.origin})",
                    hint=f"A study is planned for a value between {least:g} and 1: state one, such as --{title.lower()} 0.95.",
                )

    def to_dict(self) -> JsonObject:
        """Return the assumptions for JSON; of a pilot's linear predictors only their number."""
        content = {name: value for name, value in vars(self).items() if name not in ("clusters", "predictors")}
        pilot = None if self.predictors is None else len(self.predictors)
        return content | asdict(self.clusters) | {"pilot_images": pilot}


def stated_assumptions(
    rates: Mapping[str, float],
    images_per_patient: float | None = None,
    pilot: Predictions | None = None,
    threshold: DecisionThreshold | float | str = DEFAULT,
) -> Assumptions:
    """Return assumptions: the stated rates (by the names of `Assumptions`), then what a pilot says, then the defaults."""
    if pilot is not None:
        assumed = from_pilot(pilot, DecisionThreshold.parse(threshold).freeze(pilot), rates)
    elif "prevalence" in rates:
        assumed = Assumptions(**rates)  # type: ignore[arg-type]
    else:
        hint = "Give --prevalence, such as 0.1, or the predictions of a pilot."
        raise InputError("the prevalence is not known", hint=hint)
    if images_per_patient is None:
        return assumed
    return replace(assumed, clusters=replace(assumed.clusters, images_per_patient=images_per_patient, mates=None))


def from_pilot(
    predictions: Predictions, threshold: FrozenThreshold, stated: Mapping[str, float] = MappingProxyType({})
) -> Assumptions:
    part = predictions.select(domain="in_domain", split="test") or predictions.select(split="test")
    if part is None or not 0 < part.label.mean() < 1:
        raise InputError("needs test images of both classes", file=predictions.source, column="label")
    y, said = part.label == 1, is_positive(part.prob, threshold.value)
    table = two_by_two(y, said)
    clusters = Clusters(images_per_patient=1, correlation=0, disease_correlation=0)
    sizes = np.ones(len(part)) if part.patient_id is None else np.unique_counts(part.patient_id).counts
    if part.patient_id is not None and sizes.max() > 1:
        of_class = [intra_patient_correlation(said[rows] == y[rows], part.patient_id[rows]) for rows in (y, ~y)]
        known = [one for one in of_class if math.isfinite(one)]
        disease = intra_patient_correlation(y, part.patient_id)
        default = Clusters()
        right = max(known, default=default.correlation)
        clusters = Clusters(float(sizes.mean()), right, disease, float(sizes @ sizes / sizes.sum()))
    ranked = auroc_error(y, part.prob, part.patients)
    own = math.isfinite(ranked.standard_error) and "auroc" not in stated and 0.5 < ranked.auroc < 1
    rates = {"prevalence": float(y.mean()), "auroc": max(ranked.auroc, 0.501)}
    rates |= {"sensitivity": table.sensitivity, "specificity": table.specificity, **stated}
    variance = ranked.standard_error**2 * len(np.unique(part.patients)) if own else None
    x, origin = np.asarray(logit(np.clip(part.prob, EPS, 1 - EPS)), np.float64), f"pilot of {len(part):,} images"
    return Assumptions(
        **rates, clusters=clusters, threshold=threshold.value, auroc_variance=variance, predictors=x, origin=origin
    )


@dataclass(frozen=True)
class Aims:
    """What the study must show."""

    half_width: float = 0.05  # half-width of the intervals of sensitivity, specificity and AUROC
    above_sensitivity: float | None = None  # A sensitivity that must be shown to be exceeded; None: none
    above_specificity: float | None = None  # A specificity that must be shown to be exceeded; None: none
    power: float = 0.8  # probability of showing what must be shown
    level: float = 0.95  # level of the intervals; tests have (1 - level) / 2 on each side


@dataclass(frozen=True)
class Requirement:
    """What one question needs."""

    question: str  # what the study then knows
    images: int  # images of both classes together
    patients: int  # patients: images by the mean number of images of a patient
    positives: int  # referable images that are expected among them
    design_effect: float  # what the dependence of a patient's images costs; NaN where each class has its own
    source: str  # whose formula it is


@dataclass(frozen=True)
class StudyPlan(Tabular, Document):
    """The patients that each question needs; `patients` is the number that answers all of them."""

    _schema, _also = SCHEMA, ("patients", "decisive")

    assumptions: Assumptions
    aims: Aims
    requirements: dict[str, Requirement]
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Requirement:
        return self.requirements[name]

    @property
    def patients(self) -> int:
        return max(one.patients for one in self.requirements.values())

    @property
    def decisive(self) -> str:
        return max(self.requirements, key=lambda name: self.requirements[name].patients)

    def records(self) -> list[Row]:
        return [{"name": name, **asdict(one)} for name, one in self.requirements.items()]

    def plot(self, axes: Axes | None = None) -> Axes:
        axes = axes_or_new(axes, 0.9 + 0.28 * len(self.requirements))
        axes.barh(list(self.requirements), [one.patients for one in self.requirements.values()], color=BLUE)
        axes.invert_yaxis()
        axes.set_xlabel("patients")
        axes.spines[["top", "right"]].set_visible(False)
        return axes


def plan(
    pilot: Predictions | None = None,
    *,
    prevalence: float | None = None,
    sensitivity: float | None = None,
    specificity: float | None = None,
    auroc: float | None = None,
    half_width: float = 0.05,
    above_sensitivity: float | None = None,
    above_specificity: float | None = None,
    power: float = 0.8,
    images_per_patient: float | None = None,
    threshold: DecisionThreshold | float | str = DEFAULT,
) -> StudyPlan:
    """Return how many patients a study needs, from stated expectations or from a pilot.

    Args:
        pilot: Predictions from which what is not stated is read.
        prevalence: Share of referable images; needed without a pilot.
        sensitivity: Expected; 0.9 without a pilot.
        specificity: Expected; 0.9 without a pilot.
        auroc: Expected; 0.95 without a pilot.
        half_width: Of the intervals of sensitivity, specificity and AUROC.
        above_sensitivity: A goal that must be shown to be exceeded.
        above_specificity: A goal that must be shown to be exceeded.
        power: Probability of showing what must be shown.
        images_per_patient: Mean number; 2 without a pilot.
        threshold: The decision threshold of the pilot.

    Returns:
        The patients that each question needs.

    Raises:
        InputError: An expectation is missing or out of its range.

    Examples:
        >>> import retinabench as rb
        >>> rb.plan(prevalence=0.2)["sensitivity"].patients
        561
    """
    given = {"prevalence": prevalence, "sensitivity": sensitivity, "specificity": specificity, "auroc": auroc}
    rates = {name: value for name, value in given.items() if value is not None}
    aims = Aims(half_width, above_sensitivity, above_specificity, power=power)
    return plan_study(stated_assumptions(rates, images_per_patient, pilot, threshold), aims)


def plan_study(assumptions: Assumptions, aims: Aims | None = None) -> StudyPlan:
    aims = Aims() if aims is None else aims
    check_level(aims.level)
    given = assumptions
    needed = images_for_auroc(given, aims.half_width, aims.level)
    text = f"AUROC of {given.auroc:.3g} to within {aims.half_width:g}"
    area = {"auroc": _requirement(given, text, needed, math.nan, "Obuchowski 1998")}
    return StudyPlan(given, aims, _of_rates(given, aims) | area | _of_validation(given), _notes(given))


def _requirement(given: Assumptions, question: str, images: float, effect: float, source: str) -> Requirement:
    whole = math.ceil(images - 1e-9)
    patients = math.ceil(whole / given.clusters.images_per_patient - 1e-9)
    return Requirement(question, whole, patients, round(whole * given.prevalence), effect, source)


def _of_rates(given: Assumptions, aims: Aims) -> dict[str, Requirement]:
    q = given.prevalence
    of_class = {
        "sensitivity": (given.sensitivity, q, given.clusters.positive_effect(q), aims.above_sensitivity),
        "specificity": (given.specificity, 1 - q, given.clusters.negative_effect(q), aims.above_specificity),
    }
    rows = {}
    for name, (expected, share, effect, above) in of_class.items():
        needed = images_for_half_width(expected, aims.half_width, aims.level)
        text = f"{name} of {expected:.2f} to within {aims.half_width:g}"
        rows[name] = _requirement(given, text, needed * effect / share, effect, "exact interval; Buderer 1996")
        if above is not None:
            needed = images_for_power(expected, above, aims.power, aims.level)
            text = f"{name} of {expected:.2f} shown to be above {above:g} (power {aims.power:g})"
            source = "exact binomial test; Chernick and Liu 2002"
            rows[f"{name}_above"] = _requirement(given, text, needed * effect / share, effect, source)
    if aims.above_sensitivity is not None and aims.above_specificity is not None:
        rows["both_above"] = _of_both(given, aims, list(of_class.values()))
    return rows


def _of_both(
    given: Assumptions, aims: Aims, of_class: Sequence[tuple[float, float, float, float | None]]
) -> Requirement:
    """What showing both goals at once takes: the power is the product of both, shared so that the fewest images do."""

    def images(powers: tuple[float, float]) -> float:
        return max(
            images_for_power(expected, above or 0.0, power, aims.level) * effect / share
            for (expected, share, effect, above), power in zip(of_class, powers, strict=True)
        )

    shares = np.linspace(0, 1, 41)[1:-1]
    needed = min(images((aims.power**one, aims.power ** (1 - one))) for one in shares.tolist())
    text = (
        f"sensitivity above {aims.above_sensitivity:g} and a specificity above {aims.above_specificity:g}, both shown at once "
        f"(co-primary endpoints, power {aims.power:g})"
    )
    return _requirement(given, text, needed, math.nan, "exact binomial tests; power is the product")


def _of_validation(given: Assumptions) -> dict[str, Requirement]:
    """The four criteria of Riley et al. at their usual widths, with the design effect of all images of a patient."""
    q, effect = given.prevalence, given.clusters.effect
    if given.predictors is None:
        points, weight = calibrated_predictors(given.auroc, q)
    else:
        points, weight = given.predictors, np.ones(len(given.predictors))
    cut = given.threshold
    if cut is None or not 0 < cut < 1:
        sensitivity = min(max(given.sensitivity, 0.01), 0.99)
        cut, _ = threshold_of_sensitivity(given.auroc, q, sensitivity)
    benefit = images_for_net_benefit(given.sensitivity, given.specificity, q, cut)
    needed = {
        "observed_over_expected": ("observed over expected", 0.2, images_for_observed_over_expected(q)),
        "calibration_slope": ("calibration slope", 0.2, images_for_calibration_slope(points, weight)),
        "c_statistic": ("C-statistic (AUROC)", 0.1, images_for_c_statistic(given.auroc, q)),
        "net_benefit": (f"standardised net benefit at {cut:.2g}", 0.2, benefit),
    }
    text = "{} in an interval of width {}"
    return {
        name: _requirement(given, text.format(what, width), images * effect, effect, "Riley et al. 2021")
        for name, (what, width, images) in needed.items()
    }


def _notes(given: Assumptions) -> tuple[str, ...]:
    m = given.clusters
    notes = [
        f"per image, {m.images_per_patient:.3g} images per patient; correlation within a patient: "
        f"{m.correlation:.2g} of being right, {m.disease_correlation:.2g} of the label",
        "for a study per patient (any eye), state sensitivity, specificity and prevalence per patient and 1 image per patient",
    ]
    if given.predictors is not None:
        notes.append(f"assumptions from a {given.origin}: they are estimates, and so are these numbers")
    return tuple(notes)
