"""How often do nominal 95 % intervals hold the truth, and tests at 5 % reject a true hypothesis?

    python benchmarks/interval_coverage.py --studies 500 --processes 2 --out coverage.jsonl

Each study draws patients with two eyes, which share the severity of the disease and how hard they are to read, calls
`retinabench.score` on them, and `retinabench.compare` and `retinabench.rank` on two models that are equally good. The truth is the
score of the population, from 400,000 patients (for the areas: at the number of images of the study, because fewer than 10
images of a class stay out of an area).

Settings: `usual` (accuracy .83, prevalence 31 %), `good` (accuracy .92), `accurate` (.99), `rare` (prevalence 3 %), `calibrated`, and
`domains`: half of the patients come from a shifted domain on which the model is worse, for the joint and the balanced set.

A study is one line of the file, which is a function of the setting, the number of patients, and the number of the study: a killed run
is continued by the same command, and more studies only add lines. Studies that nothing was chosen on begin at another `--first`. `--table` prints the tables of a file without computing.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit
from scipy.stats import norm

import retinabench as rb
from retinabench.metrics.calibration import calibration_line_of
from retinabench.metrics.image_sets import image_sets
from retinabench.metrics.registry import SCORES
from retinabench.metrics.uncertainty import referral_uncertainty
from retinabench.metrics.weighted_images import Weighted

# Threshold of the severity, how steeply the model sees it, and how much a patient's difficulty scatters its logit.
SETTINGS = {
    "usual": (0.6, 2.0, 1.8),
    "good": (0.6, 3.0, 0.5),
    "accurate": (0.6, 14.0, 0.4),
    "rare": (2.4, 2.0, 1.0),
    "calibrated": (0.6, 2.0, 1.8),
    "domains": (0.6, 2.0, 1.0),
}
PATIENTS = (100, 300, 1500)
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
    patient = np.repeat(np.arange(patients), 2)
    eye = len(patient)
    severity = rng.normal(0, 1.2, patients)[patient] + rng.normal(0, 0.2, eye)
    label = (severity > cut).astype(int)
    shifted = (patient % 2 == 1) if setting == "domains" else np.zeros(eye, bool)
    hard = rng.normal(0, scatter, patients)[patient]
    found = []
    for _ in range(2):
        own = rng.normal(0, scatter / 2, patients)[patient] + rng.normal(0, 0.4, eye)
        logit = steep * (severity - cut) + np.where(shifted, 2, 1) * (hard + own)
        found.append(expit(logit))
    if setting == "calibrated":  # labels are drawn from the first model's probability, correlated in both eyes
        shared = np.sqrt(0.7) * rng.normal(size=patients)[patient] + np.sqrt(0.3) * rng.normal(size=eye)
        label = (norm.cdf(shared) < found[0]).astype(int)
    return [
        rb.Predictions(
            np.char.mod("i%d", np.arange(eye)),
            label,
            prob,
            patient_id=np.char.mod("p%d", patient),
            domain=np.where(shifted, "shifted", "in_domain"),
        )
        for prob in found
    ]


def values_of(whole: Weighted) -> dict[str, float]:
    """What a population of weighted images has in place of each number that has an interval."""
    line = vars(calibration_line_of(whole))
    names = [name for name, spec in SCORES.items() if spec.sets is None] + [*SQUARED, "ood_auroc", "ood_auprc"]
    return {name: SCORES[name](whole) for name in names} | {f"line_{name}": value for name, value in line.items()}


@cache
def truth(setting: str, patients: int) -> dict[str, dict[str, float]]:
    """Set -> score -> its value in the population, at the number of images of a study."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for seed in range(POPULATIONS):
        model = models(np.random.default_rng([12345, seed]), POPULATION, setting)[0]
        for images in image_sets(model, referral_uncertainty(model)[0]):
            weight = images.whole.weight * (len(images) / POPULATION * patients / images.whole.weight.sum())
            for name, value in values_of(Weighted(images.cases, weight)).items():
                found[images.name][name].append(value)
    return {name: {key: float(np.mean(v)) for key, v in scores.items()} for name, scores in found.items()}


