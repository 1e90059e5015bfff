"""Tables with a column per concept and reader."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.concepts.banks.readers import majority, random_reader, read_reference
from retinabench.core.errors import InputError

TABLE = """image_id,edema@a,edema@b,edema@c,mass@a,mass@b,mass@c
x,1,1,0,0,0,0
y,1,0,,1,1,1
z,,,,1,,0
"""


@pytest.fixture
def path(tmp_path):
    (tmp_path / "truth.csv").write_text(TABLE)
    return tmp_path / "truth.csv"


def test_the_majority_leaves_ties_unknown(path):
    bank, panel = read_reference(path)
    assert bank.concepts == ("edema", "mass")
    assert panel.readers == ("a", "b", "c")
    assert bank.truth.tolist() == [[1, 0], [-1, 1], [-1, -1]]
    assert panel.others()["without b"].tolist() == [[-1, 0], [1, 1], [-1, -1]]


def test_the_patients_of_the_table_stay(path):
    header, *rows = TABLE.splitlines()
    named = [
        f"{row},{patient}"
        for row, patient in zip([header, *rows], ("patient_id", "p", "q", "p"), strict=True)
    ]
    path.write_text("\n".join(named) + "\n")
    bank, _ = read_reference(path)
    assert bank.concepts == ("edema", "mass")
    assert bank.patient.tolist() == [0, 1, 0]


def test_one_reader(path):
    bank, panel = read_reference(path, ["edema"], "b")
    assert bank.truth[:, 0].tolist() == [1, 0, -1]
    assert list(panel.others()) == ["a", "c"]


def test_a_random_reader_is_the_same_for_all_concepts_of_an_image():
    votes = np.stack([np.full((3000, 2), k, np.int8) % 2 for k in range(3)], axis=2)
    votes[:1000, :, 0] = -1  # did not read these
    votes[5] = -1
    drawn = random_reader(votes, np.random.default_rng(0))
    assert (drawn[:, 0] == drawn[:, 1]).all()
    assert drawn[5].tolist() == [-1, -1]
    # Readers 1 of 1 and 2: half; of 0, 1 and 2: a third. Standard errors 0.016 and 0.011.
    assert np.mean(drawn[:1000, 0] == 1) == pytest.approx(1 / 2, abs=0.05)
    assert np.mean(drawn[1000:, 0] == 1) == pytest.approx(1 / 3, abs=0.035)


def test_the_seed_decides_the_random_readers(path):
    first, again, other = (read_reference(path, None, "random", seed)[0].hash for seed in (0, 0, 3))
    assert first == again != other


def test_a_table_with_one_truth_is_read_as_ever(tmp_path):
    path = tmp_path / "truth.csv"
    path.write_text("image_id,edema\nx,1\ny,0\n")
    bank, panel = read_reference(path)
    assert (bank.concepts, panel) == (("edema",), None)
    with pytest.raises(InputError, match=r"has one truth.*CONCEPT@READER"):
        read_reference(path, None, "majority")


@pytest.mark.parametrize(
    ("concepts", "truth", "says"),
    [
        (None, "d", "has no reader 'd'"),
        (["oedema"], None, "has no column 'oedema@…'. Did you mean 'edema'"),
    ],
)
def test_unknown_names(path, concepts, truth, says):
    with pytest.raises(InputError, match=says):
        read_reference(path, concepts, truth)


def test_a_reader_who_lacks_a_concept_is_named(path):
    path.write_text("image_id,edema@a,mass@b\nx,1,0\n")
    with pytest.raises(InputError, match="has no column 'edema@b', 'mass@a'"):
        read_reference(path)


def test_majority_of_an_even_panel():
    votes = np.array([[[1, 0]], [[1, 1]], [[0, -1]]], np.int8)
    assert majority(votes)[:, 0].tolist() == [-1, 1, 0]
