"""Every example and notebook runs as a user would run it, in an empty folder and without a warning, and says what it promises."""

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from retinabench.cli.main import run

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SAYS = {
    "scikit_learn_csv": r"auroc[\s\S]*referral rate[\s\S]*the guarantee: holds",
    "arrays_only": r", p =[\s\S]*the estimator's AUROC: 0\.9",
    "monte_carlo_samples": r"detects the new camera[\s\S]*epistemic",
    "own_sampler": r"draws\.npz: 563 test points",
    "notebooks/1_score_your_model": r"The AUROC falls from 0\.[89]\d to 0\.[678]\d with the other camera",
    "notebooks/2_a_referral_policy": r"certified breaks the goal in \d of 40 clinics[\s\S]*guarantee: broken",
    "notebooks/3_a_new_method": r"ok +learns[\s\S]*DropConnect - MC dropout",
    "notebooks/4_how_faithful_is_my_posterior": r"Laplace +1\.000 +0\.0[12]\d[\s\S]*one draw +total variation 0\.5",
    "notebooks/5_audit_by_concepts": r"soft exudate >= 0\.85 +fails",
}


def test_every_example_and_notebook_is_tested():
    files = [*EXAMPLES.glob("*.py"), *EXAMPLES.glob("notebooks/*.py")]
    assert {file.relative_to(EXAMPLES).with_suffix("").as_posix() for file in files} == set(SAYS)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name.startswith(("notebooks", "own")) else ()) for name in SAYS],
)
@pytest.mark.usefixtures("undrawn")
def test_it_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    file = str(EXAMPLES / f"{name}.py")
    if "/" in name:
        here = {"PYTHONPATH": str(EXAMPLES.parent / "src"), "OMP_NUM_THREADS": "1", "MPLBACKEND": "template"}
        options = {"stdout": subprocess.PIPE, "text": True, "timeout": 300, "check": True}
        said = subprocess.run([sys.executable, "-W", "error", file], env=os.environ | here, **options).stdout
    else:
        monkeypatch.setattr(sys, "argv", [file, "screening"])
        runpy.run_path(file, run_name="__main__")
        said = capsys.readouterr().out
    assert re.search(SAYS[name], said), said
    if name == "own_sampler":  # a chain of the reference is .0025 away, and one exact draw about .12
        given = ["--task", "idrid-head", "--bootstrap", "0", "--json", str(tmp_path / "scores.json")]
        assert run(["fidelity", "score", str(tmp_path / "draws.npz"), *given]) == 0
        (task,) = json.loads((tmp_path / "scores.json").read_text())["tasks"]
        (mine,) = (one for one in task["entries"] if one["title"] == "draws")
        assert mine["groups"]["all"]["total_variation"]["value"] < 0.01
    if name == "scikit_learn_csv":  # whose tables the commands of a start page read
        page = (EXAMPLES.parent / "docs" / "start" / "screening.md").read_text(encoding="utf-8")
        lines = [line for line in page.splitlines() if line.startswith("retinabench ")]
        assert len(lines) == 6
        for line in lines:
            few = ["--bootstrap", "20"] if line.split()[1] == "report" else []
            assert run([*shlex.split(line, comments=True)[1:], *few]) == 0, line
        assert "watched" in capsys.readouterr().out.lower()
