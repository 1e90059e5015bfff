"""`retinabench.report`: one model needs no name, and the settings reach the numbers."""

from __future__ import annotations

import csv
import json

import retinabench as rb
from support.fake_predictions import population, predictions


def test_one_model_is_named_model_and_the_settings_reach_the_files(tmp_path):
    found = predictions("MAP", 0, population(60, 40))
    page = rb.report(found, tmp_path, title="Ours & theirs", bootstrap=3, seed=2, referred=0.2, threshold=0.3)
    assert page == tmp_path / "index.html"
    assert "Ours &amp; theirs" in page.read_text()
    [record] = json.loads((tmp_path / "scores.json").read_text())
    assert (record["entry"], record["bootstrap"], record["seed"]) == ("model", 3, 2)
    assert record["threshold"]["value"] == 0.3
    with open(tmp_path / "table.csv", newline="") as handle:
        named = {row["score"] for row in csv.DictReader(handle)}
    assert "gain_at_20" in named
    assert "gain_at_50" not in named
