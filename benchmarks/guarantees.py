"""How often certified goals are broken, how many images are answered, and how many an oracle would answer.

    python benchmarks/guarantees.py --population population.csv --studies 300 --out guarantees.jsonl > docs/tables/guarantees.csv
    python benchmarks/guarantees.py --adversarial --studies 800  # populations made to break the argument of the certificate
    python benchmarks/guarantees.py --within --studies 300       # a threshold of its own for every site

Each study draws validation patients, certifies each goal with confidence 90 %, and looks up the true risk of the certified threshold in the
population: 100,000 simulated patients whose diseased members have four images and the others one (or two eyes each), or a table of patients, as it
is and in the variants of `interval_coverage.py`. The **oracle** knows the population: its threshold answers the most images of all that meet the goal.
A sensitivity is also certified by others, at the same level (`OTHERS`). A cell is one line of the file; a killed run is continued by the same command.
"""

import csv
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from interval_coverage import VARIANTS, population
from numpy.typing import NDArray
from scipy import special
from toolkit import keep_lines, kept_lines, parse, print_head, print_row

import retinabench as rb
from retinabench.metrics.guarantees import sequence
from retinabench.metrics.guarantees.certificate import certify
from retinabench.metrics.guarantees.goals import Goal, Per, ReferralCases, weights
from retinabench.metrics.guarantees.sequence import SHARE
from retinabench.metrics.guarantees.transfer import choose_threshold, meeting
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
CELLS: list[tuple[str, Per, str]] = [("two eyes", "image", "selective_risk"), ("1 or 4", "image", "selective_risk")]
CELLS += [("1 or 4", "patient-image", "selective_risk"), ("1 or 4", "patient-image", "npv")]
CELLS += [("1 or 4", "image", name) for name in list(GOALS)[1:]]
ZONE_GOALS = {-0.8: ["npv=.9", "sensitivity=.8", "ppv=.8"], -2.0: ["npv=.95", "sensitivity=.5", "ppv=.7"]}
ZONE_CELLS: list[tuple[str, Per, float]] = [("two eyes", "image", -0.8), ("1 or 4", "image", -0.8)]
ZONE_CELLS += [("1 or 4", "patient-image", -0.8), ("two eyes", "image", -2.0)]


def draw(rng: np.random.Generator, patients: int, kind: str, per: Per, mean: float = -0.8) -> ReferralCases:
    return draw_with_prob(rng, patients, kind, per, mean)[0]


def draw_with_prob(rng, patients: int, kind: str, per: Per, mean: float) -> tuple[ReferralCases, NDArray[np.float64]]:
    disease = rng.normal(mean, 1.2, patients)
    many = np.where(disease > 0, 4, 1) if kind == "1 or 4" else np.full(patients, 2)
    patient = np.repeat(np.arange(patients), many)
    severity = disease[patient] + rng.normal(0, 0.6, len(patient))
    label = rng.random(len(patient)) < 1 / (1 + np.exp(-2 * severity))
    prob = 1 / (1 + np.exp(-1.5 * severity - rng.normal(0, 0.6, len(patient))))
    uncertainty = np.round(0.5 - np.abs(prob - 0.5), 2)
    cases = ReferralCases(label, prob > 0.5, uncertainty, patient, weights(patient, per), label & (severity > 0))
    return cases, prob.round(3)


class Truth:
    """What every threshold does in a population: whether it breaks a goal, and the share of the images that it leaves to the model."""

    def __init__(self, cases: ReferralCases, goals: list[Goal]) -> None:
        self.thresholds, met, risks = meeting(cases, goals)
        self.broken = np.any([r > goal.max_risk + 1e-9 for r, goal in zip(risks, goals, strict=True)], axis=0)
        order = np.argsort(cases.uncertainty, kind="stable")
        mass = np.append(0.0, np.cumsum(cases.weight[order]))
        self.kept = mass[np.searchsorted(cases.uncertainty[order], self.thresholds, "right")] / mass[-1]
        of_referred = all(goal.spec.of_referred for goal in goals)
        self.oracle = float(self.kept[np.flatnonzero(met)[0 if of_referred else -1]]) if met.any() else 0.0

    def __call__(self, threshold: float | None) -> tuple[bool, bool, float]:
        """Whether a goal is broken, whether there is a threshold, and the share that the model answers."""
        if threshold is None:
            return False, False, 0.0
        k = int(np.searchsorted(self.thresholds, threshold, "right")) - 1
        return (bool(self.broken[k]), True, float(self.kept[k])) if k >= 0 else (False, True, 0.0)


Floats = NDArray[np.float64]
Rule = Callable[[ReferralCases, Goal, np.random.Generator], float | None]


