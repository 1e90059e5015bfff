"""How often certified goals are broken, and how many images are answered: dependent images, ties, few patients.

    python benchmarks/guarantees.py --studies 300

    python benchmarks/guarantees.py --zones --studies 300        # three zones by two thresholds of the probability

    python benchmarks/guarantees.py --adversarial --studies 800  # populations made to break the argument of the certificate

    python benchmarks/guarantees.py --within --studies 300       # a threshold of its own for every site

    python benchmarks/guarantees.py --population population.csv  # studies drawn from a table of patients, per image and per patient

Each study draws validation patients whose diseased members have four images and the others one (or two eyes each), certifies each goal with
confidence 90 %, and looks up the true risk of the certified threshold in 100,000 patients of the same population.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from interval_coverage import Population
from numpy.typing import NDArray

import retinabench as rb
from retinabench.metrics.guarantees.certificate import certify
from retinabench.metrics.guarantees.goals import Goal, Per, ReferralCases, weights
from retinabench.metrics.guarantees.sequence import SHARE
from retinabench.metrics.guarantees.threshold import choose_threshold
from retinabench.metrics.guarantees.triage import (
    Side,
    certified_ends,
    plain_ends,
    zone_cases,
    zone_certificates,
    zone_goals,
)

DELTA = 0.1
GOAL = 0.1  # of the adversarial populations
POPULATION = 100_000
GOALS: dict[str, list[str]] = {
    "selective_risk": ["selective_risk=.1"], "sensitivity": ["sensitivity=.9"], "specificity": ["specificity=.9"],
    "missed_severe": ["missed_severe=.05"], "npv": ["npv=.9"], "ppv": ["ppv=.8"],
    "referral_rate": ["referral_rate=.5"], "sensitivity, npv": ["sensitivity=.8", "npv=.9"],
    "npv, workload": ["npv=.85", "workload=.6"],
}  # fmt: skip
CELLS: list[tuple[str, Per, str]] = [
    ("two eyes", "image", "selective_risk"),
    ("1 or 4", "image", "selective_risk"),
    ("1 or 4", "patient-image", "selective_risk"),
    ("1 or 4", "patient-image", "npv"),
    *(("1 or 4", "image", name) for name in list(GOALS)[1:]),
]


ZONE_GOALS = {-0.8: ["npv=.9", "sensitivity=.8", "ppv=.8"], -2.0: ["npv=.95", "sensitivity=.5", "ppv=.7"]}
ZONE_CELLS: list[tuple[str, Per, float]] = [
    ("two eyes", "image", -0.8),
    ("1 or 4", "image", -0.8),
    ("1 or 4", "patient-image", -0.8),
    ("two eyes", "image", -2.0),
]


def draw(rng: np.random.Generator, patients: int, kind: str, per: Per, mean: float = -0.8) -> ReferralCases:
    """Return the images of some patients; uncertainties have two decimals."""
    return draw_with_prob(rng, patients, kind, per, mean)[0]


def draw_with_prob(
    rng: np.random.Generator, patients: int, kind: str, per: Per, mean: float
) -> tuple[ReferralCases, NDArray[np.float64]]:
    """Return the images of some patients, and their probabilities with three decimals."""
    disease = rng.normal(mean, 1.2, patients)
    many = np.where(disease > 0, 4, 1) if kind == "1 or 4" else np.full(patients, 2)
    patient = np.repeat(np.arange(patients), many)
    severity = disease[patient] + rng.normal(0, 0.6, len(patient))
    label = rng.random(len(patient)) < 1 / (1 + np.exp(-2 * severity))
    prob = 1 / (1 + np.exp(-1.5 * severity - rng.normal(0, 0.6, len(patient))))
    uncertainty = np.round(0.5 - np.abs(prob - 0.5), 2)
    severe = label & (severity > 0)
    cases = ReferralCases(label, prob > 0.5, uncertainty, patient, weights(patient, per), severe)
    return cases, prob.round(3)


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


def zones_broken(
    views: dict[Side, ReferralCases], goals: dict[Side, tuple[Goal, ...]], ends: tuple[float | None, float | None]
) -> bool:
    """Return whether a zone breaks one of its goals in the population."""
    sums = [
        (goal, *goal.spec.sums(views[side], end if side == "negative" else -end))
        for (side, of), end in zip(goals.items(), ends, strict=True)
        if end is not None
        for goal in of
    ]
    return any(num.sum() > goal.max_risk * den.sum() for goal, num, den in sums)


def zones(studies: int, sizes: list[int]) -> None:
    """Print one line per population, estimand and number of patients: how often a zone breaks a goal."""
    print(
        "| images | per | prevalence | patients | broken | zones certified | negative, positive, read | plain broken | s |"
    )
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for kind, per, mean in ZONE_CELLS:
        goals = zone_goals(ZONE_GOALS[mean])
        people, prob = draw_with_prob(np.random.default_rng(99), POPULATION, kind, per, mean)
        views = {side: zone_cases(people, prob, side) for side in goals}
        prevalence = np.average(people.label, weights=people.weight)

        for patients in sizes:
            begun, rows = time.perf_counter(), []
            for study in range(studies):
                cases, p = draw_with_prob(np.random.default_rng([2, study]), patients, kind, per, mean)
                ends = certified_ends(cases, p, zone_certificates(cases, p, goals, DELTA))
                a, b = (-1.0 if ends[0] is None else ends[0]), (2.0 if ends[1] is None else ends[1])
                shares = [np.average(x, weights=cases.weight) for x in (p <= a, p >= b)]
                rows.append(
                    (
                        zones_broken(views, goals, ends),
                        ends[0] is not None,
                        ends[1] is not None,
                        *shares,
                        zones_broken(views, goals, plain_ends(cases, p, goals)),
                    )
                )
            wrong, below, above, negative, positive, plain = np.mean(rows, axis=0)
            error = np.sqrt(max(wrong * (1 - wrong), 1 / studies) / studies)
            print(
                f"| {kind} | {per} | {prevalence:.0%} | {patients} | {100 * wrong:.1f} ± {100 * error:.1f} % | {below:.0%}, {above:.0%} "
                f"| {negative:.0%}, {positive:.0%}, {1 - negative - positive:.0%} | {plain:.0%} "
                f"| {time.perf_counter() - begun:.0f} |",
                flush=True,
            )  # fmt: skip


WITH_MANY = ((1, 30), (0.97, 0.03)), ((1, 2, 3, 8), (0.4, 0.3, 0.2, 0.1))


def adversarial(studies: int) -> None:
    """Print one line per population whose risk is just above the goal at nearly every threshold at which a sequence may begin."""
    over, under = GOAL * 1.0001, GOAL * 0.999
    print("| population | patients | wrong certificates | certified |")
    print("|---|---|---|---|", flush=True)
    for patients in (200, 600):
        k = max(37, SHARE * patients) / patients  # share of the patients with which the sequence begins
        populations: dict[str, tuple[list[float], list[float], bool]] = {
            "risk just above the goal everywhere": ([1], [over], False),
            "above up to the start, then below, then above": ([k, 1.02 * k, 1], [over, under, over], False),
            "three stretches around the start": (
                [0.95 * k, 0.96 * k, 1.05 * k, 1.06 * k, 1], [over, under, over, under, over], False,
            ),
            "60 % errors in the surest 2 %": ([0.02, k, 1], [0.6, over, over], False),
            "three values, the first ones worse": ([0.9 * k, 1.05 * k, 1], [1.2 * GOAL, 1.05 * GOAL, over], True),
            "three values, the first one twice as bad": ([0.95 * k, 0.6, 1], [2 * GOAL, over, over], True),
            "five values around the start": ([0.85 * k, 0.95 * k, k, 1.1 * k, 1], [over] * 5, True),
        }  # fmt: skip
        for name, (edges, risks, ties) in populations.items():
            _adversary(name, patients, np.array(edges), np.array(risks), studies, ties=ties)
    for sizes in WITH_MANY:
        for per in ("image", "patient-image"):
            for same in (True, False):
                name = f"{', '.join(map(str, sizes[0]))} images, per {per}, {'the same' if same else 'independent'}"
                edges = np.array([0.3, 1.0])
                _adversary(name, 200, edges, np.full(2, over), studies // 4, sizes=sizes, per=per, same=same)


def _adversary(
    name: str,
    patients: int,
    edges: NDArray[np.float64],
    risks: NDArray[np.float64],
    studies: int,
    *,
    ties: bool = False,
    sizes: tuple[tuple[int, ...], tuple[float, ...]] = ((1,), (1.0,)),
    per: Per = "image",
    same: bool = False,
) -> None:
    """Print how many certificates are wrong where the retained below each of (K,) uncertainties have (K,) risks."""
    places, errors = np.append(0, edges), np.append(0, risks * edges)
    rates = np.diff(errors) / np.diff(places)
    rows = []
    for study in range(studies):
        rng = np.random.default_rng([5, study])
        patient = np.repeat(np.arange(patients), rng.choice(sizes[0], patients, p=sizes[1]))
        draws = patients if same else len(patient)
        u, chance = rng.random(draws), rng.random(draws)
        if same:
            u, chance = u[patient], chance[patient]
        piece = np.searchsorted(edges, u)
        cases = ReferralCases(
            chance < rates[piece], np.zeros(len(u), bool), edges[piece] if ties else u, patient, weights(patient, per)
        )  # fmt: skip
        threshold = certify(cases, [Goal("selective_risk", GOAL)], DELTA).threshold
        t = min(threshold, 1.0) if threshold is not None else 0.0
        rows.append((np.interp(t, places, errors) > GOAL * t * (1 + 1e-9), threshold is not None))
    wrong, certified = np.mean(rows, axis=0)
    print(f"| {name} | {patients} | {wrong:.1%} | {certified:.0%} |", flush=True)


SITES = {
    "A": (0.5, 0.0),
    "B": (0.3, 0.7),
    "C": (0.2, 1.4),
}  # share of the patients, and how much less their logits tell


def within_sites(studies: int, sizes: list[int]) -> None:
    """Print how often the goal is broken in a site, by one threshold for all and by one for each, at delta / 3."""
    goal = Goal.parse("selective_risk=.1")

    def of_site(rng: np.random.Generator, patients: int, less: float) -> ReferralCases:
        cases, prob = draw_with_prob(rng, patients, "two eyes", "image", -0.8)
        kept = np.clip(prob, 0.001, 0.999)
        logit = np.log(kept / (1 - kept)) + less * rng.normal(0, 1, len(prob))
        return replace(cases, positive=logit > 0, uncertainty=np.round(0.5 - np.abs(1 / (1 + np.exp(-logit)) - 0.5), 2))

    truths = {name: of_site(np.random.default_rng(5), POPULATION, less) for name, (_, less) in SITES.items()}
    print("| patients | rule | site | broken | certified |\n|---|---|---|---|---|", flush=True)
    for patients in sizes:
        broken, granted = {}, {}
        for study in range(studies):
            rng = np.random.default_rng([6, study])
            parts = {name: of_site(rng, round(share * patients), less) for name, (share, less) in SITES.items()}
            starts = np.cumsum([0, *(int(one.patient.max()) + 1 for one in parts.values())])
            pooled = ReferralCases(*(
                np.concatenate([getattr(one, field) for one in parts.values()])
                for field in ("label", "positive", "uncertainty")
            ), np.concatenate([one.patient + k for one, k in zip(parts.values(), starts, strict=False)]), np.ones(sum(map(len, parts.values()))))  # fmt: skip
            together = certify(pooled, [goal], DELTA).threshold
            for name, one in parts.items():
                for rule, found in (
                    ("one for all", together),
                    ("one for each", certify(one, [goal], DELTA / 3).threshold),
                ):
                    wrong = found is not None and goal.spec.estimate(truths[name], found).value > goal.value
                    broken.setdefault((rule, name), []).append(wrong)
                    granted.setdefault((rule, name), []).append(found is not None)
        for (rule, name), wrong in broken.items():
            print(
                f"| {patients} | {rule} | {name} | {np.mean(wrong):.1%} | {np.mean(granted[rule, name]):.0%} |",
                flush=True,
            )


REAL_GOALS = ("selective_risk=.05", "selective_risk=.02")


def from_population(path: Path, studies: int, sizes: list[int]) -> None:
    """Print how certificates of studies fare that are drawn from a table of patients, whose own values are the truth."""
    people = Population(path, "usual")
    print("| per | goal | patients | broken | certified | answered |\n|---|---|---|---|---|---|", flush=True)
    for per in ("image", "patient"):

        def view(part: rb.Predictions, per: str = per) -> ReferralCases:
            return ReferralCases.of(part) if per == "image" else ReferralCases.of(rb.by_patient(part), "own")

        truth = view(people.predictions(np.arange(len(people.code)), people.code))
        for goal in map(Goal.parse, REAL_GOALS):
            for patients in sizes:
                rows = []
                for study in range(studies):
                    drawn = view(people.study(np.random.default_rng([7, study]), patients))
                    found = certify(drawn, [goal], DELTA).threshold
                    num, den = goal.spec.sums(truth, -np.inf if found is None else found)
                    wrong = found is not None and num.sum() > goal.max_risk * den.sum()
                    answered = 0.0 if found is None else np.mean(truth.uncertainty <= found)
                    rows.append((wrong, found is not None, answered))
                wrong, granted, answered = np.mean(rows, axis=0)
                print(f"| {per} | {goal} | {patients:,} | {wrong:.1%} | {granted:.0%} | {answered:.0%} |", flush=True)


def main() -> None:
    """Print one line per population, estimand, goal and number of patients."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=300)
    parser.add_argument("--patients", type=int, nargs="+", default=[100, 300, 500, 1500])
    parser.add_argument("--only", nargs="+", default=list(GOALS), help="Goals, such as npv or 'sensitivity, npv'.")
    parser.add_argument("--zones", action="store_true", help="Three zones by two thresholds of the probability.")
    parser.add_argument(
        "--adversarial", action="store_true", help="Populations made to break the argument of the certificate."
    )
    parser.add_argument("--within", action="store_true", help="Sites of which two are harder.")
    parser.add_argument("--population", type=Path, help="Predictions of many patients, from which studies are drawn.")
    options = parser.parse_args()
    if options.population:
        from_population(options.population, options.studies, options.patients)
        return
    if options.within:
        within_sites(options.studies, options.patients)
        return
    if options.adversarial:
        adversarial(options.studies)
        return
    if options.zones:
        zones(options.studies, options.patients)
        return
    print("| images | per | goals | patients | broken | certified | answered | plain broken | plain answered |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for kind, per, name in (cell for cell in CELLS if cell[2] in options.only):
        is_broken = truth(kind, per)
        goals = [Goal.parse(text) for text in GOALS[name]]
        for patients in options.patients:
            begun = time.perf_counter()
            rows = []
            for study in range(options.studies):
                cases = draw(np.random.default_rng([1, study]), patients, kind, per)
                thresholds = (certify(cases, goals, DELTA).threshold, choose_threshold(cases, goals).threshold)
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
