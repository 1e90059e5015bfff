"""Every method trains, continues, saves and exports a user's own network (`support/own_network.py`)."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import retinabench as rb
from retinabench.cli.main import run as command
from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run
from retinabench.experiments.conformance import CHECKS, Subject
from retinabench.experiments.engines.engine import LocalEngine
from retinabench.experiments.engines.scheduler import Job
from retinabench.experiments.execution import Resources
from retinabench.experiments.run import execute
from retinabench.methods.registry import METHODS
from retinabench.predictions.io import read_predictions
from support import own_network
from support.helpers import OF_SMALL_NETWORKS, fast, make_prepared, quick

PAGE = Path(__file__).parents[2] / "docs" / "pretrained.md"
NAME = "support.own_network:make"
# The epoch of the lowest NLL: the easy images have an AUROC of 1 after one epoch, of weights that hardly differ from the first.
SHORT = ["epochs=3", "batch_size=16", "lr=0.05", "select=nll", "reweight=minibatch"]
SHORT = [f"optimizer.{one}" for one in SHORT]
# Draws of Pathfinder are as wide as the prior in most directions of these 3,000 weights.
OWN = {"sgld": ["optimizer.epochs=6"], "pathfinder": ["optimizer.l2=0.1"]}


@pytest.fixture(scope="module")
def subjects(prepared, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    own = {name: [*OWN.get(name, []), *quick(name, 50)] for name in METHODS}
    words = {name: [*SHORT, f"method.name={name}", *own[name]] for name in METHODS}
    runs = {name: load_run(None, words[name], data=prepared, model=own_network.make) for name in METHODS}
    return {name: Subject(run, out / name) for name, run in runs.items()}


ASKED = [(name, check) for check in ("learns", "continues_after_a_stop", "travels") for name in METHODS]
LATER = ("records_its_origin", "is_computed_once", "restores_its_posterior", "predicts_probabilities")


@pytest.mark.parametrize(("name", "check"), [*ASKED, *((name, one) for name in OF_SMALL_NETWORKS for one in LATER)])
def test_a_method_keeps_its_contract_with_it(subjects, name, check):
    CHECKS[check](subjects[name])


@pytest.mark.parametrize("name", fast(METHODS, ("map", "mfvi", "laplace", "swag", "sgld", "hmc")))
def test_it_depends_on_the_seed(subjects, name):
    CHECKS["depends_on_the_seed"](subjects[name])


def test_the_run_names_the_function_and_says_which_file_it_came_from(subjects, tmp_path, monkeypatch):
    folder, run = subjects["map"].finished, subjects["map"].run
    about = json.loads((folder / "run.json").read_text())
    assert f'"name":"{NAME}"' in about["identity"]
    assert about["network_file"].endswith("own_network.py")
    (other := tmp_path / folder.name).mkdir()
    (other / "run.json").write_text(json.dumps({**about, "network_sha256": "0" * 64}))
    with pytest.raises(InputError, match=r"another network_sha256.*Restore what it was begun with"):
        execute(run, tmp_path, Resources("cpu"))


def test_worker_processes_train_it_to_the_same_bits(subjects, tmp_path):
    own = subjects["map"]
    (outcome,) = LocalEngine(places=1, device="cpu").compute([Job(own.run, tmp_path)])
    assert outcome.state == "done", outcome
    assert np.array_equal(read_predictions(outcome.folder / "predictions.parquet").probs, own.predictions.probs)


def test_its_exported_model_runs_code_only_where_the_caller_names_it(subjects, tmp_path, capsys):
    folder, model = subjects["map"].finished, tmp_path / "model"
    assert command(["export", str(folder), "--out", str(model)]) == 2
    assert f"--model {NAME}" in capsys.readouterr().err
    assert command(["export", str(folder), "--out", str(model), "--model", NAME]) == 0
    with pytest.raises(InputError, match=f"If you trust that code.*--model {NAME}"):
        rb.load_model(model)
    assert rb.load_model(model, model=NAME).notes == ()
    (model / "SHA256SUMS").unlink()
    about = json.loads((model / "model.json").read_text())
    about["run"]["model"]["name"] = "os:abort"  # would end this process
    (model / "model.json").write_text(json.dumps(about | {"network_sha256": ""}))
    with pytest.raises(InputError, match="holds a model of 'os:abort'"):
        rb.load_model(model)
    (note,) = rb.load_model(model, model=NAME).notes
    assert "is not the one that the model was exported with" in note


def test_a_run_predicts_other_data_where_its_code_is_named(subjects, tmp_path, capsys):
    folder, other = subjects["map"].finished, make_prepared(tmp_path / "other", seed=4)
    words = ["predict", str(folder), "--data", str(other), "--out", str(tmp_path / "p.parquet"), "-q"]
    assert command(words) == 2
    assert "If you trust that code" in capsys.readouterr().err
    assert command([*words, "--model", NAME]) == 0


def test_check_and_train_take_it_and_its_preset_s_width_is_left_out(prepared, tmp_path, monkeypatch, capsys):
    words = [
        "--data", prepared, "--config", "demo/map", "--model", NAME, "--out", str(tmp_path), "-q", "optimizer.epochs=1",
    ]  # fmt: skip
    assert command(["train", *words]) == 0
    assert command(["train", *words, "model.width=8"]) == 2
    assert "has one width" in capsys.readouterr().err
    assert command(["train", *words[:5], "support.own_network:two_logits", *words[6:]]) == 2
    assert "not logits of shape (2, 1)" in capsys.readouterr().err
    assert len(list(tmp_path.iterdir())) == 1  # what is refused leaves no folder
    monkeypatch.setattr("retinabench.experiments.conformance.checks_of", lambda name: ["learns", "travels"])
    check = "check map --model support.own_network:Pooled --size 20 -q optimizer.lr=0.2 optimizer.epochs=9"
    assert command(check.split()) == 0


@pytest.mark.parametrize(
    ("function", "method", "says"),
    [
        ("without_activations", "dropout", "has no activation modules to put dropout behind"),
        ("without_linear", "laplace", "has no linear layer to be its last one"),
        ("Doubled", "vbll", "logits are not the output of its last linear layer 'linear'"),
    ],
)
def test_what_a_method_needs_and_a_network_lacks_is_named(prepared, tmp_path, function, method, says):
    words = [*SHORT, f"method.name={method}", f'model.name="support.own_network:{function}"']
    with pytest.raises(InputError, match=says):
        execute(load_run(None, words, data=prepared), tmp_path, Resources("cpu"))


def test_the_example_of_a_network_trains(tmp_path, monkeypatch, capsys):
    code, commands = re.search(
        r"## Your own network.*?```python\n(.*?)```.*?```sh\n(.*?)```", PAGE.read_text(), re.DOTALL
    ).groups()
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    (tmp_path / "eyenet.py").write_text(code)
    make_prepared(tmp_path / "data" / "idrid")
    train, check = commands.splitlines()
    assert command([*train.split()[1:], "optimizer.epochs=1", "-q"]) == 0
    predictions = read_predictions(capsys.readouterr().out.strip())
    assert predictions.metadata["model"] == "eyenet:small"
    assert check.startswith("retinabench check laplace --model eyenet:small")
    monkeypatch.delitem(sys.modules, "eyenet")
