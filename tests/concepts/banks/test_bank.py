"""The question bank: cells by brute force, also through a memory map and over the border of a chunk."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from retinabench.concepts.banks import bank
from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.questioning.loop import examine
from retinabench.core.errors import InputError
from support.concept_banks import make_bank


def random_truth(n, c=3, seed=0):
    return np.random.default_rng(seed).choice(np.array([-1, 0, 1], np.int8), (n, c), p=[0.1, 0.6, 0.3])


@pytest.mark.parametrize("n", [1, 7, 8, 9, 40])
def test_cells_and_members_by_brute_force(n, monkeypatch):
    monkeypatch.setattr(bank, "CHUNK", 8)
    truth = random_truth(n)
    truth[0] = 1
    found = Bank(None, ["a", "b", "c"], truth)
    for concept in range(3):
        for sign in (0, 1):
            members = np.flatnonzero(truth[:, concept] == sign)
            assert found.cells[concept, sign] == len(members)
            assert [found.member(concept, sign, k) for k in range(len(members))] == members.tolist()


def test_a_memory_map_is_used_as_it_is(tmp_path):
    truth = random_truth(50_000)
    np.save(tmp_path / "truth.npy", truth)
    mapped = np.load(tmp_path / "truth.npy", mmap_mode="r")
    found = Bank(None, ["a", "b", "c"], mapped)
    assert found.truth is mapped
    assert found.member(1, 1, 10_000) == np.flatnonzero(truth[:, 1] == 1)[10_000]
    assert found.hash == Bank(None, ["a", "b", "c"], truth).hash
    assert found.name(17) == "17"


def test_the_hash_tells_banks_apart():
    truth = random_truth(20)
    names = [f"i{k}" for k in range(20)]
    other = truth.copy()
    other[3, 1] = 1 - max(other[3, 1], 0)
    banks = [
        Bank(names, "abc", truth), Bank(names, "abd", truth), Bank(names, "abc", other),
        Bank(names[::-1], "abc", truth), Bank(None, "abc", truth), Bank(names[:-1], "abc", truth[:-1]),
    ]  # fmt: skip
    assert len({one.hash for one in banks}) == len(banks)
    assert Bank(names, "abc", truth.copy()).hash == banks[0].hash


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((["a", "a"], ["x"], np.zeros((2, 1), np.int8)), "row 2, column 'image_id': repeats 'a' of row 1"),
        ((None, ["x"], np.array([[0], [2]], np.int8)), "row 2, column 'x': is 2, not 0 or 1"),
        ((None, ["x", "x"], np.zeros((2, 2), np.int8)), "each once"),
        ((None, ["x"], np.zeros((2, 2), np.int8)), "shape"),
        ((None, ["x"], np.zeros((2, 1))), "int8"),
        ((None, ["x"], np.full((2, 1), -1, np.int8)), "no truth is known"),
        ((["a"], ["x"], np.zeros((2, 1), np.int8)), "1 rows"),
    ],
)
def test_wrong_banks(arguments, says):
    with pytest.raises(InputError, match=says):
        Bank(*arguments)


def test_names_are_the_ids():
    assert make_bank().name(3) == "image3"


def test_a_million_regions_need_the_memory_of_a_chunk(tmp_path):
    truth = np.lib.format.open_memmap(tmp_path / "truth.npy", "w+", np.int8, (1_024_000, 3))
    truth[::50, 1] = 1
    mapped = np.load(tmp_path / "truth.npy", mmap_mode="r")
    tracemalloc.start()
    found = Bank(None, ["a", "b", "c"], mapped)
    asked = examine(found, lambda sample, concept: 0.1, questions=30)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.cells[1, 1] == 20_480
    assert asked.to_dict()["asked"] == 30
    # The truth alone takes 3 MB on disk; counting reads 4,096 rows at once.
    assert peak < 1_500_000
