"""From options to an engine; what is impossible is one line."""

from __future__ import annotations

import os
import sys

import pytest

from retinabench.core.errors import InputError
from retinabench.core.progress import QUIET
from retinabench.experiments.engines import engine as engines
from retinabench.experiments.engines.engine import make_engine

DEFAULT = {
    "parallel": None, "device": "cpu", "address": None, "cpus": 1.0, "gpus": 0.0, "storage": None, "attempts": 2,
    "progress": QUIET,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("local", {"parallel": 0}, "at least 1"),
        ("local", {"attempts": 0}, "at least 1"),
        ("local", {"cpus": 0}, "more than 0 CPUs"),
        ("local", {"device": "auto", "gpus": 1.5}, "a part of a GPU or a whole number of them"),
        ("local", {"gpus": 1}, "Leave out --gpus"),
        ("local", {"address": "auto"}, "--address is for --engine ray"),
        ("local", {"storage": "s3://bucket"}, "--storage is for --engine ray"),
        ("ray", {"address": "ray://head:10001"}, "remote client, which is not supported"),
        ("ray", {"device": "cuda:1"}, "Ray chooses the GPU"),
        ("ray", {"storage": "nonsense://bucket"}, "nonsense://bucket: cannot be written to"),
        ("ray", {"storage": "file:///proc/nowhere"}, "cannot be written to"),
    ],
)
def test_an_impossible_option_is_one_line(name, given, says):
    if name == "ray":
        pytest.importorskip("ray")
    with pytest.raises(InputError, match=says):
        make_engine(name, **{**DEFAULT, **given})


def test_without_ray_its_engine_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'retinabench\[cluster\]'"):
        make_engine("ray", **DEFAULT)


@pytest.mark.parametrize(("cpus", "threads"), [(0.25, 1), (1, 1), (2, 2), (3.5, 3)])
def test_the_cores_of_a_run_are_its_threads(cpus, threads, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    engine = make_engine("local", **{**DEFAULT, "cpus": cpus})
    assert (engine.threads, engine.places) == (threads, int(8 / cpus))
    assert make_engine("local", **{**DEFAULT, "cpus": cpus, "parallel": 3}).places == 3


@pytest.mark.parametrize(
    ("gpus", "parallel", "expected"),
    [
        (0, None, ["4", "6"]),  # one each where there are any
        (0.5, None, ["4", "4", "6", "6"]),
        (0.5, 3, ["4", "4", "6"]),
        (1, 5, ["4", "6"]),
        (0, 3, ["4", "6", "4"]),
        (2, None, ["4,6"]),
        (0.3, None, ["4", "4", "4", "6", "6", "6"]),  # a fourth run would not fit into the first
        (0.6, None, ["4", "6"]),
    ],
)
def test_every_place_has_its_gpu(gpus, parallel, expected, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    monkeypatch.setattr(engines.torch.cuda, "device_count", lambda: 2)
    engine = make_engine("local", **{**DEFAULT, "device": "auto", "gpus": gpus, "parallel": parallel})
    assert (engine.gpus, engine.places) == (expected, len(expected))


def test_two_gpus_asked_for_and_one_there_is_one_line(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4")
    monkeypatch.setattr(engines.torch.cuda, "device_count", lambda: 1)
    with pytest.raises(InputError, match=r"a run of 2 GPUs does not fit: 1 is here\. Give --gpus 1, or less"):
        make_engine("local", **{**DEFAULT, "device": "auto", "gpus": 2})
