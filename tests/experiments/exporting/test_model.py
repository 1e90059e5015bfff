import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run
from retinabench.experiments.execution import Resources
from retinabench.experiments.exporting.model import export_run
from retinabench.experiments.exporting.model_files import leaf_runs
from retinabench.experiments.exporting.predict_images import predict_images
from retinabench.experiments.run import execute
from retinabench.experiments.run_folder import finished_run
from retinabench.models.build import build_model
from retinabench.models.settings import ModelConfig
from retinabench.predictions.io import read_predictions
from support.raw_images import prepared_from


def run(*words):
    return load_run(None, ["model.name=lenet", *words], data="d")


def test_the_trained_members_of_pooled_runs_are_found():
    assert [one.seed for one in leaf_runs(run("method=map", "seed=4"))] == [4]
    assert [one.seed for one in leaf_runs(run("method=ensemble", "method.members=2"))] == [0, 1]
    cases = (["method=temperature"], "is fitted to the predictions"), (["cross_validation.folds=2"], "is not a model")
    for words, says in cases:
        with pytest.raises(InputError, match=says):
            list(leaf_runs(run(*words)))


@pytest.mark.parametrize(
    "words",
    [
        ["method=ensemble", "method.members=2", "method.member.name=ddu"],
        pytest.param(["model.inputs=unit"], marks=pytest.mark.slow),
    ],
)
def test_an_exported_model_predicts_raw_images_as_its_run_did_without_the_data(finished, raw, tmp_path, words):
    """`tests/conformance` exports every method; here the images are read from their files."""
    run = finished(*words, out=tmp_path / "runs")
    own = read_predictions(run / "predictions.parquet").select(split="test")
    export_run(run, tmp_path / "model")
    data = Path(finished_run(run).run.data)
    shutil.rmtree(tmp_path / "runs")
    moved = (tmp_path / "model").rename(tmp_path / "moved")
    gone = data.rename(tmp_path / "data")
    try:
        found = predict_images(rb.load_model(moved), raw, tmp_path / "p.parquet", labels="labels.csv")
    finally:
        gone.rename(data)
    predictions = read_predictions(found.predictions)
    place = {name: row for row, name in enumerate(predictions.image_id)}
    rows = [place[name] for name in own.image_id]
    # Batches of other sizes round convolutions in another order.
    assert np.allclose(predictions.probs[rows], own.probs, atol=1e-5)
    assert np.array_equal(predictions.label[rows], own.label)
    assert (predictions.uncertainty is None) == (own.uncertainty is None)
    if own.uncertainty is not None:  # squared distances by small variances: the rounding grows
        assert np.allclose(predictions.uncertainty[rows], own.uncertainty, rtol=1e-2)


def test_a_head_travels_with_its_trunk(finished, raw, tmp_path):
    torch.save(build_model(ModelConfig(name="resnet18", width=4, stem="small"), seed=7).state_dict(), tmp_path / "w.pt")
    words = [f"model.weights={tmp_path / 'w.pt'}", "model.trained=head", "optimizer.augment=none"]
    run = finished(*words)
    own = read_predictions(run / "predictions.parquet").select(split="test")
    export_run(run, tmp_path / "model")
    (tmp_path / "w.pt").unlink()
    files = [p for p in (tmp_path / "model").glob("*.[jm]*") if p.suffix != ".safetensors"]
    assert str(tmp_path) not in "".join(p.read_text() for p in files)
    found = predict_images(rb.load_model(tmp_path / "model"), raw, tmp_path / "p.csv", labels="labels.csv")
    predictions = read_predictions(found.predictions)
    place = {name: row for row, name in enumerate(predictions.image_id)}
    # A feature's rounding is divided by its std over the images, which is small in a random network.
    assert np.allclose(predictions.prob[[place[name] for name in own.image_id]], own.prob, atol=1e-3)


def test_the_card_states_the_test_scores_and_the_label(model):
    card = (model / "README.md").read_text()
    assert "grade 2 or higher" in card
    assert "| auroc |" in card
    assert "40 images" not in card  # of the 40 training images some validate


def test_a_model_predicts_fewer_images_at_a_time_where_memory_runs_out(model, monkeypatch):
    found = rb.load_model(model)
    size = found.recipe.size
    images = np.random.default_rng(0).integers(0, 256, (9, size, size, 3), dtype=np.uint8)
    whole, inputs = found.predict(images), rb.ExportedModel.inputs

    def short(self, images):
        if len(images) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")
        return inputs(self, images)

    monkeypatch.setattr(rb.ExportedModel, "inputs", short)
    assert np.allclose(found.predict(images), whole, atol=1e-6)
    assert found.limits.prediction == 4  # 128, halved


@pytest.mark.parametrize(
    ("images", "says"),
    [
        (np.zeros((0, 32, 32, 3), np.uint8), "images have shape"),
        (np.zeros((1, 32, 32, 3), np.float32), "images have shape"),
        (np.zeros((1, 64, 64, 3), np.uint8), "images have shape"),
    ],
)
def test_what_are_no_images_is_named(model, images, says):
    with pytest.raises(InputError, match=rf"{says}.*Needed are \(N, 32, 32, 3\) uint8"):
        rb.load_model(model).predict(images)


