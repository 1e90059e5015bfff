"""What a network reads, as its run's folder keeps it."""

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.data.tasks import load_task
from retinabench.experiments.config import load_run
from retinabench.experiments.trained_inputs import describe_inputs, read_inputs, write_inputs
from support.helpers import TINY, make_prepared


def described(folder, *words):
    run = load_run(None, [*TINY, *words], data=str(folder))
    task = load_task(folder, run.task)
    return describe_inputs(run, task), task


def test_mean_and_std_are_those_of_the_training_images(tmp_path):
    found, task = described(make_prepared(tmp_path / "data"))
    train = task.splits["train"]
    pixels = task.data.images(train).reshape(-1, 3).astype(float) / 255
    np.testing.assert_allclose(found.mean, pixels.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(found.std, pixels.std(axis=0), rtol=1e-4)
    assert (found.images, found.patients, found.size) == (len(train), len(train) // 2, 16)
    assert found.referable_from == 2


def test_unscaled_inputs_have_mean_0_and_std_1(tmp_path):
    found, _ = described(make_prepared(tmp_path / "data"), "model.inputs=unit")
    assert (found.mean, found.std) == ((0, 0, 0), (1, 1, 1))


def test_the_file_makes_the_round_trip_and_a_damaged_one_is_named(tmp_path):
    found, _ = described(make_prepared(tmp_path / "data"))
    assert read_inputs(tmp_path) is None
    write_inputs(found, tmp_path)
    again = read_inputs(tmp_path)
    assert again == found
    assert again.scale[0].dtype == np.float32
    (tmp_path / "SHA256SUMS").unlink(missing_ok=True)
    file = tmp_path / "inputs.json"
    file.write_text(file.read_text().replace('"size": 16', '"size": 0'))
    with pytest.raises(InputError, match=r"inputs\.json: .*size"):
        read_inputs(tmp_path)
