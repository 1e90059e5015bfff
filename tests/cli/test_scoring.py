import gc
import json

import numpy as np
import pytest

import retinabench as rb
from retinabench.cli.main import run
from retinabench.metrics import scoring
from retinabench.metrics.scoring import scored_sets
from retinabench.predictions.io import read_predictions, write_predictions
from retinabench.predictions.table import Predictions


@pytest.fixture
def file(tmp_path):
    rng = np.random.default_rng(0)
    label = rng.random(60) < 0.3
    prob = 1 / (1 + np.exp(-(2 * label - 1 + rng.normal(0, 1.5, 60))))
    path = tmp_path / "predictions.csv"
    rb.write_predictions(rb.Predictions([f"image{k}" for k in range(60)], label, prob), path)
    return path


def test_json_of_one_file_and_of_several(file, tmp_path, capsys):
    out = tmp_path / "scores.json"
    assert run(["score", str(file), "--bootstrap", "0", "--json", str(out), "--quiet"]) == 0
    one = json.loads(out.read_text())
    expected = rb.score(rb.read_predictions(file), bootstrap=0).to_dict()
    assert one == {**expected, "entry": "predictions"}
    seeds = ["--model-seed", "0", "--model-seed", "1"]
    assert run(["score", str(file), str(file), *seeds, "--bootstrap", "0", "--json", str(out), "-q"]) == 0
    several = json.loads(out.read_text())
    assert several["schema"] == "retinabench.scores-list/1"
    assert [(each["entry"], each["sets"]) for each in several["files"]] == [("predictions.csv", one["sets"])] * 2
    assert "note: " in capsys.readouterr().err
    assert run(["score", str(file), "--bootstrap", "0", "--json", "-", "-q"]) == 0
    assert json.loads(capsys.readouterr().out) == one  # all that is there


def test_names_reach_the_terminal_as_text_and_json_without_the_folders_of_this_machine(tmp_path, capsys):
    names = ("\x1b[2J[bold red]x[/]", "\u202egnp.exe")
    for number, name in enumerate(names):
        one = Predictions(["=1+1", "b", "c", "d"], [0, 1, 0, 1], [0.1, 0.8, 0.3, 0.6], metadata={"title": name})
        write_predictions(one, tmp_path / f"{number}.parquet")
    files = [str(tmp_path / f"{number}.parquet") for number in range(2)]
    arguments = ["--bootstrap", "0", "--json", str(tmp_path / "s.json"), "-q"]
    assert run(["score", *files, *arguments]) == 0
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err
    assert "\u202e" not in shown.out + shown.err
    assert "[bold red]" in shown.out
    assert str(tmp_path.parent) not in (tmp_path / "s.json").read_text()
    assert run(["score", files[0], "--referral-list", str(tmp_path / "r.csv"), "--bootstrap", "0", "-q"]) == 0
    assert ",'=1+1," in (tmp_path / "r.csv").read_text()
    write_predictions(read_predictions(files[0]), tmp_path / "again.csv")
    assert read_predictions(tmp_path / "again.csv").image_id[0] == "=1+1"


def test_predictions_are_given_up_before_their_scores_are_computed(file, monkeypatch):
    """The ids of five million images take half a gigabyte."""
    alive = []
    of_other_tests = {id(one) for one in gc.get_objects() if type(one) is Predictions}

    def scored(*arguments):
        gc.collect()
        alive.append(sum(type(one) is Predictions and id(one) not in of_other_tests for one in gc.get_objects()))
        return scored_sets(*arguments)

    monkeypatch.setattr(scoring, "scored_sets", scored)
    assert run(["score", str(file), "--bootstrap", "0", "--quiet"]) == 0
    assert alive == [0]
