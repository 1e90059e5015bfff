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

import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from interval_coverage import Population
from numpy.typing import NDArray
from toolkit import parse, print_head, print_row, share

import retinabench as rb
from retinabench.metrics.guarantees.certificate import certify
from retinabench.metrics.guarantees.goals import Goal, Per, ReferralCases, weights
from retinabench.metrics.guarantees.sequence import SHARE
from retinabench.metrics.guarantees.threshold import choose_threshold
from retinabench.metrics.guarantees.triage import certified_ends, plain_ends, zone_cases, zone_certificates, zone_goals

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
    return cache(lambda goal, threshold: breaks(goal, threshold, cases))


def breaks(goal: Goal, threshold: float, cases: ReferralCases) -> bool:
    """Return whether the risk of cases at a threshold is above the goal."""
    num, den = goal.spec.sums(cases, threshold)
    return bool(num.sum() > goal.max_risk * den.sum())


def judged(cases: ReferralCases, goals: list[Goal], broken: Callable[[Goal, float], bool]) -> list[float]:
    """Of the certified threshold and of a plain one: whether it breaks a goal, whether there is one, and which share is answered."""
    row: list[float] = []
    for threshold in (certify(cases, goals, DELTA).threshold, choose_threshold(cases, goals).threshold):
        if threshold is None:
            row += 0, 0, 0
        else:
            answered = np.average(cases.uncertainty <= threshold, weights=cases.weight)
            row += any(broken(goal, threshold) for goal in goals), 1, answered
    return row


def certificates(studies: int, sizes: list[int], names: list[str]) -> None:
    """Print how often certified thresholds and plain ones break a goal."""
    columns = "images | per | goals | patients | broken, % | certified | answered | plain broken | plain answered | s"
    print_head("Certificates", columns)
    for kind, per, name in (cell for cell in CELLS if cell[2] in names):
        broken, goals = truth(kind, per), [Goal.parse(text) for text in GOALS[name]]
        for patients in sizes:
            begun = time.perf_counter()
            drawn = (draw(np.random.default_rng([1, study]), patients, kind, per) for study in range(studies))
            ours, plain = np.split(np.mean([judged(cases, goals, broken) for cases in drawn], axis=0), 2)
            shares = (f"{one:.0%}" for one in (ours[1], ours[2], plain[0], plain[2]))
            wrong, took = share(ours[0] * studies, studies), f"{time.perf_counter() - begun:.0f}"
            print_row(kind, per, ", ".join(map(str, goals)), patients, wrong, *shares, took)


def zones(studies: int, sizes: list[int]) -> None:
    """Print how often a zone breaks a goal, by certified and by plain ends."""
    title = "Zones"
    print_head(
        title,
        "images | per | prevalence | patients | broken, % | zones certified | negative, positive, read | plain broken | s",
    )
    for kind, per, mean in ZONE_CELLS:
        goals = zone_goals(ZONE_GOALS[mean])
        people, prob = draw_with_prob(np.random.default_rng(99), POPULATION, kind, per, mean)
        views = {side: zone_cases(people, prob, side) for side in goals}

        def broken(ends: tuple[float | None, float | None], views=views, goals=goals) -> bool:
            sides = [
                (side, end if side == "negative" else -end)
                for side, end in zip(goals, ends, strict=True)
                if end is not None
            ]
            return any(breaks(goal, end, views[side]) for side, end in sides for goal in goals[side])

        for patients in sizes:
            begun, rows = time.perf_counter(), []
            for study in range(studies):
                cases, p = draw_with_prob(np.random.default_rng([2, study]), patients, kind, per, mean)
                low, high = certified_ends(cases, p, zone_certificates(cases, p, goals, DELTA))
                a, b = (-1.0 if low is None else low), (2.0 if high is None else high)
                shares = [np.average(x, weights=cases.weight) for x in (p <= a, p >= b)]
                plain = broken(plain_ends(cases, p, goals))
                rows.append((broken((low, high)), low is not None, high is not None, *shares, plain))
            wrong, below, above, negative, positive, plain = np.mean(rows, axis=0)
            ill, took = np.average(people.label, weights=people.weight), f"{time.perf_counter() - begun:.0f}"
            zoned = f"{negative:.0%}, {positive:.0%}, {1 - negative - positive:.0%}"
            row = [f"{ill:.0%}", patients, share(wrong * studies, studies), f"{below:.0%}, {above:.0%}", zoned]
            print_row(kind, per, *row, f"{plain:.0%}", took)


