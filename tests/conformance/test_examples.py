"""Every example runs as a user would run it, and says what it promises."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from retinabench.cli.main import run

ROOT = Path(__file__).resolve().parents[2]
SAYS = {
    "scikit_learn_csv.py": ("auroc", "referral rate", "the guarantee: holds"),
    "arrays_only.py": (", p =", "the estimator's AUROC: 0.9"),
    "monte_carlo_samples.py": ("epistemic", "detects the new camera"),
    "own_sampler.py": ("draws.npz: 563 test points",),
}


def test_every_example_is_tested():
    assert {path.name for path in (ROOT / "examples").glob("*.py")} >= set(SAYS)


@pytest.mark.parametrize("name", SAYS)
def test_example(name, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / name), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for text in SAYS[name]:
        assert text in done.stdout
    if name == "own_sampler.py":  # a chain of the reference is .0025 away, and one exact draw about .12
        given = ["--task", "idrid-head", "--bootstrap", "0", "--json", str(tmp_path / "scores.json")]
        assert run(["fidelity", "score", str(tmp_path / "draws.npz"), *given]) == 0
        (task,) = json.loads((tmp_path / "scores.json").read_text())["tasks"]
        (mine,) = (one for one in task["entries"] if one["title"] == "draws")
        assert mine["groups"]["all"]["total_variation"]["value"] < 0.01
