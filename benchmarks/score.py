"""How fast the scores are, beside the loop over scikit-learn that they replace.

    OMP_NUM_THREADS=1 python benchmarks/score.py [--images 42670] [--replicates 100]

scikit-learn's loop ranks the retained images anew at every count. Its time at every count is extrapolated from a
stratified sample of counts, and said to be; the values at the sampled counts are compared with ours.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from retinabench.metrics.classification import accuracy_of, auroc_of
from retinabench.metrics.inference.bootstrap import cluster_bootstrap, percentile_interval
from retinabench.metrics.score import referral_curve, score
from retinabench.metrics.selective.referral_curves import area_of
from retinabench.metrics.sorted_images import Cases
from retinabench.metrics.uncertainty import decompose
from retinabench.predictions.table import Predictions


def eyepacs_like(images: int, samples: int = 5) -> Predictions:
    """Both eyes of a patient, 19.3 % referable, overlapping probabilities of several samples."""
    rng = np.random.default_rng(0)
    patient = np.arange(images) // 2
    ill = rng.normal(0, 0.8, images)[patient] + rng.normal(0, 0.6, images)
    label = (ill > np.quantile(ill, 0.807)).astype(int)
    logit = 1.5 * ill - 2 + rng.normal(0, 1, images)
    probs = 1 / (1 + np.exp(-(logit[:, None] + rng.normal(0, 0.5, (images, samples)))))
    return Predictions(
        np.char.add("i", np.arange(images).astype(str)),
        label,
        probs,
        patient_id=np.char.add("p", patient.astype(str)),
    )


def timed(f, times: int = 3):
    best, out = np.inf, None
    for _ in range(times):
        start = time.perf_counter()
        out = f()
        best = min(best, time.perf_counter() - start)
    return best, out


def sklearn_loop(metric, y, p, u, value, sample: int = 60) -> tuple[float, float]:
    """(extrapolated seconds for every count, largest difference at the sampled ones)."""
    function = {"auroc": roc_auc_score, "auprc": average_precision_score}[metric]
    order = np.argsort(u, kind="stable")
    y, p, n = y[order], p[order], len(y)
    whole = np.append(np.flatnonzero(np.diff(u[order])), n - 1) + 1  # counts at the end of a block of ties
    whole = whole[np.isfinite(value[n - whole])]
    counts = whole[np.linspace(len(whole) * 0.01, len(whole) - 1, sample).astype(int)]
    start, worst = time.perf_counter(), 0.0
    for count in counts:
        worst = max(worst, abs(function(y[:count], p[:count]) - value[n - count]))
    return (time.perf_counter() - start) / len(counts) * n, worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=42_670)
    parser.add_argument("--replicates", type=int, default=100)
    options = parser.parse_args()
    predictions = eyepacs_like(options.images)
    y, p, split = predictions.label.astype(int), predictions.prob, decompose(predictions.probs)
    n = len(y)
    orders = {
        "total": split.total,
        "epistemic": split.epistemic,
        "epistemic, 4 digits (ties)": np.round(split.epistemic, 4),
    }
    print(f"{n} images, {y.sum()} positive; one core")
    for name, u in orders.items():
        print(f"\nreferral by {name}: {len(np.unique(u))} distinct values")
        together = 0.0
        for metric in ("accuracy", "nll", "auroc", "auprc"):
            seconds, curve = timed(lambda u=u, m=metric: referral_curve(y, p, u, m))
            together += seconds
            line = f"  {metric:9s} at {len(curve.value)} counts {seconds:8.3f} s"
            if metric in ("auroc", "auprc"):
                loop, worst = sklearn_loop(metric, y, p, u, curve.value)
                line += f"   scikit-learn's loop {loop:7.1f} s (extrapolated from 60 counts)   ratio {loop / seconds:7.0f}"
                line += f"   largest difference {worst:.1e}"
            print(line)
        print(f"  all four  {together:28.3f} s")

    for name in ("total", "epistemic"):
        cases = Cases(y, p, orders[name])

        def four(weight, cases=cases):
            w = cases.weighted(weight)
            return np.array([accuracy_of(w), auroc_of(w), area_of(w, "accuracy"), area_of(w, "auroc")])

        four(np.ones(n))
        start = time.perf_counter()
        draws = cluster_bootstrap(four, predictions.patient_id, replicates=options.replicates)
        seconds = time.perf_counter() - start
        low, high = percentile_interval(draws)
        print(
            f"\n{options.replicates} patient replicates of accuracy, AUROC and both referral areas, by {name}, "
            f"one core: {seconds:.1f} s; 1,000 take {1000 * seconds / options.replicates:.0f} s"
        )
        print(f"  AUROC {auroc_of(cases.weighted()):.4f} ({low[1]:.4f} to {high[1]:.4f})")

    seconds, _ = timed(lambda: score(predictions, bootstrap=0), 1)
    print(f"\nscore() of all names without intervals: {seconds:.2f} s")
    start = time.perf_counter()
    score(predictions, bootstrap=options.replicates)
    print(f"score() with {options.replicates} replicates of all names: {time.perf_counter() - start:.1f} s")
    print(f"largest memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


if __name__ == "__main__":
    main()