WITH_MANY = ((1, 30), (0.97, 0.03)), ((1, 2, 3, 8), (0.4, 0.3, 0.2, 0.1))


def adversarial(studies: int) -> None:
    """Print one line per population whose risk is just above the goal at nearly every threshold at which a sequence may begin."""
    over, under = GOAL * 1.0001, GOAL * 0.999
    print_head("Adversarial populations", "population | patients | wrong certificates | certified")
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
    print_row(name, patients, f"{wrong:.1%}", f"{certified:.0%}")


# Share of the patients, and how much less their logits tell.
SITES = {"A": (0.5, 0.0), "B": (0.3, 0.7), "C": (0.2, 1.4)}


def within_sites(studies: int, sizes: list[int]) -> None:
    """Print how often the goal is broken in a site, by one threshold for all and by one for each, at delta / 3."""
    goal = Goal.parse("selective_risk=.1")

    def of_site(rng: np.random.Generator, patients: int, less: float) -> ReferralCases:
        cases, prob = draw_with_prob(rng, patients, "two eyes", "image", -0.8)
        kept = np.clip(prob, 0.001, 0.999)
        logit = np.log(kept / (1 - kept)) + less * rng.normal(0, 1, len(prob))
        return replace(cases, positive=logit > 0, uncertainty=np.round(0.5 - np.abs(1 / (1 + np.exp(-logit)) - 0.5), 2))

    truths = {name: of_site(np.random.default_rng(5), POPULATION, less) for name, (_, less) in SITES.items()}
    print_head("Sites", "patients | rule | site | broken | certified")
    for patients in sizes:
        found: dict[tuple[str, str], list[tuple[bool, bool]]] = {}
        for study in range(studies):
            rng = np.random.default_rng([6, study])
            parts = {name: of_site(rng, round(share * patients), less) for name, (share, less) in SITES.items()}
            starts = np.cumsum([0, *(int(one.patient.max()) + 1 for one in parts.values())])
            patient = np.concatenate([one.patient + k for one, k in zip(parts.values(), starts, strict=False)])
            columns = ("label", "positive", "uncertainty")
            joined = [np.concatenate([getattr(one, name) for one in parts.values()]) for name in columns]
            together = certify(ReferralCases(*joined, patient, np.ones(len(patient))), [goal], DELTA).threshold
            for name, one in parts.items():
                alone = certify(one, [goal], DELTA / 3).threshold
                for rule, end in (("one for all", together), ("one for each", alone)):
                    wrong = end is not None and goal.spec.estimate(truths[name], end).value > goal.value
                    found.setdefault((rule, name), []).append((wrong, end is not None))
        for (rule, name), rows in found.items():
            wrong, granted = np.mean(rows, axis=0)
            print_row(patients, rule, name, f"{wrong:.1%}", f"{granted:.0%}")


REAL_GOALS = ("selective_risk=.05", "selective_risk=.02")


def from_population(path: Path, studies: int, sizes: list[int]) -> None:
    """Print how certificates of studies fare that are drawn from a table of patients, whose own values are the truth."""
    people = Population(path, "usual")
    print_head("A population", "per | goal | patients | broken | certified | answered")
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
                    wrong = found is not None and breaks(goal, found, truth)
                    answered = 0.0 if found is None else np.mean(truth.uncertainty <= found)
                    rows.append((wrong, found is not None, answered))
                wrong, granted, answered = np.mean(rows, axis=0)
                print_row(per, goal, f"{patients:,}", f"{wrong:.1%}", f"{granted:.0%}", f"{answered:.0%}")


def main() -> None:
    """Run the simulation that is asked for."""
    kinds = {"zones": False, "adversarial": False, "within": False, "population": None}
    options = parse(__doc__, studies=300, patients=[100, 300, 500, 1500], only=list(GOALS), **kinds)
    if options.population:
        from_population(options.population, options.studies, options.patients)
    elif options.within:
        within_sites(options.studies, options.patients)
    elif options.adversarial:
        adversarial(options.studies)
    elif options.zones:
        zones(options.studies, options.patients)
    else:
        certificates(options.studies, options.patients, options.only)


if __name__ == "__main__":
    main()
