"""Examinees: the synthetic ones perform as stated, and tables say which answer is wrong or missing."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.examinees.answers import Answers
from retinabench.concepts.examinees.synthetic import SYNTHETIC
from retinabench.concepts.questioning.loop import examine
from retinabench.core.errors import InputError
from support.concept_banks import LESIONS, make_bank

# Commonest concept first: microaneurysm, with 70 % positives.
STATED = {
    "biased-1": (0.9, 0.5, 0.5, 0.5), "biased-2": (0.5, 0.9, 0.9, 0.9), "unbiased": (0.7,) * 4,
    "overconfident": (0.7,) * 4, "guessing": (0.5,) * 4,
}  # fmt: skip


def table(bank, examinee):
    return np.array([[examinee(sample, name) for name in LESIONS] for sample in range(bank.samples)])


@pytest.mark.parametrize("name", STATED)
def test_accuracies_as_stated(name):
    bank = make_bank(samples=2000)
    probs = table(bank, SYNTHETIC[name](bank, 0))
    right = (probs >= 0.5) == (bank.truth == 1)
    # Standard error 0.011; whatever the truth.
    assert right.mean(axis=0) == pytest.approx(STATED[name], abs=4 * 0.0112)
    positives = right[:, 1][bank.truth[:, 1] == 1]
    assert positives.mean() == pytest.approx(STATED[name][1], abs=4 * 0.016)
    sureness = np.maximum(probs, 1 - probs)
    assert sureness.min() > (0.99 if name == "overconfident" else 0.5)
    if name != "overconfident":
        assert sureness.mean() == pytest.approx(0.75, abs=0.01)


def test_answers_are_functions_of_the_question():
    bank = make_bank()
    first, again = SYNTHETIC["unbiased"](bank, 3), SYNTHETIC["unbiased"](bank, 3)
    backwards = [again(sample, "haemorrhage") for sample in range(59, -1, -1)]
    assert [first(sample, "haemorrhage") for sample in range(60)] == backwards[::-1]
    assert SYNTHETIC["unbiased"](bank, 4)(0, "haemorrhage") != first(0, "haemorrhage")


def test_one_who_always_says_yes():
    bank = make_bank()
    found = examine(bank, SYNTHETIC["always-yes"](bank, 0)).to_dict()["concepts"]
    for one in found.values():
        assert one["counts"]["tn"] == one["counts"]["fn"] == 0
        assert (one["sensitivity"]["value"], one["specificity"]["value"]) == (1.0, 0.0)
        # Two bins of a hundred: the model stays uncertain however often it is told the same.
        assert one["gp"]["u_minus"] > 1
        assert one["gp"]["u_plus"] > 1


@pytest.mark.parametrize(
    ("value", "says"),
    [(np.nan, "has no answer for image 'image3'"), (1.5, r"is 1.5, outside \[0, 1\]"), (-0.1, "is -0.1")],
)
def test_wrong_tables(value, says):
    bank = make_bank()
    probs = np.full(bank.truth.shape, 0.5)
    probs[3, 1] = value
    with pytest.raises(InputError, match=f"row 4, column 'haemorrhage': {says}"):
        Answers(bank, probs)
    with pytest.raises(InputError, match="shape"):
        Answers(bank, probs[:5])


def test_no_answer_is_needed_where_the_truth_is_unknown():
    bank = Bank(None, "ab", np.array([[0, 1], [-1, 0]], np.int8))
    answers = Answers(bank, np.array([[0.1, 0.2], [np.nan, 0.3]]))
    assert examine(bank, answers).bins.sum() == 3


def test_millions_of_regions_stay_on_the_disk(tmp_path):
    import tracemalloc

    # 3 million regions of 5 concepts: 15 MB of truth and 60 MB of answers, in memory maps.
    n = 3_000_000
    random = np.random.default_rng(0)
    truth = np.lib.format.open_memmap(tmp_path / "truth.npy", "w+", np.int8, (n, 5))
    probs = np.lib.format.open_memmap(tmp_path / "probs.npy", "w+", np.float32, (n, 5))
    for start in range(0, n, 500_000):
        truth[start : start + 500_000] = random.random((500_000, 5)) < [0.2, 0.1, 0.01, 0.001, 1e-5]
        probs[start : start + 500_000] = random.random((500_000, 5), np.float32)
    tracemalloc.start()
    bank = Bank(None, (*LESIONS, "new vessel"), truth)
    found = examine(bank, Answers(bank, probs), strategy="precision", questions=500)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.bins.sum() == 500
    rare = found.to_dict()["concepts"]["new vessel"]["sensitivity"]
    assert rare["of"] == np.count_nonzero(truth[:, 4])
    assert peak < 4_000_000
