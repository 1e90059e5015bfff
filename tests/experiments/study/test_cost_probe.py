"""The cost of a run by its formula, and a probe that counts."""

import pytest

from retinabench.data.tasks import load_task
from retinabench.experiments.config import load_run
from retinabench.experiments.execution import Resources
from retinabench.experiments.study import cost_probe as module
from retinabench.experiments.study.cost_probe import ALLOWANCE, Cost, prediction_bytes, probe, stated_cost
from support.helpers import TINY, make_prepared

SIZES = {"train": 1000, "validation": 100, "test": 200, "shifted_test": 50}


def test_a_run_costs_its_epochs_its_validation_and_its_predictions():
    words = ["method=dropout", "method.samples=4", "optimizer.epochs=10", "optimizer.validation_share=1"]
    run = load_run(None, words, data="d")
    cost = Cost(train=0.01, predict=0.002, start=3.0, disk=7)
    expected = 3 + 10 * (1000 * 0.01 + 100 * 0.002) + (100 + 200 + 50) * 0.002
    assert cost.seconds(run, SIZES) == pytest.approx(expected)
    assert cost.bytes(run, SIZES) == 7 + 350 * (8 * 4 + 24) + ALLOWANCE
    assert prediction_bytes(SIZES, 4) == 350 * (8 * 4 + 24)


def test_a_stated_speed_counts_a_gradient_as_three_passes():
    words = ["model.name=lenet", "method=ensemble", "method.member=dropout", "method.member.samples=6"]
    cost = stated_cost(load_run(None, words, data="d"), images_per_second=100)
    assert cost.train == pytest.approx(1 / 100)
    assert cost.predict == pytest.approx(6 / 300)
    assert cost.start == 0


def test_a_probe_measures_times_and_what_a_run_keeps(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 0.02)
    data = make_prepared(tmp_path / "data")
    run = load_run(None, [*TINY, "method=map"], data=str(data))
    cost = probe(run, load_task(data, run.task), Resources("cpu"), threads=1)
    assert cost.train > 0
    assert cost.predict > 0
    assert cost.disk > 10_000  # the weights of a small network
