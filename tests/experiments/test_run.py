import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import expit

import retinabench as rb
from retinabench.core.errors import QUIET, DivergedError, InputError
from retinabench.data.tasks import load_task
from retinabench.experiments import demo as module
from retinabench.experiments.config import load_run
from retinabench.experiments.execution import Resources, member_runs
from retinabench.experiments.exporting.model_files import leaf_runs
from retinabench.experiments.predict import predict_on
from retinabench.experiments.run import divided, execute, make_batches, predict, run_folder
from retinabench.experiments.run_folder import describe_inputs, finished_run
from retinabench.metrics.classification import nll
from retinabench.models.build import build_model
from retinabench.models.settings import ModelConfig
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
    by_id = dict(zip(task.records.image_id, task.data.label, strict=True))
    assert np.array_equal(predictions.label, [by_id[name] for name in predictions.image_id])
    manifest = run_folder(run, tmp_path / "runs", task) / "run.json"
    manifest.write_text(manifest.read_text()[:100])
    with pytest.raises(InputError, match=r"run\.json: is damaged"):
        execute(run, tmp_path / "runs", Resources("cpu"))


def test_samples_that_sum_to_one_are_not_taken_for_classes(tmp_path):
    class Fifths:
        def state(self):
            return {"weight": torch.zeros(1)}

        def predict(self, images, samples, generator):
            prob = 0.2 + torch.arange(-2, 3)[:, None] * images.mean(dim=(1, 2, 3)) / 100
            return torch.stack([1 - prob, prob], dim=2)

    task = load_task(make_prepared(tmp_path / "data"))
    run = load_run(None, [*TINY, "method=dropout", "method.samples=5"], data=str(task.data.folder))
    found = predict(run, task, Fifths(), make_batches(run, task, torch.device("cpu")))
    assert np.allclose(found.probs.sum(axis=1), 1)
    rb.write_predictions(found, tmp_path / "p.parquet")
    assert np.array_equal(read_predictions(tmp_path / "p.parquet").probs, found.probs)


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
    words = [*TINY, f"method={method}", "optimizer.precision=bfloat16"]
    run = load_run(None, words, data=str(make_prepared(tmp_path / "data")))
    folder = execute(run, tmp_path / "runs", Resources("cpu"))
    test = read_predictions(folder / "predictions.parquet").select(split="test")
    assert rb.score(test, bootstrap=0)["joint"].auroc.value > 0.9
    # bfloat16 holds 8 significant bits; the sigmoid is taken in float32.
    assert len(np.unique(test.prob)) > 20


@pytest.mark.parametrize(("select", "best"), [("auroc", max), ("nll", min), ("last", None)])
def test_the_chosen_epoch_predicts_and_was_judged_on_the_whole_validation_split(tmp_path, select, best):
    words = [*TINY, "optimizer.epochs=5", f"optimizer.select={select}"]
    folder = execute(load_run(None, words, data=str(make_prepared(tmp_path / "data"))), tmp_path, Resources("cpu"))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    validation = read_predictions(folder / "predictions.parquet").select(domain="in_domain", split="validation")
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
        assert not np.isin(task.patient_id[division.splits["test"]], task.patient_id[division.splits["train"]]).any()
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
    with pytest.raises(InputError, match="joins folds"):
        predict_on(folder, data, tmp_path / "x.csv", Resources("cpu"))
    moved = data.rename(tmp_path / "moved")
    folder = run_folder(member_runs(run)[0], tmp_path / "runs", task)
    with pytest.raises(InputError, match="Run the command where the run was trained"):
        predict_on(folder, moved, tmp_path / "x.csv", Resources("cpu"))


def test_a_run_knows_its_data_and_keeps_what_it_needs_of_them(tmp_path):
    data = make_prepared(tmp_path / "data")
    run = load_run(None, [*TINY, "task=in_domain", "optimizer.epochs=1"], data=str(data))
    folder = execute(run, tmp_path / "runs", Resources("cpu"))
    found = finished_run(folder)
    assert found.run == run
    assert found.training_data().data.fingerprint == found.fingerprint
    assert found.described() == found.inputs
    assert found.inputs.images == 64
    other = run.model_copy(update={"seed": 7})
    assert found.member(run) == folder
    assert found.member(other) == folder.with_name(found.member(other).name) != folder
    shutil.rmtree(data)
    make_prepared(data, seed=5)  # other images in the same place
    assert finished_run(folder).training_data() is None
    (folder / "inputs.json").unlink()  # as an earlier version left it
    (folder / "SHA256SUMS").unlink(missing_ok=True)
    with pytest.raises(InputError, match="was trained on other data than"):
        finished_run(folder).described()
    (folder / "done").unlink()
    with pytest.raises(InputError, match="holds no finished run"):
        finished_run(folder)
    assert json.loads((folder / "run.json").read_text())["fingerprint"] == found.fingerprint


