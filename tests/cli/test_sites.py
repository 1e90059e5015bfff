import json
from pathlib import Path

import numpy as np
import pytest

from cli.test_main import one_line
from retinabench.cli import main as cli
from retinabench.data.prepared import open_prepared
from retinabench.metrics.classification import auroc
from retinabench.predictions.io import read_predictions
from support.helpers import make_prepared

TINY = [
    'base.model={name="resnet18", width=4, stem="small"}', "base.optimizer.epochs=2", "seeds=2", "ensemble=0", "bootstrap=50",
]  # fmt: skip
SITES = ("lima", "quito", "puno")


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    root = tmp_path_factory.mktemp("sites")
    return [make_prepared(root / name, seed=k) for k, name in enumerate(SITES)]


def words(sites, out):
    named = [word for site in sites for word in ("--data", str(site))]
    return ["benchmark", "sites", *named, "--out", str(out), "--device", "cpu", "--workers", "1", *TINY]


def test_a_site_is_needed_thrice_and_once_each(sites, tmp_path, capsys):
    assert cli.run(["benchmark", "sites", "--out", str(tmp_path / "out")]) == 2
    assert "--data" in one_line(capsys)
    assert cli.run(words([*sites[:2], sites[0]], tmp_path / "out")) == 2
    assert "three or more" in one_line(capsys)


@pytest.mark.slow
def test_each_site_is_tested_by_models_that_have_and_have_not_seen_it(sites, tmp_path, capsys):
    out = tmp_path / "out"
    assert cli.run(words(sites, out)) == 0
    assert "trained on" in " ".join(capsys.readouterr().out.split())
    assert "without lima" in (out / "sites.md").read_text()
    joined = open_prepared(out / "data" / "without-lima").records
    assert set(joined.domain[np.char.startswith(joined.image_id, "lima:")]) == {"shifted"}
    files = {site: sorted(out.glob(f"predictions/{site}/as_configured/map/seed-*.parquet")) for site in SITES}
    cells = {}
    for left_out, of_site in files.items():
        runs = [read_predictions(file) for file in of_site]
        for site in SITES:
            tests = [run.select(split="test") for run in runs]
            own = [run.take(np.flatnonzero(np.char.startswith(run.image_id, f"{site}:"))) for run in tests]
            assert len(own[0]) > 8
            cells[left_out, site] = np.mean([auroc(run.label, run.prob) for run in own])
    stored = json.loads(Path(out / "sites.json").read_text())["unseen_minus_seen"]
    for one in stored:
        if (one["method"], one["score"]) == ("MAP", "auroc"):
            site = one["site"]
            seen = np.mean([cells[other, site] for other in SITES if other != site])
            assert one["difference"] == pytest.approx(cells[site, site] - seen, abs=1e-9)
    worst = min(SITES, key=lambda site: cells[site, site])
    lines = (out / "sites.md").read_text().partition("AUROC of MAP")[2].splitlines()
    first = next(line for line in lines if line.startswith("| without"))
    assert first.startswith(f"| without {worst}")
