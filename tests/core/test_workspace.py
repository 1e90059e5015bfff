import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from retinabench.core.errors import InputError, WorkError
from retinabench.core.files import write_bytes
from retinabench.core.workspace import HOLDER, LOCK, Workspace

IMPORTS = """
import sys, time
from pathlib import Path
from retinabench.core.errors import InputError
from retinabench.core.workspace import Workspace
"""
HOLD = """
with Workspace(Path(sys.argv[1]), "study").lock():
    print("held", flush=True)
    time.sleep(60)
"""
RACE = """
print("ready", flush=True)
while not Path(sys.argv[2]).exists():
    pass
try:
    with Workspace(Path(sys.argv[1]), "study").lock():
        print("won", flush=True)
        time.sleep(1)
except InputError:
    print("refused")
"""
COUNT = """
folder = Path(sys.argv[1])
for _ in range(20):
    with Workspace(folder, "study").lock(wait=True):
        number = int((folder / "number").read_text())
        (folder / "number").write_text(str(number + 1))
"""


def start(code, *words):
    return subprocess.Popen([sys.executable, "-c", IMPORTS + code, *map(str, words)], stdout=subprocess.PIPE, text=True)


@pytest.fixture
def workspace(tmp_path):
    return Workspace(tmp_path / "out", "study", "study.json")


@pytest.fixture
def held(workspace):
    other = start(HOLD, workspace.folder)
    assert other.stdout.readline() == "held\n"
    yield other
    other.kill()
    other.communicate()


def test_a_second_process_is_refused_in_one_line(workspace, held):
    found = workspace.holder()
    assert found.process == held.pid
    refusal = rf"another study command is at work .*since 2.*process {held.pid} on"
    with pytest.raises(InputError, match=refusal), workspace.lock():
        pass


def test_a_killed_process_holds_nothing(workspace, held):
    os.kill(held.pid, signal.SIGKILL)
    held.wait()
    assert workspace.holder() is None
    assert (workspace.folder / HOLDER).is_file()  # what the dead process left says nothing
    with workspace.lock():
        assert workspace.holder().process == os.getpid()
    assert workspace.holder() is None


def test_of_several_processes_one_gets_the_lock(workspace, tmp_path):
    racers = [start(RACE, workspace.folder, tmp_path / "go") for _ in range(3)]
    assert [racer.stdout.readline() for racer in racers] == ["ready\n"] * 3
    (tmp_path / "go").touch()
    assert sorted(racer.communicate()[0].strip() for racer in racers) == ["refused", "refused", "won"]


def test_processes_that_wait_work_one_after_the_other(workspace):
    workspace.folder.mkdir()
    (workspace.folder / "number").write_text("0")
    for process in [start(COUNT, workspace.folder) for _ in range(2)]:
        process.communicate()
        assert process.returncode == 0
    assert (workspace.folder / "number").read_text() == "40"


def test_looking_at_a_folder_creates_nothing(workspace):
    assert workspace.holder() is None
    assert workspace.manifest() is None
    assert not workspace.done
    workspace.check_empty()
    assert not workspace.folder.exists()


def test_a_holder_that_has_not_written_its_name_is_still_a_holder(workspace):
    with workspace.lock():
        (workspace.folder / HOLDER).write_text("{")
        assert workspace.holder().process == 0
        with pytest.raises(InputError, match="at work in this folder"), workspace.lock():
            pass


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP])
def test_a_file_system_without_locks_is_used_unguarded(workspace, monkeypatch, number):
    def refuse(*_, **__):
        raise OSError(number, "no locks")

    monkeypatch.setattr("retinabench.core.workspace.FileLock.acquire", refuse)
    with workspace.lock():
        assert workspace.holder() is None


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system that takes no folder")
def test_a_place_that_takes_no_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"), Workspace(tmp_path / "file", "study").lock():
        pass
    with pytest.raises(InputError, match=r"^/proc/x: cannot be written: its folder is gone, or can hold no other"):
        Workspace(Path("/proc/x"), "data set").begin({})


