"""The KL's weight over a training."""

from itertools import pairwise

import pytest

from retinabench.methods.training.schedules import kl_weight


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
