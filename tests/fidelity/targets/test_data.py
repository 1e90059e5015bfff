"""The data of the targets have the stated hash, and damaged or other files are refused."""

import numpy as np
import pytest
import torch

from retinabench.core.errors import InputError
from retinabench.data.datasets import cifar10, imdb
from retinabench.fidelity.targets.data import labels, load, load_for_scoring, standardised
from retinabench.fidelity.targets.density import Density
from retinabench.fidelity.targets.target import TARGETS
from support.array_files import write_cifar, write_medmnist, write_reviews

GENERATOR = np.random.default_rng(0)


def small(name, **changes):
    return TARGETS[name].model_copy(update=changes)


def test_shipped_retinas_are_those_of_the_definition():
    data = load(TARGETS["fundus"])
    assert data.sha256 == TARGETS["fundus"].sha256
    assert np.bincount(data.train.targets).tolist() == [100] * 5
    assert {group.split("-")[0] for group in data.test.groups} == set(TARGETS["fundus"].groups)
    inputs, _ = standardised(data)
    assert inputs.shape == (500, 3, 28, 28)
    assert np.allclose(inputs.mean(axis=(0, 2, 3)), 0, atol=1e-5)
    assert np.allclose(inputs.std(axis=(0, 2, 3)), 1, atol=1e-5)


def test_the_energy_gap_is_the_split_of_its_files(shared):
    folder = shared("data", "uci", "energy")
    data = load(TARGETS["energy-gap"], folder)
    assert data.sha256 == TARGETS["energy-gap"].sha256
    assert (len(data.train), len(data.test)) == (512, 256)
    alone = load_for_scoring(TARGETS["energy-gap"])  # without the folder
    assert alone.sha256 == data.sha256
    assert np.array_equal(labels(alone)[1], labels(data)[1])
    assert np.array_equal(alone.test.groups, data.test.groups)
    train, test = labels(data)
    assert abs(train.mean()) < 1e-6
    assert train.std() == pytest.approx(1, abs=1e-6)
    assert test.dtype == np.float32


@pytest.mark.parametrize("name", ["concrete-gap", "concrete-gap-water"])
def test_the_concrete_gaps_are_those_of_the_definition(shared, name):
    data = load(TARGETS[name], shared("data", "uci", "concrete"))
    assert data.sha256 == TARGETS[name].sha256
    assert np.isfinite(standardised(data)[0]).all()


@pytest.mark.parametrize(
    "name", ["energy-gap", "concrete-gap", "idrid", "cifar10", "imdb", "dermamnist", "retinamnist"]
)
def test_data_that_do_not_come_along_say_how_to_get_them(name):
    with pytest.raises(InputError, match=r"do not come with the package.*--data"):
        load(TARGETS[name])


def test_other_data_are_refused(tmp_path):
    rows = GENERATOR.normal(size=(768, 9))
    np.savetxt(tmp_path / "data.txt", rows)
    (tmp_path / "gap").mkdir()
    np.savetxt(tmp_path / "gap" / "index_train_0.txt", np.arange(512), fmt="%d")
    np.savetxt(tmp_path / "gap" / "index_test_0.txt", np.arange(512, 768), fmt="%d")
    with pytest.raises(InputError, match="is not the data of the target 'energy-gap'"):
        load(TARGETS["energy-gap"], tmp_path)
    (tmp_path / "gap" / "index_test_0.txt").write_text("700\n768\n")
    with pytest.raises(InputError, match="must hold whole numbers from 0 to 767"):
        load(TARGETS["energy-gap"], tmp_path)
    (tmp_path / "data.txt").write_text("a b c\n")
    with pytest.raises(InputError, match="is not a table of numbers"):
        load(TARGETS["energy-gap"], tmp_path)


@pytest.mark.parametrize(("name", "classes"), [("dermamnist", 7), ("retinamnist", 5)])
def test_medmnist_files_become_densities(tmp_path, name, classes):
    arrays = write_medmnist(tmp_path / f"{name}.npz", classes)
    task = small(name, train=20)
    data = load(task, tmp_path)
    assert (data.train.targets == arrays["train_labels"].reshape(-1)).all()
    assert (data.test.inputs == arrays["test_images"]).all()
    density = Density.of(task, data)
    value, gradient = density(torch.zeros(2, task.parameters))
    assert value.tolist() == pytest.approx([-20 * np.log(classes)] * 2, rel=1e-5)
    assert gradient.shape == (2, task.parameters)
    assert density.predict(torch.zeros(1, task.parameters)).shape == (1, 10, classes)


