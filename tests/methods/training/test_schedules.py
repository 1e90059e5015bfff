"""Schedules of the learning rate and of the weight of the KL divergence."""

from itertools import pairwise

import numpy as np
import pytest

from retinabench.methods.settings import Optimizer
from retinabench.methods.training.schedules import kl_weight, learning_rate


def weights(annealing, steps=137, epochs=90):
    return [kl_weight(step, steps, epochs, annealing) for step in range(steps * epochs)]


def test_the_released_weight_is_linear_over_200_epochs_and_ends_at_0_45():
    got = weights("linear_released")
    assert got[0] == pytest.approx(1 / (137 * 200))
    assert got[-1] == pytest.approx(0.45)
    assert kl_weight(137 * 250, 137, 300, "linear_released") == 1


def test_linear_reaches_one_half_way_and_stays():
    got = weights("linear", steps=10, epochs=4)
    assert got[:3] == pytest.approx([0.05, 0.10, 0.15])
    assert got[19:] == [1.0] * 21


def test_cyclical_rises_four_times():
    got = weights("cyclical", steps=10, epochs=8)
    assert got[:20] == got[20:40] == got[40:60] == got[60:]
    assert got[:20] == pytest.approx([min(1, k / 10) for k in range(1, 21)])


def test_cyclical_where_the_cycles_do_not_divide_the_steps():
    got = weights("cyclical", steps=7, epochs=3)
    falls = sum(later < earlier for earlier, later in pairwise(got))
    assert falls == 3
    assert 0 < min(got) <= max(got) == 1


def test_none_is_the_bound_itself():
    assert set(weights("none", 3, 2)) == {1.0}


def test_step_and_linear_schedules_are_the_reference(shared):
    golden = np.load(shared("golden", "retina", "lr_schedules.npz"))
    step = Optimizer(lr=0.03, schedule="step", epochs=90, warmup=1)
    linear = Optimizer(lr=0.023072, schedule="linear", epochs=90, warmup=1, final_lr=0.01)
    for at, in_steps, in_linear in zip(
        golden["in_steps"], golden["out_step"], golden["out_linear"], strict=True
    ):
        assert learning_rate(int(at), 100, step) == pytest.approx(in_steps, rel=1e-6, abs=1e-12)
        assert learning_rate(int(at), 100, linear) == pytest.approx(in_linear, rel=1e-6, abs=1e-12)


def test_cosine_rises_then_falls_to_nothing():
    config = Optimizer(lr=1.0, schedule="cosine", epochs=10, warmup=1)
    rates = [learning_rate(step, 20, config) for step in range(201)]
    assert rates[0] == 0
    assert rates[20] == 1
    assert rates[110] == pytest.approx(0.5)
    assert rates[200] == pytest.approx(0, abs=1e-12)


def test_step_and_linear_schedules_are_the_stated_ones():
    step = Optimizer(lr=0.5, schedule="step", epochs=9, warmup=1)
    rates = [learning_rate(at, 10, step) for at in (0, 5, 10, 29, 30, 59, 60, 89)]
    assert rates == pytest.approx([0, 0.25, 0.5, 0.5, 0.1, 0.1, 0.02, 0.02])
    linear = Optimizer(lr=0.5, schedule="linear", epochs=9, warmup=1, final_lr=0.1)
    # The line goes from step 0 to the 80th, of 90; then the rate stays.
    assert learning_rate(40, 10, linear) == pytest.approx(0.5 * (0.5 + 0.5 * 0.1))
    assert learning_rate(80, 10, linear) == learning_rate(89, 10, linear) == pytest.approx(0.05)
