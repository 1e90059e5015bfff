"""What a certificate is worth on new data: alarms of the monitor, the screen without labels, and verdicts.

    OMP_NUM_THREADS=1 python benchmarks/new_data.py

Every table is a simulation of patients with two dependent eyes: a logit with a part common to both, a calibrated model, images
retained where |p - 1/2| is large. The standard error of a share p from R studies is sqrt(p (1 - p) / R). A few minutes on one core.
"""

import time

import numpy as np
from scipy.special import expit
from toolkit import parse

from retinabench.metrics.follow_up import conformal_p_values, drift_log_wealth, first_alarm, log_wealth, onset
from retinabench.metrics.guarantees.certificate import LabelledRisk, judge
from retinabench.metrics.guarantees.goals import Goal, ReferralCases
from retinabench.metrics.guarantees.transfer import resemblance

LEVEL, RETAINED = 0.05, 0.2
FIRST = LEVEL / 2  # the share of the level that the first visits have; the v-th have LEVEL / (v (v + 1))
SETTINGS = {
    "no shift": {}, "covariate shift": {"centre": -0.6}, "label shift": {"prevalence": 0.5},
    "camera: logit times 0.6": {"scale": 0.6}, "sure errors: 8 % of the sure images": {"sure_errors": 0.08},
}  # fmt: skip


def eyes(rng, patients, *, centre=-1.5, scale=1.0, sure_errors=0.0, prevalence=None):
    """Cases and P(referable). `prevalence`: patients are drawn by the label of their first eye until it has this share."""
    drawn = patients if prevalence is None else 12 * patients
    x = np.repeat(rng.normal(centre, 1.3, drawn), 2) + rng.normal(0, 0.8, 2 * drawn)
    label = rng.random(len(x)) < expit(1.5 * x)
    if prevalence is not None:  # one image per patient, so that the labels alone are shifted
        x, label = x[::2], label[::2]
        positive, negative = np.flatnonzero(label), np.flatnonzero(~label)
        many = rng.binomial(2 * patients, prevalence)
        rows = np.concatenate([positive[:many], negative[: 2 * patients - many]])
        x, label = x[rows], label[rows]
    p = expit(1.5 * scale * x)
    uncertainty = 0.5 - np.abs(p - 0.5)
    label = label ^ ((rng.random(len(p)) < sure_errors) & (uncertainty <= 0.1))
    patient = np.arange(len(p)) if prevalence is not None else np.repeat(np.arange(patients), 2)
    return ReferralCases(label, p > 0.5, uncertainty, patient, np.ones(len(p))), p


def true_value(goal, threshold, **setting):
    return goal.spec.estimate(eyes(np.random.default_rng(1), 200_000, **setting)[0], threshold).value


def patient_increments(rng, studies, patients, risk, goal):
    """(studies, patients) increments of two eyes, 70 % of them retained, wrong with correlation one half."""
    p = rng.beta(risk, 1 - risk, (studies, patients))
    den = rng.binomial(2, 0.7, (studies, patients))
    return (rng.binomial(den, p) - goal * den) / (2 * goal)


