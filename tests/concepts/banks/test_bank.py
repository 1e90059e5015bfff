"""The question bank: cells by brute force, also through a memory map and over the border of a chunk."""

import numpy as np
import pytest

from retinabench.concepts.banks import bank, masks
from retinabench.concepts.banks.bank import Bank, prepare_samples
from retinabench.core.errors import InputError
from retinabench.data.dataset import ConceptImages
from retinabench.data.prepared import open_prepared


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


def numbered(n, unknown=False):
    names = np.array([f"i{k}" for k in range(n)])
    truth = np.full((n, 1), -1 if unknown else 1, np.int8)
    return ConceptImages(names, ("x",), truth, names, lambda row, size: np.full((size, size, 3), row, np.uint8))


def test_samples_carry_their_own_truth_and_image(tmp_path):
    images = masks.drawn(12, seed=2, population="shifted", mask_size=64)
    data = prepare_samples(images, tmp_path, size=32, source={})
    assert np.array_equal(data.truth, images.truth)
    assert data.records.image_id.tolist() == images.sample_id.tolist()
    assert np.array_equal(data.images([7])[0], images.image(7, 32))
    assert np.array_equal(open_prepared(tmp_path).label, images.truth.astype(np.float32))


def test_a_killed_preparation_continues_to_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(bank, "SHARD", 4)
    whole = prepare_samples(numbered(10), tmp_path / "a", size=16, source={})
    seen = []

    def stopping(row, size):
        seen.append(row)
        if len(seen) == 6:
            raise KeyboardInterrupt
        return np.full((size, size, 3), row, np.uint8)

    columns = [getattr(numbered(10), f) for f in ("sample_id", "concepts", "truth", "patient_id")]
    killed = ConceptImages(*columns, stopping)
    with pytest.raises(KeyboardInterrupt):
        prepare_samples(killed, tmp_path / "b", size=16, source={})
    again = prepare_samples(killed, tmp_path / "b", size=16, source={})
    assert seen == [0, 1, 2, 3, 4, 5, 4, 5, 6, 7, 8, 9]  # the first shard was whole
    assert again.fingerprint == whole.fingerprint
    assert [len(shard) for shard in again.shards] == [4, 4, 2]


def test_unknown_truth_is_nan_and_other_samples_are_refused(tmp_path):
    data = prepare_samples(numbered(2, unknown=True), tmp_path, size=16, source={"bank": "a"})
    assert np.isnan(data.label).all()
    with pytest.raises(InputError, match='another bank: "a" there, "b" here'):
        prepare_samples(numbered(2), tmp_path, size=16, source={"bank": "b"})
    with pytest.raises(InputError, match="not where"):
        prepare_samples(numbered(2), tmp_path / "regions", size=16, grid=2, source={})
