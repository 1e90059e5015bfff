"""RetinaMNIST's file is read without its package, checked against the published sums, and never unpickled."""

import hashlib
import io
import os

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.data.datasets import cifar10, imdb, medmnist
from retinabench.data.labels import Survey
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.data.registry import DATASETS
from support.array_files import write_cifar, write_medmnist


@pytest.fixture
def published(tmp_path, monkeypatch):
    arrays = write_medmnist(tmp_path / "retinamnist_64.npz", 5, side=64)
    digest = hashlib.md5((tmp_path / "retinamnist_64.npz").read_bytes()).hexdigest()
    monkeypatch.setitem(medmnist.MD5, 64, digest)
    return arrays


def test_the_published_file(tmp_path, published):
    survey = Survey()
    records = medmnist.records(tmp_path, survey=survey)
    assert [(records.split == name).sum() for name in ("train", "validation", "test")] == [20, 4, 10]
    assert records.grade[:20].tolist() == published["train_labels"].reshape(-1).tolist()
    assert survey == Survey()
    assert records.source[23] == (source := "retinamnist_64.npz:val:3")
    for root in (tmp_path, tmp_path / "retinamnist_64.npz"):
        assert np.array_equal(medmnist.DATASET.image(source, root, Recipe(64)), published["val_images"][3])
    assert medmnist.DATASET.image(source, tmp_path, Recipe(32)).shape == (32, 32, 3)


def test_a_file_that_was_replaced_is_read_again(tmp_path):
    file = tmp_path / "ours.npz"
    stamps = []
    for number in (0, 1):
        arrays = write_medmnist(file, 5)
        os.utime(file, ns=(0, 10**18 + number))  # clocks of some file systems are too coarse for a test
        stamps.append(DATASETS.find("retinamnist").stamp("ours.npz:test:2", tmp_path))
        image = medmnist.DATASET.image("ours.npz:test:2", tmp_path, Recipe(28))
        assert np.array_equal(image, arrays["test_images"][2])
    assert stamps[0] != stamps[1]


@pytest.mark.usefixtures("published")
def test_a_damaged_file_is_found_by_its_sum(tmp_path):
    file = tmp_path / "retinamnist_64.npz"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"has the MD5 .*, published is"):
        medmnist.records(tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"val_labels": None}, "holds no array 'val_labels'"),
        ({"train_labels": np.full((20, 1), 5)}, "train_labels are not 20 classes from 0 to 4"),
        ({"train_labels": np.zeros((9, 1), int)}, "train_labels are not 20 classes from 0 to 4"),
        ({"test_images": np.zeros((10, 28, 28), np.uint8)}, r"test_images is uint8 \(10, 28, 28\)"),
        ({"test_images": np.zeros((10, 28, 28, 3))}, "test_images is float64"),
        ({"test_labels": np.array([{}] * 10, object)}, "not a valid .npz file .*allow_pickle"),
    ],
)
def test_bad_arrays_are_named(tmp_path, change, says):
    arrays = write_medmnist(tmp_path / "x.npz", 5)
    content = {key: value for key, value in (arrays | change).items() if value is not None}
    np.savez(tmp_path / "x.npz", **content)
    with pytest.raises(InputError, match=says):
        medmnist.records(tmp_path / "x.npz")


@pytest.mark.parametrize(("size", "name"), [(16, ""), (28, ""), (29, "_64"), (128, "_128"), (512, "_224")])
def test_the_download_fits_the_size(size, name):
    remote = medmnist.remote(size)
    assert remote.name == f"retinamnist{name}.npz"
    assert remote.url == f"https://zenodo.org/records/10519652/files/retinamnist{name}.npz?download=1"
    assert remote.md5 in medmnist.MD5.values()


def test_arrays_of_another_size_than_28_px_are_refused(tmp_path):
    """What is read of 28 px is compared in `tests/fidelity/targets/test_data.py`."""
    write_medmnist(tmp_path / "dermamnist.npz", 7, side=64)
    with pytest.raises(InputError, match=r"\(20, 64, 64, 3\), not uint8 \(N, 28, 28, 3\)"):
        medmnist.read_dermamnist(tmp_path)


def test_damaged_missing_or_pickled_files_are_named(tmp_path):
    with pytest.raises(InputError, match=r"data_batch_1.bin: is missing"):
        cifar10.read(tmp_path)
    write_cifar(tmp_path)
    sink = io.BytesIO()
    np.save(sink, np.array([{}], dtype=object), allow_pickle=True)
    (tmp_path / "CIFAR-10-C" / "pixelate.npy").write_bytes(sink.getvalue())
    with pytest.raises(InputError, match=r"pixelate.npy.*is not an array"):
        cifar10.read(tmp_path)
    (tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin").write_bytes(bytes([10]) * 3073)
    with pytest.raises(InputError, match=r"data_batch_3.bin: row 0 has class 10"):
        cifar10.read(tmp_path)


def test_unknown_words_are_one_number_and_absent_reviews_are_named(tmp_path):
    assert imdb.tokens(["good", "unheard"], {"good": 2})[-2:].tolist() == [2, imdb.OTHER]
    with pytest.raises(InputError, match="holds no reviews"):
        imdb.read(tmp_path)
