import errno
import json
import os
import shutil
import subprocess
import threading
import time

import pytest

from retinabench.cli.main import run
from retinabench.core import files
from retinabench.core.errors import CHECKSUMS, InputError, WorkError, check, read_checksums, state
from retinabench.core.files import atomic_write, remove, settle, sweep, unsealed, write_bytes
from retinabench.core.workspace import Workspace


def test_a_file_replaces_the_old_one_when_the_block_ends(tmp_path):
    file = tmp_path / "new" / "x.bin"
    write_bytes(file, b"old")
    with atomic_write(file) as handle:
        handle.write(b"new")
        handle.flush()
        assert file.read_bytes() == b"old"
    assert file.read_bytes() == b"new"
    assert [path.name for path in file.parent.iterdir()] == ["x.bin"]


def test_a_block_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    file = tmp_path / "x.bin"
    write_bytes(file, b"old")
    with pytest.raises(TypeError), atomic_write(file) as handle:
        handle.write("not bytes")
    assert [path.name for path in tmp_path.iterdir()] == ["x.bin"]
    assert file.read_bytes() == b"old"


def test_json_refuses_what_is_not_finite(tmp_path):
    files.write_json(tmp_path / "x.json", {"a": [1, None]})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": [1, None]}
    with pytest.raises(ValueError, match="JSON compliant"):
        files.write_json(tmp_path / "y.json", {"a": float("nan")})
    assert not (tmp_path / "y.json").exists()


def test_of_many_claims_one_succeeds_and_a_later_one_changes_nothing(tmp_path):
    file = tmp_path / "claimed.json"
    threads = [threading.Thread(target=files.claim, args=(file, {"by": k})) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    content = file.read_text()
    files.claim(file, {"by": "later"})
    assert file.read_text() == content
    assert json.loads(content)["by"] in range(8)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["SHA256SUMS", "claimed.json"]


def test_sweeping_deletes_the_temporary_files_of_writers_that_have_ended(tmp_path):
    for name in (".x.json.1234.part", ".x.json.1234.claim", "x.part", ".hidden"):
        (tmp_path / name).touch()
    with atomic_write(tmp_path / "y") as handle:
        handle.write(b"new")
        (being_written,) = tmp_path.glob(".y.*.part")
        sweep(tmp_path)
        assert {path.name for path in tmp_path.iterdir()} == {being_written.name, "x.part", ".hidden"}
    assert (tmp_path / "y").read_bytes() == b"new"


def test_without_locks_of_the_file_system_temporary_files_are_swept_after_an_hour(tmp_path, monkeypatch):
    def refused(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(files.fcntl, "flock", refused)
    for name in (".old.1234.part", ".young.5678.part"):
        (tmp_path / name).touch()
    os.utime(tmp_path / ".old.1234.part", (time.time() - 7200,) * 2)
    sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".young.5678.part"]
    write_bytes(tmp_path / "x", b"content")
    assert (tmp_path / "x").read_bytes() == b"content"


def test_a_temporary_file_that_is_swept_before_it_is_locked_is_created_again(tmp_path, monkeypatch):
    lock, swept = files.fcntl.flock, []

    def late(handle, operation):
        if not swept:
            swept.append(next(tmp_path.glob(".x.*.part")))
            swept[0].unlink()
        lock(handle, operation)

    monkeypatch.setattr(files.fcntl, "flock", late)
    write_bytes(tmp_path / "x", b"content")
    assert swept
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize(
    ("number", "kind", "says"),
    [
        (errno.ENOSPC, WorkError, "no space left on the disk"), (errno.EACCES, InputError, "no permission"),
        (errno.ENOTDIR, InputError, "a file where a folder is needed"), (errno.EIO, WorkError, "Input/output error"),
    ],
)  # fmt: skip
def test_errors_of_the_system_become_one_line(tmp_path, number, kind, says):
    error = files.explain(OSError(number, os.strerror(number)), tmp_path)
    assert type(error) is kind
    assert says in str(error)


def test_a_folder_for_results_is_checked_before_the_work(tmp_path):
    files.check_writable(tmp_path / "a" / "b")
    assert list((tmp_path / "a").rglob("*")) == [tmp_path / "a" / "b"]
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        for write in (files.check_writable, lambda path: write_bytes(path / "x", b"")):
            with pytest.raises(InputError, match="a file where a folder is needed"):
                write(folder)


ODD = "a\\b\nc é"


def states(folder):
    return {found.path.name: found.state for found in files.verify(folder)}


def test_damage_of_every_byte_and_every_cut_is_found(tmp_path):
    path = tmp_path / "a.bin"
    write_bytes(path, b"0123456789", checked=True)
    assert check(path) == path
    content = path.read_bytes()
    for at in range(len(content)):
        for other in (content[:at], content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]):
            path.write_bytes(other)
            with pytest.raises(InputError, match=r"a.bin: is damaged: .*\. Delete it"):
                check(path, "Delete it.")
    write_bytes(path, b"new", checked=True)
    assert state(path) == "whole"


def test_files_without_a_line_are_read(tmp_path):
    (tmp_path / "old").write_bytes(b"x")
    assert check(tmp_path / "old").read_bytes() == b"x"
    write_bytes(tmp_path / "new", b"y", checked=True)
    assert states(tmp_path) == {"old": "without checksum", "new": "whole"}
    assert check(tmp_path / "absent") == tmp_path / "absent"


