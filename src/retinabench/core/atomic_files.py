"""Atomic writing of files.

Every file is written through `atomic_write`: a temporary file in the same folder is written, flushed to the disk and
renamed. A reader, or a process that continues after `kill -9`, sees the old file or the new one.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from retinabench.core.errors import InputError, WorkError


@contextlib.contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a binary file that becomes `path` when the block ends, and is deleted when the block fails.

    Args:
        path: The file; its folder is created.

    Yields:
        The open file.

    Raises:
        InputError: The folder cannot be written to.
        WorkError: The disk is full.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
        _flush_folder(path.parent)
    except OSError as error:
        raise explain(error, path) from error
    finally:
        # It does not exist after a successful rename, or if it could not be created.
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write `content` to `path` atomically."""
    with atomic_write(path) as handle:
        handle.write(content)


def write_json(path: str | Path, content: Any) -> None:
    """Write `content` as indented JSON to `path` atomically; NaN and infinity are refused."""
    write_bytes(path, json_text(content).encode())


def json_text(content: Any) -> str:
    """Return `content` as indented JSON that ends with a newline; NaN and infinity are refused."""
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def claim(path: str | Path, content: Any) -> None:
    """Write `content` as JSON to `path` unless the file exists; of several processes at once, one succeeds.

    A hard link is created atomically or refused; on a file system without hard links the last writer succeeds.
    """
    path = Path(path)
    if path.exists():
        return
    own = path.with_name(f".{path.name}.{secrets.token_hex(4)}.claim")
    write_json(own, content)
    try:
        os.link(own, path)
    except FileExistsError:
        pass
    except OSError:
        write_json(path, content)
    finally:
        own.unlink()


def sweep(folder: Path) -> None:
    """Delete temporary files of killed writes in `folder`: those older than an hour, longer than any write takes."""
    for leftover in (*folder.glob(".*.part"), *folder.glob(".*.claim")):
        with contextlib.suppress(OSError):
            if time.time() - leftover.stat().st_mtime > 3600:
                leftover.unlink()


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
    return WorkError(f"{path}: {error.strerror or error}.")


def _flush_folder(folder: Path) -> None:
    """Flush a rename in `folder` to the disk, if the platform supports it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
