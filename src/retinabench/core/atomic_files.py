"""Atomic writing of files.

Every file is written through `atomic_write`: a temporary file in the same folder is written, flushed to the disk and
renamed. A reader, or a process that continues after `kill -9`, sees the old file or the new one. Files that commands read
again are written with `checked=True`, which lists their checksum beside them (`core/checksums.py`).
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import secrets
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from retinabench.core.checksums import (
    ABSENT,
    CHECKSUMS,
    Sums,
    checksum_lines,
    list_locked,
    read_checksums,
    settled,
    sha256,
)
from retinabench.core.errors import InputError, WorkError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

OLD = 3600.0  # seconds; longer than any write takes


@contextlib.contextmanager
def atomic_write(path: str | Path, *, checked: bool = False) -> Iterator[IO[bytes]]:
    """Open a binary file that becomes `path` when the block ends, and is deleted when the block fails.

    Args:
        path: The file; its folder is created.
        checked: Whether its checksum is listed, so that `checksums.check` finds damage.

    Yields:
        The open file.

    Raises:
        InputError: The folder cannot be written to.
        WorkError: The disk is full.
    """
    path = Path(path)
    temporary = _temporary(path, "part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep_once(path.parent.absolute())
        with _open_held(temporary) as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
            if os.name == "nt":
                handle.close()  # Windows renames no open file
            if checked:
                with list_locked(path.parent):
                    _list_checksum(path, sha256(temporary))
                    os.replace(temporary, path)
            else:
                os.replace(temporary, path)
        _flush_folder(path.parent)
    except OSError as error:
        raise explain(error, path) from error
    finally:
        # It does not exist after a successful rename, or if it could not be created.
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def check_writable(folder: Path) -> None:
    """Create a folder where it is missing, and refuse one that cannot be written to, before long work whose results go there.

    Args:
        folder: The folder.

    Raises:
        InputError: It cannot be created, or no file can be created in it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise explain(error, folder) from error


def _temporary(path: Path, ending: str) -> Path:
    """Return a new name beside `path`; it is cut where it would be longer than the 255 bytes that most file systems allow."""
    start = os.fsdecode(os.fsencode(path.name)[:200])
    return path.with_name(f".{start}.{secrets.token_hex(4)}.{ending}")


def _open_held(path: Path) -> IO[bytes]:
    """Create a temporary file and hold its lock while it is open, which tells `sweep` that its writer lives."""
    while True:
        handle = open(path, "wb")  # noqa: SIM115 - the caller closes it
        if fcntl is not None:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_EX)
        if path.exists():
            return handle
        handle.close()  # deleted by a sweep between the two steps


def write_bytes(path: str | Path, content: bytes, *, checked: bool = False) -> None:
    """Write bytes atomically.

    Args:
        path: The file.
        content: What to write.
        checked: Whether its checksum is listed.
    """
    with atomic_write(path, checked=checked) as handle:
        handle.write(content)


def write_json(path: str | Path, content: Any, *, checked: bool = False, indented: bool = True) -> None:
    """Write JSON atomically; NaN and infinity are refused.

    Args:
        path: The file.
        content: What to write.
        checked: Whether its checksum is listed.
        indented: Whether it is for readers; many numbers are written faster and shorter without.
    """
    text = (
        json_text(content) if indented else json.dumps(content, allow_nan=False, separators=(",", ":")) + "\n"
    )
    write_bytes(path, text.encode(), checked=checked)


def json_text(content: Any) -> str:
    """Return `content` as indented JSON that ends with a newline; NaN and infinity are refused."""
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def _list_checksum(path: Path, digest: str) -> None:
    """List the checksum that `path` is about to have beside that of the file which is there; `ABSENT` for a deletion."""
    sums = read_checksums(path.parent)
    before = settled(path.parent, {path.name: sums[path.name]}) if path.name in sums else {}
    there = (sha256(path),) if path.name not in sums and path.exists() else (ABSENT,)
    sums[path.name] = tuple(dict.fromkeys((*before.get(path.name, there), digest)))
    _write_checksums(path.parent, sums)


def _write_checksums(folder: Path, sums: Sums) -> None:
    if sums:
        write_bytes(folder / CHECKSUMS, checksum_lines(sums))
    else:
        (folder / CHECKSUMS).unlink(missing_ok=True)


def settle(folder: Path) -> None:
    """Leave one checksum for each file of a folder whose work is complete, and none for files that are gone."""
    with list_locked(folder):
        sums = read_checksums(folder)
        if (left := settled(folder, sums)) != sums:
            _write_checksums(folder, left)


def remove(path: Path) -> None:
    """Delete a file that was written with ``checked=True``, and its line in the list; it may be missing."""
    with list_locked(path.parent):
        if path.name not in read_checksums(path.parent):
            path.unlink(missing_ok=True)
            return
        _list_checksum(path, ABSENT)
        path.unlink(missing_ok=True)
        sums = read_checksums(path.parent)
        if sums.pop(path.name, None):  # otherwise the folder is gone as well
            _write_checksums(path.parent, sums)


def claim(path: str | Path, content: Any) -> None:
    """Write `content` as JSON to `path`, checked, unless the file exists; of several processes at once, one succeeds.

    A hard link is created atomically or refused; on a file system without hard links the last writer succeeds.
    """
    path = Path(path)
    if path.exists():
        return
    own = _temporary(path, "claim")
    try:
        with _open_held(own) as handle:
            handle.write(json_text(content).encode())
            handle.flush()
            os.fsync(handle.fileno())
            with list_locked(path.parent):
                if not path.exists():
                    _list_checksum(path, sha256(own))
                    os.link(own, path)
    except FileExistsError:
        pass
    except OSError:
        write_json(path, content, checked=True)
    finally:
        with contextlib.suppress(OSError):
            own.unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Delete temporary files of killed writes in `folder`: those whose lock no writer holds.

    On a file system without locks those older than an hour are deleted, longer than any write takes.
    """
    for leftover in (*folder.glob(".*.part"), *folder.glob(".*.claim")):
        with contextlib.suppress(OSError), open(leftover, "r+b") as handle:
            if _abandoned(handle):
                leftover.unlink()


def _abandoned(handle: IO[bytes]) -> bool:
    """Whether no living process writes a temporary file."""
    if fcntl is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            return False
        except OSError:
            pass
    return time.time() - os.fstat(handle.fileno()).st_mtime > OLD


@functools.cache
def _sweep_once(folder: Path) -> None:
    """Sweep a folder before the first write of this process into it: listing it may take long."""
    sweep(folder)


def explain(error: OSError, path: Path) -> InputError | WorkError:
    """Return the error, in one line with a hint, for an operating-system error about writing `path`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return WorkError(
            f"{path}: no space left on the disk. Free some space and repeat the command; "
            "finished work stays, and the command continues it."
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return InputError(
            "cannot be written (read-only or no permission)", file=path, hint="Choose another --out."
        )
    if error.errno in (errno.ENOTDIR, errno.EEXIST, errno.EISDIR):
        return InputError(
            "cannot be written: a part of the path is a file where a folder is needed, or the reverse",
            file=path,
            hint="Choose another --out.",
        )
    if error.errno == errno.ENOENT:
        return InputError(
            "cannot be written: its folder is gone, or can hold no other",
            file=path,
            hint="Choose another --out.",
        )
    return WorkError(f"{path}: {error.strerror or error}.")


def _flush_folder(folder: Path) -> None:
    """Flush a rename in `folder` to the disk, if the platform supports it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
