"""Whether the clinic's intervals and the plans hold: coverage, family-wise errors and power in simulated studies.

Every study has G patients with two eyes whose disease and scores are correlated; the truth is known in closed form:

    python benchmarks/clinic.py --studies 500
"""

from __future__ import annotations

import numpy as np
from scipy import stats
from scipy.special import expit
from toolkit import parse

import retinabench as rb
from retinabench.metrics.calibration import calibration_summary
from retinabench.metrics.clinical.decision_curve import net_benefit
from retinabench.metrics.clinical.groups import RATES, subgroups_of
from retinabench.metrics.clinical.screening_table import predictive_value_intervals
from retinabench.metrics.planning import Aims, Assumptions, plan_study
from retinabench.metrics.proportions import Interval, clustered_proportion
from retinabench.metrics.sample_sizes import Clusters

PREVALENCE, SHIFT, SHARED, CUT = 0.2, 2.2, 0.5, 1.2
LEVEL = np.log(PREVALENCE / (1 - PREVALENCE)) - SHIFT**2 / 2
SENSITIVITY, ALARMS = stats.norm.sf(CUT - SHIFT), stats.norm.sf(CUT)


def covered(rng: np.random.Generator, patients: int) -> dict[str, bool]:
    """Which intervals of one study hold their truth; three groups of patients differ in nothing."""
    ill = rng.random(patients) < PREVALENCE
    other = np.where(rng.random(patients) < 0.8, ill, rng.random(patients) < PREVALENCE)
    label = np.stack([ill, other], axis=1).ravel()
    score = np.sqrt(SHARED) * np.repeat(rng.normal(size=patients), 2)
    score += np.sqrt(1 - SHARED) * rng.normal(size=2 * patients) + SHIFT * label
    # The calibrated probability of a normal score: the log odds are linear in it.
    prob, said, patient = expit(LEVEL + SHIFT * score), score >= CUT, np.repeat(np.arange(patients), 2)
    site = np.repeat(rng.integers(3, size=patients), 2).astype(float)
    part = rb.Predictions(np.arange(2 * patients), label, prob, patient_id=patient, subgroups={"site": site})
    sensitivity = clustered_proportion(said, label, patient)
    specificity = clustered_proportion(~said, ~label, patient)
    values = predictive_value_intervals(sensitivity, specificity, 0.1)
    line = calibration_summary(label, prob, patient)
    curve = net_benefit(label, prob, [0.2], cluster=patient)
    assert curve.low is not None
    assert curve.high is not None
    ppv = 0.1 * SENSITIVITY / (0.1 * SENSITIVITY + 0.9 * ALARMS)
    npv = 0.9 * (1 - ALARMS) / (0.9 * (1 - ALARMS) + 0.1 * (1 - SENSITIVITY))
    at = (np.log(0.25) - LEVEL) / SHIFT  # the score at a probability of 0.2
    benefit = PREVALENCE * stats.norm.sf(at - SHIFT) - 0.25 * (1 - PREVALENCE) * stats.norm.sf(at)
    truths = {
        "sensitivity": (sensitivity, SENSITIVITY), "specificity": (specificity, 1 - ALARMS),
        "PPV at 10 %": (values["ppv"], ppv), "NPV at 10 %": (values["npv"], npv),
        "calibration slope": (line.slope, 1.0), "observed over expected": (line.observed_over_expected, 1.0),
        "net benefit at 0.2": (Interval(curve.model[0], curve.low[0], curve.high[0]), benefit),
    }  # fmt: skip
    held = {name: one.low <= truth <= one.high for name, (one, truth) in truths.items()}
    groups = subgroups_of(part, said, np.zeros(2 * patients, bool))
    held["no group called worse"] = not any(groups.failing(rate) for rate in RATES)
    return held


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
    """Print one line per number of patients."""
    asked = parse(__doc__, studies=500, seed=0)
    for patients in (100, 300, 1500):
        rng = np.random.default_rng([asked.seed, patients])
        rows = [covered(rng, patients) for _ in range(asked.studies)]
        found = ", ".join(f"{name} {np.mean([row[name] for row in rows]):.3f}" for name in rows[0])
        print(f"{patients} patients, {asked.studies} studies: {found}")
    print(f"power of planned studies: {power(np.random.default_rng(asked.seed), asked.studies):.3f} (planned 0.8)")


if __name__ == "__main__":
    main()
