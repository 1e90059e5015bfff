"""The timing scripts run, at toy size; their figures are for an idle machine and are not looked at."""

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import shared_path

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import gpu_methods
import memory
import toolkit

from retinabench.experiments.config import load_run


def test_the_work_of_a_resnet_50_is_the_known_one():
    # 4.09 G multiply-adds at 224 px with 1000 classes (He et al. 2015 count 3.8 for the first version).
    run = load_run(None, ["model.name=resnet50"], data="none")
    assert gpu_methods.forward_work(run, 224) == pytest.approx(2 * 4.09e9, rel=0.01)


def test_a_ratio_is_the_median_over_rounds():
    times = iter([1.0, 2.0, 1.0, 3.0, 1.0, 10.0])
    assert toolkit.ratio(lambda: next(times), lambda: next(times), 3)[:2] == (3.0, 7.0)


def test_the_memory_of_a_training_image_is_counted(capsys):
    """Every image adds the same, in bfloat16 less, and four times as much at twice the side; a card less a tenth is shared."""
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
        "scale.py --part samples --shrink 500",
        "prepare.py --rounds 1 --size 64", "methods.py --rounds 1 --steps 1 --width 4 --methods map",
        "methods.py --rounds 1 --heads map",
        "strategies.py", "interval_coverage.py --studies 1 --patients 30 --settings domains",
        "memory.py map --model lenet --size 32",
        "gpu_methods.py --device cpu --size 64 --width 8 --batch 4 --steps 2 --warm 1 --eager --methods map dropout",
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
