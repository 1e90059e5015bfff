"""What a run writes, where its data set has an odd shape."""

import json

import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.data.tasks import load_task
from retinabench.experiments.config import load_run
from retinabench.experiments.execution import member_runs
from retinabench.experiments.exporting.member_files import leaf_runs
from retinabench.experiments.resources import Resources
from retinabench.experiments.run import divided, execute, run_folder
from retinabench.metrics.classification import nll
from retinabench.predictions.io import read_predictions
from support.helpers import TINY, make_prepared


def test_a_held_out_validation_split_is_called_validation(tmp_path):
    prepared = make_prepared(tmp_path / "data", parts=(("in_domain", "train", 80), ("in_domain", "test", 30)))
    run = load_run(None, [*TINY, "task=in_domain"], data=str(prepared))
    predictions = read_predictions(execute(run, tmp_path / "runs", Resources("cpu")) / "predictions.parquet")
    task = load_task(prepared, "in_domain")
    held = task.records.image_id[task.splits["validation"]]
    assert set(predictions.image_id[predictions.split == "validation"]) == set(held)
    assert (predictions.split == "test").sum() == 30
    assert set(predictions.domain) == {"in_domain"}
    by_id = dict(zip(task.records.image_id, task.targets, strict=True))
    assert np.array_equal(predictions.label, [by_id[name] for name in predictions.image_id])


@pytest.mark.parametrize(
    ("parts", "task", "says"),
    [
        ((("in_domain", "train", 4),), "in_domain", "'validation'"),
        ((("in_domain", "test", 40),), "in_domain", "'train'"),
        ((("in_domain", "train", 40), ("in_domain", "test", 40)), "country_shift", "in_domain"),
    ],
)
def test_a_missing_split_is_named(tmp_path, parts, task, says):
    with pytest.raises(InputError, match=says):
        load_task(make_prepared(tmp_path / "data", parts=parts), task)


def test_moving_the_data_moves_no_run(tmp_path):
    runs = [load_run(None, TINY, data=str(make_prepared(tmp_path / name))) for name in ("here", "there")]
    one = execute(runs[0], tmp_path / "runs", Resources("cpu"))
    assert execute(runs[1], tmp_path / "runs", Resources("cpu")) == one


def test_the_classic_interface_scores_a_task(tmp_path):
    task = rb.load_task(make_prepared(tmp_path / "data"))

    def estimator(images):
        assert images.dtype == np.float32
        mean = images[:, 4:9, 4:9].mean(axis=(1, 2, 3))
        return mean, mean * (1 - mean)

    scores = rb.evaluate(estimator, task["test", "shifted_test"], bootstrap=20).to_dict()
    assert scores["sets"]["in_domain"]["images"] == 32
    assert scores["sets"]["shifted"]["images"] == 24
    # The bright patch is the label.
    assert scores["sets"]["joint"]["scores"]["auroc"]["value"] == 1.0
    with pytest.raises(InputError, match="Did you mean 'test'"):
        task["tset"]


@pytest.mark.parametrize("method", ["map", "dropout"])
def test_bfloat16_learns_and_predicts_in_full_precision(tmp_path, method):
    run = load_run(
        None,
        [*TINY, f"method={method}", "optimizer.precision=bfloat16"],
        data=str(make_prepared(tmp_path / "data")),
    )
    test = read_predictions(execute(run, tmp_path / "runs", Resources("cpu")) / "predictions.parquet").select(
        split="test"
    )
    assert rb.score(test, bootstrap=0)["joint"].auroc.value > 0.9
    # bfloat16 holds 8 significant bits; the sigmoid is taken in float32.
    assert len(np.unique(test.prob)) > 20


@pytest.mark.parametrize(("select", "best"), [("auroc", max), ("nll", min), ("last", None)])
def test_the_chosen_epoch_predicts_and_was_judged_on_the_whole_validation_split(tmp_path, select, best):
    words = [*TINY, "optimizer.epochs=5", f"optimizer.select={select}"]
    folder = execute(
        load_run(None, words, data=str(make_prepared(tmp_path / "data"))), tmp_path, Resources("cpu")
    )
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    validation = read_predictions(folder / "predictions.parquet").select(
        domain="in_domain", split="validation"
    )
    assert len(validation) == 24
    found = nll(validation.label, validation.prob)
    values = [row[f"validation_{select}"] for row in rows] if best else []
    chosen = values.index(best(values)) if best else len(rows) - 1
    # The network's float32; a window or a share of the split would differ in the first digits.
    assert found == pytest.approx(rows[chosen]["validation_nll"], rel=1e-5)


def test_a_cross_validation_tests_every_image_by_a_run_without_its_patient(tmp_path):
    data = make_prepared(tmp_path / "data", parts=(("in_domain", "train", 80), ("in_domain", "test", 40)))
    words = [*TINY, "task=in_domain", "optimizer.epochs=1", "cross_validation.folds=2"]
    run = load_run(None, words, data=str(data))
    folder = execute(run, tmp_path / "runs", Resources("cpu"))
    joined = read_predictions(folder / "predictions.parquet")
    task = load_task(data, "in_domain")
    assert joined.image_id.tolist() == task.image_id.tolist()
    assert set(joined.split) == {"test"}
    assert joined.metadata["members"] == 1
    for fold, one in enumerate(member_runs(run)):
        division = divided(task, one)
        assert not np.isin(
            task.patient_id[division.splits["test"]], task.patient_id[division.splits["train"]]
        ).any()
        own = read_predictions(run_folder(one, tmp_path / "runs", task) / "predictions.parquet")
        tested = own.select(split="test")
        at = np.searchsorted(task.image_id, tested.image_id, sorter=np.argsort(task.image_id))
        rows = np.argsort(task.image_id)[at]
        assert np.array_equal(np.sort(rows), division.splits["test"]), fold
        assert np.array_equal(joined.probs[rows], tested.probs)
    other = load_run(None, [*words, "cross_validation.repeat=1"], data=str(data))
    assert run_folder(other, tmp_path, task) != run_folder(run, tmp_path, task)
    with pytest.raises(InputError, match="cross-validation estimates"):
        list(leaf_runs(run))
    with pytest.raises(InputError, match="counted from 0"):
        load_run(None, [*words, "cross_validation.fold=2"], data=str(data))


def test_a_run_without_cross_validation_does_not_name_it():
    run = load_run(None, TINY, data="d")
    assert "cross_validation" not in run.model_dump(mode="json")
    assert "cross_validation" not in run.identity("f")
