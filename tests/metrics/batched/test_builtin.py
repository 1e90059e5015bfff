"""The table of batched functions."""

from retinabench.metrics.batched.builtin import BATCHED
from retinabench.metrics.registry import SCORES


def test_every_function_is_that_of_a_score():
    assert BATCHED.keys() <= SCORES.keys()
    assert all(SCORES[name].batched is function for name, function in BATCHED.items())
