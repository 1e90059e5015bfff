"""`retinabench monitor`: exit codes, first line, files, and wrong input in one line."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import retinabench as rb
from retinabench.cli.main import run
from support.follow_ups import certificate, follow_up, predictions_of


@pytest.fixture
def folder(tmp_path):
    """Validation, a follow-up that holds, one that breaks the certificate, and the certificate."""
    rng = np.random.default_rng(0)
    tables = {
        "validation": predictions_of(follow_up(rng, 200, name="v"), "validation"),
        "holds": predictions_of(follow_up(rng, 200)),
        "broken": predictions_of(follow_up(rng, 700, sure_errors=0.3, change=50)),
    }
    for name, table in tables.items():
        rb.write_predictions(table, tmp_path / f"{name}.csv")
    (tmp_path / "transfer.json").write_text(json.dumps(certificate()))
    return tmp_path


def watch(folder, *arguments):
    return run(["monitor", *map(str, arguments), "--certificate", str(folder / "transfer.json"), "--quiet"])


def test_no_alarm_is_0_and_an_alarm_is_4(folder, capsys):
    assert watch(folder, folder / "holds.csv", folder / "validation.csv") == 0
    assert capsys.readouterr().out.startswith("No alarm")
    out, numbers = folder / "page", folder / "monitor.json"
    assert (
        watch(folder, folder / "broken.csv", folder / "validation.csv", "--out", out, "--json", numbers) == 4
    )
    assert capsys.readouterr().out.startswith("Alarm: the labels refute")
    assert "<!doctype html>" in (out / "index.html").read_text()
    content = json.loads(numbers.read_text())
    assert content["alarm"]
    assert content["drift"]["reference_patients"] == 200


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--date-column", "day"], "column 'day': is missing. Did you mean 'date'"),
        (["--level", "1.5"], "--level 1.5 is not between 0 and 1"),
        (["--level", "0"], "--level 0 is not between 0 and 1"),
    ],
)
def test_wrong_options_are_2(folder, capsys, arguments, message):
    assert watch(folder, folder / "holds.csv", *arguments) == 2
    assert message in capsys.readouterr().err


def test_files_without_new_images_are_refused(folder, capsys):
    assert watch(folder, folder / "validation.csv") == 2
    assert "no file holds images of the test split" in capsys.readouterr().err
    assert watch(folder, folder / "holds.csv", folder / "holds.csv") == 2
    assert "holds.csv and 1 more, column 'image_id': image " in (said := capsys.readouterr().err)
    assert "is in two files" in said
    holds = rb.read_predictions(folder / "holds.csv")
    rb.write_predictions(replace(holds, split=["validation"] * len(holds)), folder / "known.csv")
    assert watch(folder, folder / "known.csv", folder / "holds.csv") == 2
    assert "known.csv and 1 more: every patient is in the validation split" in capsys.readouterr().err


def test_labels_of_new_images_may_be_empty(folder, capsys):
    lines = (folder / "holds.csv").read_text().splitlines()
    place = [name.strip('"') for name in lines[0].split(",")].index("label")
    rows = [line.split(",") for line in lines[1:]]
    for row in rows[len(rows) // 2 :]:
        row[place] = ""
    (folder / "new.csv").write_text("\n".join([lines[0], *map(",".join, rows)]))
    assert (
        watch(folder, folder / "new.csv", folder / "validation.csv", "--json", folder / "monitor.json") == 0
    )
    content = json.loads((folder / "monitor.json").read_text())
    assert (content["images"], content["labelled"]) == (400, 200)
    assert (
        content["expected"]["covariate_shift"]["targets"]["selective_risk <= 0.08"]["risk"]["value"]
        is not None
    )
    shown = capsys.readouterr().out
    assert "covariate shift" in shown
    assert "refer above" in shown
