"""Every method that trains learns in bfloat16 and in parts of a batch, and its probabilities stay in full precision."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.experiments.config import load_run
from retinabench.experiments.execution import Resources
from retinabench.experiments.run import execute
from retinabench.methods.base import is_composed
from retinabench.methods.registry import METHODS
from retinabench.metrics.classification import auroc
from retinabench.predictions.io import read_predictions
from support.helpers import TINY, make_prepared

SINGLE = [[f"method.name={name}"] for name, method in METHODS.items() if not is_composed(method)]
VARIANTS = [
    ["method.name=laplace", "method.weights=diagonal"],
    ["method.name=fsvi", "method.covariance=full"],
    ["method.name=fsvi", "method.context=monochrome"],
    ["method.name=ivon", "method.train_samples=2"],
    ["method.name=multiswag", "method.path=sgld", "method.components=2"],
    ["method.name=sequential_anchored", "method.anchors=matched"],
]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return str(make_prepared(tmp_path_factory.mktemp("data") / "prepared"))


HARD = ["optimizer.precision=bfloat16", "optimizer.accumulate=2"]


@pytest.mark.parametrize(
    "words", [*VARIANTS, *([*words, *HARD] for words in (*SINGLE, *VARIANTS))], ids=" ".join
)
def test_it_learns_and_predicts_in_full_precision(prepared, tmp_path, words):
    run = load_run(None, [*TINY, *words], data=prepared)
    predictions = read_predictions(execute(run, tmp_path, Resources("cpu")) / "predictions.parquet")
    test = predictions.select(split="test")
    assert auroc(test.label, test.prob) > 0.9
    # bfloat16 holds 8 significant bits; the sigmoid is taken in float32.
    assert len(np.unique(test.prob)) > 20
