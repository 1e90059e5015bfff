"""The worked example of CONTRIBUTING.md is a method: registered by one line, it runs like every other."""

from __future__ import annotations

import filecmp
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from retinabench.data.tasks import load_task
from retinabench.experiments.config import load_run
from retinabench.experiments.execution import Resources
from retinabench.experiments.run import execute, load_posterior, make_batches
from retinabench.methods.registry import METHODS
from retinabench.predictions.io import read_predictions
from support.helpers import TINY, make_prepared

GUIDE = Path(__file__).resolve().parents[2] / "CONTRIBUTING.md"


@pytest.fixture
def registered(monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL)
    module = ModuleType("retinabench.methods.mirrored")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(code, str(GUIDE), "exec"), module.__dict__)
    monkeypatch.setitem(METHODS._loaded, "mirrored", module)
    return code


def test_the_worked_example_runs(registered, tmp_path):
    prepared = str(make_prepared(tmp_path / "data"))
    runs = {name: load_run(None, [*TINY, f"method={name}"], data=prepared) for name in ("map", "mirrored")}
    folders = {name: execute(run, tmp_path / "runs", Resources("cpu")) for name, run in runs.items()}
    again = execute(runs["mirrored"], tmp_path / "again", Resources("cpu"))
    assert filecmp.cmp(
        folders["mirrored"] / "predictions.parquet", again / "predictions.parquet", shallow=False
    )

    # Which epoch was best was judged on mirrored pictures; MAP's own choice may be another.
    _, posterior = load_posterior(folders["mirrored"])
    predictions = read_predictions(folders["mirrored"] / "predictions.parquet").select(split="test")
    assert predictions.samples == 5
    task = load_task(prepared, "country_shift")
    batches = make_batches(runs["mirrored"], task, torch.device("cpu"))
    rows = np.concatenate([task.splits["test"], task.splits["shifted_test"]])
    ((images, _),) = batches.rows(rows)
    model = posterior.model.eval()
    with torch.no_grad():
        views = [images.flip(axes) for axes in ([], [2], [3], [2, 3])]
        answers = torch.cat([model(view).sigmoid() for view in views], dim=1).numpy()
    # Every sample is the network's answer to one of the four views: float32, batches of another size.
    nearest = np.abs(predictions.probs[:, :, None] - answers[:, None, :]).min(axis=2)
    assert nearest.max() < 1e-5
    assert np.ptp(predictions.probs, axis=1).max() > 0


def test_the_example_is_short(registered):
    lines = [line for line in registered.splitlines() if line.strip()]
    assert len(lines) <= 40
