"""Every notebook runs from top to bottom in an empty folder, without a warning, and prints what its text relies on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "notebooks"
PRINTS = {
    "1_score_your_model": r"The AUROC falls from 0\.[89]\d to 0\.[678]\d with the other camera",
    "2_a_referral_policy": r"certified breaks the goal in \d of 40 clinics[\s\S]*guarantee: broken",
    "3_a_new_method": r"ok +learns[\s\S]*DropConnect - MC dropout",
    "4_how_faithful_is_my_posterior": r"Laplace +1\.000 +0\.0[12]\d[\s\S]*one draw +total variation 0\.5",
    "5_audit_by_concepts": r"soft exudate >= 0\.85 +fails",
}


def test_every_notebook_is_tested():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(PRINTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", PRINTS)
def test_a_notebook_runs(name, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(FOLDER / f"{name}.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "MPLBACKEND": "template"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(PRINTS[name], done.stdout), done.stdout