def _fixed_sequence(places: Floats, passed: Callable[[float], bool]) -> float | None:
    """The largest threshold before the first of the places, or minus infinity, that is not passed; the test changes at these places only."""
    fails = next((t for t in (-np.inf, *np.unique(places).tolist()) if not passed(t)), np.inf)
    return None if fails == -np.inf else float(np.nextafter(fails, -np.inf))


def of_images(cases: ReferralCases, goal: Goal, rng: np.random.Generator, *, one: bool) -> float | None:
    """The binomial test of the images, or of one place of each patient, of those that count."""
    rows = np.ones(len(cases), bool)
    if one:
        order = np.argsort(cases.patient, kind="stable")
        place = np.empty(len(cases), int)
        place[order] = np.arange(len(cases)) - np.searchsorted(cases.patient[order], cases.patient[order])
        rows = place == rng.integers(cases.most_images, size=cases.patient.max() + 1)[cases.patient]
    kept = cases.take(rows)
    of, missed = int(goal.spec.among(kept).sum()), np.sort(kept.uncertainty[goal.spec.counted(kept)])

    def passed(t: float) -> bool:
        k = int(np.searchsorted(missed, t, side="right"))
        return k < of and special.betainc(of - k, k + 1, 1 - goal.max_risk) <= DELTA

    return _fixed_sequence(missed, passed)


def betting(cases: ReferralCases, goal: Goal, rng: np.random.Generator) -> float | None:
    """Waudby-Smith and Ramdas' predictable plug-in bets for a fixed number of patients, in one random order; wealth counts at every time."""
    order = rng.permutation(cases.patient.max() + 1)
    width, n = float(cases.most_images), len(order)
    now = np.arange(1, n + 1)

    def passed(t: float) -> bool:
        num, den = (np.bincount(cases.patient, of)[order] for of in goal.spec.sums(cases, t))
        x = (num - goal.max_risk * den) / width  # lies in [-goal, 1 - goal]
        mean = np.cumsum(x) / (now + 1)
        variance = (0.25 + np.cumsum((x - mean) ** 2)) / (now + 1)
        before = np.append(0.25, variance[:-1])
        bet = np.minimum(np.sqrt(2 * np.log(1 / DELTA) / (before * n)), 0.75 / (1 - goal.max_risk))
        return bool(np.cumsum(np.log1p(-bet * x)).max() >= np.log(1 / DELTA))

    return _fixed_sequence(cases.uncertainty[goal.spec.counted(cases)], passed)