def study(task: tuple[str, int, int]) -> dict[str, Any]:
    """The intervals and p-values of one study."""
    setting, patients, number = task
    a, b = models(np.random.default_rng([7, number, patients]), patients, setting)
    ends: dict[str, dict[str, Any]] = {}
    for name, one in rb.score(a, bootstrap=REPLICATES, seed=number).sets.items():
        ends[name] = {key: [_plain(each.low), _plain(each.high)] for key, each in one.scores.items()}
        if one.calibration is not None:
            for key in (*CALIBRATION, *SQUARED):
                found = getattr(one.calibration, key)
                ends[name][key] = [_plain(found.low), _plain(found.high)]
    options: dict[str, Any] = {"bootstrap": REPLICATES, "seed": number, "scores": TESTED, "sets": ["in_domain"]}
    compared = rb.compare(a, b, **options)["in_domain"]
    ranked = rb.rank({"a": a, "b": b}, **options)["in_domain"]
    p = {name: [_plain(compared[name].p), _plain(ranked[name].pairs[0].p)] for name in TESTED}
    held = {name: [_plain(compared[name].low), _plain(compared[name].high)] for name in TESTED}
    return {"setting": setting, "patients": patients, "study": number, "ends": ends, "p": p, "difference": held}


def _plain(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def studies(tasks: list[tuple[str, int, int]], processes: int) -> Iterator[dict[str, Any]]:
    """The studies in any order, by several processes."""
    if processes == 1:
        yield from map(study, tasks)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(study, tasks, chunksize=4)


def coverage(found: list[dict[str, Any]]) -> Iterator[tuple[str, int, str, str, int, float, float, float]]:
    """Per setting, patients, set and score: intervals, and the shares that hold, lie above, and lie below the truth."""
    groups = defaultdict(list)
    for one in found:
        for name, scores in one["ends"].items():
            for key, ends in scores.items():
                groups[one["setting"], one["patients"], name, key].append(ends)
        for key, ends in one["difference"].items() if one["setting"] != "calibrated" else ():
            groups[one["setting"], one["patients"], "a - b", key].append(ends)
    for (setting, patients, name, key), ends in groups.items():
        known = np.array([pair for pair in ends if pair[0] is not None], np.float64).reshape(-1, 2)
        true = 0.0 if name == "a - b" else truth(setting, patients)[name].get(key, np.nan)
        if len(known) and np.isfinite(true):
            above, below = (float(np.mean(known[:, 0] > true + 1e-9)), float(np.mean(known[:, 1] < true - 1e-9)))
            yield setting, patients, name, key, len(known), 1 - above - below, above, below


def print_tables(found: list[dict[str, Any]]) -> None:
    """Print the coverage of every interval and the size of every test, as Markdown."""
    print("| setting | patients | set | score | intervals | coverage % | se | above % | below % |")
    print("|---|---|---|---|---|---|---|---|---|")
    for setting, patients, name, key, number, share, above, below in sorted(coverage(found)):
        error = 100 * np.sqrt(share * (1 - share) / number)
        numbers = f"{100 * share:.1f} | {error:.1f} | {100 * above:.1f} | {100 * below:.1f}"
        print(f"| {setting} | {patients} | {name} | {key} | {number} | {numbers} |")
    print("\n| setting | patients | test of | tests | compare rejects % | rank rejects % |\n|---|---|---|---|---|---|")
    groups = defaultdict(list)
    for one in found:
        for key, pair in one["p"].items():
            if one["setting"] != "calibrated" and pair[0] is not None:  # there the first model is the better one
                groups[one["setting"], one["patients"], key].append(pair)
    for (setting, patients, key), pairs in sorted(groups.items()):
        rates = " | ".join(f"{100 * np.mean(column < 0.05):.1f}" for column in np.array(pairs, np.float64).T)
        print(f"| {setting} | {patients} | {key} | {len(pairs)} | {rates} |")


def main() -> None:
    """Run the studies that the file lacks, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="number of the first study")
    parser.add_argument("--patients", type=int, nargs="+", default=list(PATIENTS))
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("coverage.jsonl"))
    parser.add_argument("--table", action="store_true", help="print the tables of the file alone")
    options = parser.parse_args()
    found = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    if not options.table:
        done = {(one["setting"], one["patients"], one["study"]) for one in found}
        wanted = [
            (setting, patients, number)
            for patients in options.patients for setting in options.settings
            for number in range(options.first, options.first + options.studies)
        ]  # fmt: skip
        with options.out.open("a") as sink:
            for one in studies([task for task in wanted if task not in done], options.processes):
                sink.write(json.dumps(one) + "\n")
                sink.flush()
                found.append(one)
    print_tables(found)


if __name__ == "__main__":
    main()
