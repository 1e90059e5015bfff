"""The record of an examination, against what was added to it."""

from __future__ import annotations

from retinabench.concepts.questioning.record import Record


def test_questions_are_kept_in_their_order_by_concept():
    record = Record()
    added = [(5, 0, 1, 0.9), (2, 1, 0, 0.5), (5, 1, 1, 0.5), (0, 0, 0, 0.51), (7, 1, 1, 0.75)]
    assert [record.add(*one) for one in added] == [True, True, False, False, True]  # 0.5 is a no
    sample, truth, prob = record.about(1)
    assert (sample.tolist(), truth.tolist(), prob.tolist()) == ([2, 5, 7], [0, 1, 1], [0.5, 0.5, 0.75])
    assert record.answers(0) == {"without": [0.51], "with": [0.9]}
    assert record.answers(2) == {"without": [], "with": []}
    assert all(part.shape == (0,) for part in Record().about(0))
