import json
import signal
import sys
from collections import OrderedDict
from itertools import count

import pytest
import torch
from torch import nn

from retinabench.core.errors import InputError, WorkError
from retinabench.methods.settings import Optimizer
from retinabench.methods.training.checkpoint import BEST, LAST, Checkpoint, load_tensors, save_tensors
from retinabench.methods.training.loop import _resume, make_optimizer
from support.forking import forked


class Full:
    """A file on a disk that is full after some bytes."""

    def __init__(self, file):
        self.file, self.left = file, 300

    def write(self, data):
        self.left -= len(data)
        if self.left < 0:
            raise OSError(28, "No space left on device")
        return self.file.write(data)

    def flush(self):
        self.file.flush()


def test_a_full_disk_is_what_is_raised(tmp_path, monkeypatch):
    """PyTorch's archive fails again while it is closed, and would hide what happened first."""
    save = torch.save
    monkeypatch.setattr(torch, "save", lambda content, file: save(content, Full(file)))
    with pytest.raises(WorkError, match="no space left"):
        save_tensors(tmp_path / "a.pt", {"w": torch.zeros(1000)})
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_at_any_line_of_a_write_is_raised(tmp_path):
    """An archive that is completed after its file was closed aborts the process; `copyreg` swallows the interrupt."""
    path, content = tmp_path / "a.pt", OrderedDict(w=torch.ones(2), buffers=[torch.zeros(1)])
    save_tensors(path, content)  # what PyTorch imports late is there from now on
    save, lines = torch.save, 0

    def interrupted_at(step):
        def interrupt(frame, event, argument):
            nonlocal lines
            lines += event == "line"
            if event == "line" and lines == step:
                signal.raise_signal(signal.SIGINT)
            return interrupt

        def traced(*arguments):
            sys.settrace(interrupt)
            try:
                return save(*arguments)
            finally:
                sys.settrace(None)

        return traced

    def at_every_line():
        nonlocal lines
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for step in count(1):
            lines, torch.save = 0, interrupted_at(step)
            try:
                save_tensors(path, content)
            except KeyboardInterrupt:
                continue
            assert 100 < lines < step, f"the interrupt at line {step} of {lines} was lost"
            break
        assert torch.equal(load_tensors(path)["w"], content["w"])

    assert forked(at_every_line) == 0


def test_a_training_continues_with_its_history_and_counts(tmp_path):
    first = Checkpoint(tmp_path, counts={"gradients": 5})
    assert first.resume() is None
    first.history.append({"epoch": 1, "loss": 0.5})
    first.keep_best({"w": torch.ones(2)})
    first.save({"epoch": 1})
    again = Checkpoint(tmp_path)
    assert again.resume()["epoch"] == 1
    assert (again.history, again.counts) == (first.history, {"gradients": 5})
    again.restore_best((found := {}).update)
    assert torch.equal(found["w"], torch.ones(2))
    assert [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == first.history


@pytest.mark.parametrize(
    "changes",
    [
        {"epoch": 3}, {"epoch": True}, {"epoch": 10**400}, {"best": float("nan")}, {"best": "x"}, {"best": 10**400}, {"model": {}}, {"model": 3},
        {"optimizer": None}, {"optimizer": {"state": {}, "param_groups": []}}, {"history": "[" * 50_000}, {"history": 3}, {"counts": []},
        {"counts": {"gradients": "x"}}, {"history": "[1]"},
    ],
)  # fmt: skip
def test_a_checkpoint_of_another_training_is_refused_in_one_line(tmp_path, changes):
    net = nn.Linear(3, 2)
    state = {"model": net.state_dict(), "optimizer": make_optimizer(net, Optimizer()).state_dict(), "epoch": 1}
    state |= {"best": 0.5, "history": json.dumps([{"epoch": 1}]), "counts": {"gradients": 3}}
    torch.save({**state, **changes}, tmp_path / LAST)
    with pytest.raises(InputError, match=r"last\.pt: holds the tensors of another network"):
        _resume(Checkpoint(tmp_path), net, make_optimizer(net, Optimizer()), None, 2)


def test_weights_that_are_missing_or_of_another_network_are_refused(tmp_path):
    net, checkpoint = nn.Linear(3, 2), Checkpoint(tmp_path)
    with pytest.raises(InputError, match=r"best\.pt: is missing, and last\.pt says"):
        checkpoint.restore_best(net.load_state_dict)
    torch.save(nn.Linear(3, 5).state_dict(), tmp_path / BEST)
    with pytest.raises(InputError, match=r"best\.pt: holds the tensors of another network"):
        checkpoint.restore_best(net.load_state_dict)
