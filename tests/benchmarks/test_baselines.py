"""The script that freezes a benchmark and collects its baselines, on a benchmark of 60 drawn images."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import baselines

from retinabench.data.frozen import definition
from retinabench.data.prepare import prepare
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.reports.leaderboard import board

DEFINITION = """
name = "toy"
title = "Toy"
about = "A toy."
dataset = "synthetic"
task = "country_shift"
draw = {{ images = 60, size = 16, seed = 1 }}
sets = ["in_domain", "shifted"]
seeds = 2
hash_of = "pixels"
study = "{study}"
source = "Drawn."
images = 0
listing_sha256 = ""
truth_sha256 = ""
"""
STUDY = """
title = "Toy"
trials = 0
seeds = 2
ensemble = 2
bootstrap = 10
[tasks.country_shift]
data = "{data}"
[base]
model = {{ name = "resnet18", width = 4, stem = "small" }}
optimizer = {{ epochs = 1, batch_size = 16 }}
[methods.map]
run = {{ method = "map" }}
"""


@pytest.mark.slow
def test_a_benchmark_is_frozen_and_its_baselines_are_computed_and_collected(tmp_path, monkeypatch):
    data, study, shipped = (tmp_path / name for name in ("data", "study.toml", "shipped"))
    prepare("synthetic", data, recipe=Recipe(16), images=60, seed=1, workers=1)
    study.write_text(STUDY.format(data=data))
    (tmp_path / "toy.toml").write_text(DEFINITION.format(study=study))
    shipped.mkdir()
    places = (definition, "HERE", tmp_path), (baselines, "HERE", tmp_path), (board, "SHIPPED", shipped)
    for module, name, value in places:
        monkeypatch.setattr(module, name, value)
    for words in (["freeze", "--data", data], ["compute"], ["collect"]):
        verb, *more = map(str, words)
        monkeypatch.setattr(sys, "argv", ["baselines.py", verb, "toy", *more, "--out", str(tmp_path / "out")])
        baselines.main()
    found = {one.card.name: len(one.predictions["toy"]) for one in board.baselines_of("toy")}
    assert found == {"map": 2, "map-ensemble-2": 1}