@pytest.mark.parametrize("name", ["cifar10", "cifar10-resnet20frn"])
def test_cifar_is_read_from_its_binary_version_with_the_stated_strengths(tmp_path, name):
    write_cifar(tmp_path)
    task = small(name, train=30)
    data = load(task, tmp_path)
    raw = np.fromfile(tmp_path / "cifar-10-batches-bin" / "data_batch_2.bin", np.uint8).reshape(6, -1)
    # Byte 1 + c 1024 + 32 y + x of a row is channel c at (y, x).
    assert data.train.inputs[6, 3, 5, 1] == raw[0, 1 + 1024 + 32 * 3 + 5]
    assert data.train.targets[6] == raw[0, 0]
    assert len(data.test) == 5 * 6
    for kind, strength in cifar10.CORRUPTED:
        rows = data.test.groups == f"corrupted-{kind}-{strength}"
        assert (data.test.inputs[rows] == strength).all()
        assert (data.test.targets[rows] == data.test.targets[:6]).all()
    inputs, _ = standardised(data)
    assert inputs[6, 1, 3, 5] == pytest.approx((raw[0, 1 + 1024 + 32 * 3 + 5] / 255 - 0.48) / 0.2, rel=1e-5)
    value, _ = Density.of(task, data)(torch.zeros(1, task.parameters))
    assert float(value) == pytest.approx(-30 * np.log(10), rel=1e-5)


def test_reviews_become_the_numbers_of_frequent_words(tmp_path):
    write_reviews(tmp_path)
    task = small("imdb", train=2)
    data = load(task, tmp_path)
    # Twice each: bad, film, good; then a, it's in the order of the alphabet.
    number = {"bad": 2, "film": 3, "good": 4, "a": 5, "it's": 6}
    negative = data.train.inputs[data.train.targets == 0][0]
    assert negative[-5:].tolist() == [number[word] for word in ("a", "bad", "film", "it's", "bad")]
    assert (negative[:-5] == imdb.FILL).all()
    long = data.test.inputs[data.test.targets == 1][0]
    assert long.tolist() == [number["good"]] + [number["film"]] * 99
    value, gradient = Density.of(task, data)(torch.zeros(1, task.parameters))
    assert float(value) == pytest.approx(-2 * np.log(2), rel=1e-5)
    assert gradient.shape == (1, 2_700_098)


def test_idrid_photographs_become_the_same_kind_of_picture(shared, tmp_path):
    from retinabench.data.prepare import prepare
    from retinabench.data.preprocessing.preprocess import Recipe

    source = tmp_path / "few"
    (source / "images").mkdir(parents=True)
    lines = shared("data", "idrid", "labels.csv").read_text().splitlines()
    few = [line for line in lines if "IDRiD_00" in line]
    kept = [lines[0]] + [line for split in ("train", "test") for line in few if f",{split}," in line]
    (source / "labels.csv").write_text("\n".join(kept) + "\n")
    for image in shared("data", "idrid", "images").glob("IDRiD_00*"):
        (source / "images" / image.name).symlink_to(image)
    prepare("idrid", tmp_path / "prepared", source=source, recipe=Recipe(224), workers=1)
    train = sum(",train," in line for line in kept)
    data = load(small("idrid", train=train), tmp_path / "prepared")
    assert data.train.inputs.shape == (train, 28, 28, 3)
    # The local average is 128: the images are grey on the whole, darkest value below and brightest above.
    means = data.train.inputs.mean(axis=(0, 1, 2))
    assert means[0] < 127 < means[1] + 2
    assert means[2] > 129
    prepare("idrid", tmp_path / "small", source=source, recipe=Recipe(64), workers=1)
    with pytest.raises(InputError, match="is not IDRiD at 224 px"):
        load(small("idrid", train=train), tmp_path / "small")
