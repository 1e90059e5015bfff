import json
import os
import socket
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch

from retinabench.cli import main as cli
from retinabench.experiments import run as image_predictions
from retinabench.experiments.config import load_run
from retinabench.experiments.engines.worker import output_to
from retinabench.experiments.execution import Resources
from retinabench.experiments.predict import predict_on
from retinabench.experiments.run import execute
from retinabench.methods.base import is_composed
from retinabench.methods.registry import METHODS
from retinabench.methods.training import prediction
from retinabench.methods.training.checkpoint import load_tensors
from retinabench.predictions.io import read_predictions
from support.forking import ended, fork
from support.helpers import make_prepared

WORDS = ["optimizer.epochs=3", "optimizer.batch_size=24", "optimizer.lr=0.05", "optimizer.augment=false",
         "optimizer.select=last", "optimizer.validation_share=1"]  # fmt: skip

LENET = ["model.name=lenet", *WORDS]
BATCH_NORM = ["model.name=resnet18", "model.width=4", "model.stem=small", *WORDS]
DRIFTING = """
import sys
import torch
from retinabench.cli import main as cli
from retinabench.methods import map
from retinabench.methods.training import distributed, loop

def fit(model, batches, run, checkpoint, likelihood):
    posterior = map.build(model, run, likelihood)
    data_term = loop.likelihood_only(model, batches, run, likelihood)
    def objective(images, labels, batch):
        if batch.step == 1:
            model.fc.bias.data += 0.01 * distributed.current().rank
        return data_term(images, labels, batch)
    return loop.train(posterior, batches, run, checkpoint, objective=objective)

map.fit = fit
sys.exit(cli.run(sys.argv[1:]))
"""

# `train` that leaves what only a training that continues would need.
KEEPING = """
import sys
from retinabench.cli import main as cli
from retinabench.experiments import execution
execution._delete_training = lambda *given: None
sys.exit(cli.run(sys.argv[1:]))
"""

# `train` of the command line for each method in turn: the processes meet once, PyTorch is imported once.
EVERY = """
import sys
from retinabench.cli import main as cli
from retinabench.methods.registry import METHODS
from retinabench.methods.base import is_composed

for name, method in METHODS.items():
    if not is_composed(method):
        code = cli.run([*sys.argv[1:], f"method.name={name}"])
        if code:
            sys.exit(code)
"""

SINGLE = [name for name, method in METHODS.items() if not is_composed(method)]

SAME = (
    "map", "laplace", "swag", "ivon", "vogn", "gaussian_vi", "sgld", "sghmc", "csghmc", "multiswag", "anchored",
    "sequential_anchored", "hmc", "nuts", "mclmc", "mile",
)  # fmt: skip