class Brightness:
    """P(referable) is the mean of an image, in every sample; its uncertainty is P."""

    def __init__(self, scale=1.0):
        self.scale = scale

    def predict(self, images, samples, generator):
        p = self.uncertainty(images) * self.scale
        return torch.stack([1 - p, p], dim=1).expand(samples, -1, -1)

    def uncertainty(self, images):
        return images.mean(dim=(1, 2, 3)).sigmoid()

    def state(self):
        return {"scale": torch.tensor(self.scale)}

    def restore(self, state):
        self.scale = float(state["scale"])


@pytest.fixture
def opened(tmp_path):
    data = make_prepared(tmp_path / "data")
    run = load_run(None, [*TINY, "method=dropout", "method.samples=3"], data=str(data))
    return run, load_task(data, run.task)


def test_all_splits_but_the_training_one_are_predicted_in_every_sample(opened):
    run, task = opened
    batches = make_batches(run, task, torch.device("cpu"))
    found = predict(run, task, Brightness(), batches)
    assert found.probs.shape == (96, 3)
    assert set(zip(found.domain, found.split, strict=True)) == {
        (domain, split) for domain in ("in_domain", "shifted") for split in ("validation", "test")
    }
    np.testing.assert_array_equal(found.uncertainty, found.probs[:, 0])
    row = {name: k for k, name in enumerate(task.image_id.tolist())}
    scale = describe_inputs(run, task)
    pixels = task.data.images([row[name] for name in found.image_id.tolist()]) / 255
    logit = ((pixels - scale.mean) / scale.std).mean(axis=(1, 2, 3))
    np.testing.assert_allclose(found.probs[:, 0], expit(logit), atol=1e-5)
    with pytest.raises(DivergedError, match="not finite"):
        predict(run, task, Brightness(float("nan")), batches)


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


OURS = (("in_domain", "train", 64), ("in_domain", "validation", 24), ("in_domain", "test", 32))
THEIRS = (("in_domain", "validation", 20), ("in_domain", "test", 26), ("in_domain", "train", 10))
SMALL = ["model.name=mlp", "optimizer.epochs=2", "optimizer.batch_size=16"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("elsewhere")
    return make_prepared(root / "ours", parts=OURS), make_prepared(root / "theirs", parts=THEIRS, seed=1)


@pytest.mark.parametrize("method", ["map", "ensemble"])
def test_the_same_predictions_as_training_with_that_set(folders, tmp_path, method):
    ours, theirs = folders
    words = [*SMALL, f"method.name={method}", "task=in_domain"]
    alone = execute(load_run(None, words, data=str(ours)), tmp_path / "runs", Resources("cpu"))
    found = read_predictions(predict_on(alone, theirs, tmp_path / "x.parquet", Resources("cpu")))
    words[-1] = "task=country_shift"
    both = load_run(None, words, data=str(ours), shifted=str(theirs))
    expected = read_predictions(execute(both, tmp_path / "runs", Resources("cpu")) / "predictions.parquet")
    for column in ("image_id", "label", "grade", "patient_id", "domain", "split", "probs"):
        assert np.array_equal(getattr(found, column), getattr(expected, column)), column


def test_it_refuses_what_it_cannot_do(folders, tmp_path):
    ours, theirs = folders
    run = load_run(None, [*SMALL, "task=in_domain"], data=str(ours))
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
    run = load_run(None, [*SMALL, *words, "task=in_domain"], data=str(data))
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


@pytest.mark.parametrize("seed", [0, 1])
def test_the_ensembles_members_are_the_seeds_of_map(seed):
    run = module.load_run("demo/ensemble", data="d", task="country_shift", seed=seed)
    members = member_runs(run)
    assert [one.seed for one in members] == [module.SEEDS * seed + k for k in range(module.SEEDS)]


@pytest.mark.slow
def test_the_picture_of_readme_shows_the_numbers_of_this_demo(tmp_path):
    """To .02: other processors round differently, and a training amplifies it."""
    page = module.run_demo(tmp_path, progress=QUIET)
    entries = {one["entry"]: one for one in json.loads((page.parent / "scores.json").read_text())}
    assert {"MAP", "MC dropout"} < set(entries)
    scores = entries["deep ensemble of 3"]["sets"]["in_domain"]["scores"]
    words = re.search(r'alt="Report of the demo: ([^"]*)"', Path("README.md").read_text())[1]
    stated = re.search(r"accuracy of (\S+) \[(\S+), (\S+)\], finds (\d+) %", words)
    value, low, high, found = map(float, stated.groups())
    shown = [scores["accuracy"][name] for name in ("value", "low", "high")]
    assert shown == pytest.approx([value, low, high], abs=0.02)
    assert scores["sensitivity"]["value"] == pytest.approx(found / 100, abs=0.05)
    assert "The uncertainty is better than chance" in page.read_text()
