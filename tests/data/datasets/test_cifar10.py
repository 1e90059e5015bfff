import io

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.data.datasets import cifar10
from support.array_files import write_cifar


def test_pixels_classes_and_groups_are_those_of_the_files(tmp_path):
    write_cifar(tmp_path)
    data = cifar10.read(tmp_path)
    raw = np.fromfile(tmp_path / "cifar-10-batches-bin" / "data_batch_2.bin", np.uint8).reshape(6, -1)
    train, test = data.part("train"), data.part("test")
    # Byte 1 + c 1024 + 32 y + x of a row is channel c at (y, x).
    assert train.inputs[6, 3, 5, 1] == raw[0, 1 + 1024 + 32 * 3 + 5]
    assert train.targets[6:12].tolist() == raw[:, 0].tolist()
    assert (len(train), len(test)) == (30, 30)
    for kind, strength in cifar10.CORRUPTED:
        rows = test.groups == f"corrupted-{kind}-{strength}"
        assert (test.inputs[rows] == strength).all()
        assert (test.targets[rows] == test.targets[:6]).all()


def test_damaged_missing_or_pickled_files_are_named(tmp_path):
    with pytest.raises(InputError, match="do not come with the package"):
        cifar10.read(None)
    with pytest.raises(InputError, match=r"data_batch_1.bin: is missing"):
        cifar10.read(tmp_path)
    write_cifar(tmp_path)
    sink = io.BytesIO()
    np.save(sink, np.array([{}], dtype=object), allow_pickle=True)
    (tmp_path / "CIFAR-10-C" / "pixelate.npy").write_bytes(sink.getvalue())
    with pytest.raises(InputError, match=r"pixelate.npy.*is no array"):
        cifar10.read(tmp_path)
    (tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin").write_bytes(bytes([10]) * 3073)
    with pytest.raises(InputError, match=r"data_batch_3.bin: row 0 has class 10"):
        cifar10.read(tmp_path)
