"""The verb `benchmark`: options, refusals in one line, and a whole study with the real engine, tables and pages."""

from __future__ import annotations

import json

import pytest

from retinabench.cli import main as cli
from retinabench.experiments.study.runner import workspace
from support.helpers import make_prepared
from support.studies import BOTH, SPACE

STUDY = """
title = "Tiny"
criteria = {criteria}
trials = 2
seeds = 2
ensemble = 2
bootstrap = 20
[tasks.country_shift]
data = "{data}"
[base]
model = {{ name = "resnet18", width = 4, stem = "small" }}
optimizer = {{ epochs = 2, batch_size = 16, warmup = 1 }}
[methods.map]
space = "{space}"
[methods.dropout]
space = "{space}"
run = {{ method = {{ name = "dropout", samples = 2 }} }}
"""


@pytest.fixture
def file(tmp_path):
    data, space = make_prepared(tmp_path / "data"), tmp_path / "space.toml"
    space.write_text(SPACE)
    path = tmp_path / "study.toml"
    path.write_text(STUDY.format(criteria=json.dumps(BOTH[:1]), data=data, space=space))
    return path


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["demmo"], "unknown study 'demmo'. Did you mean 'demo'?"),
        (["demo", "sedes=3"], "unknown key 'sedes'. Did you mean 'seeds'?"),
        (["demo", "seeds"], "'seeds' is not key=value"),
        (["demo", "base.optimizer.lr=-1", "--status"], "optimizer.lr"),
        (["missing.toml"], "missing.toml: does not exist"),
        (["demo", "--engine", "slurm"], "slurm"),
    ],
)
def test_wrong_words_are_refused_in_one_line(tmp_path, capsys, words, told):
    assert cli.run(["benchmark", *words, "--out", str(tmp_path / "out"), "--quiet"]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_second_command_on_a_folder_is_refused_while_status_answers(file, tmp_path, capsys):
    words = ["benchmark", str(file), "--out", str(tmp_path / "out"), "--quiet", "--device", "cpu"]
    with workspace(tmp_path / "out").lock():
        assert cli.run(words) == 2
        error = capsys.readouterr().err
        assert "another benchmark command is at work" in error
        assert error.count("\n") == 1
        assert cli.run([*words, "--status"]) == 0
        assert "8 runs left" not in capsys.readouterr().err


@pytest.mark.slow
def test_plan_then_the_whole_study_then_status(file, tmp_path, capsys):
    out = tmp_path / "out"
    words = ["benchmark", str(file), "--out", str(out), "--quiet", "--device", "cpu", "--parallel", "1"]
    assert cli.run([*words, "--plan"]) == 0
    assert "6 runs" in capsys.readouterr().out
    assert not out.exists()
    assert cli.run(words) == 0
    printed = capsys.readouterr().out
    assert "ensemble of 2" in printed
    assert printed.endswith("summary.md\n")
    assert json.loads((out / "summary.json").read_text())["complete"]
    assert (out / "report" / "country_shift" / BOTH[0] / "index.html").is_file()
    assert (out / "tables" / "index.md").is_file()
    ranking = out / "country_shift" / "map" / f"{BOTH[0]}-corrected"
    assert {"ranking.csv", "best.toml", "parallel.svg"} <= {file.name for file in ranking.iterdir()}
    assert cli.run([*words, "--status"]) == 0
    assert "finished" in capsys.readouterr().out
