"""`plan` and `clinic` as a user runs them: tables, files, exit codes."""

from __future__ import annotations

import json

import numpy as np

import retinabench as rb
from retinabench.cli.main import run


def table(tmp_path, name="predictions.csv", n=120, **columns):
    rng = np.random.default_rng(0)
    label = np.repeat(rng.random(n) < 0.3, 2)
    prob = 1 / (1 + np.exp(-(4 * label - 2 + rng.normal(size=2 * n))))
    path = tmp_path / name
    given = rb.Predictions(
        [f"image-{k}" for k in range(2 * n)], label, prob, patient_id=np.repeat(np.arange(n), 2), **columns
    )
    rb.write_predictions(given, path)
    return path


def test_a_plan_from_stated_expectations(tmp_path, capsys):
    out = tmp_path / "plan.json"
    assert run(["plan", "--prevalence", "0.1", "--above-sensitivity", "0.85", "--json", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "patients answer every question" in shown
    assert max(map(len, shown.splitlines())) <= 80
    found = json.loads(out.read_text())
    assert found["schema"] == "retinabench.plan/1"
    assert f"{found['patients']:,} patients" in shown
    assert found["requirements"]["sensitivity_above"]["patients"] > 0


def test_a_plan_from_a_pilot(tmp_path, capsys):
    out = tmp_path / "plan.json"
    assert run(["plan", str(table(tmp_path)), "--correlation", "0.25", "--json", str(out)]) == 0
    found = json.loads(out.read_text())["assumptions"]
    assert found["images_per_patient"] == 2
    assert found["correlation"] == 0.25
    assert found["origin"] == "pilot of 240 images"
    assert "assumptions from a pilot" in capsys.readouterr().err


def test_a_plan_needs_a_prevalence(capsys):
    assert run(["plan"]) == 2
    assert "Give --prevalence" in capsys.readouterr().err
    assert run(["plan", "--prevalence", "1.5"]) == 2
    assert run(["plan", "--prevalence", "0.1", "--above-sensitivity", "0.95"]) == 2
    assert "cannot be shown" in capsys.readouterr().err


def test_the_clinic_as_a_user_runs_it(tmp_path, capsys):
    out, page = tmp_path / "clinic.json", tmp_path / "page"
    camera = np.where(np.arange(240) % 4 < 2, "A", "B")
    path = table(tmp_path, subgroups={"camera": camera})
    arguments = ["--prevalence", "0.1", "--cost", "0.01", "--reader", "0.8/0.9", "--images-per-hour", "30"]
    assert run(["clinic", str(path), *arguments, "--json", str(out), "--out", str(page), "--quiet"]) == 0
    shown = capsys.readouterr()
    assert max(map(len, shown.out.splitlines())) <= 80
    assert "camera: A" in shown.out
    found = json.loads(out.read_text())
    assert found == json.loads((page / "clinic.json").read_text())
    assert found["reader"] == {"sensitivity": 0.8, "specificity": 0.9}
    assert list(found["sets"]["in_domain"]["predictive_values"]) == ["0.1"]
    assert abs(found["sets"]["in_domain"]["workload"]["images"]["value"] - 0.2) < 0.01
    assert (page / "index.html").is_file()


def test_wrong_options_of_the_clinic(tmp_path, capsys):
    path = str(table(tmp_path))
    for option, value, message in [
        ("--reader", "good", "no pair"), ("--reader", "0.9/1.5", "[0, 1]"), ("--referral", "2", "referral rate"),
        ("--prevalence", "0", "prevalence"), ("--cost", "-1", "price"), ("--images-per-hour", "0", "per hour"),
        ("--subgroup", "camera", "no column 'camera'"), ("--threshold", "high", "unknown threshold"),
    ]:  # fmt: skip
        assert run(["clinic", path, option, value]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert "Traceback" not in error
