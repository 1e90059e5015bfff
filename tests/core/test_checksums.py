"""Lists of checksums: what they accept, what they find, and that `sha256sum` reads them."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from retinabench.cli.main import run
from retinabench.core import atomic_files
from retinabench.core.atomic_files import remove, settle, write_bytes
from retinabench.core.checksums import CHECKSUMS, check, read_checksums, sealed, state, unsealed, verify
from retinabench.core.errors import InputError
from retinabench.core.workspace import Workspace

ODD = "a\\b\nc é"


def states(folder):
    return {found.path.name: found.state for found in verify(folder)}


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
                patch.setattr(atomic_files.os, name, guarded(getattr(atomic_files.os, name)))
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
    real = atomic_files._list_checksum
    monkeypatch.setattr(
        atomic_files, "_list_checksum", lambda *words: (real(*words), shutil.rmtree(path.parent))
    )
    remove(path)
    assert not path.parent.exists()


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs sha256sum")
def test_sha256sum_reads_a_list_with_odd_names(tmp_path):
    write_bytes(tmp_path / ODD, b"1", checked=True)
    write_bytes(tmp_path / "b", b"2", checked=True)
    settle(tmp_path)
    assert set(read_checksums(tmp_path)) == {ODD, "b"}
    subprocess.run(
        ["sha256sum", "--check", "--strict", CHECKSUMS], cwd=tmp_path, check=True, capture_output=True
    )


def test_appended_lines_guard_themselves():
    line = sealed({"answer": 0.25, "question": 1})
    assert unsealed(line) == {"answer": 0.25, "question": 1}
    assert unsealed(b'{"answer": 0.25}') == {"answer": 0.25}
    assert unsealed(sealed({})) == {}
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
