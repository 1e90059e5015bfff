"""Reading by uncertainty against the best simple rule of the same workload, counted by hand."""

import numpy as np
import pytest

from retinabench.metrics.clinical.decision_curve import best_simple_rule

Y = np.array([1, 1, 1, 0, 0, 0, 0, 0], bool)
P = np.array([0.05, 0.45, 0.9, 0.02, 0.3, 0.48, 0.54, 0.7])


def rule(sent, cut=0.5, reader=(1.0, 1.0), price=None, weight=None):
    price, weight = cut / (1 - cut) if price is None else price, np.ones(len(Y)) if weight is None else weight
    return best_simple_rule(Y, P, cut <= P, np.array(sent, bool), np.arange(len(Y)), cut, reader, price, weight)


def test_the_same_images_are_no_gain():
    found = rule([0, 0, 0, 0, 0, 1, 1, 0])  # 0.48 and 0.54 are nearest to one half
    assert (found.name, found.same, found.gain.value) == ("around", True, 0.0)


def test_the_better_of_the_two_is_the_opponent():
    """Reading 0.48 and 0.45, just below the threshold, finds one; around it, 0.48 and 0.54, it mends one false alarm."""
    found = rule([1, 1, 0, 0, 0, 0, 0, 0])
    assert found.name == "around"  # both mend one image: the first of equals
    assert found.missed.value == pytest.approx(2 / 3)
    assert found.gain.value == pytest.approx((2 - 1) / 8)
    low = rule([1, 0, 0, 0, 1, 0, 0, 0], cut=0.2)  # at 0.2 a false alarm counts a quarter
    assert low.price == pytest.approx(0.25)
    assert low.name == "below"
    # below: 0.05 and 0.02 are read, one is found; by uncertainty: 0.05 and 0.3, which is a false alarm less
    assert low.gain.value == pytest.approx(0.25 / 8)


def test_the_misses_of_the_reader_count():
    found = rule([1, 1, 0, 0, 0, 0, 0, 0], reader=(0.5, 1.0))
    assert found.gain.value == pytest.approx((2 * 0.5 - 1) / 8)
    assert found.missed.value == pytest.approx(2 / 3)


def test_a_population_and_a_price_of_its_own():
    """Images that count twice are images that stand twice, and a false alarm costs what is said."""
    weight = np.where(Y, 1.0, 2.0)
    found = rule([1, 1, 0, 0, 0, 0, 0, 0], price=0.1, weight=weight)
    # "around" reads 0.48 alone, which counts 2: nothing is mended. By uncertainty both missed images are found.
    assert (found.name, found.price) == ("around", 0.1)
    assert found.gain.value == pytest.approx(2 / weight.sum())
