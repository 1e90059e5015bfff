"""One command at a time on a folder: the second is refused, a dead one is succeeded, of many one wins."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from retinabench.core.errors import InputError
from retinabench.experiments.study.lock import alive, holder, take_turn

HOLD = """
import sys, time
from pathlib import Path
from retinabench.experiments.study.lock import take_turn
with take_turn(Path(sys.argv[1])):
    print("mine", flush=True)
    time.sleep(60)
"""
RACE = """
import sys, time
from pathlib import Path
from retinabench.core.errors import InputError
from retinabench.experiments.study.lock import take_turn
while not Path(sys.argv[2]).exists():
    pass
try:
    with take_turn(Path(sys.argv[1])):
        print("won")
        time.sleep(1.5)
except InputError:
    print("refused")
"""


def begin(code, *words):
    return subprocess.Popen([sys.executable, "-c", code, *map(str, words)], stdout=subprocess.PIPE, text=True)


def test_a_second_command_is_refused_in_one_line_and_a_killed_one_succeeded(tmp_path):
    other = begin(HOLD, tmp_path)
    try:
        assert other.stdout.readline() == "mine\n"
        assert holder(tmp_path)["process"] == other.pid
        refusal = rf"another benchmark command is at work .*process {other.pid}"
        with pytest.raises(InputError, match=refusal), take_turn(tmp_path):
            pass
    finally:
        other.send_signal(signal.SIGKILL)
        other.communicate()
    assert holder(tmp_path) is None
    with take_turn(tmp_path):
        assert holder(tmp_path) is not None
    assert holder(tmp_path) is None
    assert len(list((tmp_path / "turns").iterdir())) == 1


def test_a_turn_ends_with_an_error_too(tmp_path):
    with pytest.raises(ZeroDivisionError), take_turn(tmp_path):
        raise ZeroDivisionError
    assert holder(tmp_path) is None


def test_of_several_that_find_a_dead_turn_one_wins(tmp_path):
    with take_turn(tmp_path):
        (file,) = (tmp_path / "turns").iterdir()
        dead = json.loads(file.read_text())
    file.write_text(json.dumps(dead | {"process": 2**22 + 1}))  # no such process
    racers = [begin(RACE, tmp_path, tmp_path / "go") for _ in range(3)]
    (tmp_path / "go").touch()
    told = sorted(racer.communicate()[0].strip() for racer in racers)
    assert told == ["refused", "refused", "won"]


def test_a_process_of_the_same_number_and_another_machine(tmp_path):
    with take_turn(tmp_path):
        turn = holder(tmp_path)
        assert turn is not None
        assert not alive(turn | {"born": "1"}) or turn["born"] == ""
        assert alive(turn | {"host": "elsewhere", "process": 1})
        assert not alive(turn | {"host": "elsewhere", "over": True})
