"""How often do nominal 95 % intervals hold the truth? Simulated studies of patients whose images fail together.

    python benchmarks/coverage.py --studies 1000

Each study has 500 patients (--patients) with 1 to 4 photographs. Severity and how hard a patient is to read are shared by all of a
patient's photographs. The truth is the score of the population, from 3.2 million patients (for the areas: at the number of
images of the study, because fewer than 10 images of a class stay out of an area). Printed: the share of the studies whose
interval holds the truth, with its standard error, the shares whose interval lies wholly above and wholly below it, and the mean
width. Then, per score, whether the truth is the mean of the estimates (in standard deviations of an estimate), and the mean
standard deviation of the bootstrap over that of the estimates.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np

from retinabench.metrics.inference.auroc_variance import auroc_error
from retinabench.metrics.inference.bootstrap import (
    bca_interval,
    cluster_bootstrap,
    cluster_jackknife,
    percentile_interval,
)
from retinabench.metrics.inference.proportions import clustered_proportion, wilson
from retinabench.metrics.registry import SCORES
from retinabench.metrics.sorted_images import Cases

NAMES = ("accuracy", "auroc", "nll", "referral_accuracy_area", "referral_auroc_area")
PATIENTS = 500


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


def truth(names, of_study=PATIENTS, populations=8, patients=400_000):
    """Scores of the population at the mean number of images of a study: the mean of eight of 400,000 patients."""
    values = []
    for seed in range(populations):
        label, prob, uncertainty, _ = images(np.random.default_rng([12345, seed]), patients)
        weight = np.full(len(label), of_study * 2.5 / len(label))
        values.append(scorer(label, prob, uncertainty, names)(weight))
    return np.mean(values, axis=0)


def study(number, names, replicates, bca, patients):
    """{method: (K, 2)} intervals of one simulated study, NaN where a method does not apply to a score; and (K, 2) of the
    estimates and their standard deviations over the draws."""
    label, prob, uncertainty, patient = images(np.random.default_rng([7, number]), patients)
    statistic = scorer(label, prob, uncertainty, names)
    draws = cluster_bootstrap(statistic, patient, replicates=replicates, seed=number)
    naive = cluster_bootstrap(statistic, np.arange(len(label)), replicates=min(replicates, 150), seed=number)
    found = {
        "patient percentile": np.transpose(percentile_interval(draws)),
        "image percentile": np.transpose(percentile_interval(naive)),
    }
    point = statistic(np.ones(len(label)))
    if bca:
        found["patient BCa"] = np.transpose(bca_interval(draws, point, cluster_jackknife(statistic, patient)))
    right = (prob > 0.5) == label
    closed = {
        "accuracy": {
            "patient Korn-Graubard": list(
                clustered_proportion(right, np.ones(len(label)), patient).to_dict().values()
            )[1:],
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
    return found, np.transpose([point, np.nanstd(draws, axis=0, ddof=1)])


class Coverage(NamedTuple):
    """Share of intervals that hold the truth, its standard error, shares wholly above and below it, mean width, undefined."""

    share: float
    error: float
    above: float
    below: float
    width: float
    undefined: int


class Estimate(NamedTuple):
    """(mean estimate - truth) / SD of the estimates, and mean SD of the bootstrap draws / SD of the estimates."""

    bias: float
    spread: float


def coverage(studies, names=NAMES, replicates=300, bca=False, processes=1, patients=PATIENTS, populations=8):
    """Two tables: of every (score, method) and of every score, see `Coverage` and `Estimate`."""
    true = truth(names, patients, populations)
    one = partial(study, names=names, replicates=replicates, bca=bca, patients=patients)
    if processes > 1:
        with ProcessPoolExecutor(processes) as pool:
            found = list(pool.map(one, range(studies), chunksize=8))
    else:
        found = [one(number) for number in range(studies)]
    table = {}
    for k, name in enumerate(names):
        for method in found[0][0]:
            ends = np.array([intervals[method][k] for intervals, _ in found])
            known = np.isfinite(ends).all(axis=1)
            if not known.any():
                continue
            low, high = ends[known].T
            above, below = float(np.mean(true[k] < low)), float(np.mean(true[k] > high))
            share = 1 - above - below
            error = float(np.sqrt(max(share * (1 - share), 1e-9) / known.sum()))
            width = float(np.mean(high - low))
            table[name, method] = Coverage(share, error, above, below, width, int((~known).sum()))
    point, spread = np.moveaxis([estimate for _, estimate in found], 2, 0)
    sd = point.std(axis=0, ddof=1)
    bias, ratio = (point.mean(axis=0) - true) / sd, spread.mean(axis=0) / sd
    return table, {name: Estimate(*pair) for name, *pair in zip(names, bias, ratio, strict=True)}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--replicates", type=int, default=300)
    parser.add_argument("--patients", type=int, default=PATIENTS)
    parser.add_argument("--bca", action="store_true")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    table, estimates = coverage(
        options.studies, NAMES, options.replicates, options.bca, options.processes, options.patients
    )
    print(
        f"{options.studies} studies, {options.patients} patients, {options.replicates} replicates; nominal 95 %\n"
    )
    print("| score | interval | coverage % | standard error | above % | below % | mean width |")
    print("|---|---|---|---|---|---|---|")
    for (name, method), one in table.items():
        note = f" ({one.undefined} undefined)" if one.undefined else ""
        shares = " | ".join(f"{100 * value:.1f}" for value in (one.share, one.error, one.above, one.below))
        print(f"| {name} | {method}{note} | {shares} | {one.width:.4f} |")
    print("\n| score | (mean estimate - truth) / SD | SD of the bootstrap / SD |\n|---|---|---|")
    for name, one in estimates.items():
        print(f"| {name} | {one.bias:+.3f} | {one.spread:.3f} |")


if __name__ == "__main__":
    main()
