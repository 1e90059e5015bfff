"""How often certified goals are broken, and how many images are answered: dependent images, ties, few patients.

    python benchmarks/guarantees.py --studies 300

Each study draws validation patients whose diseased members have four images and the others one (or two eyes each), certifies each goal with
confidence 90 %, and looks up the true risk of the certified threshold in 100,000 patients of the same population.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from retinabench.metrics.guarantees.certificate import certify
from retinabench.metrics.guarantees.risks import Cases, Goal, Per, weights
from retinabench.metrics.guarantees.threshold import choose_threshold

DELTA = 0.1
POPULATION = 100_000
GOALS: dict[str, list[str]] = {
    "selective_risk": ["selective_risk=.1"],
    "sensitivity": ["sensitivity=.9"],
    "missed_severe": ["missed_severe=.05"],
    "npv": ["npv=.9"],
    "ppv": ["ppv=.8"],
    "referral_rate": ["referral_rate=.5"],
    "sensitivity, npv": ["sensitivity=.8", "npv=.9"],
    "npv, workload": ["npv=.85", "workload=.6"],
}
CELLS: list[tuple[str, Per, str]] = [
    ("two eyes", "image", "selective_risk"),
    ("1 or 4", "image", "selective_risk"),
    ("1 or 4", "patient-image", "selective_risk"),
    ("1 or 4", "patient-image", "npv"),
    *(("1 or 4", "image", name) for name in list(GOALS)[1:]),
]


def draw(rng: np.random.Generator, patients: int, kind: str, per: Per) -> Cases:
    """Return the images of some patients; uncertainties have two decimals."""
    disease = rng.normal(-0.8, 1.2, patients)
    many = np.where(disease > 0, 4, 1) if kind == "1 or 4" else np.full(patients, 2)
    patient = np.repeat(np.arange(patients), many)
    severity = disease[patient] + rng.normal(0, 0.6, len(patient))
    label = rng.random(len(patient)) < 1 / (1 + np.exp(-2 * severity))
    prob = 1 / (1 + np.exp(-1.5 * severity - rng.normal(0, 0.6, len(patient))))
    uncertainty = np.round(0.5 - np.abs(prob - 0.5), 2)
    severe = label & (severity > 0)
    return Cases(label, prob > 0.5, uncertainty, patient, weights(patient, per), severe)


def truth(kind: str, per: Per) -> Callable[[Goal, float], bool]:
    """Return whether a threshold breaks a goal in the population."""
    cases = draw(np.random.default_rng(99), POPULATION, kind, per)
    known: dict[tuple[Goal, float], bool] = {}

    def broken(goal: Goal, threshold: float) -> bool:
        if (goal, threshold) not in known:
            num, den = goal.spec.sums(cases, threshold)
            known[goal, threshold] = bool(num.sum() > goal.max_risk * den.sum())
        return known[goal, threshold]

    return broken


def main() -> None:
    """Print one line per population, estimand, goal and number of patients."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--studies", type=int, default=300)
    parser.add_argument("--patients", type=int, nargs="+", default=[100, 300, 500, 1500])
    parser.add_argument(
        "--only", nargs="+", default=list(GOALS), help="Goals, such as npv or 'sensitivity, npv'."
    )
    options = parser.parse_args()
    print(
        "| images | per | goals | patients | broken | certified | answered | plain broken | plain answered |"
    )
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for kind, per, name in (cell for cell in CELLS if cell[2] in options.only):
        is_broken = truth(kind, per)
        goals = [Goal.parse(text) for text in GOALS[name]]
        for patients in options.patients:
            begun = time.perf_counter()
            rows = []
            for study in range(options.studies):
                cases = draw(np.random.default_rng([1, study]), patients, kind, per)
                thresholds = (
                    certify(cases, goals, DELTA).threshold,
                    choose_threshold(cases, goals).threshold,
                )
                for threshold in thresholds:
                    granted = threshold is not None
                    rows.append((
                        granted and any(is_broken(goal, threshold) for goal in goals), granted,
                        np.average(cases.uncertainty <= threshold, weights=cases.weight) if granted else 0.0,
                    ))  # fmt: skip
            ours, plain = (np.mean(rows[k::2], axis=0) for k in range(2))
            error = np.sqrt(max(ours[0] * (1 - ours[0]), 1 / options.studies) / options.studies)
            print(
                f"| {kind} | {per} | {', '.join(map(str, goals))} | {patients} | {100 * ours[0]:.1f} ± {100 * error:.1f} % "
                f"| {ours[1]:.0%} | {ours[2]:.0%} | {plain[0]:.0%} | {plain[2]:.0%} | {time.perf_counter() - begun:.0f} s",
                flush=True,
            )  # fmt: skip


if __name__ == "__main__":
    main()
