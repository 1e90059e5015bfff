"""A worker: an exception becomes a state and a line, the output goes to the log."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from retinabench.core.errors import DivergedError, InputError, WorkError
from retinabench.experiments.engines.scheduler import ScheduledJob
from retinabench.experiments.engines.worker import classify, output_to, request_for, run_request
from support.helpers import make_prepared
from support.sweeps import small


@pytest.mark.parametrize(
    ("error", "state", "message"),
    [
        (DivergedError("no number"), "diverged", "no number"),
        (WorkError("disk full"), "failed", "disk full"),
        (InputError("is wrong", file="x.toml", hint="Mend it."), "failed", "x.toml: is wrong. Mend it."),
        (MemoryError(), "out_of_memory", "MemoryError"),
        (torch.OutOfMemoryError("CUDA out of memory.\nTried"), "out_of_memory", "OutOfMemoryError: CUDA out of memory."),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "out_of_memory",
         "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory"),
        (RuntimeError("line\x1b[1m one\nline two"), "failed", "RuntimeError: line\\x1b[1m one"),
    ],
)  # fmt: skip
def test_every_error_has_a_state_and_one_line(error, state, message):
    assert classify(error) == (state, message)


def test_other_versions_and_other_data_are_refused(tmp_path):
    run = small(make_prepared(tmp_path / "data", size=8))
    given = request_for(ScheduledJob(run, tmp_path / "out" / "map-mlp-seed-0-of-other-data"), 1, "cpu", 1)
    ended = run_request(given)
    assert ended.state == "failed"
    assert "holds other data" in ended.message
    ended = run_request(replace(given, versions={"retinabench": "0.0.1", "torch": "1.0"}, number=2))
    assert "the command was given with retinabench 0.0.1, torch 1.0. Install the same" in ended.message
    log = given.log.read_text()
    assert log.index("--- start 1,") < log.index("holds other data") < log.index("--- start 2,")


def test_a_log_that_cannot_be_written_is_the_result_of_the_job(tmp_path, capfd):
    (tmp_path / "logs").write_text("a file where a folder should be")
    job = ScheduledJob(small(make_prepared(tmp_path / "data", size=8)), tmp_path / "out" / "run")
    given = replace(request_for(job, 1, "cpu", 1), log=tmp_path / "logs" / "x.log")
    ended = run_request(given, work=lambda _: None)
    assert ended.state == "failed"
    assert "x.log: cannot be written" in ended.message
    assert "Traceback" not in capfd.readouterr().err


def test_paths_are_in_full_since_workers_start_elsewhere(tmp_path, monkeypatch):
    run = small(make_prepared(tmp_path / "data", size=8))
    monkeypatch.chdir(tmp_path)
    relative = run.model_copy(update={"data": "data"})
    folder = (tmp_path / "out" / "x").relative_to(tmp_path)
    given = request_for(ScheduledJob(relative, folder), 1, "cpu", 1)
    assert given.run["data"] == str(tmp_path / "data")
    assert given.folder == tmp_path / "out" / "x"


def test_the_log_holds_what_is_printed_by_whatever_means(tmp_path, capfd):
    with output_to(tmp_path / "logs" / "log"):
        print("from python")
        os.write(2, b"from a library\n")
        subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
    print("afterwards")
    assert (tmp_path / "logs" / "log").read_text().splitlines() == [
        "from python",
        "from a library",
        "from a child",
    ]
    assert capfd.readouterr().out == "afterwards\n"
