"""The worked example of CONTRIBUTING.md is a method: registered by one line, it runs like every other."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np

from helpers import TINY, make_prepared
from retinabench.config import load_run
from retinabench.formats import read_predictions
from retinabench.methods import METHODS
from retinabench.run import Engine, execute, load_posterior
from retinabench.scores.classification import nll

GUIDE = Path(__file__).resolve().parents[2] / "CONTRIBUTING.md"


def test_the_worked_example_runs(tmp_path, monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL)
    module = ModuleType("retinabench.methods.temperature")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(code, str(GUIDE), "exec"), module.__dict__)
    monkeypatch.setitem(METHODS, "temperature", module)

    prepared = str(make_prepared(tmp_path / "data"))
    folders = {
        name: execute(
            load_run(None, [*TINY, f"method={name}"], data=prepared), tmp_path / "runs", Engine("cpu")
        )
        for name in ("map", "temperature")
    }
    tempered, plain = (
        read_predictions(folders[name] / "predictions.parquet").select(domain="in_domain", split="validation")
        for name in ("temperature", "map")
    )
    # T was chosen on these images over a grid that holds T = 1, so the NLL cannot rise; the order stays.
    assert nll(tempered.label, tempered.prob) <= nll(plain.label, plain.prob) + 1e-9
    assert (np.argsort(tempered.prob, kind="stable") == np.argsort(plain.prob, kind="stable")).all()
    _, posterior = load_posterior(folders["temperature"])
    assert float(posterior.temperature) > 0
