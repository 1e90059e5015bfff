"""What the run engine refuses before it computes anything."""

from __future__ import annotations

import contextlib
import errno
import io

import pytest
import torch

from retinabench.core.atomic_files import explain, write_bytes
from retinabench.core.errors import InputError, WorkError
from retinabench.experiments.config import load_run
from retinabench.experiments.execution import check_likelihood
from retinabench.experiments.resources import Resources
from retinabench.experiments.run import execute
from retinabench.methods import map as map_method
from retinabench.methods.base import is_composed
from retinabench.methods.registry import METHODS
from retinabench.methods.training import checkpoint
from retinabench.methods.training.checkpoint import Checkpoint, save_tensors
from retinabench.methods.training.likelihood import Bernoulli, Categorical, Gaussian, MultiLabel
from support.helpers import make_prepared


@pytest.mark.parametrize("name", METHODS)
def test_a_method_supports_the_likelihoods_that_it_declares(name):
    run = load_run(None, [f"method.name={name}"], data="d")
    for likelihood in (Bernoulli(), Categorical(5), Gaussian(), MultiLabel(3)):
        if likelihood.name in run.method.supported():
            check_likelihood(run, likelihood)
        else:
            with pytest.raises(
                InputError, match=f"'{name}' does not support the likelihood {likelihood.name}"
            ):
                check_likelihood(run, likelihood)


def test_an_ensemble_supports_what_its_members_do():
    run = load_run(None, ["method.name=ensemble", "method.member.name=temperature"], data="d")
    assert run.method.supported() == ("bernoulli",)


def test_an_unsupported_likelihood_is_refused_before_a_folder_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(map_method.Config, "likelihoods", ("categorical", "gaussian"))
    run = load_run(None, [], data=str(make_prepared(tmp_path / "data")))
    with pytest.raises(
        InputError, match=r"'map' does not support .*bernoulli.*supports categorical, gaussian"
    ):
        execute(run, tmp_path / "runs", Resources("cpu"))
    assert not (tmp_path / "runs").exists()


def test_what_a_kill_left_beside_the_posterior_is_deleted(tmp_path):
    words = ["model.name=mlp", "model.width=4", "optimizer.epochs=2", "method.name=swag"]
    run = load_run(None, words, data=str(make_prepared(tmp_path / "data")))
    folder = execute(run, tmp_path / "runs", Resources("cpu"))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / "done").unlink()
    (folder / "predictions.parquet").unlink()
    write_bytes(folder / "best.pt", b"weights", checked=True)
    write_bytes(folder / "samples" / "00000.pt", b"weights", checked=True)
    assert execute(run, tmp_path / "runs", Resources("cpu")) == folder
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    (folder / ".SHA256SUMS.1234.part").touch()
    assert execute(run, tmp_path / "runs", Resources("cpu")) == folder
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_metrics_are_there_whenever_the_state_is(tmp_path, monkeypatch):
    def killed(path, content):
        raise KeyboardInterrupt

    saving = Checkpoint(tmp_path, history=[{"epoch": 1}])
    monkeypatch.setattr(checkpoint, "save_tensors", killed)
    with pytest.raises(KeyboardInterrupt):
        saving.save({})
    assert (tmp_path / "metrics.jsonl").read_text() == '{"epoch": 1}\n'


def test_a_full_disk_is_named_although_pytorch_hides_it(tmp_path, monkeypatch):
    class Full(io.BytesIO):
        def write(self, data):
            if self.tell() > 100:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(data)

    @contextlib.contextmanager
    def full(path, **_):
        try:
            yield Full()
        except OSError as error:
            raise explain(error, path) from error

    monkeypatch.setattr(checkpoint, "atomic_write", full)
    with pytest.raises(WorkError, match=r"last.pt: no space left"):
        save_tensors(tmp_path / "last.pt", {"w": torch.zeros(1000)})


def test_composed_methods_are_those_with_member_runs():
    assert {name for name, method in METHODS.items() if is_composed(method)} == {"ensemble", "temperature"}
