"""How often do nominal 95 % intervals hold the truth, and tests at 5 % reject a true hypothesis?

    python benchmarks/interval_coverage.py --population population.csv --studies 240 --processes 2 --out coverage.jsonl

**A finite population.** `--population` names a table with image_id, patient_id, label and prob, such as a real model's predictions. Its patients are
drawn with replacement, its own scores are the truth. Variants: `usual` as it is, `rare` (patients without disease drawn ten times as often) and
`accurate` (85 % of the wrong probabilities are mirrored).

**Simulated models.** Patients with two eyes, which share the severity of the disease and how hard they are to read; two models that are equally good are
compared. The truth is the score of 400,000 patients. Settings: `simulated` (accuracy .83, prevalence 31 %), `calibrated`, and `domains`: half of the
patients come from a shifted domain on which the model is worse, for the joint and the balanced set; `unequal`: patients of one to eight images, probabilities
of two decimals; `confident`: an overconfident model, and 3 % of the patients with a label that contradicts it.

A study is one line of the file, a function of setting, number of patients and its own number: a killed run is continued by the same command, and more
studies only add lines. Studies that nothing was chosen on begin at another `--first`. `--table` prints the tables of a file without computing.
"""

import csv
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from clinic import Whole, clinic_ends, log_odds
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import norm
from toolkit import keep_lines, kept_lines, parse

import retinabench as rb
from retinabench.metrics.calibration import calibration_line_of
from retinabench.metrics.image_sets import image_sets, referral_uncertainty
from retinabench.metrics.registry import SCORES
from retinabench.metrics.scoring import ScoreSettings, interval_of, score_and_replicates
from retinabench.metrics.weighted_images import Weighted

# Threshold of the severity, how steeply the model sees it, and how much a patient's difficulty scatters its logit.
SETTINGS = {"simulated": (0.6, 2.0, 1.8), "calibrated": (0.6, 2.0, 1.8), "domains": (0.6, 2.0, 1.0)}
SETTINGS |= {"unequal": (0.6, 2.0, 1.0), "confident": (0.6, 9.0, 2.0)}
VARIANTS = ("usual", "accurate", "rare")
ON_REQUEST = (
    "auroc_at_50", "accuracy_at_50", "gain_at_50", "closed_at_50", "sensitivity_at_50", "missed_at_50", "brier_skill",
)  # fmt: skip
PATIENTS = (60, 100, 300, 1000)
REPLICATES = 300
POPULATIONS, POPULATION = 4, 100_000
TESTED = (
    "accuracy", "sensitivity", "auroc", "auprc", "nll", "brier", "referral_accuracy_area", "aurc", "failure_auroc",
)  # fmt: skip
CALIBRATION = ("line_intercept", "line_slope", "line_in_the_large", "line_observed_over_expected")
SQUARED = ("calibration_error_top_label", "calibration_error_positive_class")


def models(rng: np.random.Generator, patients: int, setting: str) -> list[rb.Predictions]:
    """Two models that are equally good on the two eyes of some patients, as predictions."""
    cut, steep, scatter = SETTINGS[setting]
    patient = np.repeat(np.arange(patients), rng.choice([1, 2, 2, 3, 4, 6, 8], patients) if setting == "unequal" else 2)
    eye = len(patient)
    severity = rng.normal(0, 1.2, patients)[patient] + rng.normal(0, 0.2, eye)
    label = (severity > cut).astype(int) ^ (setting == "confident" and (rng.random(patients) < 0.03)[patient])
    shifted = (patient % 2 == 1) if setting == "domains" else np.zeros(eye, bool)
    hard = rng.normal(0, scatter, patients)[patient]
    found = []
    for _ in range(2):
        own = rng.normal(0, scatter / 2, patients)[patient] + rng.normal(0, 0.4, eye)
        logit = steep * (severity - cut) + np.where(shifted, 2, 1) * (hard + own)
        found.append(expit(logit).round(2) if setting == "unequal" else expit(logit))
    if setting == "calibrated":  # labels are drawn from the first model's probability, correlated in both eyes
        shared = np.sqrt(0.7) * rng.normal(size=patients)[patient] + np.sqrt(0.3) * rng.normal(size=eye)
        label = (norm.cdf(shared) < found[0]).astype(int)
    ids, patients = np.char.mod("i%d", np.arange(eye)), np.char.mod("p%d", patient)
    domain = np.where(shifted, "shifted", "in_domain")
    return [rb.Predictions(ids, label, prob, patient_id=patients, domain=domain) for prob in found]


