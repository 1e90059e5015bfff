"""A run folder as trackers show it: settings by dotted key, rows by tag, scores that are defined."""

import json

import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.integrations.tracked_run import read_run

RUN = {
    "data": "/home/secret",
    "shifted": None,
    "seed": 3,
    "model": {"name": "x", "weights": None},
    "views": [1, 2],
}


def folder(tmp_path, rows=()):
    (tmp_path / "run.json").write_text(json.dumps({"run": RUN, "fingerprint": "abc"}))
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_settings_are_flat_and_paths_of_data_stay_here(tmp_path):
    found = read_run(folder(tmp_path))
    assert found.settings == {"seed": 3, "model.name": "x", "views": "[1, 2]", "fingerprint": "abc"}
    assert (found.name, found.rows, found.scores) == (tmp_path.name, (), {})


def test_rows_are_tagged_by_group(tmp_path):
    row = {"epoch": 2, "loss": 0.5, "loss_kl": 0.1, "lr": 0.01, "validation_auroc": 0.9, "seconds": 3}
    ((epoch, values),) = read_run(folder(tmp_path, [row])).rows
    assert epoch == 2
    assert values == {"loss": 0.5, "loss/kl": 0.1, "lr": 0.01, "validation/auroc": 0.9, "seconds": 3}


def test_undefined_scores_are_left_out(tmp_path):
    one_class = rb.Predictions(np.arange(4), [0, 0, 0, 0], [0.1, 0.2, 0.3, 0.7])
    rb.write_predictions(one_class, folder(tmp_path) / "predictions.parquet")
    scores = read_run(tmp_path).scores
    assert scores["score/in_domain/accuracy"] == 0.75
    assert "score/in_domain/auroc" not in scores


def test_what_is_no_run_is_named(tmp_path):
    with pytest.raises(InputError, match=r"is not a run folder \(run\.json is missing\)"):
        read_run(tmp_path)
    folder(tmp_path, [{"loss": 1}])
    with pytest.raises(InputError, match=r"metrics\.jsonl, row 1: is not an epoch"):
        read_run(tmp_path)
    (tmp_path / "run.json").write_text("[]")
    with pytest.raises(InputError, match="does not describe a run"):
        read_run(tmp_path)
