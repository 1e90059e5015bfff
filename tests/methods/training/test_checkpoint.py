"""Where a training stands on disk: what is saved is what is read, and damaged files are named."""

import json

import pytest
import torch

from retinabench.core.errors import InputError
from retinabench.methods.training import checkpoint as module
from retinabench.methods.training.checkpoint import Checkpoint, load_tensors, save_tensors


def test_tensors_numbers_and_text_make_the_round_trip(tmp_path):
    content = {"w": torch.arange(3.0), "nested": [{"epoch": 2, "name": "x"}], "none": None}
    save_tensors(tmp_path / "a.pt", content)
    found = load_tensors(tmp_path / "a.pt")
    assert torch.equal(found.pop("w"), content.pop("w"))
    assert found == content


def test_a_damaged_file_is_named(tmp_path):
    save_tensors(tmp_path / "a.pt", {"w": torch.zeros(3)})
    whole = (tmp_path / "a.pt").read_bytes()
    (tmp_path / "SHA256SUMS").unlink(missing_ok=True)
    (tmp_path / "a.pt").write_bytes(whole[:-40])
    with pytest.raises(InputError, match=r"a\.pt: is no checkpoint.*Delete it"):
        load_tensors(tmp_path / "a.pt")
    with pytest.raises(FileNotFoundError):
        load_tensors(tmp_path / "b.pt")


def test_a_training_continues_with_its_history_and_counts(tmp_path):
    first = Checkpoint(tmp_path, counts={"gradients": 5})
    assert first.resume() is None
    first.history.append({"epoch": 1, "loss": 0.5})
    first.keep_best({"w": torch.ones(2)})
    first.save({"epoch": 1})
    again = Checkpoint(tmp_path)
    assert again.resume()["epoch"] == 1
    assert (again.history, again.counts) == (first.history, {"gradients": 5})
    assert torch.equal(again.best()["w"], torch.ones(2))
    assert [
        json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()
    ] == first.history


def test_without_a_folder_or_as_a_follower_nothing_is_written(tmp_path):
    for one in (Checkpoint(), Checkpoint(tmp_path, writes=False)):
        one.save({"epoch": 1})
        one.keep_best({"w": torch.ones(2)})
        assert torch.equal(one.best()["w"], torch.ones(2))
        assert one.resume() is None
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_is_due_after_its_interval(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    one = Checkpoint(tmp_path, interval=10, _saved=100.0)
    assert not one.due()
    now[0] = 110.0
    assert one.due()
    one.save({})
    assert not one.due()