class Population:
    """A table of patients with a variant of its probabilities and of the patients' weights."""

    def __init__(self, path: Path, variant: str) -> None:
        table = rb.read_predictions(path)
        patients, code = np.unique(np.asarray(table.patients), return_inverse=True)
        rows = np.argsort(code, kind="stable")
        self.label, self.prob = table.label[rows], table.prob[rows].copy()
        self.code, self.grade = code[rows], table.grade
        self.start = np.searchsorted(self.code, np.arange(len(patients) + 1))
        weight = np.ones(len(patients), np.intp)
        if variant == "accurate":
            wrong = (self.prob > 0.5) != (self.label == 1)
            mirrored = wrong & (np.random.default_rng(5).random(len(rows)) < 0.85)
            self.prob[mirrored] = 1 - self.prob[mirrored]
        if variant == "rare":
            weight[np.bincount(self.code, self.label) == 0] = 10
        self.times, self.weight, self.grade_prob = weight, weight / weight.sum(), None
        if self.grade is not None:
            self.grade = self.grade[rows]
            self.grade_prob = self._proportional_odds(weight[self.code])

    def _proportional_odds(self, weight: Any) -> Any:
        """(N, 5) the log odds of "grade k or more" are those of "referable" and a number, so that the mean is the population's share."""
        x = log_odds(self.prob)
        above = [np.ones(len(x))]
        for k in (1, 2, 3, 4):
            share = np.average(self.grade >= k, weights=weight)
            move = 0.0 if k == 2 else brentq(lambda c, s=share: np.average(expit(x + c), weights=weight) - s, -30, 30)
            above.append(self.prob if k == 2 else expit(x + move))
        return -np.diff(np.column_stack([*above, np.zeros(len(x))]), axis=1)

    def study(self, rng: np.random.Generator, patients: int) -> rb.Predictions:
        drawn = rng.choice(len(self.weight), size=patients, p=self.weight)
        rows = [np.arange(self.start[k], self.start[k + 1]) for k in drawn]
        patient = np.repeat(np.arange(patients), [len(own) for own in rows])
        return self.predictions(np.concatenate(rows), patient)

    def predictions(self, rows: Any, patient: Any) -> rb.Predictions:
        names = np.char.mod("i%d", np.arange(len(rows)))
        graded = {} if self.grade is None else {"grade": self.grade[rows], "grade_prob": self.grade_prob[rows]}
        patients = np.char.mod("p%d", patient)
        return rb.Predictions(names, self.label[rows], self.prob[rows], patient_id=patients, **graded)

    @cached_property
    def whole(self) -> Whole:
        return Whole(self.predictions(np.arange(len(self.code)), self.code), self.code, self.times)

    def truth(self) -> dict[str, float]:
        every = self.predictions(np.arange(len(self.code)), self.code)
        (images,) = image_sets(every, referral_uncertainty(every)[0])
        return values_of(images.cases.weighted(self.weight[self.code] * len(self.weight)))


population = cache(Population)


def values_of(whole: Weighted) -> dict[str, float]:
    """What a population of weighted images has in place of each number that has an interval."""
    line = vars(calibration_line_of(whole))
    names = [name for name, spec in SCORES.items() if spec.sets is None] + [*SQUARED, *ON_REQUEST]
    names += [] if whole.cases.shifted is None else ["ood_auroc", "ood_auprc"]
    return {name: SCORES[name](whole) for name in names} | {f"line_{name}": value for name, value in line.items()}


@cache
def truth(setting: str, table: Path | None) -> dict[str, dict[str, float]]:
    if setting in VARIANTS and table is not None:
        return {"in_domain": population(table, setting).truth()}
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for seed in range(POPULATIONS):
        model = models(np.random.default_rng([12345, seed]), POPULATION, setting)[0]
        for images in image_sets(model, referral_uncertainty(model)[0]):
            for name, value in values_of(images.whole).items():
                found[images.name][name].append(value)
    return {name: {key: float(np.mean(v)) for key, v in scores.items()} for name, scores in found.items()}


def ends_of(predictions: rb.Predictions, number: int) -> dict[str, dict[str, Any]]:
    specs = [SCORES[name] for name in ON_REQUEST]
    scored, draws = score_and_replicates(predictions, ScoreSettings(bootstrap=REPLICATES, seed=number), specs)
    wholes = {images.name: images.whole for images in image_sets(predictions, referral_uncertainty(predictions)[0])}
    ends: dict[str, dict[str, Any]] = {}
    for name, one in scored.sets.items():
        ends[name] = {key: plain_ends(each) for key, each in one.scores.items()}
        for spec, column in zip(specs, draws[name].T if name in draws else (), strict=False):
            ends[name][spec.name] = plain_ends(interval_of(spec, wholes[name], float(spec(wholes[name])), column, 0.95))
        if one.calibration is not None:
            ends[name] |= {key: plain_ends(getattr(one.calibration, key)) for key in (*CALIBRATION, *SQUARED)}
    return ends


