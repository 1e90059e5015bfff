"""How fast the scores are, beside the loop over scikit-learn that they replace.

    OMP_NUM_THREADS=1 python benchmarks/score.py [--images 42670] [--replicates 100]
    python benchmarks/score.py --part engine [--images 45000] [--replicates 20]

`curves`: scikit-learn's loop ranks the retained images anew at every count. Its time at every count is extrapolated from a
stratified sample of counts, and said to be; the values at the sampled counts are compared with ours.

`engine`: the bootstrap replicates of every default score in the four sets, in processor seconds.
"""

import time
from dataclasses import replace
from functools import partial

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score
from threadpoolctl import threadpool_limits
from toolkit import parse, seconds

from retinabench.metrics.arrays import referral_curve
from retinabench.metrics.image_sets import ImageSet, SetEvaluator, decompose, image_sets, referral_uncertainty
from retinabench.metrics.weighted_images import BLOCK, cluster_codes, replicate_weight
from retinabench.predictions.table import Predictions


def eyepacs_like(images: int, samples: int = 5) -> Predictions:
    """Both eyes of a patient, 19.3 % referable, overlapping probabilities of several samples."""
    rng = np.random.default_rng(0)
    patient = np.arange(images) // 2
    ill = rng.normal(0, 0.8, images)[patient] + rng.normal(0, 0.6, images)
    label = (ill > np.quantile(ill, 0.807)).astype(int)
    logit = 1.5 * ill - 2 + rng.normal(0, 1, images)
    probs = 1 / (1 + np.exp(-(logit[:, None] + rng.normal(0, 0.5, (images, samples)))))
    ids, patients = np.char.mod("i%d", np.arange(images)), np.char.mod("p%d", patient)
    return Predictions(ids, label, probs, patient_id=patients)


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


def both_domains(images: int, samples: int = 5) -> Predictions:
    found = eyepacs_like(images, samples)
    return replace(found, domain=np.where(np.arange(images) < 0.95 * images, "in_domain", "shifted"))


def engine(images: int, replicates: int) -> None:
    predictions = both_domains(images)
    np.empty(31 * 2**20, np.uint8)  # as `stacked` does, so that freed memory is kept
    for name in ("total", "epistemic"):
        uncertainty, _ = referral_uncertainty(predictions, name)
        with threadpool_limits(1, user_api="blas"):
            each = sum(in_turn(one, replicates) for one in image_sets(predictions, uncertainty))
        took = f"1,000 replicates in {1000 * each:.1f} processor seconds"
        print(f"referral by {name}, {images} images in four sets: {took}")


def in_turn(one: ImageSet, replicates: int) -> float:
    codes, patients = cluster_codes(one.cluster)
    weights = np.stack([replicate_weight(codes, patients, 0, number) for number in range(replicates)])
    evaluator, length = SetEvaluator(one, one.scores), max(1, BLOCK // len(one))
    evaluator(weights[:1])  # indexes are made once
    blocks = [weights[first : first + length] for first in range(0, replicates, length)]
    return float(np.median([seconds(partial(evaluator, block), time.process_time) / len(block) for block in blocks]))


def main() -> None:
    options = parse(__doc__, part="curves", images=0, replicates=0)
    function, images, replicates = {"curves": (curves, 42_670, 100), "engine": (engine, 45_000, 20)}[options.part]
    function(options.images or images, options.replicates or replicates)


def curves(images: int, replicates: int) -> None:
    predictions = eyepacs_like(images)
    y, p, split = predictions.label.astype(int), predictions.prob, decompose(predictions.probs)
    n = len(y)
    orders = {"total": split.total, "epistemic": split.epistemic, "epistemic, 4 digits": np.round(split.epistemic, 4)}
    print(f"{n} images, {y.sum()} positive; one core")
    for name, u in orders.items():
        print(f"\nreferral by {name}: {len(np.unique(u))} distinct values")
        together = 0.0
        for metric in ("accuracy", "nll", "auroc", "auprc"):
            best, curve = timed(lambda u=u, m=metric: referral_curve(y, p, u, m))
            together += best
            line = f"  {metric:9s} at {len(curve.value)} counts {best:8.3f} s"
            if metric in ("auroc", "auprc"):
                loop, worst = sklearn_loop(metric, y, p, u, curve.value)
                line += f"   scikit-learn's loop {loop:7.1f} s (from 60 counts)   ratio {loop / best:7.0f}"
                line += f"   largest difference {worst:.1e}"
            print(line)
        print(f"  all four  {together:28.3f} s")


if __name__ == "__main__":
    main()
