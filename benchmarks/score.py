"""Processor seconds of the bootstrap replicates of every default score, in four sets of images.

python benchmarks/score.py [--images 45000] [--replicates 20]
"""

from __future__ import annotations

import time
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits
from toolkit import parse, seconds

from retinabench.metrics.bootstrap import BLOCK, cluster_codes, keep_memory, replicate_weight
from retinabench.metrics.image_sets import ImageSet, SetEvaluator, image_sets
from retinabench.metrics.uncertainty import referral_uncertainty
from retinabench.predictions.table import Predictions


def eyepacs_like(images: int, samples: int = 5) -> Predictions:
    """Both eyes of a patient, 19.3 % referable, several samples, and the last twentieth in the shifted domain: four sets."""
    rng, eye = np.random.default_rng(0), np.arange(images)
    ill = rng.normal(0, 0.8, images)[eye // 2] + rng.normal(0, 0.6, images)
    logit = 1.5 * ill - 2 + rng.normal(0, 1, images)
    probs = 1 / (1 + np.exp(-(logit[:, None] + rng.normal(0, 0.5, (images, samples)))))
    return Predictions(
        np.char.add("i", eye.astype(str)), (ill > np.quantile(ill, 0.807)).astype(int), probs,
        patient_id=np.char.add("p", (eye // 2).astype(str)),
        domain=np.where(eye < 0.95 * images, "in_domain", "shifted"),
    )  # fmt: skip


def in_turn(one: ImageSet, replicates: int) -> float:
    """Median processor seconds of a replicate."""
    codes, patients = cluster_codes(one.cluster)
    weights = np.stack([replicate_weight(codes, patients, 0, number) for number in range(replicates)])
    evaluator, length = SetEvaluator(one, one.scores), max(1, BLOCK // len(one))
    evaluator(weights[:1])  # indexes are made once
    blocks = [weights[first : first + length] for first in range(0, replicates, length)]
    return float(np.median([seconds(partial(evaluator, block), time.process_time) / len(block) for block in blocks]))


def main() -> None:
    options = parse(__doc__, images=45_000, replicates=20)
    predictions = eyepacs_like(options.images)
    keep_memory()
    for name in ("total", "epistemic"):
        uncertainty, _ = referral_uncertainty(predictions, name)
        with threadpool_limits(1, user_api="blas"):
            took = sum(in_turn(one, options.replicates) for one in image_sets(predictions, uncertainty))
        print(
            f"referral by {name}, {options.images} images in four sets: 1,000 replicates in {1000 * took:.1f} processor seconds"
        )


if __name__ == "__main__":
    main()
