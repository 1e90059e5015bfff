"""A run trained once predicts on any data set as if it had been trained with that one as its shifted domain."""

import shutil

import numpy as np
import pytest
import torch

from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run
from retinabench.experiments.execution import Resources
from retinabench.experiments.predict import predict_on
from retinabench.experiments.run import execute
from retinabench.models.build import build_model
from retinabench.models.settings import ModelConfig
from retinabench.predictions.io import read_predictions
from support.helpers import TINY, make_prepared

OURS = (("in_domain", "train", 64), ("in_domain", "validation", 24), ("in_domain", "test", 32))
THEIRS = (("in_domain", "validation", 20), ("in_domain", "test", 26), ("in_domain", "train", 10))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("elsewhere")
    return make_prepared(root / "ours", parts=OURS), make_prepared(root / "theirs", parts=THEIRS, seed=1)


@pytest.mark.parametrize("method", ["map", "ensemble"])
def test_the_same_predictions_as_training_with_that_set(folders, tmp_path, method):
    ours, theirs = folders
    words = [*TINY, f"method.name={method}", "task=in_domain"]
    alone = execute(load_run(None, words, data=str(ours)), tmp_path / "runs", Resources("cpu"))
    found = read_predictions(predict_on(alone, theirs, tmp_path / "x.parquet", Resources("cpu")))
    words[-1] = "task=country_shift"
    both = load_run(None, words, data=str(ours), shifted=str(theirs))
    expected = read_predictions(execute(both, tmp_path / "runs", Resources("cpu")) / "predictions.parquet")
    for column in ("image_id", "label", "grade", "patient_id", "domain", "split", "probs"):
        assert np.array_equal(getattr(found, column), getattr(expected, column)), column


def test_it_refuses_what_it_cannot_do(folders, tmp_path):
    ours, theirs = folders
    run = load_run(None, [*TINY, "task=in_domain"], data=str(ours))
    folder = execute(run, tmp_path / "runs", Resources("cpu"))
    with pytest.raises(InputError, match="the same data"):
        predict_on(folder, ours, tmp_path / "x.csv", Resources("cpu"))
    only_train = make_prepared(tmp_path / "train", parts=(("in_domain", "train", 20),), seed=2)
    with pytest.raises(InputError, match=r"has no split 'test'\. Prepare it by `prepare --split test`"):
        predict_on(folder, only_train, tmp_path / "x.csv", Resources("cpu"))
    (folder / "done").unlink()
    with pytest.raises(InputError, match="no finished run"):
        predict_on(folder, theirs, tmp_path / "x.csv", Resources("cpu"))
    assert not (tmp_path / "x.csv").exists()


@pytest.mark.parametrize("words", [["method.name=dropout"], ["method.name=temperature", "model.inputs=unit"]])
def test_without_the_training_data_the_other_images_have_the_same_bits(folders, tmp_path, words):
    ours, theirs = folders
    data = shutil.copytree(ours, tmp_path / "ours")
    run = load_run(None, [*TINY, *words, "task=in_domain"], data=str(data))
    folder = execute(run, tmp_path / "runs", Resources("cpu"))
    before = read_predictions(predict_on(folder, theirs, tmp_path / "before.parquet", Resources("cpu")))
    shutil.rmtree(data)
    moved = (tmp_path / "runs").rename(tmp_path / "moved") / folder.name
    after = read_predictions(predict_on(moved, theirs, tmp_path / "after.parquet", Resources("cpu")))
    for column in ("image_id", "label", "grade", "patient_id", "domain", "split"):
        assert np.array_equal(getattr(after, column), getattr(before, column)), column
    assert after.metadata == before.metadata
    assert np.array_equal(after.select(domain="shifted").probs, before.select(domain="shifted").probs)
    own = read_predictions(moved / "predictions.parquet").select(domain="in_domain")
    assert np.array_equal(after.select(domain="in_domain").probs, own.probs)


def test_a_head_predicts_without_its_training_data(folders, tmp_path):
    ours, theirs = folders
    data = shutil.copytree(ours, tmp_path / "ours")
    network = build_model(ModelConfig(name="resnet18", width=4, stem="small"), seed=7)
    torch.save(network.state_dict(), tmp_path / "w.pt")
    words = [f"model.weights={tmp_path / 'w.pt'}", "model.trained=head", "optimizer.augment=none", "task=in_domain"]
    folder = execute(load_run(None, [*TINY, *words], data=str(data)), tmp_path / "runs", Resources("cpu"))
    found = []
    for name in ("before", "after"):
        found.append(read_predictions(predict_on(folder, theirs, tmp_path / f"{name}.csv", Resources("cpu"))))
        shutil.rmtree(data, ignore_errors=True)
    assert np.array_equal(*(one.select(domain="shifted").probs for one in found))
