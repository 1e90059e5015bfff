"""A run trained once predicts on any data set as if it had been trained with that one as its shifted domain."""

import numpy as np
import pytest

from retinabench.cli.main import run as command
from retinabench.core.errors import InputError
from retinabench.data.prepared import open_prepared
from retinabench.experiments.config import load_run
from retinabench.experiments.execution import Resources
from retinabench.experiments.predict import predict_on
from retinabench.experiments.run import execute
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
    with pytest.raises(InputError, match=r"has no split 'test'\. Prepare it with --split test"):
        predict_on(folder, only_train, tmp_path / "x.csv", Resources("cpu"))
    (folder / "done").unlink()
    with pytest.raises(InputError, match="no finished run"):
        predict_on(folder, theirs, tmp_path / "x.csv", Resources("cpu"))
    assert not (tmp_path / "x.csv").exists()


def test_the_verb(folders, tmp_path, capsys):
    ours, theirs = folders
    folder = execute(
        load_run(None, [*TINY, "task=in_domain"], data=str(ours)), tmp_path / "runs", Resources("cpu")
    )
    assert (
        command(["predict", str(folder), "--data", str(theirs), "--out", str(tmp_path / "x.csv"), "-q"]) == 0
    )
    assert capsys.readouterr().out.strip() == str(tmp_path / "x.csv")
    shifted = read_predictions(tmp_path / "x.csv").select(domain="shifted", split="test")
    assert len(shifted) == 26 == (open_prepared(theirs).records.split == "test").sum()
