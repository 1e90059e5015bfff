"""Time of the patient-clustered bootstrap on a set of the size of the EyePACS test set (42,670 images, 21,335 patients).

    python benchmarks/intervals.py

Times accuracy, AUROC and the referral accuracy and AUROC areas at 1,000 replicates, for an uncertainty that follows the
probability (entropy) and for one that does not (a user's own column); then DeLong and Obuchowski, and a comparison of
two models. Goal: 40 s and 2 GB on two cores; all of it runs on one.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
from sklearn.metrics import roc_auc_score

import retinabench as rb
from retinabench.metrics.bootstrap import cluster_bootstrap, percentile_interval
from retinabench.metrics.intervals import auroc_error
from retinabench.metrics.registry import SCORES
from retinabench.metrics.weighted_images import Cases

NAMES = ("accuracy", "auroc", "referral_accuracy_area", "referral_auroc_area")
IMAGES = 42_670


def data(seed=0):
    rng = np.random.default_rng(seed)
    patient = np.repeat(np.arange(IMAGES // 2), 2)
    label = (rng.random(IMAGES) < 0.193).astype(int)
    logit = rng.normal(-1.7, 1.3, IMAGES) + rng.normal(0, 0.7, IMAGES // 2)[patient] + 1.8 * label
    return label, 1 / (1 + np.exp(-logit)), patient, rng


def timed(work):
    """(result, seconds of one core): the processor's time, which other work on the machine does not stretch."""
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replicates", type=int, default=1000)
    replicates = parser.parse_args().replicates
    label, prob, patient, rng = data()
    chosen = [SCORES[name] for name in NAMES]
    uncertainties = {"entropy": -np.abs(prob - 0.5), "own column": rng.random(IMAGES) - np.abs(prob - 0.5)}
    for kind, uncertainty in uncertainties.items():
        cases = Cases(label, prob, uncertainty)

        def statistic(weight, cases=cases):
            weighted = cases.weighted(weight)
            return np.array([score(weighted) for score in chosen])

        draws, seconds = timed(lambda: cluster_bootstrap(statistic, patient, replicates=replicates))
        low, high = percentile_interval(draws)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(
            f"{kind}: {replicates} replicates of 4 scores in {seconds:.1f} s of one core, peak memory {memory:.2f} GB"
        )
        for k, name in enumerate(NAMES):
            print(f"  {name}: {statistic(np.ones(IMAGES))[k]:.4f} ({low[k]:.4f} to {high[k]:.4f})")
        slow = np.mean([timed(lambda: roc_auc_score(label, prob))[1] for _ in range(3)])
        loop = (
            slow * IMAGES / 2
        )  # scikit-learn sorts the retained anew at every count: half the size on average
        print(f"  one replicate of the AUROC area by a loop over scikit-learn: {loop:.0f} s, ours with all")
        print(
            f"  four scores {seconds / replicates * 1000:.1f} ms: {loop / (seconds / replicates):,.0f} times faster"
        )
    for name, cluster in (("DeLong", None), ("Obuchowski", patient)):
        error, seconds = timed(lambda cluster=cluster: auroc_error(label, prob, cluster))
        print(f"{name}: standard error {error.standard_error:.6f} in {1000 * seconds:.0f} ms")
    ids = [f"{k}" for k in range(IMAGES)]
    a = rb.Predictions(ids, label, prob, patient_id=patient)
    b = rb.Predictions(ids, label, np.clip(prob + rng.normal(0, 0.02, IMAGES), 0, 1), patient_id=patient)
    _, seconds = timed(lambda: rb.compare(a, b, bootstrap=replicates, scores=NAMES))
    print(f"compare two models, 4 scores, {replicates} replicates: {seconds:.1f} s of one core")


if __name__ == "__main__":
    main()
