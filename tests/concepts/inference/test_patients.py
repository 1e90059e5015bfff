"""One sample of each patient counts: which, in which order, and whether the intervals then hold."""

from __future__ import annotations

import numpy as np

from retinabench.concepts.inference.confidence_sequences import new_sequence
from retinabench.concepts.inference.patients import Patients


def test_one_sample_of_each_patient_counts_and_every_sample_as_often():
    patient = np.array([0, 0, 0, 1, 2, 2, 3])
    member = np.array([1, 1, 1, 1, 1, 0, 0], bool)
    chosen = np.zeros(7, int)
    for seed in range(3000):
        rows = Patients(patient, seed).counted(member)
        assert patient[rows].tolist() == [0, 1, 2]
        chosen[rows] += 1
    assert chosen[[3, 4, 5, 6]].tolist() == [3000, 3000, 0, 0]
    assert np.abs(chosen[:3] - 1000).max() < 4 * np.sqrt(3000 * 2 / 9)  # four standard errors
    first, again = (Patients(patient, 7).counted(member) for _ in range(2))
    assert np.array_equal(first, again)


def test_without_a_patient_of_two_samples_all_count():
    assert Patients(np.array([0, 1, 2, 2]), 0).counted(np.array([1, 1, 1, 0], bool)) is None


def test_no_patient_is_on_both_sides_of_a_comparison():
    random = np.random.default_rng(0)
    patient, truth = random.integers(0, 40, 200), random.integers(-1, 2, 200).astype(np.int8)
    for seed in range(20):
        without, having = Patients(patient, seed).compared(truth)
        assert (truth[without] == 0).all()
        assert (truth[having] == 1).all()
        names = [*patient[without], *patient[having]]
        assert len(set(names)) == len(names)
    apart = np.where(patient % 2 == 1, 1, 0).astype(
        np.int8
    )  # each patient has one kind alone: nothing is lost
    without, having = Patients(patient, 0).compared(apart)
    assert len(without) + len(having) == len(set(patient))


def test_the_interval_holds_where_the_samples_of_a_patient_are_alike():
    """500 banks of 40 patients with 1 to 8 samples, all right or all wrong; patients with many samples are worse.

    The interval at the worst number of answers: at most 5 % of 500 may miss, 25 (standard deviation 4.9). Counted as
    independent, the samples miss far more often.
    """
    missed, naive = 0, 0
    for number in range(500):
        random = np.random.default_rng([21, number])
        sizes = random.integers(1, 9, 40)
        well = random.random(40) < np.where(sizes > 4, 0.5, 0.9)
        patient = np.repeat(np.arange(40), sizes)
        right, order = well[patient], random.permutation(sizes.sum())
        counted = np.isin(order, Patients(patient, number).counted(np.ones(len(patient), bool)))
        one, every = right[order][counted].cumsum(), right[order].cumsum()
        missed += any(outside(k, n, 0.7) for n, k in enumerate(one.tolist(), 1))
        sampled = (0.9 * 2.5 + 0.5 * 6.5) / 9  # the rate of a sample: patients with more of them weigh more
        naive += any(outside(k, n, sampled) for n, k in enumerate(every.tolist(), 1) if n % 10 == 0)
    assert missed <= 25 + 2 * 4.9
    assert naive > 75


known: dict[tuple[int, int], tuple[float, float]] = {}


def outside(right, asked, rate):
    if (right, asked) not in known:
        known[right, asked] = new_sequence(right, asked, 0.05)
    low, high = known[right, asked]
    return not low <= rate <= high
