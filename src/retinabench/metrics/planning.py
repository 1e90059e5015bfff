"""`plan`: how many patients a study needs, from what is assumed or from a pilot.

`plan_study`: how many patients a study needs, for every question that is put to it, before any data or from a pilot.

>>> aims = Aims(half_width=0.05)
>>> plan_study(Assumptions(prevalence=0.2, sensitivity=0.9, specificity=0.9), aims)["sensitivity"].patients
561
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import logit

from retinabench.core.errors import InputError
from retinabench.core.results import BLUE, Document, JsonObject, Row, Tabular, axes_or_new
from retinabench.metrics import sample_sizes
from retinabench.metrics.arrays import Floats
from retinabench.metrics.bootstrap import check_level
from retinabench.metrics.clinical.screening_table import two_by_two
from retinabench.metrics.decisions import DEFAULT, DecisionThreshold, FrozenThreshold
from retinabench.metrics.intervals import auroc_error
from retinabench.metrics.sample_sizes import Clusters, intra_patient_correlation
from retinabench.metrics.weighted_images import EPS, is_positive
from retinabench.predictions.table import Predictions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
        raise InputError(
            "the prevalence is not known", hint="Give --prevalence, such as 0.1, or the predictions of a pilot."
        )
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
    rates = {
        "prevalence": float(y.mean()),
        "sensitivity": table.sensitivity,
        "specificity": table.specificity,
        "auroc": max(ranked.auroc, 0.501),
    }
    return Assumptions(
        **{**rates, **stated},
        clusters=clusters,
        threshold=threshold.value,
        auroc_variance=ranked.standard_error**2 * len(np.unique(part.patients)) if own else None,
        predictors=np.asarray(logit(np.clip(part.prob, EPS, 1 - EPS)), np.float64),
        origin=f"pilot of {len(part):,} images",
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
    of = given.auroc, aims.half_width, given.prevalence, given.clusters, aims.level, given.auroc_variance
    needed, text = sample_sizes.images_for_auroc(*of), f"AUROC of {given.auroc:.3g} to within {aims.half_width:g}"
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
        needed = sample_sizes.images_for_half_width(expected, aims.half_width, aims.level)
        text = f"{name} of {expected:.2f} to within {aims.half_width:g}"
        rows[name] = _requirement(given, text, needed * effect / share, effect, "exact interval; Buderer 1996")
        if above is not None:
            needed = sample_sizes.images_for_power(expected, above, aims.power, aims.level)
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
            sample_sizes.images_for_power(expected, above or 0.0, power, aims.level) * effect / share
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
        points, weight = sample_sizes.calibrated_predictors(given.auroc, q)
    else:
        points, weight = given.predictors, np.ones(len(given.predictors))
    cut = given.threshold
    if cut is None or not 0 < cut < 1:
        sensitivity = min(max(given.sensitivity, 0.01), 0.99)
        cut, _ = sample_sizes.threshold_of_sensitivity(given.auroc, q, sensitivity)
    observed = sample_sizes.images_for_observed_over_expected(q)
    slope = sample_sizes.images_for_calibration_slope(points, weight)
    area = sample_sizes.images_for_c_statistic(given.auroc, q)
    benefit = sample_sizes.images_for_net_benefit(given.sensitivity, given.specificity, q, cut)
    needed = {
        "observed_over_expected": ("observed over expected in an interval of width 0.2", observed),
        "calibration_slope": ("calibration slope in an interval of width 0.2", slope),
        "c_statistic": ("C-statistic (AUROC) in an interval of width 0.1", area),
        "net_benefit": (f"standardised net benefit at {cut:.2g} in an interval of width 0.2", benefit),
    }
    return {
        name: _requirement(given, text, images * effect, effect, "Riley et al. 2021")
        for name, (text, images) in needed.items()
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
