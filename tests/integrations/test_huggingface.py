"""Scores in the form that the Trainer of Hugging Face asks for."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from retinabench.core.errors import InputError
from retinabench.integrations.huggingface import compute_metrics
from support.raw_outputs import NAMES, expected_scores, output_batches


@pytest.fixture
def batches():
    return output_batches()


def test_hugging_face_gets_plain_floats_also_from_a_tuple(batches):
    """By the protocol of `Trainer`: arrays as `predictions` and `label_ids`."""
    logits, label = (torch.cat(parts).numpy() for parts in zip(*batches, strict=True))
    compute = compute_metrics(NAMES)
    for predictions in (logits, (logits, np.zeros(3))):
        found = compute(SimpleNamespace(predictions=predictions, label_ids=label))
        assert found == pytest.approx(expected_scores(batches))
        assert all(type(value) is float for value in found.values())
    with pytest.raises(InputError, match="unknown score"):
        compute_metrics(("acuracy",))
