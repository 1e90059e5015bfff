"""Every example runs as a user would run it, and says what it promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SAYS = {
    "scikit_learn_csv.py": ("auroc", "referral rate", "the guarantee: holds"),
    "arrays_only.py": (", p =", "the estimator's AUROC: 0.9"),
    "monte_carlo_samples.py": ("epistemic", "detects the new camera"),
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