def study(task: tuple[str, int, int], table: Path | None) -> dict[str, Any]:
    setting, patients, number = task
    told = {"setting": setting, "patients": patients, "study": number}
    if setting in VARIANTS and table is not None:
        rng = np.random.default_rng([11, number, patients, VARIANTS.index(setting)])
        people = population(table, setting)
        drawn = people.study(rng, patients)
        ends = ends_of(replace(drawn, grade_prob=None), number)
        further: dict[str, Any] = {"less": {}, "sets": {}, "p": {}}
        if drawn.grade is not None:
            further = clinic_ends(drawn, people.study(rng, patients), people.whole, rng)
        return {**told, "ends": ends, "difference": {}, **further}
    a, b = models(np.random.default_rng([7, number, patients]), patients, setting)
    options: dict[str, Any] = {"bootstrap": REPLICATES, "seed": number, "scores": TESTED, "sets": ["in_domain"]}
    compared = rb.compare(a, b, **options)["in_domain"]
    ranked = rb.rank({"a": a, "b": b}, **options)["in_domain"]
    p = {name: [_plain(compared[name].p), _plain(ranked[name].pairs[0].p)] for name in TESTED}
    held = {name: plain_ends(compared[name]) for name in TESTED}
    least = min(one.p_adjusted for one in compared.scores.values())
    p["any score (corrected)"] = [_plain(least)] * 2
    return {**told, "ends": ends_of(a, number), "p": p, "difference": held, "less": {}, "sets": {}}


def plain_ends(interval: Any) -> list[float | None]:
    return [_plain(interval.low), _plain(interval.high)]


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def coverage(found: list[dict[str, Any]], table: Path | None) -> Iterator[tuple[Any, ...]]:
    """Per setting, patients, set and score: studies with an interval, all studies, shares that hold, lie above, and below the truth; median width."""
    groups: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for one in found:
        # less the truth
        lesser = one["less"] | ({} if one["setting"] == "calibrated" else {"a - b": one["difference"]})
        for name, scores in (one["ends"] | lesser).items():
            for key, ends in scores.items():
                true = 0.0 if name in lesser else truth(one["setting"], table)[name].get(key, np.nan)
                about = one["setting"], one["patients"], name, key
                groups[about].append([np.nan if end is None else end - true for end in ends])
    studies = Counter((one["setting"], one["patients"]) for one in found)
    for key, ends in groups.items():
        known = np.array([pair for pair in ends if not np.isnan(pair).any()]).reshape(-1, 2)
        if len(known):
            above, below = float(np.mean(known[:, 0] > 1e-9)), float(np.mean(known[:, 1] < -1e-9))
            width = float(np.median(known[:, 1] - known[:, 0]))
            yield *key, len(known), studies[key[:2]], 1 - above - below, above, below, width


SETS = "sets of grades: mean coverage, mean size"


def print_tables(found: list[dict[str, Any]], table: Path | None) -> None:
    rows: list[tuple[Any, ...]] = []
    for *key, number, of, held, above, below, width in coverage(found, table):
        rows.append((*key, of, *(f"{100 * share:.1f}" for share in (number / of, held, above, below)), f"{width:.3g}"))
    sets: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    tests: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for one in found:
        for name, pair in one["sets"].items():
            sets[one["setting"], one["patients"], SETS, name].append(pair)
        for name, pair in one["p"].items():
            if one["setting"] != "calibrated" and pair[0] is not None:  # there the first model is the better one
                tests[one["setting"], one["patients"], name].append(pair)
    for key, pairs in sets.items():
        held, size = np.mean(pairs, axis=0)
        rows.append((*key, len(pairs), "100.0", f"{100 * held:.1f}", "", "", f"{size:.3g}"))
    out = csv.writer(sys.stdout, lineterminator="\n")
    print("setting,patients,set,score,studies,with interval %,coverage %,above %,below %,median width")
    out.writerows(sorted(rows, key=lambda row: row[:4]))
    print("\nsetting,patients,test of,tests,compare rejects %,rank rejects %")
    for key, pairs in sorted(tests.items()):
        rates = (f"{100 * np.mean(column < 0.05):.1f}" for column in np.array(pairs, np.float64).T)
        out.writerow([*key, len(pairs), *rates])


def main() -> None:
    studies = {"studies": 500, "first": 0, "patients": list(PATIENTS), "settings": [*VARIANTS, *SETTINGS]}
    options = parse(__doc__, population=None, processes=1, out=Path("coverage.jsonl"), table=False, **studies)
    table = options.population
    settings = [one for one in options.settings if table or one not in VARIANTS]
    found = kept_lines(options.out)
    if not options.table:
        done = {(one["setting"], one["patients"], one["study"]) for one in found}
        wanted = [
            (setting, patients, number)
            for patients in options.patients for setting in settings
            for number in range(options.first, options.first + options.studies)
        ]  # fmt: skip
        with ProcessPoolExecutor(options.processes) as pool:
            each, left = partial(study, table=table), [task for task in wanted if task not in done]
            for one in map(each, left) if options.processes == 1 else pool.map(each, left, chunksize=4):
                keep_lines(options.out, one)
                found.append(one)
    print_tables(found, table)


if __name__ == "__main__":
    main()
