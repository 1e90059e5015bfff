"""The gallery holds wrong predictions alone, the surest first, and no name of an image becomes a path."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.reports.leaderboard.gallery import EACH, failures, image_file
from support.board_entries import noisy


def test_failures_are_wrong_and_missed_disease_comes_first() -> None:
    predictions = noisy(0.3)
    found = failures(predictions, "in_domain", shown=True)
    row = {name: k for k, name in enumerate(predictions.image_id.tolist())}
    for one in found:
        k = row[one.image_id]
        assert (predictions.prob[k] > 0.5) != predictions.label[k]
    assert [one.truth.startswith("Referable") for one in found] == [True] * EACH + [False] * EACH
    sure = [abs(predictions.prob[row[one.image_id]] - 0.5) for one in found[:EACH]]
    assert sure == sorted(sure, reverse=True)
    assert not failures(
        predictions.take(np.flatnonzero(predictions.domain == "shifted")), "in_domain", shown=True
    )


@pytest.mark.parametrize("name", ["../../etc/passwd", "a", "\N{WHITE SMILING FACE}" * 200])
def test_an_image_s_file_is_a_hash(name: str) -> None:
    assert image_file(name).removesuffix(".jpg").isalnum()
    assert len(image_file(name)) == 20
