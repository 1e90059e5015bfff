"""What a trained network is said to have learnt; the whole of it is tested with the command, see `test_answer_bank`."""

from __future__ import annotations

import numpy as np

from retinabench.concepts import trained_answers
from retinabench.concepts.banks.bank import prepare_samples
from retinabench.data.dataset import ConceptImages


def test_auroc_is_none_where_a_class_is_missing(tmp_path):
    names = np.array(["a", "b", "c"])
    truth = np.array([[1, 1], [1, 0], [-1, -1]], np.int8)
    images = ConceptImages(names, ("x", "y"), truth, names, lambda row, size: np.zeros((size, size, 3), np.uint8))
    data = prepare_samples(images, tmp_path, size=16, source={})
    rows = np.arange(3)
    answers = np.array([[0.2, 0.9], [0.4, 0.3], [0.5, 0.5]])
    assert trained_answers._learnt(("x", "y"), data, rows, rows, answers) == {
        "x": {"trained_positives": 2, "questioned_positives": 2, "auroc": None},
        "y": {"trained_positives": 1, "questioned_positives": 1, "auroc": 1.0},
    }
