"""Every method that trains learns in bfloat16 and in parts of a batch, and its probabilities stay in full precision."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.methods.base import is_composed
from retinabench.methods.registry import METHODS
from retinabench.metrics.classification import auroc
from retinabench.predictions.io import read_predictions

SINGLE = [[f"method.name={name}"] for name, method in METHODS.items() if not is_composed(method)]
VARIANTS = [
    ["method.name=laplace", "method.weights=diagonal"],
    ["method.name=fsvi", "method.covariance=full"],
    ["method.name=fsvi", "method.context=monochrome"],
    ["method.name=ivon", "method.train_samples=2"],
    ["method.name=multiswag", "method.path=sgld", "method.components=2"],
    ["method.name=sequential_anchored", "method.anchors=matched"],
]


HARD = ["optimizer.precision=bfloat16", "optimizer.accumulate=2"]
FAST = [["method.name=map"], ["method.name=mfvi"], ["method.name=laplace"], ["method.name=batch_ensemble"]]
SLOW = [words for words in (*SINGLE, *VARIANTS) if words not in FAST]


@pytest.mark.parametrize(
    "words",
    [
        *VARIANTS,
        *([*words, *HARD] for words in FAST),
        *(pytest.param([*words, *HARD], marks=pytest.mark.slow) for words in SLOW),
    ],
    ids=" ".join,
)
def test_it_learns_and_predicts_in_full_precision(trained, words):
    predictions = read_predictions(trained(*words) / "predictions.parquet")
    test = predictions.select(split="test")
    assert auroc(test.label, test.prob) > 0.9
    # bfloat16 holds 8 significant bits; the sigmoid is taken in float32.
    assert len(np.unique(test.prob)) > 20
