"""The cost of a run by its formula; `test_cost_plan.py` probes."""

import pytest

from retinabench.experiments.config import load_run
from retinabench.experiments.study.cost_probe import ALLOWANCE, Cost, prediction_bytes, stated_cost

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
