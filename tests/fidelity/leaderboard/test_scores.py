"""Scores of an entry with their intervals, and why some are undefined."""

from __future__ import annotations

import numpy as np

from retinabench.fidelity.leaderboard.board import score_task
from retinabench.fidelity.submissions.submission import About, Submission


def test_undefined_scores_have_a_reason_and_no_interval(evaluators):
    probs = evaluators["fundus"].reference.probs
    bare = Submission(np.eye(5)[probs.argmax(axis=1)], about=About(title="x"))
    task = score_task(evaluators["fundus"], [bare])
    record = next(entry for entry in task.entries if entry.title == "x").to_dict()["groups"]["all"]
    assert record["epistemic_error"] == {"value": None, "why": "needs posterior samples"}
    assert record["nll"]["why"] == "a class that occurs got probability 0, or less than is stored"
    assert set(record["agreement"]) == {"value", "low", "high"}
