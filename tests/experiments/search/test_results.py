"""The result table: several writers at once, torn lines, other code and data, and its order."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from dataclasses import asdict

import pytest

from retinabench.core.errors import InputError, WorkError
from retinabench.experiments.search.results import Writer, read_results, run_folders, valid
from support.appending import IDENTITY, append, row


def write(folder, *rows, identity=IDENTITY):
    with Writer(folder, identity) as writer:
        for one in rows:
            writer.add(one)
    return writer.path


def test_what_is_written_is_read(tmp_path):
    rows = [
        row(1, message='odd "text"\né', whys={"auroc": "why"}),
        row(2, "failed", log="a.log"),
        row(3, value=None),
    ]
    write(tmp_path, *rows)
    assert read_results(tmp_path, IDENTITY) == {one.run: one for one in rows}


def test_an_absent_folder_and_a_writer_without_rows_hold_nothing(tmp_path):
    assert read_results(tmp_path / "absent", IDENTITY) == {}
    write(tmp_path / "empty")
    assert not (tmp_path / "empty").exists()


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_last_line_is_ignored_wherever_it_is_cut(tmp_path, cut):
    path = write(tmp_path, row(1), row(2))
    content = path.read_bytes()
    path.write_bytes(content[:-cut])
    assert set(read_results(tmp_path, IDENTITY)) == {row(1).run}


def test_a_torn_head_holds_nothing(tmp_path):
    path = write(tmp_path, row(1))
    path.write_bytes(path.read_bytes()[:20])
    assert read_results(tmp_path, IDENTITY) == {}


def test_a_damaged_line_in_the_middle_is_named_with_its_cure(tmp_path):
    path = write(tmp_path, row(1), row(2), row(3))
    lines = path.read_bytes().split(b"\n")
    lines[2] = b"\0" * 10
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(InputError, match=r"line 3 is damaged.*Delete the file") as caught:
        read_results(tmp_path, IDENTITY)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"version": "1.1"}, "version '1.0', where '1.1' is at work"),
        ({"protocol": 3}, "protocol 2, where 3 is at work"),
        ({"fingerprint": "xyz"}, "fingerprint 'abc', where 'xyz' is at work"),
    ],
)
def test_rows_of_other_code_or_data_are_refused_naming_both(tmp_path, changed, words):
    write(tmp_path, row(1), identity={**IDENTITY, **changed})
    path = write(tmp_path, row(2))
    with pytest.raises(InputError) as caught:
        read_results(tmp_path, {**IDENTITY, **changed})
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_of_several_rows_of_a_run_a_finished_one_counts_else_the_latest(tmp_path):
    write(
        tmp_path, row(1, "failed", ended=9.0, message="later"), row(2, "failed", ended=1.0, message="early")
    )
    write(tmp_path, row(1, "done", ended=5.0), row(2, "failed", ended=2.0, message="late"))
    found = read_results(tmp_path, IDENTITY)
    assert found[row(1).run].state == "done"
    assert found[row(2).run].message == "late"


@pytest.mark.slow
def test_several_processes_append_while_it_is_read(tmp_path):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=append, args=(tmp_path, 1000 * k, 500)) for k in range(4)]
    for process in processes:
        process.start()
    seen = [0]
    while any(process.is_alive() for process in processes):
        found = read_results(tmp_path, IDENTITY)
        assert all(one.scores == {"auroc": int(run, 16) / 1e4} for run, one in found.items())
        seen.append(len(found))
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert seen == sorted(seen)
    expected = {row(1000 * k + i).run for k in range(4) for i in range(500)}
    assert set(read_results(tmp_path, IDENTITY)) == expected


def test_kill_9_costs_at_most_the_row_that_was_being_written(tmp_path):
    context = multiprocessing.get_context("spawn")
    for turn in range(2):
        told = context.Value("l", -1, lock=False)
        process = context.Process(target=append, args=(tmp_path, 10**6 * turn, 10**6, told))
        process.start()
        while told.value < 10**6 * turn + 20:
            time.sleep(0.001)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        found = read_results(tmp_path, IDENTITY)
        assert {row(number).run for number in range(10**6 * turn, told.value + 1)} <= set(found)


def test_a_full_disk_is_said_and_the_next_row_begins_a_new_segment(tmp_path, monkeypatch):
    writer = Writer(tmp_path, IDENTITY)
    writer.add(row(1))
    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda handle, line: real(handle, line[:10]))
        with pytest.raises(WorkError, match="no space left"):
            writer.add(row(2))
    writer.add(row(3))
    writer.close()
    assert set(read_results(tmp_path, IDENTITY)) == {row(1).run, row(3).run}


def test_the_folders_decide(tmp_path):
    for number in (1, 2):
        (tmp_path / f"map-{number:012x}").mkdir()
    (tmp_path / "notes.txt").write_text("")
    folders = run_folders(tmp_path)
    assert folders == {f"{n:012x}": f"map-{n:012x}" for n in (1, 2)}
    rows = {one.run: one for one in (row(1), row(3), row(4, "diverged"))}
    assert set(valid(rows, folders)) == {row(1).run, row(4).run}
    assert run_folders(tmp_path / "absent") == {}
    with pytest.raises(InputError, match="is a file"):
        run_folders(tmp_path / "notes.txt")


def test_twenty_thousand_rows_are_read_in_a_moment(tmp_path):
    """A fifth of the size that `benchmarks/sweep.py` times; generous enough for a busy machine."""
    first = {"schema": "retinabench.results/1", **IDENTITY}
    for segment in range(20):
        lines = [first, *(asdict(row(1000 * segment + i, value=i / 1000)) for i in range(1000))]
        (tmp_path / f"{segment}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    began = time.process_time()
    best = max(read_results(tmp_path, IDENTITY).values(), key=lambda row: row.scores["auroc"])
    assert best.scores["auroc"] == 0.999
    assert time.process_time() - began < 5


def test_writers_of_threads_have_segments_of_their_own(tmp_path):
    threads = [threading.Thread(target=append, args=(tmp_path, 100 * k, 50)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(tmp_path.glob("*.jsonl"))) == 4
    assert len(read_results(tmp_path, IDENTITY)) == 200
