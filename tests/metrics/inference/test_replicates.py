"""Rows in blocks over threads: no result depends on their number."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import retinabench as rb
from metrics.test_shift import predictions
from retinabench.metrics.inference import replicates
from retinabench.metrics.inference.replicates import Steps, cores, stacked


def rows(numbers):
    return np.array([[number, number**2] for number in numbers], float)


@pytest.mark.parametrize("workers", [None, 1, 2, 5])
def test_rows_come_in_their_order_with_any_number_of_workers(workers):
    told = []
    found = stacked(rows, 1000, 2**15, workers=workers, advance=told.append)
    assert found.tolist() == rows(range(1000)).tolist()
    assert sum(told) == 1000
    assert max(told) == 2  # blocks of 2^16 numbers


def test_work_is_shared_among_threads():
    here = set()

    def slow(numbers):
        here.add(threading.get_ident())
        threading.Event().wait(0.01)
        return rows(numbers)

    stacked(slow, 20, 2**17, workers=2)
    assert len(here) == 2


def test_an_error_ends_the_work():
    def fail(numbers):
        if numbers[0] > 5:
            raise ValueError("broken")
        return rows(numbers)

    with pytest.raises(ValueError, match="broken"):
        stacked(fail, 500, 2**17, workers=2)


def test_two_workers_give_the_scores_of_one_to_the_last_bit(monkeypatch):
    monkeypatch.setattr(replicates, "BLOCK", 4000)
    one, two = (rb.score(predictions(), bootstrap=60, workers=k).to_dict() for k in (1, 2))
    assert one == two


def test_the_cores_can_be_lowered(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert cores() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "100000")
    assert 1 <= cores() < 100000


def test_steps_of_a_bar_add_up():
    told = []
    steps = Steps(told.append, 1000, 7 * 33)
    for _ in range(7 * 11):
        steps.add(3)
    assert sum(told) == 1000
    assert min(told) >= 12
