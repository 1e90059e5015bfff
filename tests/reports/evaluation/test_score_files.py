"""Scores of files as JSON and CSV."""

from __future__ import annotations

import csv
import io

import retinabench as rb
from retinabench.reports.evaluation.score_files import scores_csv, scores_json

PREDICTIONS = rb.Predictions(["a", "b", "c", "d"], [0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9])


def test_one_file_is_its_scores_and_several_are_a_list():
    found = rb.score(PREDICTIONS, bootstrap=0)
    alone = scores_json([found], ["x"])
    assert alone == {**found.to_dict(), "entry": "x"}
    both = scores_json([found, found], ["x", "y"])
    assert [one["entry"] for one in both["files"]] == ["x", "y"]
    assert both["schema"] == "retinabench.scores-list/1"


def test_each_row_of_the_csv_is_a_score_and_undefined_numbers_are_empty():
    found = rb.score(PREDICTIONS, bootstrap=0)
    rows = list(csv.DictReader(io.StringIO(scores_csv([found], ["=x"]).decode())))
    assert [(row["set"], row["score"]) for row in rows] == [
        (name, score) for name, one in found.sets.items() for score in one.scores
    ]
    auroc = next(row for row in rows if row["score"] == "auroc")
    assert (auroc["entry"], auroc["value"], auroc["low"]) == ("'=x", "0.75", "")
    assert auroc["version"] == str(found["in_domain"].auroc.version)
