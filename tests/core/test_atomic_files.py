import errno
import json
import os
import threading
import time

import pytest

from retinabench.core import atomic_files
from retinabench.core.atomic_files import (
    atomic_write,
    check_writable,
    claim,
    explain,
    sweep,
    write_bytes,
    write_json,
)
from retinabench.core.errors import InputError, WorkError


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
    write_json(tmp_path / "x.json", {"a": [1, None]})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": [1, None]}
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "y.json", {"a": float("nan")})
    assert not (tmp_path / "y.json").exists()


def test_of_many_claims_one_succeeds_and_a_later_one_changes_nothing(tmp_path):
    file = tmp_path / "claimed.json"
    threads = [threading.Thread(target=claim, args=(file, {"by": k})) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    content = file.read_text()
    claim(file, {"by": "later"})
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

    monkeypatch.setattr(atomic_files.fcntl, "flock", refused)
    for name in (".old.1234.part", ".young.5678.part"):
        (tmp_path / name).touch()
    os.utime(tmp_path / ".old.1234.part", (time.time() - 7200,) * 2)
    sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".young.5678.part"]
    write_bytes(tmp_path / "x", b"content")
    assert (tmp_path / "x").read_bytes() == b"content"


def test_a_temporary_file_that_is_swept_before_it_is_locked_is_created_again(tmp_path, monkeypatch):
    lock, swept = atomic_files.fcntl.flock, []

    def late(handle, operation):
        if not swept:
            swept.append(next(tmp_path.glob(".x.*.part")))
            swept[0].unlink()
        lock(handle, operation)

    monkeypatch.setattr(atomic_files.fcntl, "flock", late)
    write_bytes(tmp_path / "x", b"content")
    assert swept
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize(
    ("number", "kind", "says"),
    [
        (errno.ENOSPC, WorkError, "no space left on the disk"),
        (errno.EACCES, InputError, "no permission"),
        (errno.ENOTDIR, InputError, "a file where a folder is needed"),
        (errno.EIO, WorkError, "Input/output error"),
    ],
)
def test_errors_of_the_system_become_one_line(tmp_path, number, kind, says):
    error = explain(OSError(number, os.strerror(number)), tmp_path)
    assert type(error) is kind
    assert says in str(error)


def test_a_folder_that_is_a_file_is_a_wrong_input(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="a file where a folder is needed"):
        write_bytes(tmp_path / "file" / "x", b"")


def test_a_folder_for_results_is_checked_before_the_work(tmp_path):
    check_writable(tmp_path / "a" / "b")
    assert list((tmp_path / "a").rglob("*")) == [tmp_path / "a" / "b"]
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InputError, match="a file where a folder is needed"):
            check_writable(folder)
