import json
import re
from pathlib import Path

import pytest

from retinabench.core.errors import QUIET
from retinabench.experiments import demo as module
from retinabench.experiments.execution import member_runs


@pytest.mark.parametrize("seed", [0, 1])
def test_the_ensembles_members_are_the_seeds_of_map(seed):
    run = module.load_run("demo/ensemble", data="d", task="country_shift", seed=seed)
    members = member_runs(run)
    assert [one.seed for one in members] == [module.SEEDS * seed + k for k in range(module.SEEDS)]


@pytest.mark.slow
def test_the_picture_of_readme_shows_the_numbers_of_this_demo(tmp_path):
    """To .02: other processors round differently, and a training amplifies it."""
    page = module.run_demo(tmp_path, progress=QUIET)
    entries = {one["entry"]: one for one in json.loads((page.parent / "scores.json").read_text())}
    assert {"MAP", "MC dropout"} < set(entries)
    scores = entries["deep ensemble of 3"]["sets"]["in_domain"]["scores"]
    words = re.search(r'alt="Report of the demo: ([^"]*)"', Path("README.md").read_text())[1]
    stated = re.search(r"accuracy of (\S+) \[(\S+), (\S+)\], finds (\d+) %", words)
    value, low, high, found = map(float, stated.groups())
    shown = [scores["accuracy"][name] for name in ("value", "low", "high")]
    assert shown == pytest.approx([value, low, high], abs=0.02)
    assert scores["sensitivity"]["value"] == pytest.approx(found / 100, abs=0.05)
    assert "The uncertainty is better than chance" in page.read_text()
