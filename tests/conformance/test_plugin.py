"""The example plug-in, installed: its method and its data set work in every verb and in worker processes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from retinabench.predictions.io import read_predictions

PLUGIN = Path(__file__).resolve().parents[2] / "examples" / "plugin"
SOURCE = Path(__file__).resolve().parents[2] / "src"
TINY = """
[model]
name = "resnet18"
width = 4
stem = "small"
[optimizer]
epochs = 2
batch_size = 16
lr = 0.05
[method]
name = "mirrored"
samples = 3
"""
STUDY = """
title = "A plug-in"
trials = 1
seeds = 2
ensemble = 2
bootstrap = 20
criteria = ["in_domain_auroc"]
[tasks.in_domain]
data = "data"
[base.model]
name = "resnet18"
width = 4
stem = "small"
[base.optimizer]
epochs = 1
batch_size = 16
[methods.map]
run = { method = "map" }
space = "space.toml"
[methods.mirrored]
run = { method = { name = "mirrored", samples = 2 } }
space = "space.toml"
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Install the plug-in without a network, and return what runs a command where it is installed."""
    root = tmp_path_factory.mktemp("plugin")
    site = root / "site"
    shutil.copytree(PLUGIN, root / "source", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    install = ["pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    where = ["--no-build-isolation", "--target", str(site), str(root / "source")]
    subprocess.run([sys.executable, "-m", *install, *where], check=True)
    paths = os.pathsep.join([str(SOURCE), str(site)])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}

    def run(*words: object) -> str:
        command = [sys.executable, "-m", "retinabench", *map(str, words)]
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("prepare", "stripes", "--images", 32, "--size", 16, "--out", "data", "--quiet")
    (root / "mirrored.toml").write_text(TINY)
    return root, run


@pytest.mark.slow
def test_the_method_conforms(installed):
    _, run = installed
    assert "failed" not in run("check", "mirrored")


@pytest.mark.slow
def test_train_takes_it_by_toml_and_predict_tests_it_on_other_data(installed):
    root, run = installed
    words = ["--data", "data", "--task", "in_domain", "--quiet", "--config", "mirrored.toml"]
    file = Path(run("train", *words, "--out", "runs").strip())
    predictions = read_predictions(root / file)
    assert predictions.samples == 3
    assert predictions.metadata["title"] == "Test-time mirroring"
    run("prepare", "stripes", "--images", 32, "--seed", 5, "--size", 16, "--out", "other", "--quiet")
    run("predict", file.parent, "--data", "other", "--out", "other.parquet", "--quiet")
    assert "shifted" in set(read_predictions(root / "other.parquet").domain)


@pytest.mark.slow
def test_benchmark_trains_it_in_worker_processes(installed):
    root, run = installed
    (root / "space.toml").write_text('optimizer.lr = { low = 0.01, high = 0.2, scale = "log" }\n')
    (root / "study.toml").write_text(STUDY)
    run("benchmark", "study.toml", "--out", "study", "--workers", 2, "--quiet")
    summary = json.loads((root / "study" / "summary.json").read_text())
    assert "mirrored" in json.dumps(summary)
    assert len(list((root / "study").rglob("mirrored-*/predictions.parquet"))) >= 2


@pytest.mark.slow
def test_a_fidelity_run_takes_it(installed):
    root, run = installed
    words = ("mirrored", "--task", "fundus-small", "--track", "open", "--quiet", "optimizer.epochs=1")
    shown = run("fidelity", "run", *words)  # the example states no target posterior
    assert Path(root, shown.strip()).exists()
