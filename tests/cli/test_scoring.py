"""The verb `score`: what it loads, and what it writes."""

from __future__ import annotations

import csv
import json
import subprocess
import sys

import numpy as np
import pytest

import retinabench as rb
from retinabench.cli.main import run

FORBIDDEN = ("PIL", "torch", "matplotlib", "retinabench.data.", "retinabench.methods.", "retinabench.models.")
"""Registries may be imported: they hold names and locations and import an entry on first use."""
SCORE_A_CSV = """
import sys
from retinabench.cli.main import run
assert run(["score", sys.argv[1], "--bootstrap", "5", "--quiet"]) == 0
loaded = [name for name in sys.modules if name.startswith(tuple(sys.argv[2:])) and not name.endswith(".registry")]
assert not loaded, loaded
"""


@pytest.fixture
def file(tmp_path):
    rng = np.random.default_rng(0)
    label = rng.random(60) < 0.3
    prob = 1 / (1 + np.exp(-(2 * label - 1 + rng.normal(0, 1.5, 60))))
    path = tmp_path / "predictions.csv"
    rb.write_predictions(rb.Predictions([f"image{k}" for k in range(60)], label, prob), path)
    return path


def test_scoring_a_csv_loads_neither_pillow_nor_torch_nor_matplotlib_nor_any_data_set_or_method(file):
    """In a fresh interpreter, through the command line."""
    done = subprocess.run(
        [sys.executable, "-c", SCORE_A_CSV, str(file), *FORBIDDEN],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "In-domain" in done.stdout


def test_json_of_one_file_and_of_several(file, tmp_path, capsys):
    out = tmp_path / "scores.json"
    assert run(["score", str(file), "--bootstrap", "0", "--json", str(out), "--quiet"]) == 0
    one = json.loads(out.read_text())
    expected = rb.score(rb.read_predictions(file), bootstrap=0).to_dict()
    assert one == {**expected, "entry": "predictions"}
    assert run(["score", str(file), str(file), "--bootstrap", "0", "--json", str(out), "--quiet"]) == 0
    several = json.loads(out.read_text())
    assert several["schema"] == "retinabench.scores-list/1"
    assert [each["sets"] for each in several["files"]] == [one["sets"]] * 2
    assert "note: " in capsys.readouterr().err


def test_csv_has_a_row_per_score(file, tmp_path):
    out = tmp_path / "scores.csv"
    assert run(["score", str(file), "--bootstrap", "0", "--csv", str(out), "--quiet"]) == 0
    rows = list(csv.DictReader(out.read_text().splitlines()))
    scores = rb.score(rb.read_predictions(file), bootstrap=0)["in_domain"].scores
    assert [row["score"] for row in rows] == list(scores)
    assert [float(row["value"]) for row in rows] == [one.value for one in scores.values()]
    assert {row["low"] for row in rows} == {""}


def test_json_to_standard_output_is_all_that_is_there(tmp_path, capsys):
    rng = np.random.default_rng(0)
    file = tmp_path / "p.csv"
    rows = [f"i{k},{k % 2},{x:.3f}" for k, x in enumerate(rng.random(40))]
    file.write_text("\n".join(["image_id,label,prob", *rows]))
    assert run(["score", str(file), "--bootstrap", "0", "--json", "-", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "retinabench.scores/1"
    assert not (tmp_path / "-").exists()
