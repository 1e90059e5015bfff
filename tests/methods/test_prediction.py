import hashlib
import json

import numpy as np
import pytest
import torch

from retinabench.cli.main import run as command
from retinabench.data.loader import FILE
from retinabench.experiments.config import load_run
from retinabench.methods.posteriors import SampledPosterior
from retinabench.methods.training import gradients as gradients_module
from retinabench.methods.training.posterior import fingerprint
from retinabench.methods.training.prediction import ValidationPlan, validation_plan
from retinabench.predictions.io import read_predictions


@pytest.mark.parametrize(
    ("words", "training", "held_out", "plan"),
    [
        (["filos2019/deterministic"], 28_000, 7_000, (1, 1)),  # 7,000 of 91,000 passes
        (["filos2019/dropout"], 28_000, 7_000, (1, 1)),  # all 100 samples would be 700,000 of 784,000
        ([None, "method=dropout"], 90_000, 1_000, (5, 1)),
        (
            [None, "method=mfvi", "method.train_samples=5"],
            6_000,
            2_000,
            (5, 1),
        ),  # a step takes five gradients per image
        ([None], 70, 24, (1, 2)),
        ([None, "method=dropout", "optimizer.validation_share=0.01"], 1_000, 1_000, (1, 33)),
        ([None, "method=dropout", "optimizer.validation_share=1"], 10, 1_000, (5, 1)),
        ([None, "method=dropout"], 10, 0, (5, 1)),
    ],
)
def test_validation_takes_a_tenth_of_the_passes(words, training, held_out, plan):
    run = load_run(words[0], words[1:], data="none")
    found = validation_plan(run, training, held_out)
    assert found == ValidationPlan(*plan)
    if held_out and run.optimizer.validation_share < 1:
        passes = held_out * found.samples / found.every
        gradients = 3 * training * run.method.gradients_per_example(run.optimizer) / run.optimizer.epochs
        assert passes / (passes + gradients) <= run.optimizer.validation_share


TRAIN = ("--task", "in_domain", "--device", "cpu", "model.name=lenet", "method=dropout", "optimizer.epochs=2",
         "optimizer.batch_size=16", "optimizer.augment=none", "optimizer.validation_share=1")  # fmt: skip


def scarce(monkeypatch, most):
    """Let passes of more than `most` images run out of memory, in training and in prediction."""
    objective, predict = gradients_module.with_less, SampledPosterior.predict

    def short(self, images, samples, generator):
        found = predict(self, images, samples, generator)
        if len(images) > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")
        return found

    def step(attempt, begin, limits, work, size, device, least=1):
        def checked(images):
            if images > most:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")
            return attempt(images)

        return objective(checked, begin, limits, work, size, device, least)

    monkeypatch.setattr(SampledPosterior, "predict", short)
    monkeypatch.setattr(gradients_module, "with_less", step)


def test_a_run_goes_on_where_memory_runs_out(prepared, tmp_path, monkeypatch, capsys):
    scarce(monkeypatch, 6)
    assert command(["train", "--data", prepared, "--out", str(tmp_path), *TRAIN]) == 0
    (folder,) = tmp_path.iterdir()
    record = json.loads((folder / FILE).read_text())
    assert (record["training"], record["validation"], record["prediction"]) == (4, 6, 3)
    said = capsys.readouterr()
    assert said.err.count("out of memory with") == len(record["history"])  # each is said once
    assert len(read_predictions(folder / "predictions.parquet").label) == 24 + 32
    # A run that continues has the limits from the start, and predicts the same numbers.
    probs = read_predictions(folder / "predictions.parquet").probs
    (folder / "done").unlink()
    assert command(["train", "--data", prepared, "--out", str(tmp_path), *TRAIN]) == 0
    assert "out of memory" not in capsys.readouterr().err
    assert np.array_equal(read_predictions(folder / "predictions.parquet").probs, probs)


def test_too_little_memory_for_one_image_is_one_line(prepared, tmp_path, monkeypatch, capsys):
    scarce(monkeypatch, 0)
    assert command(["train", "--data", prepared, "--out", str(tmp_path), *TRAIN]) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[-1].startswith("retinabench: error: cpu ran out of memory: training with 1 image at a time")
    assert "Traceback" not in "".join(said)


def test_the_fingerprint_is_the_stated_hash_whatever_the_order():
    digest = hashlib.sha256()
    for name, tensor in (("a", torch.ones(2)), ("b", torch.zeros(1, dtype=torch.int64))):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.numpy().tobytes())
    state = {"b": torch.zeros(1, dtype=torch.int64), "a": torch.ones(2)}
    assert fingerprint(state) == digest.hexdigest()[:16]
    assert fingerprint({**state, "a": torch.ones(2, 1)}) != fingerprint(state)
