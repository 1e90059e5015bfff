"""How often do nominal 95 % intervals hold the truth? Simulated studies of patients whose images fail together.

    python benchmarks/coverage.py --studies 1000

Each study has 150 patients with 1 to 4 photographs. Severity and how hard a patient is to read are shared by all of a
patient's photographs. The truth is the score of the population, from 400,000 patients (for the areas: at the number of
images of the study, because fewer than 10 images of a class stay out of an area). Printed: the share of the studies whose
interval holds the truth, with its standard error, and the mean width.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np

from retinabench.scores.auroc_variance import auroc_error
from retinabench.scores.cases import Cases
from retinabench.scores.intervals import (
    bca_interval,
    cluster_bootstrap,
    cluster_jackknife,
    percentile_interval,
    wilson,
)
from retinabench.scores.operating import clustered_proportion
from retinabench.scores.table import SCORES

NAMES = ("accuracy", "auroc", "nll", "referral_accuracy_area", "referral_auroc_area", "aurc")
PATIENTS = 150


def images(rng, patients):
    """(label, prob, uncertainty, patient) of the photographs of some patients."""
    patient = np.repeat(np.arange(patients), rng.integers(1, 5, patients))
    severity = rng.normal(-0.6, 1.2, patients)[patient] + rng.normal(0, 0.2, len(patient))
    difficulty = rng.normal(0, 1.8, patients)[patient]
    label = severity > 0
    logit = 2.0 * severity + difficulty + rng.normal(0, 0.4, len(patient))
    prob = 1 / (1 + np.exp(-logit))
    return label, prob, -np.abs(prob - 0.5), patient


def scorer(label, prob, uncertainty, names):
    """A function of a weight (N,) that gives the scores (K,)."""
    cases = Cases(label, prob, uncertainty)
    chosen = [SCORES[name] for name in names]
    return lambda weight: np.array([score(cases.weighted(weight)) for score in chosen])


def truth(names, patients=400_000, seed=12345):
    """Scores of the population at the mean number of images of a study."""
    label, prob, uncertainty, _ = images(np.random.default_rng(seed), patients)
    per_study = PATIENTS * 2.5
    return scorer(label, prob, uncertainty, names)(np.full(len(label), per_study / len(label)))


def study(number, names, replicates, bca):
    """{method: (K, 2)} intervals of one simulated study; NaN where a method does not apply to a score."""
    label, prob, uncertainty, patient = images(np.random.default_rng([7, number]), PATIENTS)
    statistic = scorer(label, prob, uncertainty, names)
    draws = cluster_bootstrap(statistic, patient, replicates=replicates, seed=number)
    naive = cluster_bootstrap(statistic, np.arange(len(label)), replicates=replicates, seed=number)
    found = {
        "patient percentile": np.transpose(percentile_interval(draws)),
        "image percentile": np.transpose(percentile_interval(naive)),
    }
    if bca:
        knife = cluster_jackknife(statistic, patient)
        found["patient BCa"] = np.transpose(bca_interval(draws, statistic(np.ones(len(label))), knife))
    right = (prob > 0.5) == label
    closed = {
        "accuracy": {
            "patient Korn-Graubard": clustered_proportion(right, np.ones(len(label)), patient)[1:],
            "image Wilson": wilson(right.sum(), len(label)),
        },
        "auroc": {
            "patient Obuchowski": auroc_error(label, prob, patient).interval(),
            "image DeLong": auroc_error(label, prob).interval(),
        },
    }
    for name, methods in closed.items():
        for method, ends in methods.items():
            found[method] = np.full((len(names), 2), np.nan)
            if name in names:
                found[method][names.index(name)] = ends
    return found


def coverage(studies, names=NAMES, replicates=500, bca=True, processes=1):
    """{(score, method): (coverage, its standard error, mean width, undefined intervals)}."""
    true = truth(names)
    one = partial(study, names=names, replicates=replicates, bca=bca)
    if processes > 1:
        with ProcessPoolExecutor(processes) as pool:
            found = list(pool.map(one, range(studies), chunksize=8))
    else:
        found = [one(number) for number in range(studies)]
    table = {}
    for k, name in enumerate(names):
        for method in found[0]:
            ends = np.array([intervals[method][k] for intervals in found])
            known = np.isfinite(ends).all(axis=1)
            if not known.any():
                continue
            low, high = ends[known].T
            share = float(np.mean((low <= true[k]) & (true[k] <= high)))
            error = float(np.sqrt(max(share * (1 - share), 1e-9) / known.sum()))
            table[name, method] = share, error, float(np.mean(high - low)), int((~known).sum())
    return table


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--replicates", type=int, default=500)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    table = coverage(options.studies, replicates=options.replicates, processes=options.processes)
    print(f"{options.studies} studies, {PATIENTS} patients, {options.replicates} replicates; nominal 95 %\n")
    print("| score | interval | coverage % | standard error | mean width |\n|---|---|---|---|---|")
    for (name, method), (share, error, width, undefined) in table.items():
        note = f" ({undefined} undefined)" if undefined else ""
        print(f"| {name} | {method}{note} | {100 * share:.1f} | {100 * error:.1f} | {width:.4f} |")


if __name__ == "__main__":
    main()