def changed(change):
    def damage(folder):
        about = json.loads((folder / "model.json").read_text())
        change(about)
        (folder / "model.json").write_text(json.dumps(about))

    return damage


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda f: (f / "model.json").unlink(), "holds no exported model"),
        (lambda f: (f / "model.json").write_text("{"), "model.json: is damaged"),
        (lambda f: (f / "model.json").write_text('{"format": "other/9"}'), "format 'other/9'"),
        (lambda f: (f / "scale.safetensors").unlink(), "scale.safetensors: is missing"),
        (lambda f: (f / "member-0.safetensors").write_bytes(b"\x00" * 20), "member-0.safetensors: is damaged"),
        (lambda f: shutil.copy(f / "scale.safetensors", f / "member-0.safetensors"), "of another network"),
        (changed(lambda a: a.pop("recipe")), "neither how images are made nor which columns"),
        (changed(lambda a: a["run"]["model"].update(name="resnet19")), "unknown model 'resnet19'"),
        (changed(lambda a: a["run"]["model"].update(width=10**5)), "another network .* parameters"),
        (changed(lambda a: a["run"]["model"].update(width=10**9)), "does not fit into memory"),
        (changed(lambda a: a["run"]["model"].update(weights="/dev/zero")), "without its SHA-256"),
        (changed(lambda a: a["run"]["method"].update(name="of-a-plug-in")), "of-a-plug-in"),
        (changed(lambda a: a["run"].update(method={"name": "ensemble", "members": 9})), "9 members, of which 1"),
        (changed(lambda a: a["run"].update(method={"name": "dropout", "samples": 10**9})), "is more than 10,000"),
        (changed(lambda a: a["run"].update(method={"name": "vbll", "rank": 10**9})), "is of no model of these tensors"),
        (changed(lambda a: a["recipe"].update(size="32")), "is damaged"),
        (changed(lambda a: a.update(referable_from=True)), "is damaged"),
        (changed(lambda a: a.update(code="import os")), "unknown key 'code'"),
        (changed(lambda a: a["run"]["model"].update(name="os:abort")), "whose code is not part of it"),
        (lambda f: tensors(f / "member-0.safetensors", lambda t: t["conv1.weight"].fill_(torch.nan)), "not finite"),
        (lambda f: tensors(f / "scale.safetensors", lambda t: t["std"].zero_()), "not all std are above 0"),
        (lambda f: tensors(f / "scale.safetensors", lambda t: t.update(mean=torch.zeros(1))), "3 numbers each"),
        (lambda f: (f / "model.json").write_text("[" * 10**5), "is damaged"),
        (lambda f: (f / "model.json").write_text(" " * (2**22 + 1)), "more than 4,194,304 bytes"),
        (lambda f: cut(f / "member-0.safetensors"), "is damaged"),
        (lambda f: torch.save({"conv1.weight": torch.ones(3)}, f / "member-0.safetensors"), "is damaged"),
    ],
)
def test_a_damaged_model_is_named_in_one_line(model, tmp_path, damage, says):
    copy = shutil.copytree(model, tmp_path / "copy", ignore=shutil.ignore_patterns("SHA256SUMS"))
    damage(copy)
    with pytest.raises(InputError, match=says) as error:
        rb.load_model(copy)
    assert "\n" not in str(error.value)


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def tensors(path, change):
    content = {name: tensor.clone() for name, tensor in load_file(path).items()}
    change(content)
    save_file(content, path)


HERE = "support.own_network:"


def test_only_a_finished_run_is_exported_into_an_empty_folder(finished, tmp_path):
    with pytest.raises(InputError, match="holds no finished run"):
        export_run(tmp_path, tmp_path / "model")
    run = finished()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="is not empty and holds no model"):
        export_run(run, tmp_path / "model")
    assert (tmp_path / "model" / "thesis.txt").read_text() == "mine"
    export_run(run, tmp_path / "other")
    (tmp_path / "other" / "model.json").unlink()  # as after a kill before the end
    export_run(run, tmp_path / "other")


def test_a_network_of_another_shape_leaves_no_folder(raw, tmp_path):
    words = [f"model.name={HERE}Pooled", "task=in_domain", "optimizer.epochs=1", "optimizer.select=last"]
    data = str(prepared_from(raw, tmp_path / "data"))
    run = execute(load_run(None, words, data=data), tmp_path / "runs", Resources("cpu"))
    for wrong, says in [("absent", "has no function 'absent'"), ("two_logits", "another network")]:
        with pytest.raises(InputError, match=says):
            export_run(run, tmp_path / "model", HERE + wrong)
        assert not (tmp_path / "model").exists()
    export_run(run, tmp_path / "model", HERE + "Pooled")