OTHERS: dict[str, Rule] = {
    "one image of a patient": partial(of_images, one=True), "betting (Waudby-Smith and Ramdas)": betting,
    "every image (not valid)": partial(of_images, one=False),
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    about: tuple[str, str, str, int]  # population, per, goals, patients
    goals: list[Goal]
    drawn: Callable[[int], ReferralCases]
    whole: Callable[[], ReferralCases]
    others: bool = False

    def rows(self, studies: int) -> Iterator[dict[str, Any]]:
        """A row for the certificate, with the plain choice beside it, and one for each other way."""
        judged = Truth(self.whole(), self.goals)
        found: dict[str, list[tuple[bool, bool, float]]] = {"certificate": [], "plain choice": []}
        for study in range(studies):
            cases, rng = self.drawn(study), np.random.default_rng([9, study])
            found["certificate"].append(judged(certify(cases, self.goals, DELTA).threshold))
            found["plain choice"].append(judged(choose_threshold(cases, self.goals).threshold))
            for name, rule in OTHERS.items() if self.others else ():
                found.setdefault(name, []).append(judged(rule(cases, self.goals[0], rng)))
        for name, three in found.items():
            wrong, granted, answered = np.mean(three, axis=0)
            yield row_of(self.about, name, studies, wrong, f"{granted:.0%}", f"{answered:.0%}", f"{judged.oracle:.0%}")


def row_of(about: tuple[str, str, str, int], way: str, studies: int, wrong: float, *rest: str) -> dict[str, Any]:
    return dict(zip(COLUMNS, (*about, way, studies, f"{wrong:.1%}", *rest), strict=True))


COLUMNS = (
    "population", "per", "goals", "patients", "way", "studies", "goal broken", "certified", "answered", "an oracle answers",
)  # fmt: skip
SIMULATED = {"two eyes": "simulated: two eyes", "1 or 4": "simulated: four images (diseased) or one"}


def simulated_cell(kind: str, per: Per, goals: list[Goal], patients: int) -> Cell:
    def seeded(seed: int | list[int], count: int) -> ReferralCases:
        return draw(np.random.default_rng(seed), count, kind, per)

    about = SIMULATED[kind], per, ", ".join(map(str, goals)), patients
    return Cell(about, goals, lambda study: seeded([1, study], patients), lambda: seeded(99, POPULATION))


REAL_CELLS: list[tuple[str, str, str]] = [
    *((variant, "image", f"sensitivity={goal}") for variant in VARIANTS for goal in (0.8, 0.9, 0.95)),
    *(("usual", per, goal) for per in ("image", "patient") for goal in ("selective_risk=.05", "selective_risk=.02")),
    *(("usual", "image", goal) for goal in ("npv=.97", "ppv=.95", "missed_severe=.05")),
]


def real_cell(path: Path, variant: str, per: str, goal: Goal, patients: int) -> Cell:
    people = population(path, variant)

    def view(part: rb.Predictions) -> ReferralCases:
        return ReferralCases.of(part) if per == "image" else ReferralCases.of(rb.by_patient(part), "own")

    def whole() -> ReferralCases:
        cases = view(people.predictions(np.arange(len(people.code)), people.code))
        return replace(cases, weight=people.weight[cases.patient]) if per == "image" else cases

    def drawn(study: int) -> ReferralCases:
        return view(people.study(np.random.default_rng([7, study]), patients))

    return Cell((variant, per, str(goal), patients), [goal], drawn, whole, goal.target == "sensitivity")


@dataclass(frozen=True)
class ZoneCell:
    """Studies of zones: certified and plain ends."""

    about: tuple[str, str, str, int]
    kind: str
    per: Per
    mean: float

    def rows(self, studies: int) -> Iterator[dict[str, Any]]:
        """A row for certified and one for plain ends: a goal broken, both zones certified, decided in the negative and in the positive one."""
        goals, patients = zone_goals(ZONE_GOALS[self.mean]), self.about[3]
        people, prob = draw_with_prob(np.random.default_rng(99), POPULATION, self.kind, self.per, self.mean)
        truths = {side: Truth(zone_cases(people, prob, side), [*goals[side]]) for side in goals}

        def judged(ends: tuple[float | None, float | None]) -> tuple[float, ...]:
            low, high = ends
            both = truths["negative"](low), truths["positive"](None if high is None else -high)
            wrong, granted, kept = zip(*both, strict=True)
            return any(wrong), *granted, *kept

        found: dict[str, list[tuple[float, ...]]] = {"certificate": [], "plain choice": []}
        for study in range(studies):
            cases, p = draw_with_prob(np.random.default_rng([2, study]), patients, self.kind, self.per, self.mean)
            found["certificate"].append(judged(certified_ends(cases, p, zone_certificates(cases, p, goals, DELTA))))
            found["plain choice"].append(judged(plain_ends(cases, p, goals)))
        *_, negative, positive = judged(plain_ends(people, prob, goals))
        best = f"{negative:.0%} + {positive:.0%}"
        for name, five in found.items():
            wrong, below, above, *shares = np.mean(five, axis=0)
            both = f"{below:.0%}; {above:.0%}"
            yield row_of(self.about, name, studies, wrong, both, f"{shares[0]:.0%} + {shares[1]:.0%}", best)


def zone_cells(patients: int) -> Iterator[ZoneCell]:
    for kind, per, mean in ZONE_CELLS:
        share = f", {31 if mean == -0.8 else 11} % of the patients" if kind == "two eyes" else ""
        about = f"{SIMULATED[kind]}{share}", per, "zones: " + ", ".join(ZONE_GOALS[mean]), patients
        yield ZoneCell(about, kind, per, mean)


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


def _adversary(name, patients, edges, risks, studies, *, ties=False, sizes=((1,), (1.0,)), per="image", same=False):
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


def main() -> None:
    kinds = {"adversarial": False, "within": False, "population": None}
    sizes = {"studies": 300, "patients": [100, 300, 500, 1500], "only": list(GOALS)}
    options = parse(__doc__, out=Path("guarantees.jsonl"), **sizes, **kinds)
    sequence.MOST_NEEDED = 0  # how many patients a refused study would have needed is not asked
    if options.within:
        return within_sites(options.studies, options.patients)
    if options.adversarial:
        return adversarial(options.studies)
    rows = kept_lines(options.out)
    done = {tuple(row[name] for name in COLUMNS[:4]) for row in rows}
    asked = [(kind, per, [*map(Goal.parse, GOALS[name])]) for kind, per, name in CELLS if name in options.only]
    cells: list[Cell | ZoneCell] = [simulated_cell(*one, patients) for one in asked for patients in options.patients]
    for patients in (300, 1000) if options.population else ():
        cells += [real_cell(options.population, *where, Goal.parse(goal), patients) for *where, goal in REAL_CELLS]
        cells += zone_cells(patients)
    for cell in cells:
        if cell.about not in done:
            rows += (new := list(cell.rows(options.studies)))
            keep_lines(options.out, *new)
    table = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return None


if __name__ == "__main__":
    main()