def train(processes, prepared, out, words, program=("-m", "retinabench")):
    started = [
        subprocess.Popen(
            [sys.executable, *program, *command(prepared, out, words)], env={**os.environ, **place},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for place in places(processes)
    ]  # fmt: skip
    said = [process.communicate()[0] for process in started]
    return [process.returncode for process in started], said


def command(prepared, out, words):
    where = ["--data", str(prepared), "--out", str(out), "--device", "cpu", "--quiet", "--task", "in_domain"]
    return ["train", *where, *words]


def places(processes):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    every = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(processes)}
    return [{**every, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(processes)]


def history(out):
    (folder,) = out.iterdir()
    return folder, [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    # 70 images: batches of 24, 24 and 22, halves of 12 and 11.
    parts = (("in_domain", "train", 70), ("in_domain", "validation", 24), ("in_domain", "test", 30))
    return make_prepared(tmp_path_factory.mktemp("data") / "prepared", parts=parts)


def test_two_processes_are_one_with_the_double_batch(prepared, tmp_path, monkeypatch):
    """Training, validation and prediction; dropout's noise is of single images, and is drawn once for each of them."""
    monkeypatch.setattr(image_predictions, "PREDICT_BATCH", 8)
    monkeypatch.setattr(prediction, "VALIDATION_BATCH", 8)
    run = load_run(None, [*LENET, "task=in_domain"], data=str(prepared))
    execute(run, tmp_path / "1", Resources("cpu"))
    run = load_run(None, [*LENET, "method.name=dropout", "task=in_domain"], data=str(prepared))
    dropout = execute(run, tmp_path / "dropout", Resources("cpu"))
    other = make_prepared(tmp_path / "other", parts=(("in_domain", "test", 30),), size=16, seed=5)
    files = [tmp_path / "one.parquet", tmp_path / "two.parquet"]
    predict_on(dropout, other, files[0], Resources("cpu"))
    said = [tmp_path / "first.log", tmp_path / "second.log"]

    def work(place, log):
        os.environ.update(place)
        words = ["predict", str(dropout), "--data", str(other), "--out", str(files[1]), "--device", "cpu", "--quiet"]
        with output_to(log):
            assert cli.run(command(prepared, tmp_path / "2", LENET)) == cli.run(words) == 0

    forks = [fork(partial(work, *given)) for given in zip(places(2), said, strict=True)]
    told = [(ended(process), log.read_text()) for process, log in zip(forks, said, strict=True)]
    assert [code for code, _ in told] == [0, 0], told
    assert sum(text.count("predictions.parquet") for _, text in told) == 1  # the first process prints the result
    (one, alone), (two, together) = history(tmp_path / "1"), history(tmp_path / "2")
    assert one.name == two.name  # how many processes train a run is no part of it
    assert json.loads((two / "run.json").read_text())["processes"] == 2
    for a, b in zip(alone, together, strict=True):
        for term in ("loss", "validation_nll"):
            # float32 sums of 24 gradients in another order differ near 1e-7 and grow over nine steps.
            assert a[term] == pytest.approx(b[term], rel=1e-5), term
    weights = [load_tensors(folder / "posterior.pt") for folder in (one, two)]
    for name in weights[0]:
        assert torch.allclose(weights[0][name], weights[1][name], atol=1e-5), name
    probs = [read_predictions(folder / "predictions.parquet").probs.copy() for folder in (one, two)]
    assert np.allclose(*probs, atol=1e-5)
    assert np.array_equal(*(read_predictions(file).probs for file in files))


@pytest.fixture(scope="module")
def by_two(prepared, tmp_path_factory):
    """Every single method trained by two processes, one after the other; folders by name."""
    out = tmp_path_factory.mktemp("by_two")
    program = tmp_path_factory.mktemp("program") / "every.py"
    program.write_text(EVERY)
    codes, said = train(2, prepared, out, LENET, program=[str(program)])
    assert codes == [0, 0], said
    # The folder of a run on top of another one is named after both: map-tta-lenet-….
    return {folder.name.partition("-lenet")[0].rpartition("-")[2]: folder for folder in out.iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize("name", SINGLE)
def test_two_processes_train_every_method(by_two, prepared, tmp_path, name):
    """Without batch norm, methods whose noise is not of single images are those of one process, number by number."""
    run = load_run(None, [*LENET, f"method.name={name}", "task=in_domain"], data=str(prepared))
    one, two = execute(run, tmp_path, Resources("cpu")), by_two[name]
    assert json.loads((two / "run.json").read_text())["processes"] == 2
    states = [load_tensors(folder / "posterior.pt") for folder in (one, two)]
    assert states[0].keys() == states[1].keys()
    probs = [read_predictions(folder / "predictions.parquet").probs.copy() for folder in (one, two)]
    if name == "laplace":  # a factor is one of many of the same covariance, and so are the samples
        for state, prob in zip(states, probs, strict=True):
            state["beside/factor"] = state["beside/factor"] @ state["beside/factor"].T
            prob[:] = 0
    if name in SAME:
        for key in states[0]:
            assert torch.allclose(states[0][key], states[1][key], rtol=1e-3, atol=1e-4), key
        assert np.allclose(*probs, atol=1e-3)
    else:
        # Other noise, so other numbers, of the same size: losses of nine steps near log 2. The members of BatchEnsemble get
        # other images, as another seed would give them: its losses then have a standard deviation of .09 over six seeds.
        assert np.isfinite(probs[1]).all()
        if hasattr(METHODS[name], "trained_by"):  # it has the weights of another run, and no losses
            return
        losses = [json.loads((f / "metrics.jsonl").read_text().splitlines()[-1])["loss"] for f in (one, two)]
        tolerance = {"abs": 0.25} if name == "batch_ensemble" else {"rel": 0.2}
        assert losses[0] == pytest.approx(losses[1], **tolerance)


@pytest.mark.slow
def test_two_processes_train_batch_norm_and_noise_and_continue_to_the_same_bits(prepared, tmp_path):
    words = [*BATCH_NORM, "method=dropout"]
    codes, said = train(2, prepared, tmp_path, words, program=["-c", KEEPING])
    assert codes == [0, 0], said
    folder, rows = history(tmp_path)
    probs = read_predictions(folder / "predictions.parquet").probs
    # Take the end away: the last epoch's record stays, and the same command continues from there.
    assert (folder / "last.pt").is_file()
    for name in ("done", "posterior.pt", "predictions.parquet"):
        (folder / name).unlink()
    codes, said = train(2, prepared, tmp_path, words)
    assert codes == [0, 0], said
    assert len(rows) == 3
    assert np.array_equal(probs, read_predictions(folder / "predictions.parquet").probs)


@pytest.mark.slow
def test_a_broken_loss_ends_every_process(prepared, tmp_path):
    codes, said = train(2, prepared, tmp_path, [*LENET, "optimizer.lr=1e12", "optimizer.warmup=0"])
    assert all(codes)  # 1, unless gloo aborts the one whose partner left first
    assert all("'cross_entropy' is not finite at step" in line for line in said)


@pytest.mark.slow
def test_weights_that_drift_apart_are_refused(prepared, tmp_path):
    """A method that changes its weights by its own noise, which differs between processes."""
    method = tmp_path / "drifting.py"
    method.write_text(DRIFTING)
    codes, said = train(2, prepared, tmp_path / "runs", LENET, program=[str(method)])
    assert all(codes)  # 1, unless gloo aborts the one whose partner left first
    assert all("no longer hold the same weights" in line for line in said)
