import filecmp
import os
import signal

import pytest
import torch

from retinabench.cli.main import run as command
from retinabench.core.errors import InputError
from retinabench.core.files import write_bytes
from retinabench.experiments import run as run_module
from retinabench.experiments.config import load_run
from retinabench.experiments.execution import Resources, check_likelihood
from retinabench.experiments.run import execute
from retinabench.methods import map as map_method
from retinabench.methods.registry import METHODS
from retinabench.methods.training.likelihood import Bernoulli, Categorical, Gaussian, MultiLabel
from retinabench.models.build import build_model
from retinabench.models.settings import ModelConfig
from support.forking import forked
from support.helpers import make_prepared
from support.killing import killing


@pytest.mark.parametrize("name", METHODS)
def test_a_method_supports_the_likelihoods_that_it_declares(name):
    run = load_run(None, [f"method.name={name}"], data="d")
    for likelihood in (Bernoulli(), Categorical(5), Gaussian(), MultiLabel(3)):
        if likelihood.name in run.method.supported():
            check_likelihood(run, likelihood)
        else:
            with pytest.raises(InputError, match=f"'{name}' does not support the likelihood {likelihood.name}"):
                check_likelihood(run, likelihood)


def test_an_unsupported_likelihood_is_refused_before_a_folder_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(map_method.Config, "likelihoods", ("categorical", "gaussian"))
    run = load_run(None, [], data=str(make_prepared(tmp_path / "data")))
    with pytest.raises(InputError, match=r"'map' does not support .*bernoulli.*supports categorical, gaussian"):
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


SMALL = {"name": "resnet18", "width": 4, "stem": "small"}


def train(prepared, out, method):
    words = ["train", "--data", str(prepared), "--out", str(out), "--method", method, "--device", "cpu", "--quiet"]
    small = ["model.name=mlp", "optimizer.epochs=3", "optimizer.batch_size=16"]  # batch norm is in the next test
    assert command([*words, *small]) == 0


def counted(work):
    """Do `work`; return its result and the number of durable writes, each of which ends in `os.replace`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", replace := killing("never", 0))
        return work(), replace.calls


@pytest.fixture(scope="module", autouse=True)
def _saved_after_every_epoch():
    """Otherwise the number of writes would depend on the time that an epoch takes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_module, "SAVED_EVERY", 0.0)
        yield


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, one_thread):
    """The prepared data, and for each method the finished folder and the number of its writes."""
    root = tmp_path_factory.mktemp("undisturbed")
    prepared = make_prepared(root / "data")
    found = {}
    for method in ("map", "dropout"):
        _, writes = counted(lambda method=method: train(prepared, root / method, method))
        (folder,) = (root / method).iterdir()
        found[method] = folder, writes
    return prepared, found


# In a run of three epochs the writes are, in order: run.json; then per epoch best.pt (where it improved), last.pt,
# metrics.jsonl; then posterior.pt, predictions.parquet, done.
FAST = [("after", 0.5, "map"), ("before", 0.9, "dropout")]
MOMENTS = [("before", 0.0), ("torn", 0.3), ("after", 0.5), ("before", 0.6), ("torn", 0.8), ("before", 0.9), ("after", 0.9), ("before", 1.0)]  # fmt: skip
CASES = [(how, share, method) for how, share in MOMENTS for method in ("map", "dropout")]


@pytest.mark.parametrize(
    ("how", "share", "method"),
    [case if case in FAST else pytest.param(*case, marks=pytest.mark.slow) for case in CASES],
)
def test_killed_at_a_write_it_continues_to_the_same_bits(undisturbed, tmp_path, method, how, share):
    prepared, found = undisturbed
    reference, writes = found[method]

    def killed():
        os.replace = killing(how, max(1, round(share * writes)))
        train(prepared, tmp_path, method)

    assert forked(killed) == -signal.SIGKILL
    (folder,) = tmp_path.iterdir()
    assert not (folder / "done").exists()
    train(prepared, tmp_path, method)
    for name in ("done", "predictions.parquet", "posterior.pt"):
        assert filecmp.cmp(reference / name, folder / name, shallow=False), name
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("trained", "share"),
    [("head", 0.1), ("1", 0.5), *(pytest.param(*one, marks=pytest.mark.slow) for one in (("head", 0.9), ("all", 0.5)))],
)
def test_pretrained_networks_continue_to_the_same_bits(tmp_path, one_thread, trained, share):
    """A head on cached features, the last stage alone, and the whole network; 0.1 is within the features of the first."""
    data = [make_prepared(tmp_path / name) for name in ("data", "again")]
    torch.save(build_model(ModelConfig(**SMALL), seed=7).state_dict(), tmp_path / "w.pt")
    words = [*(f"model.{key}={value}" for key, value in SMALL.items()), f"model.weights={tmp_path / 'w.pt'}",
             f"model.trained={trained}", "optimizer.augment=none", "optimizer.epochs=3", "optimizer.batch_size=16",
             "optimizer.select=last", "task=in_domain"]  # fmt: skip

    def work(folder, out):
        return execute(load_run(None, words, data=str(folder)), tmp_path / out, Resources("cpu"))

    whole, writes = counted(lambda: work(data[0], "whole"))

    def killed():
        os.replace = killing("after", max(1, round(share * writes)))
        work(data[1], "killed")

    assert forked(killed) == -signal.SIGKILL
    assert not list((tmp_path / "killed").glob("*/done"))
    continued = work(data[1], "killed")
    for name in ("predictions.parquet", "posterior.pt"):
        assert filecmp.cmp(whole / name, continued / name, shallow=False), name
