import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.data.datasets.uci import available, draw_splits, middle_third, read, read_gap, read_middle_third
from support.uci_sets import write_set


@pytest.mark.parametrize("place", ["yacht", "UCI_Datasets/yacht/data", "yacht/data"])
def test_features_target_and_drawn_splits(tmp_path, place):
    table = write_set(tmp_path / place)
    data = read(tmp_path, "yacht")
    assert available(tmp_path) == ["yacht"]
    np.testing.assert_array_equal(data.inputs, table[:, [0, 2, 3]])
    np.testing.assert_array_equal(data.targets, table[:, 1])
    assert data.train.shape == (20, 36)
    assert data.test.shape == (20, 4)
    for train, test in zip(data.train, data.test, strict=True):
        assert sorted([*train, *test]) == list(range(40))


def test_the_splits_are_those_of_the_published_recipe():
    """The first two splits of 100 points as the recipe's own files have them (the set `half_moons` beside the UCI's)."""
    train, test = draw_splits(100, 20)
    assert test[0].tolist() == [1, 16, 64, 79, 5, 75, 9, 72, 12, 37]
    assert test[1].tolist() == [7, 75, 21, 91, 76, 2, 70, 85, 52, 6]
    assert train.shape == (20, 90)
    assert draw_splits(308, 2)[0].shape[1] == round(0.9 * 308)


def test_split_files_go_before_the_recipe(tmp_path):
    write_set(tmp_path / "yacht")
    for k in range(20):
        np.savetxt(tmp_path / "yacht" / f"index_train_{k}.txt", np.arange(30), fmt="%d")
        np.savetxt(tmp_path / "yacht" / f"index_test_{k}.txt", np.arange(30, 40), fmt="%d")
    data = read(tmp_path, "yacht")
    np.testing.assert_array_equal(data.test, np.tile(np.arange(30, 40), (20, 1)))
    np.savetxt(tmp_path / "yacht" / "index_test_3.txt", np.arange(29, 39), fmt="%d")
    with pytest.raises(InputError, match=r"index_test_3\.txt: names rows that also train"):
        read(tmp_path, "yacht")
    np.savetxt(tmp_path / "yacht" / "index_test_3.txt", np.arange(31, 40), fmt="%d")
    with pytest.raises(InputError, match=r"index_test_3\.txt: is not as long"):
        read(tmp_path, "yacht")


def spoil(folder, name, text):
    (folder / name).write_text(text) if text is not None else (folder / name).unlink()


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("data.txt", "1 2 3 4\n1 2 x 4\n", "data.txt: is not a table of numbers"),
        ("data.txt", "1 2 3 4\n1 2 3\n", "data.txt: is not a table of numbers"),
        ("data.txt", "1 2 3 4\n1 2 nan 4\n", "data.txt, row 2, column '2': is not finite"),
        ("data.txt", "", "data.txt: is empty"),
        ("index_features.txt", None, "index_features.txt: does not exist"),
        ("index_features.txt", "0 2 9\n", "index_features.txt: must hold whole numbers from 0 to 3"),
        ("index_features.txt", "0 0.5\n", "index_features.txt: must hold whole numbers"),
        ("index_features.txt", "0 2 2\n", "index_features.txt: names a number twice"),
        ("index_target.txt", "2\n", "index_target.txt: must name one column that is not a feature"),
        ("index_target.txt", "0 1\n", "index_target.txt: must name one column"),
    ],
)
def test_damage_is_named(tmp_path, name, text, says):
    write_set(tmp_path / "wine")
    spoil(tmp_path / "wine", name, text)
    with pytest.raises(InputError) as found:
        read(tmp_path, "wine")
    assert says in str(found.value)


def test_a_gap_split_takes_the_rows_that_its_files_name(tmp_path):
    table = np.random.default_rng(0).normal(size=(12, 10))
    np.savetxt(tmp_path / "data.txt", table)
    (tmp_path / "gap").mkdir()
    for part, rows in (("train", [5, 0, 2]), ("test", [7, 11])):
        np.savetxt(tmp_path / "gap" / f"index_{part}_2.txt", rows, fmt="%d")
    data = read_gap(tmp_path, 2)
    train, test = data.part("train"), data.part("test")
    np.testing.assert_array_equal(train.inputs, table[[5, 0, 2], :8])
    np.testing.assert_array_equal(train.targets, table[[5, 0, 2], 8])
    np.testing.assert_array_equal(test.targets, table[[7, 11], 8])
    assert set(test.groups) == {"gap"}
    with pytest.raises(InputError, match=r"index_train_0\.txt: does not exist. Name the folder 'energy'"):
        read_gap(tmp_path)


@pytest.mark.parametrize("items", [1, 2, 3, 7, 12, 40])
@pytest.mark.parametrize("distinct", [1, 3, 1000])
def test_the_middle_third_is_that_of_brute_force(items, distinct):
    values = np.random.default_rng(items).integers(0, distinct, items).astype(float)
    ordered = sorted((value, i) for i, value in enumerate(values))
    before = [ordered.index((value, i)) for i, value in enumerate(values)]
    expected = [items // 3 <= rank < 2 * items // 3 for rank in before]
    assert middle_third(values).tolist() == expected


def test_the_rule_gives_the_published_gaps_up_to_ties(shared):
    """The files of `energy` name rows with the same values of the feature as ours; the same rows where no tie is cut."""
    data = np.loadtxt(shared("data", "uci", "energy", "data.txt"))
    for feature in range(8):
        file = shared("data", "uci", "energy", "gap", f"index_test_{feature}.txt")
        published, own = np.loadtxt(file).astype(int), middle_third(data[:, feature])
        values = data[:, feature]
        np.testing.assert_array_equal(np.sort(values[published]), np.sort(values[own]))
        cut = {values[published].min(), values[published].max()} & set(np.delete(values, published))
        if not cut:
            np.testing.assert_array_equal(np.sort(published), np.flatnonzero(own))


@pytest.mark.parametrize(
    ("name", "text", "feature", "says"),
    [
        ("data.txt", None, 0, "data.txt: does not exist. Name the folder 'concrete'"),
        ("index_target.txt", None, 0, "index_target.txt: does not exist. Name the folder 'concrete'"),
        ("index_features.txt", "0 2\n", 2, "names 2 features; the gap is cut by number 2, counted from 0"),
        ("index_features.txt", "0 2\n", -1, "names 2 features; the gap is cut by number -1, counted from 0"),
    ],
)
def test_a_gap_of_a_damaged_set_is_refused(tmp_path, name, text, feature, says):
    write_set(tmp_path / "concrete")
    spoil(tmp_path / "concrete", name, text)
    with pytest.raises(InputError) as found:
        read_middle_third(tmp_path / "concrete", "concrete", feature)
    assert says in str(found.value)
