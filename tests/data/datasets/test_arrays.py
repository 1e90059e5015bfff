"""Refusals of the array data sets; what is read is compared in `tests/fidelity/targets/test_data.py`."""

import io

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.data.datasets import cifar10, imdb
from support.array_files import write_cifar


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
