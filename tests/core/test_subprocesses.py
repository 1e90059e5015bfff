import os
import signal
import subprocess
import sys

import pytest

from retinabench.core.errors import WorkError
from retinabench.core.subprocesses import WAIT_POLICY, environment, in_processes, sleeping_threads, threads


def variable(name):
    return os.environ.get(name)


def kill_at(number):
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_every_item_has_its_result_whatever_the_number_of_processes():
    for workers in (1, 2):
        assert sorted(in_processes(abs, [-3, -2, -1], workers)) == [(0, 3), (1, 2), (2, 1)]


def test_a_killed_worker_is_one_line():
    with pytest.raises(WorkError, match="a worker was killed"):
        list(in_processes(kill_at, [1, 2, 3], 2))


def test_a_script_without_a_main_guard_is_refused_and_does_not_wait_for_itself(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("from retinabench.core.subprocesses import in_processes\nlist(in_processes(abs, [-1, -2], 2))\n")
    ended = subprocess.run([sys.executable, script, tmp_path / "out"], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1
    assert "Put its calls under `if __name__" in ended.stderr
    assert "a worker was killed" in ended.stderr.splitlines()[-1]


def test_workers_have_one_thread_that_sleeps_while_it_waits(monkeypatch):
    monkeypatch.delenv(WAIT_POLICY, raising=False)
    found = dict(in_processes(variable, ["OMP_NUM_THREADS", WAIT_POLICY], 2))
    assert found == {0: "1", 1: "PASSIVE"}
    assert WAIT_POLICY not in os.environ  # the parent's environment is as before


def test_the_users_own_policy_wins(monkeypatch):
    monkeypatch.setenv(WAIT_POLICY, "ACTIVE")
    assert sleeping_threads() == {}
    assert WAIT_POLICY not in threads(2)
    assert dict(in_processes(variable, [WAIT_POLICY, "HOME"], 2))[0] == "ACTIVE"


def test_the_environment_is_restored(monkeypatch):
    monkeypatch.setenv("RETINABENCH_A", "before")
    with environment({"RETINABENCH_A": "within", "RETINABENCH_B": "new"}):
        assert (variable("RETINABENCH_A"), variable("RETINABENCH_B")) == ("within", "new")
    assert (variable("RETINABENCH_A"), variable("RETINABENCH_B")) == ("before", None)


def test_the_command_line_sets_the_policy_before_torch_is_imported(monkeypatch):
    code = """
import os, sys
from retinabench.cli import main
assert "torch" not in sys.modules
main.run = lambda words: print(os.environ["OMP_WAIT_POLICY"], "torch" in sys.modules) or 0
main.main()
"""
    monkeypatch.delenv(WAIT_POLICY, raising=False)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["PASSIVE", "False"]


FAULTS = """import resource, numpy as np
from retinabench.core.subprocesses import keep_memory
keep_memory()
np.ones(10**7)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    np.ones(10**7)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only glibc returns large buffers at once")
def test_a_command_keeps_the_memory_that_it_frees_unless_the_user_has_set_up_the_allocator(monkeypatch):
    for name in [name for name in os.environ if name.startswith("MALLOC_") or name == "GLIBC_TUNABLES"]:
        monkeypatch.delenv(name)
    faults = [int(subprocess.check_output([sys.executable, "-c", FAULTS]))]
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "1000000")
    faults.append(int(subprocess.check_output([sys.executable, "-c", FAULTS])))
    assert faults[0] < 0.1 * faults[1], faults