def false_alarms(studies, looks=10_000):
    rng = np.random.default_rng(0)
    print(f"\nFalse alarms within {looks:,} patients, a look after each; level 5 %")
    for goal in (0.02, 0.05, 0.2):
        paths = (log_wealth(patient_increments(rng, 50, looks, goal, goal)) for _ in range(studies // 50))
        rang = sum((path.max(axis=1) >= -np.log(FIRST)).sum() for path in paths)
        print(f"  risk at the goal of {goal:.0%}: {rang / studies:.1%} of {studies}")
    drift = 0
    for study in range(studies // 5):
        values = rng.normal(size=looks + 500).round(2)
        drift += first_alarm(drift_log_wealth(conformal_p_values(values[:500], values[500:], study)), FIRST) is not None
    print(f"  drift, 500 validation patients: {drift / (studies // 5):.1%} of {studies // 5}")


def yearly(rng, studies, patients, years, risks, goal=0.05):
    """First alarm of each study, in visits since the start, inf without one: every patient comes every year, and is as hard as before."""
    hardness = rng.beta(goal, 1 - goal, (studies, patients))
    alarms = np.full(studies, np.inf)
    for k in range(years):
        den = rng.binomial(2, 0.7, (studies, patients))
        wrong = rng.binomial(den, np.minimum(1, hardness * risks[k] / goal))
        path = log_wealth((wrong - goal * den) / (2 * goal)) - np.log((k + 1) * (k + 2))
        reached = path >= -np.log(LEVEL)
        alarms = np.minimum(alarms, np.where(reached.any(1), k * patients + reached.argmax(1) + 1, np.inf))
    return alarms


def returning(studies, patients=1000, years=4):
    rng = np.random.default_rng(4)
    print(f"\n{patients:,} patients who return in {years} years, each as hard as before; level 5 %, goal 5 %")
    cases = {"at the goal": (0.05,) * 4, "10 % from the second year on": (0.05, 0.1, 0.1, 0.1)}
    cases["15 % in the fourth"] = (0.05, 0.05, 0.05, 0.15)
    for name, risks in cases.items():
        found = np.concatenate([yearly(rng, 50, patients, years, risks) for _ in range(studies // 50)])
        since = patients * next((k for k, risk in enumerate(risks) if risk > 0.05), 0)
        late = found[found > since] - since
        delay = "" if len(set(risks)) == 1 else f"; the median alarm {np.median(late):,.0f} visits after the change"
        print(f"  {name}: alarms in {np.mean(np.isfinite(found)):.1%} of studies{delay}")


def delays(studies, goal=0.05):
    rng = np.random.default_rng(1)
    print("\nPatients from the change to the alarm at a goal of 5 %: median, and 90 % of studies")
    for before in (0, 500, 2000):
        found = []
        for risk in (0.075, 0.10, 0.15):
            steps = []
            for _ in range(studies):
                good = patient_increments(rng, 1, before, goal * 0.8, goal)[0]
                bad = patient_increments(rng, 1, 6000, risk, goal)[0]
                alarm = first_alarm(log_wealth(np.append(good, bad))[before:], FIRST)
                steps.append(np.inf if alarm is None else alarm + 1)
            found.append(f"{risk:.1%}: {np.median(steps):,.0f} ({np.quantile(steps, 0.9, method='higher'):,.0f})")
        print(f"  after {before:,} patients at 4 %: risk {'; '.join(found)}")


def onsets(studies, goal=0.05, before=500):
    rng = np.random.default_rng(6)
    print("\nInterval of the onset at the alarm, goal 5 %, change after 500 patients at 4 %:")
    print("covers, median width, estimate less truth")
    for risk in (0.10, 0.15, 0.30):
        found = []
        for _ in range(studies):
            parts = ((before, goal * 0.8), (6000, risk))
            x = np.concatenate([patient_increments(rng, 1, many, one, goal)[0] for many, one in parts])
            alarm = first_alarm(log_wealth(x), FIRST)
            if alarm is not None and alarm >= before:
                best, low, high = onset(x[: alarm + 1])
                found.append((low <= before <= high, high - low, best - before))
        cover, width, error = np.array(found).T
        middle = f"{np.median(width):.0f}, {np.median(error):+.0f} patients"
        print(f"  risk {risk:.0%}: {cover.mean():.1%} of {len(found)}, {middle}")


def screen(studies, patients=500):
    goal = Goal("selective_risk", 0.06)
    print(f"\nScreen without labels, {patients} validation and {patients} new patients; level 5 %")
    for name, setting in SETTINGS.items():
        rng, alone, jointly = np.random.default_rng(2), 0, 0
        for study in range(studies):
            (a, p), (b, q) = eyes(rng, patients), eyes(rng, patients, **setting)
            options = {"permutations": 99, "seed": study}
            alone += resemblance(a.uncertainty, a.patient, b.uncertainty, b.patient, **options).alarm
            both = [np.column_stack([one.uncertainty, prob]) for one, prob in ((a, p), (b, q))]
            jointly += resemblance(both[0], a.patient, both[1], b.patient, **options).alarm
        risk = true_value(goal, RETAINED, **setting)
        print(f"  {name}: true risk {risk:.3f} (validation {true_value(goal, RETAINED):.3f}); "
              f"alarms by uncertainty {alone / studies:.0%}, with probability {jointly / studies:.0%}")  # fmt: skip


def verdicts(studies):
    print("\nVerdicts by labels, two bounds tested together; level 5 %")
    for patients in (60, 300, 1500):
        shown = []
        for factor in (1.0, 0.5, 1.5, 2.0):
            rng, counts = np.random.default_rng(3), {"broken": 0, "holds": 0}
            for _ in range(studies):
                family = []
                for _ in range(2):
                    cases, _ = eyes(rng, patients)
                    kept = cases.uncertainty <= RETAINED
                    wrong = kept & (cases.label != cases.positive)
                    family.append(LabelledRisk(wrong, kept, cases.patient, PLAIN / factor))
                for one in counts:
                    counts[one] += any(found.verdict == one for found in judge(family))
            shares = ", ".join(f"{one} {count / studies:.1%}" for one, count in counts.items())
            shown.append(f"{factor:g} x goal: {shares}")
        print(f"  {patients} patients; risk {'; '.join(shown)}")


PLAIN = true_value(Goal("selective_risk", 0.05), RETAINED)


def main():
    studies = parse(__doc__, studies=1000).studies
    for part, share in ((false_alarms, 1), (returning, 1), (delays, 10), (onsets, 2), (screen, 5), (verdicts, 2)):
        start = time.perf_counter()
        part(studies // share)
        print(f"  [{time.perf_counter() - start:.0f} s]", flush=True)


if __name__ == "__main__":
    main()
