"""What the clinic page says of a study, for `interval_coverage.py`: its intervals and those of grades, groups and sites less the truth; and the power of plans.

    python benchmarks/clinic.py --studies 500  # planned studies of a known model; the intervals come with `interval_coverage.py --population`

- **clinic**: rates, predictive values, likelihood ratios, net benefit, what the reader misses, the smooth calibration curve.
- **grades**: scores of `grade_prob`, and the sets of grades that as many validation patients choose.
- **groups**: patients belong to four sites at random (40, 30, 20 and 10 %) at which the log odds of the model are moved by `SHIFTS`.
- **new site**: eight sites of equal size whose log odds are moved by draws of N(0, .6); the truth is a ninth one.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtr
from toolkit import parse

import retinabench as rb
from retinabench.metrics import grades as module
from retinabench.metrics.clinical.groups import RATES, Subgroups, new_site, subgroups_of
from retinabench.metrics.clinical.screening import ScreeningReport, SetScreening
from retinabench.metrics.grades import GRADE_SCORES, Graded, GradedCases, GradeScores, grade_scores, sets_within
from retinabench.metrics.image_sets import referral_uncertainty
from retinabench.metrics.intervals import Interval, clustered_proportion
from retinabench.metrics.planning import Aims, Assumptions, Clusters, plan_study
from retinabench.metrics.smooth_calibration import smooth_calibration
from retinabench.metrics.weighted_images import Cases

Floats = NDArray[np.float64]
Ends = dict[str, list[float]]
SITES = (0.4, 0.3, 0.2, 0.1)
SHIFTS = np.array([0.0, 0.7, -0.7, -1.5])
MANY, SPREAD = 8, 0.6  # sites, and the std of their shifts, for what a new site is like
SAME_LABEL = 0.8  # correlation of the normal scores behind the labels of two eyes of a calibrated model
PERCENTILES = (25, 50, 75, 90)  # of the probabilities, at which the smooth calibration curve is looked up
SHARES = ((2, 2), (1, 0))  # true and called grade of cells of the confusion matrix


def clinic_numbers(one: SetScreening, at: Floats) -> dict[str, Interval]:
    """Numbers of the clinic page that have an interval, of a study or of a population; the curve at the probabilities `at`."""
    assert one.patients is not None
    found = {**one.images.rates} | {f"{name}, per patient": one.patients.rates[name] for name in RATES[:2]}
    rates = one.images.rates
    found |= {f"{name} with reader": value for name, value in one.readings["reader"].items() if name in rates}
    found |= {"caught": one.missed.caught, "read": one.workload.images}
    found |= {"net benefit beyond simple rule": one.simple_rule.gain}
    found |= {f"{name} at 10 %": one.predictive_values["0.1"][name] for name in ("ppv", "npv")}
    for kind, ratios in one.likelihood_ratios.items():
        found |= {f"likelihood ratio, {name}, {kind.replace('_', ' ')}": value for name, value in ratios.items()}
    curve = one.decision_curve
    for t in (0.1, 0.2, 0.5):
        k = int(np.argmin(np.abs(curve.threshold - t)))
        found[f"net benefit at {t}"] = Interval(curve.model[k], curve.low[k], curve.high[k])
        over = curve.model[k] - curve.treat_all[k]
        found[f"net benefit beyond all at {t}"] = Interval(over, curve.over_all_low[k], curve.over_all_high[k])
    if (smooth := one.smooth_calibration) is not None:
        columns = smooth.observed, smooth.low, smooth.high
        values = [np.interp(logit(at), logit(smooth.prob), column) for column in columns]
        rows = zip(PERCENTILES, np.transpose(values).tolist(), strict=True)
        found |= {f"smooth curve, percentile {q}": Interval(*row) for q, row in rows}
    return found


def grade_numbers(found: GradeScores) -> dict[str, Interval]:
    """Scores of grades with their intervals, the curve where half is referred, and cells of the confusion matrix."""
    half = [float(found.curve[name][10]) for name in ("value", "low", "high")]
    shares = {f"grade {true} called {called}": found.shares[true][called] for true, called in SHARES}
    return {**found.scores, "grade error, 50 % referred": Interval(*half), **shares}


def less(found: Mapping[str, Interval], truth: Mapping[str, float]) -> Ends:
    """The ends of the intervals less the truth: those that hold it contain 0."""
    known = {name: one for name, one in found.items() if np.isfinite([truth[name], one.low]).all()}
    return {name: [one.low - truth[name], one.high - truth[name]] for name, one in known.items()}


class Whole:
    """The truth of a population: N images in M patients, each patient `times` over."""

    def __init__(self, people: rb.Predictions, patient: NDArray[np.intp], times: NDArray[np.intp]) -> None:
        self.people, self.weight = people, times[patient].astype(float)
        rows = np.repeat(np.arange(len(patient)), times[patient])
        copy = np.arange(len(rows)) - np.repeat(np.cumsum(times[patient]) - times[patient], times[patient])
        ids, patients = np.arange(len(rows)).astype(str), patient[rows] * 10 + copy
        self.copies = rb.Predictions(ids, people.label[rows], people.prob[rows], patient_id=patients)
        self.at = np.percentile(self.copies.prob, PERCENTILES)

    @cached_property
    def clinic(self) -> ScreeningReport:
        return rb.clinic(self.copies, referral_rate=0.2)

    @cached_property
    def numbers(self) -> dict[str, float]:
        return {name: one.value for name, one in clinic_numbers(self.clinic["in_domain"], self.at).items()}

    @cached_property
    def graded(self) -> tuple[Graded, Floats]:
        images = Graded.of(self.people)
        assert images is not None
        return images, module.entering_mass(images.prob)

    @cached_property
    def grades(self) -> dict[str, float]:
        images, part, w = self.graded[0], self.people, self.weight
        cases = GradedCases(part, images, referral_uncertainty(part)[0], 0.5)
        weighted = cases.weighted(w)
        truth = {name: spec(weighted) for name, spec in GRADE_SCORES.items()}
        order = np.argsort(cases.uncertainty, kind="stable")
        mass = np.cumsum(weighted.weight[order])
        kept = np.clip(mass[-1] / 2 - (mass - weighted.weight[order]), 0, weighted.weight[order])
        truth["grade error, 50 % referred"] = float(kept @ cases.grade_error[order] / kept.sum())
        for true, other in SHARES:
            mine = w * (images.grade == true)
            truth[f"grade {true} called {other}"] = float(mine @ (images.prob.argmax(axis=1) == other) / mine.sum())
        return truth

    def sets(self, largest: Floats, weighting: str) -> tuple[float, float]:
        images, mass = self.graded
        inside = sets_within(mass, largest)
        w = self.weight * images.per_patient * (1.0 + images.grade if weighting == "severity" else 1.0)
        held = inside[np.arange(len(w)), images.grade]
        return float(w @ held / w.sum()), float(w @ inside.sum(axis=1) / w.sum())

    def shifted(self, shift: float) -> dict[str, float]:
        y, x, w = self.people.label == 1, log_odds(self.people.prob) + shift, self.weight
        sick, well = w * y, w * ~y
        return {
            "sensitivity": float(sick @ (x > 0) / sick.sum()), "specificity": float(well @ (x <= 0) / well.sum()),
            "auroc": self.clinic["in_domain"].auroc.value, "calibration": float(w @ (y - expit(x)) / w.sum()),
        }  # fmt: skip


def log_odds(prob: Floats) -> Floats:
    return np.asarray(logit(np.clip(prob, 1e-6, 1 - 1e-6)))


def clinic_ends(drawn: rb.Predictions, validation: rb.Predictions, whole: Whole, rng: np.random.Generator) -> dict:
    """Set -> number -> the ends less the truth, of one study; coverage and size of sets of grades; and the test of a calibrated model."""
    one = rb.clinic(replace(drawn, grade_prob=None), referral_threshold=whole.clinic.referral.threshold)["in_domain"]
    uncertainty = referral_uncertainty(drawn)[0]
    graded = grade_scores(drawn, uncertainty, validation, {}, bootstrap=300, seed=int(rng.integers(1 << 30)))
    assert graded is not None
    grades, sets = less(grade_numbers(graded), whole.grades), {}
    for name, found in graded.sets.items():
        sets[name] = whole.sets(found.largest_mass, name)
        if name != "grade":
            told = {f"coverage of sets, {name}": found.groups[0].coverage}
            grades |= less(told, dict.fromkeys(told, sets[name][0]))
    patient = np.unique(drawn.patients, return_inverse=True)[1]
    ends = {"clinic": less(clinic_numbers(one, whole.at), whole.numbers), "grades": grades}
    ends |= {"groups": group_ends(drawn, patient, whole, rng), "new site": new_site_ends(drawn, patient, whole, rng)}
    shared = rng.normal(size=patient.max() + 1)[patient]
    label = ndtr(SAME_LABEL**0.5 * shared + (1 - SAME_LABEL) ** 0.5 * rng.normal(size=len(drawn))) < drawn.prob
    smooth = smooth_calibration(Cases(label, drawn.prob, patient=patient).weighted())
    bound = None if smooth is None else smooth.calibrated_ici
    further = None if smooth is None or bound is None else float(smooth.ici <= bound)
    return {"less": ends, "sets": sets, "p": {"ICI of a calibrated model": [further, further]}}


def group_ends(drawn: rb.Predictions, patient: NDArray[np.intp], whole: Whole, rng: np.random.Generator) -> Ends:
    """The rates of the largest and the smallest site, of the worst one, of all at once, and the gaps between them."""
    site = rng.choice(len(SITES), patient.max() + 1, p=SITES)[patient]
    prob = expit(log_odds(drawn.prob) + SHIFTS[site])
    part = replace(drawn, probs=prob, grade_prob=None, subgroups={"site": np.array(list("ABCD"))[site]})
    found = subgroups_of(part, prob > 0.5, np.zeros(len(part), bool))
    truths = {f"site: {name}": whole.shifted(shift) for name, shift in zip("ABCD", SHIFTS, strict=True)}
    ends: Ends = {}
    for rate in RATES:
        known = {one.name: one.rates[rate] for one in found.groups if not one.rates[rate].too_small}
        truth = {name: truths[name][rate] for name in truths}
        for name in ("site: A", "site: D"):
            key = f"{rate}, {name}"
            ends |= less({key: known[name].alone} if name in known else {}, {key: truth[name]})
        if (worst := found.worst(rate)) is not None:
            ends |= less({f"{rate}, worst site": worst.rates[rate].alone}, {f"{rate}, worst site": truth[worst.name]})
            together = {name: one.together for name, one in known.items()}
            ends[f"{rate}, all sites at once"] = _all_at_once(together, truth)
        ends |= _gap_ends(found, rate, {name: truth[name] for name in known})
    residuals = {one.name: one.calibration for one in found.groups if np.isfinite(one.calibration.low)}
    truth = {name: truths[name]["calibration"] for name in truths}
    for name in ("site: A", "site: D"):
        key = f"observed minus predicted, {name}"
        ends |= less({key: residuals[name]} if name in residuals else {}, {key: truth[name]})
    return ends | _gap_ends(found, "observed_minus_predicted", {name: truth[name] for name in residuals})


def _all_at_once(together: dict[str, Interval], truth: dict[str, float]) -> list[float]:
    """Ends that contain 0 where the intervals of all groups hold."""
    known = {name: one for name, one in together.items() if np.isfinite(one.low)}
    ends = [(one.low - truth[name], one.high - truth[name]) for name, one in known.items()]
    return [max(low for low, _ in ends), min(high for _, high in ends)]


def _gap_ends(found: Subgroups, rate: str, truth: dict[str, float]) -> Ends:
    """The gap of the groups that were compared, whose true rates are given."""
    gaps = {f"gap, {rate}": one.gap for one in found.between if one.rate == rate}
    return less(gaps, {name: max(truth.values()) - min(truth.values()) for name in gaps})


def new_site_ends(drawn: rb.Predictions, patient: NDArray[np.intp], whole: Whole, rng: np.random.Generator) -> Ends:
    shifts = rng.normal(0, SPREAD, MANY + 1)
    x = log_odds(drawn.prob) + shifts[patient % MANY]
    y, truth, ends = drawn.label == 1, whole.shifted(shifts[-1]), {}
    for rate, right, of in (("sensitivity", x > 0, y), ("specificity", x <= 0, ~y)):
        held = [of & (patient % MANY == k) for k in range(MANY)]
        rates = [clustered_proportion(right, rows, patient) for rows in held if len(np.unique(patient[rows])) >= 10]
        rates = [one for one in rates if one.high - one.low <= 0.3]
        if len(rates) >= 3:
            ends |= less({rate: new_site(rates).new_site}, truth)
    return ends


def power(rng: np.random.Generator, studies: int) -> float:
    """Share of planned studies (sensitivity 0.93 above 0.85, power 0.8) that show it."""
    plan = plan_study(Assumptions(0.2, 0.93, clusters=Clusters(2, 0.5, 1.0)), Aims(above_sensitivity=0.85))
    ill = round(plan["sensitivity_above"].patients * 0.2)
    shown = 0
    for _ in range(studies):
        hit = rng.random(2 * ill) < np.repeat(rng.beta(0.93, 0.07, ill), 2)
        shown += clustered_proportion(hit, np.ones(2 * ill), np.repeat(np.arange(ill), 2), exact=True).low > 0.85
    return shown / studies


def main() -> None:
    asked = parse(__doc__, studies=500, seed=0)
    shown = power(np.random.default_rng(asked.seed), asked.studies)
    print(f"power of planned studies: {shown:.3f} (planned 0.8), {asked.studies} studies")


if __name__ == "__main__":
    main()
