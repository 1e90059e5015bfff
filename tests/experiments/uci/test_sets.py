"""Reading the sets, their splits and their standardisation: nothing of a test row may reach the training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.data.datasets.uci import SETS, available, draw_splits, read
from retinabench.experiments.uci.folds import final_fold, make_fold, tuning_fold


def write_set(folder, points=40, seed=0):
    """Three features and a target in the second of four columns."""
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    table = random.normal(5, 3, (points, 4))
    np.savetxt(folder / "data.txt", table)
    np.savetxt(folder / "index_features.txt", [0, 2, 3], fmt="%d")
    np.savetxt(folder / "index_target.txt", [1], fmt="%d")
    return table


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
        ("data.txt", "1 2 3 4\n1 2 x 4\n", "data.txt: is no table of numbers"),
        ("data.txt", "1 2 3 4\n1 2 3\n", "data.txt: is no table of numbers"),
        ("data.txt", "1 2 3 4\n1 2 nan 4\n", "data.txt, row 2, column '2': is not finite"),
        ("data.txt", "", "data.txt: is empty"),
        ("index_features.txt", None, "index_features.txt: does not exist"),
        ("index_features.txt", "0 2 9\n", "index_features.txt: must hold whole numbers from 0 to 3"),
        ("index_features.txt", "0 0.5\n", "index_features.txt: must hold whole numbers"),
        ("index_features.txt", "0 2 2\n", "index_features.txt: names a number twice"),
        ("index_target.txt", "2\n", "index_target.txt: must name one column that is no feature"),
        ("index_target.txt", "0 1\n", "index_target.txt: must name one column"),
    ],
)
def test_damage_is_named(tmp_path, name, text, says):
    write_set(tmp_path / "wine")
    spoil(tmp_path / "wine", name, text)
    with pytest.raises(InputError) as found:
        read(tmp_path, "wine")
    assert says in str(found.value)


def test_absent_sets_are_named(tmp_path):
    with pytest.raises(InputError, match="Did you mean 'yacht'"):
        read(tmp_path, "yatch")
    with pytest.raises(InputError, match=r"holds no UCI set 'boston'.*bostonHousing/data\.txt"):
        read(tmp_path, "boston")


def test_standardisation_sees_training_rows_only(tmp_path):
    write_set(tmp_path / "yacht")
    data = read(tmp_path, "yacht")
    fold = final_fold(data)
    np.testing.assert_allclose(fold.inputs.mean(dim=1), 0, atol=1e-6)
    np.testing.assert_allclose(fold.inputs.std(dim=1, correction=0), 1, atol=1e-6)
    np.testing.assert_allclose(fold.targets.mean(dim=1), 0, atol=1e-6)
    # Test rows moved far away change nothing but themselves.
    inputs, target = data.inputs.copy(), data.targets.copy()
    inputs[data.test[0]], target[data.test[0]] = 1e3, -1e6
    moved = final_fold(replace(data, inputs=inputs, targets=target))
    assert moved.inputs[0].equal(fold.inputs[0])
    assert moved.targets[0].equal(fold.targets[0])
    assert moved.centre[0] == fold.centre[0]
    assert not moved.held_inputs[0].equal(fold.held_inputs[0])
    np.testing.assert_array_equal(fold.held_target, data.targets[data.test])


def test_tuning_never_sees_a_test_row(tmp_path):
    write_set(tmp_path / "yacht")
    data = read(tmp_path, "yacht")
    inputs, target = data.inputs.copy(), data.targets.copy()
    inputs[data.test[0]], target[data.test[0]] = np.nan, np.nan
    fold, blind = tuning_fold(data), tuning_fold(replace(data, inputs=inputs, targets=target))
    for name in ("inputs", "targets", "held_inputs"):
        assert getattr(fold, name)[0].equal(getattr(blind, name)[0])
    assert fold.inputs.shape[1] == 28
    assert fold.held_inputs.shape[1] == 8


def test_a_constant_column_becomes_zero(tmp_path):
    write_set(tmp_path / "naval")
    data = read(tmp_path, "naval")
    inputs = data.inputs.copy()
    inputs[:, 1] = 0.1  # its mean over rows is not exactly 0.1
    fold = make_fold(replace(data, inputs=inputs), data.train, data.test)
    assert float(fold.inputs[:, :, 1].abs().max()) < 1e-6
    assert float(fold.held_inputs[:, :, 1].abs().max()) < 1e-6


def test_own_units_undo_the_standardisation(tmp_path):
    write_set(tmp_path / "yacht")
    data = read(tmp_path, "yacht")
    fold = final_fold(data)
    back = fold.own_units(fold.targets[None])[0]
    np.testing.assert_allclose(back, data.targets[data.train], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "points", "features"),
    [
        ("concrete", 1030, 8), ("energy", 768, 8), ("kin8nm", 8192, 8), ("naval", 11934, 16),
        ("power", 9568, 4), ("protein", 45730, 9), ("wine", 1599, 11), ("yacht", 308, 6),
    ],
)  # fmt: skip
def test_the_real_sets_have_their_known_sizes(shared, name, points, features):
    data = read(shared("data", "uci"), name)
    assert data.inputs.shape == (points, features)
    assert len(data.train) == SETS[name].splits == (5 if name == "protein" else 20)