def test_the_first_manifest_stays_and_the_same_one_continues(workspace):
    first = {"settings": {"b": 1, "a": [1, 2]}, "version": "1"}
    assert workspace.begin(first) == first
    before = workspace.manifest_path.read_bytes()
    assert workspace.begin({"version": "1", "settings": {"a": (1, 2), "b": 1}}) == first
    assert workspace.manifest_path.read_bytes() == before


def test_another_manifest_is_refused_with_both_sides(workspace):
    workspace.begin({"settings": {"learning_rate": 1}, "version": "1"})
    with pytest.raises(InputError, match=r"another settings\.learning_rate: 1 there, 2 here") as refused:
        workspace.begin({"settings": {"learning_rate": 2}, "version": "1"}, hint="Do something else.")
    assert "Do something else." in str(refused.value)


def test_only_what_is_decisive_must_agree(workspace):
    workspace.begin({"seed": 1, "version": "1"})
    begun = workspace.begin({"seed": 1, "version": "2"}, decisive=lambda m: {"seed": m["seed"]})
    assert begun["version"] == "1"


@pytest.mark.parametrize("content", ["{", "[1]", "", "\x00"])
def test_a_damaged_manifest_is_named(workspace, content):
    workspace.folder.mkdir()
    workspace.manifest_path.write_text(content)
    with pytest.raises(InputError, match=r"study\.json"):
        workspace.begin({"seed": 1})
    assert workspace.manifest_path.read_text() == content


def test_a_folder_with_other_things_is_refused_untouched(workspace):
    workspace.folder.mkdir()
    (workspace.folder / "thesis.tex").write_text("x")
    with pytest.raises(InputError, match="is not empty and holds no study"):
        workspace.begin({}, empty=True)
    assert [path.name for path in workspace.folder.iterdir()] == ["thesis.tex"]
    workspace.check_empty(allowed=["thesis.tex"])


def test_what_a_killed_command_left_counts_as_empty(workspace):
    workspace.folder.mkdir()
    for name in (LOCK, HOLDER, f".{HOLDER}.12.part", ".study.json.1234.part", ".study.json.1234.claim"):
        (workspace.folder / name).write_text("{")
    workspace.begin({"seed": 1}, empty=True)
    assert workspace.manifest() == {"seed": 1}


def test_update_replaces_the_manifest_and_an_empty_file_says_that_all_is_done(workspace):
    workspace.begin({"data": ["a"]})
    workspace.update({"data": ["a", "b"]})
    assert workspace.manifest() == {"data": ["a", "b"]}
    workspace.finish()
    assert workspace.done
    assert (workspace.folder / "done").read_bytes() == b""


@pytest.mark.parametrize(
    ("change", "state"), [(Path.unlink, "missing"), (lambda path: path.write_text("x"), "damaged")]
)
@pytest.mark.parametrize("file", ["study.json", "a.csv"])
def test_work_whose_files_changed_meanwhile_is_not_done(workspace, change, state, file):
    def lose():
        workspace.begin({})
        write_bytes(workspace.folder / "a.csv", b"1", checked=True)
        change(workspace.folder / file)

    with pytest.raises(WorkError, match=rf"{file}: is {state}"), workspace.lock():
        lose()
    with pytest.raises(WorkError, match=rf"{file}: is {state}"):
        workspace.finish()
    assert not workspace.done


def test_done_without_a_manifest_is_no_finished_work(workspace):
    workspace.begin({})
    workspace.finish()
    workspace.confirm()
    for path in workspace.folder.iterdir():
        if path.name != "done":
            path.unlink()
    with pytest.raises(InputError, match=r"study\.json: is missing"):
        workspace.confirm(InputError)


def test_a_lock_ends_on_a_disk_that_fails_and_with_an_error_of_the_block(workspace, monkeypatch):
    def failing(path, **_):
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    with monkeypatch.context() as patch, workspace.lock():
        patch.setattr(type(workspace.folder), "unlink", failing)
    assert workspace.holder() is None
    with pytest.raises(ZeroDivisionError), workspace.lock():
        raise ZeroDivisionError
    assert workspace.holder() is None
