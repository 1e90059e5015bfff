"""`kill -9` at any write, then the same command: the same predictions, bit for bit, as an undisturbed run."""

from __future__ import annotations

import filecmp
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from retinabench.experiments.config import load_run
from retinabench.experiments.resources import Resources
from retinabench.experiments.run import execute
from retinabench.models.build import build_model
from retinabench.models.settings import ModelConfig
from support.helpers import TINY, make_prepared
from support.killing import KILLING

SMALL = {"name": "resnet18", "width": 4, "stem": "small"}

# Every durable write ends in os.replace. The driver kills itself there: before it, half-way through the
# temporary file, or right after it. In a run of three epochs the writes are, in order: run.json; then per epoch
# best.pt (where it improved), last.pt, metrics.jsonl; then posterior.pt, predictions.parquet, done.
DRIVER = f"""
{KILLING}
import os, sys
from retinabench.cli import main as cli

os.replace = killing(sys.argv[1], int(sys.argv[2]))
code = cli.run(sys.argv[3:])
print("writes", os.replace.calls)
sys.exit(code)
"""


def command(prepared, out, method):
    return [
        "train",
        "--data",
        str(prepared),
        "--out",
        str(out),
        "--method",
        method,
        "--device",
        "cpu",
        "--quiet",
        *TINY,
    ]


def drive(how, target, arguments):
    return subprocess.run(
        [sys.executable, "-c", DRIVER, how, str(target), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The prepared data, and for each method the finished folder and the number of its writes."""
    root = tmp_path_factory.mktemp("undisturbed")
    prepared = make_prepared(root / "data")
    found = {}
    for method in ("map", "dropout"):
        done = drive("never", 0, command(prepared, root / method, method))
        assert done.returncode == 0, done.stderr
        (folder,) = (root / method).iterdir()
        found[method] = folder, int(done.stdout.split()[-1])
    return prepared, found


FAST = [("after", 0.5, "map"), ("before", 0.9, "dropout"), ("before", 1.0, "map")]
MOMENTS = [("before", 0.0), ("torn", 0.3), ("after", 0.5), ("before", 0.6), ("torn", 0.8), ("before", 0.9), ("after", 0.9), ("before", 1.0)]  # fmt: skip
CASES = [(how, share, method) for how, share in MOMENTS for method in ("map", "dropout")]


@pytest.mark.parametrize(
    ("how", "share", "method"),
    [case if case in FAST else pytest.param(*case, marks=pytest.mark.slow) for case in CASES],
)
def test_killed_at_a_write_it_continues_to_the_same_bits(undisturbed, tmp_path, method, how, share):
    prepared, found = undisturbed
    reference, writes = found[method]
    arguments = command(prepared, tmp_path, method)
    killed = drive(how, max(1, round(share * writes)), arguments)
    assert killed.returncode == -signal.SIGKILL
    (folder,) = tmp_path.iterdir()
    assert not (folder / "done").exists()
    continued = drive("never", 0, arguments)
    assert continued.returncode == 0, continued.stderr
    assert (folder / "done").exists()
    for name in ("predictions.parquet", "posterior.pt"):
        assert filecmp.cmp(reference / name, folder / name, shallow=False), name
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 3


@pytest.mark.slow
def test_killed_in_the_middle_of_an_epoch_again_and_again(undisturbed, tmp_path):
    """Kill by the clock, wherever the work is: after each epoch's record appears, and at odd moments."""
    prepared, found = undisturbed
    arguments = [sys.executable, "-m", "retinabench", *command(prepared, tmp_path, "map")]
    kills = 0
    for patience in (0.0, 0.02, 0.05):
        process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        before = _epochs(tmp_path)
        while _epochs(tmp_path) <= before and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(patience)
        process.kill()
        kills += process.wait() == -signal.SIGKILL
    assert kills
    finished = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    (folder,) = tmp_path.iterdir()
    assert filecmp.cmp(found["map"][0] / "predictions.parquet", folder / "predictions.parquet", shallow=False)


def _epochs(out):
    files = list(out.glob("*/metrics.jsonl"))
    return len(files[0].read_text().splitlines()) if files else 0


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize(("trained", "share"), [("head", 0.1), ("head", 0.9), ("1", 0.5), ("all", 0.5)])
def test_pretrained_networks_continue_to_the_same_bits(tmp_path, trained, share):
    """A head on cached features, the last stage alone, and the whole network; 0.1 is within the features of the first."""
    data = [make_prepared(tmp_path / name) for name in ("data", "again")]
    torch.save(build_model(ModelConfig(**SMALL), seed=7).state_dict(), tmp_path / "w.pt")
    words = [*(f"model.{key}={value}" for key, value in SMALL.items()), f"model.weights={tmp_path / 'w.pt'}",
             f"model.trained={trained}", "optimizer.augment=none", "optimizer.epochs=3", "optimizer.batch_size=16",
             "optimizer.select=last", "task=in_domain"]  # fmt: skip

    def work(folder, out):
        return execute(load_run(None, words, data=str(folder)), tmp_path / out, Resources("cpu"))

    writes = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", lambda *given, do=os.replace: (writes.append(1), do(*given)))
        whole = work(data[0], "whole")
    forked = os.fork()
    if not forked:  # the process that is killed at one of its writes
        left = iter(range(max(1, round(share * len(writes))), -1, -1))
        do = os.replace
        os.replace = lambda *given: do(*given) if next(left) else os.kill(os.getpid(), signal.SIGKILL)
        try:
            work(data[1], "killed")
        finally:
            os._exit(0)
    assert os.WTERMSIG(os.waitpid(forked, 0)[1]) == signal.SIGKILL
    assert not list((tmp_path / "killed").glob("*/done"))
    continued = work(data[1], "killed")
    for name in ("predictions.parquet", "posterior.pt"):
        assert filecmp.cmp(whole / name, continued / name, shallow=False), name


def test_no_temporary_file_stays_behind_a_failed_write(tmp_path, monkeypatch):
    from retinabench.core.atomic_files import write_bytes

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(KeyboardInterrupt):
        write_bytes(tmp_path / "x", b"123")
    assert list(tmp_path.iterdir()) == []
