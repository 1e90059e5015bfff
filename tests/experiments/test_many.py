import os
import signal
import time

import pytest

from retinabench.core.errors import InputError, WorkError
from retinabench.experiments.many import Item, Result, ResultTable, read_results, run_many
from support.forking import THREADS, WARM

IDENTITY = {"version": "1.0", "protocol": 2, "fingerprint": "abc"}


def row(number, state="done", value=0.5, ended=0.0, **other):
    scores = {"auroc": value} if state == "done" else {}
    return Result(f"{number:012x}", state, f"map-{number:012x}", 1.0, 1, ended, scores=scores, **other)


def append(folder, first, count, told=None):
    """Append rows first … first + count - 1, and tell of each one that is written."""
    table = ResultTable(folder, IDENTITY)
    for number in range(first, first + count):
        table.add(row(number, value=number / 1e4))
        if told is not None:
            told.value = number
    table.close()


def write(folder, *rows):
    table = ResultTable(folder, IDENTITY)
    for one in rows:
        table.add(one)
    table.close()
    (path,) = folder.glob("*.jsonl")
    return path


def test_what_no_table_holds_is_computed_once_and_failures_are_tried_again(tmp_path):
    write(tmp_path / "a", row(1), row(2, "failed"), row(3, "diverged"))
    computed = []

    def compute(items):
        for item in items:
            computed.append((item.table.folder.name, item.key))
            yield item, row(item.work)

    tables = {name: ResultTable(tmp_path / name, IDENTITY) for name in "ab"}
    wanted = [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 1), ("b", 5)]
    items = [Item(tables[name], row(number).run, number) for name, number in wanted]
    found = run_many(items, compute)
    assert computed == [(name, row(number).run) for name, number in [("a", 2), ("b", 1), ("b", 5)]]
    assert [one.run for one in found] == [row(number).run for _, number in wanted]
    assert [one.state for one in found] == ["done", "done", "diverged", "done", "done", "done"]
    again = {name: ResultTable(tmp_path / name, IDENTITY) for name in "ab"}
    run_many([Item(again[name], row(number).run, number) for name, number in wanted], compute)
    assert len(computed) == 3


def test_what_is_written_is_read(tmp_path):
    rows = [row(1, message='odd "text"\né', whys={"auroc": "why"}), row(2, "failed", log="a.log"), row(3, value=None)]
    write(tmp_path, *rows)
    assert read_results(tmp_path, IDENTITY) == read_results(tmp_path, None) == {one.run: one for one in rows}
    assert read_results(tmp_path / "absent", IDENTITY) == {}


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_last_line_is_ignored_wherever_it_is_cut(tmp_path, cut):
    path = write(tmp_path, row(1), row(2))
    path.write_bytes(path.read_bytes()[:-cut])
    assert set(read_results(tmp_path, IDENTITY)) == {row(1).run}


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
    path = write(tmp_path, row(1))
    with pytest.raises(InputError) as caught:
        read_results(tmp_path, {**IDENTITY, **changed})
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_of_several_rows_of_a_run_a_finished_one_counts_else_the_latest(tmp_path):
    late = (row(1, "failed", ended=9.0, message="later"), row(2, "failed", ended=1.0, message="early"))
    write(tmp_path, *late)
    table = ResultTable(tmp_path, IDENTITY)
    for one in (row(1, "done", ended=5.0), row(2, "failed", ended=2.0, message="late")):
        table.add(one)
    found = read_results(tmp_path, IDENTITY)
    assert found[row(1).run].state == "done"
    assert found[row(2).run].message == "late"


@pytest.mark.slow
@pytest.mark.filterwarnings(THREADS)
def test_several_processes_append_while_it_is_read(tmp_path):
    processes = [WARM.Process(target=append, args=(tmp_path, 1000 * k, 500)) for k in range(4)]
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


@pytest.mark.filterwarnings(THREADS)
def test_kill_9_costs_at_most_the_row_that_was_being_written(tmp_path):
    for first in (0, 10**6):
        told = WARM.Value("l", -1, lock=False)
        process = WARM.Process(target=append, args=(tmp_path, first, 10**6, told))
        process.start()
        while told.value < first + 20:
            time.sleep(0.001)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        found = read_results(tmp_path, IDENTITY)
        assert {row(number).run for number in range(first, told.value + 1)} <= set(found)


def test_a_full_disk_is_said_and_the_next_row_begins_a_new_segment(tmp_path, monkeypatch):
    table = ResultTable(tmp_path, IDENTITY)
    table.add(row(1))
    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda handle, line: real(handle, line[:10]))
        with pytest.raises(WorkError, match="no space left"):
            table.add(row(2))
    table.add(row(3))
    table.close()
    assert set(read_results(tmp_path, IDENTITY)) == {row(1).run, row(3).run}
