"""The timing scripts run, at toy size; their figures are for an idle machine and are not looked at."""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from conftest import shared_path

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import gpu_methods
import hmc
import memory

from retinabench.experiments.config import load_run

TOY = "--device cpu --size 64 --width 8 --batch 4 --steps 2 --warm 1 --methods"


@pytest.mark.slow
def test_the_gpu_benchmark_s_lines_run_without_a_card(tmp_path, capsys):
    out = tmp_path / "figures.json"
    gpu_methods.main([*TOY.split(), "map", "dropout", "--eager", "--out", str(out)])
    lines, figures = capsys.readouterr().out.splitlines(), json.loads(out.read_text())
    assert figures["methods"]["dropout"]["training"] > 0
    assert lines[0].startswith("1 x CPU")
    assert [line.split()[0] for line in lines[2:]] == ["map", "dropout"]
    for line in lines[2:]:
        speed, predicting = float(line.split()[1]), float(line.split()[4])
        assert speed > 0
        assert predicting > 0
        assert re.search(r"\d%", line)


def test_the_work_of_a_resnet_50_is_the_known_one():
    # 4.09 G multiply-adds at 224 px with 1000 classes (He et al. 2015 count 3.8 for the first version).
    run = load_run(None, ["model.name=resnet50"], data="none")
    assert gpu_methods.forward_work(run, 224) == pytest.approx(2 * 4.09e9, rel=0.01)


@pytest.mark.slow
def test_the_gpu_benchmark_of_the_sampler_runs_without_a_card(capsys):
    assert hmc.main(["gpu", "--toy"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("CPU")
    # Two targets, two precisions, two calls.
    assert [line.endswith("right") for line in lines[1:9]] == [True] * 8
    for line, name in zip(lines[10:12], ("energy-gap", "fundus"), strict=True):
        assert line.split()[0] == name
        assert all(float(figure.replace(",", "")) > 0 for figure in line.split()[1:])
    assert re.search(r"reference of energy-gap, .*: \d+\.\d s; acceptance", lines[12])


@pytest.mark.slow
def test_the_gpu_benchmark_of_the_sampler_fails_on_numbers_that_are_apart(capsys, monkeypatch):
    monkeypatch.setitem(hmc.APART, torch.float32, 1e-12)
    assert hmc.main(["gpu", "--toy"]) == 1
    assert capsys.readouterr().out.count("WRONG, the limit is 1e-12") == 4


def test_the_memory_of_a_training_image_is_counted(capsys, monkeypatch):
    """Every image adds the same, in bfloat16 less, and four times as much at twice the side; a card less a tenth is shared."""
    monkeypatch.setattr(memory, "COUNTED", 32)
    kept = {}
    for kind in ("float32", "bfloat16"):
        words = ["model.name=lenet", f"optimizer.precision={kind}", "optimizer.reweight=none"]
        run = load_run(None, words, data="none")
        one, two, three = (memory.kept_bytes(run, images)[0] for images in (2, 3, 4))
        assert three - two == two - one == memory.bytes_of(run, memory.COUNTED)[0]
        assert memory.bytes_of(run, 2 * memory.COUNTED)[0] == 4 * (two - one)
        kept[kind] = two - one
    assert 3 * memory.COUNTED**2 * 2 < kept["bfloat16"] < kept["float32"]
    assert memory.fits(80, 448_798_720, 300_000_000) == 159
    memory.main(["map", "--model", "lenet", "--size", "32"])
    assert len(capsys.readouterr().out.splitlines()) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "clinic.py --studies 2", "sentences.py --studies 1 --patients 100 --whole 200",
        "guarantees.py --studies 2 --patients 100", "new_data.py --studies 100",
        "examination_guarantees.py --examinations 2", "score.py --images 300 --replicates 3",
        "scale.py --part samples --shrink 500", "loader.py --images 64 --rounds 1 --sizes 64",
        "prepare.py --rounds 1 --size 64", "methods.py --rounds 1 --steps 1 --width 4 --methods map",
        "methods.py --rounds 1 --heads map",
        "strategies.py", "interval_coverage.py --studies 1 --patients 30 --settings domains",
        "memory.py map --model lenet --size 32", "hmc.py fundus --rounds 1 --steps 2 --chains 2",
        pytest.param(
            "fidelity_board.py --tiers 3 --tasks logistic --seeds 0 1 --entries map dropout && "
            "fidelity_baselines.py fidelity-runs --out packed",
            id="submissions of a board, packed",
        ),
    ],
)  # fmt: skip
def test_a_script_runs_to_its_end(command, tmp_path):
    if command.startswith("sentences"):
        population = gzip.decompress(shared_path("cases", "population.csv.gz").read_bytes())
        (tmp_path / "population.csv").write_bytes(population)
    for one in command.split(" && "):
        script, *words = one.split()
        path = Path(__file__).resolve().parents[2] / "benchmarks" / script
        done = subprocess.run([sys.executable, path, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        assert done.stdout