@pytest.mark.parametrize("before", [None, b"old"], ids=["new", "replaced"])
@pytest.mark.parametrize(
    "deed", [lambda path: write_bytes(path, b"new", checked=True), remove], ids=["write", "remove"]
)
def test_a_kill_before_or_after_any_step_leaves_no_false_damage(tmp_path, monkeypatch, before, deed):
    def killed(step):
        """Raise at the `step`-th operation on the folder, like a kill there; True where the deed ended before."""
        left = iter(range(step))

        def guarded(real):
            def call(*arguments, **named):
                if next(left, None) is None:
                    raise KeyboardInterrupt
                return real(*arguments, **named)

            return call

        with monkeypatch.context() as patch:
            for name in ("replace", "fsync"):
                patch.setattr(files.os, name, guarded(getattr(files.os, name)))
            patch.setattr(type(tmp_path), "unlink", guarded(type(tmp_path).unlink))
            try:
                deed(path)
            except KeyboardInterrupt:
                return False
            return True

    ended = False
    for step in range(20):
        folder = tmp_path / str(step)
        path = folder / "file"
        folder.mkdir()
        if before is not None:
            write_bytes(path, before, checked=True)
        ended = killed(step)
        assert not {"damaged", "missing"} & set(states(folder).values()), step
        deed(path)  # is repeated by the command that continues
        settle(folder)
        assert {state for name, state in states(folder).items() if name == "file"} <= {"whole"}
        if ended:
            break
    assert ended


def test_settling_does_not_accept_damage_of_an_interrupted_write(tmp_path):
    path = tmp_path / "a"
    write_bytes(path, b"old", checked=True)
    with open(tmp_path / CHECKSUMS, "a") as sums:
        sums.write(f"{'1' * 64}  a\n")  # of a new file that a kill kept from its name
    path.write_bytes(b"odd")
    settle(tmp_path)
    assert state(path) == "damaged"


def test_a_deleted_file_is_missing_and_a_damaged_list_is_named(tmp_path):
    workspace = Workspace(tmp_path, "run")
    write_bytes(tmp_path / "a", b"a", checked=True)
    write_bytes(tmp_path / "b", b"b", checked=True)
    workspace.finish()
    (tmp_path / "a").unlink()
    assert states(tmp_path) == {"a": "missing", "b": "whole"}
    (tmp_path / CHECKSUMS).write_bytes((tmp_path / CHECKSUMS).read_bytes()[:-20])
    assert states(tmp_path) == {CHECKSUMS: "damaged"}
    with pytest.raises(InputError, match=r"SHA256SUMS, row 2: is damaged"):
        check(tmp_path / "b")


def test_removing_a_file_of_a_folder_that_is_gone_does_nothing(tmp_path, monkeypatch):
    path = tmp_path / "folder" / "a"
    remove(path)
    write_bytes(path, b"a", checked=True)
    real = files._list_checksum
    monkeypatch.setattr(files, "_list_checksum", lambda *words: (real(*words), shutil.rmtree(path.parent)))
    remove(path)
    assert not path.parent.exists()


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs sha256sum")
def test_sha256sum_reads_a_list_with_odd_names(tmp_path):
    write_bytes(tmp_path / ODD, b"1", checked=True)
    write_bytes(tmp_path / "b", b"2", checked=True)
    settle(tmp_path)
    assert set(read_checksums(tmp_path)) == {ODD, "b"}
    subprocess.run(["sha256sum", "--check", "--strict", CHECKSUMS], cwd=tmp_path, check=True, capture_output=True)


def test_appended_lines_guard_themselves():
    line = files.sealed({"answer": 0.25, "question": 1})
    assert unsealed(line) == {"answer": 0.25, "question": 1}
    assert unsealed(b'{"answer": 0.25}') == {"answer": 0.25}
    assert unsealed(files.sealed({})) == {}
    for wrong in (line.replace(b"0.25", b"0.35"), line.replace(b"question", b"puestion"), b"[1]"):
        with pytest.raises(ValueError, match=r"checksum|object"):
            unsealed(wrong)


def test_verify_names_damage_in_a_tree_and_what_to_do(tmp_path, capsys):
    (tmp_path / "deep").mkdir()
    write_bytes(tmp_path / "deep" / "a.pt", b"abc", checked=True)
    (tmp_path / "note.txt").write_text("mine")
    assert run(["verify", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "1 whole, 0 damaged, 0 missing, 1 without checksums\n"
    (tmp_path / "deep" / "a.pt").write_bytes(b"abd")
    assert run(["verify", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert said.err.startswith(f"retinabench: {tmp_path}/deep/a.pt: is damaged. Restore it from a copy")
    assert "1 damaged" in said.out
    assert run(["verify", str(tmp_path / "note.txt")]) == 2


def test_a_name_of_255_bytes_is_written(tmp_path):
    path = tmp_path / ("é" * 127 + "x")
    write_bytes(path, b"1", checked=True)
    assert check(path).read_bytes() == b"1"
    assert {one.name for one in tmp_path.iterdir()} == {path.name, CHECKSUMS}
