"""Atomic writing of files and of the list of their checksums, and the check of whole folders by it.

Every file is written through `atomic_write`: a temporary file in the same folder is written, flushed to the disk and
renamed. A reader, or a process that continues after `kill -9`, sees the old file or the new one. Files that commands read
again are written with `checked=True`, which lists their checksum in `SHA256SUMS` beside them, before the rename: a kill between
the two leaves a file whose checksum is listed, that of the old file or that of the new one. `sha256sum --check` reads that list
too; `check` of `core/errors.py` compares one file with its line.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from retinabench.core import errors
from retinabench.core.errors import CHECKSUMS, Checked, InputError, Sums, read_checksums, record_written, sha256
from retinabench.core.results import JsonObject

try:
    import fcntl
except ImportError:  # Windows: two processes that write to one folder at once are then not kept apart
    fcntl = None  # type: ignore[assignment]

ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r"}  # as `sha256sum` escapes names
SEAL = "checksum"
OLD = 3600.0  # seconds; longer than any write takes


def checksum_lines(sums: Mapping[str, tuple[str, ...]]) -> bytes:
    lines = []
    for name, digests in sorted(sums.items()):
        escaped = "".join(ESCAPES.get(character, character) for character in name)
        lines += [f"{'' if escaped == name else chr(92)}{digest}  {escaped}\n" for digest in digests]
    return "".join(lines).encode("utf-8", "surrogateescape")


def settled(folder: Path, sums: Sums, *, interrupted: bool = False) -> Sums:
    """Leave the one checksum that a file has, where two are accepted, and drop files that are gone: all, or the interrupted."""
    one: Sums = {}
    for name, digests in sums.items():
        if (folder / name).is_file():
            now = sha256(folder / name) if len(digests) > 1 else digests[0]
            one[name] = (now,) if now in digests else digests
        elif interrupted and errors.ABSENT not in digests:
            one[name] = digests
    return one


def sealed(content: Mapping[str, object]) -> bytes:
    """Return a line of JSON with a checksum of its own, for files to which lines are appended."""
    line = json.dumps(content, allow_nan=False)
    seal = hashlib.sha256(line.encode()).hexdigest()[:16]
    return f'{line[:-1]}{", " if content else ""}"{SEAL}": "{seal}"}}\n'.encode()


def unsealed(line: bytes) -> JsonObject:
    """Return the content of a line that `sealed` wrote, or of a line of JSON without a checksum."""
    try:
        content = json.loads(line)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(content, dict):
        raise ValueError("not an object")
    seal = content.pop(SEAL, None)
    if seal is not None and sealed(content) != line.rstrip(b"\n") + b"\n":
        raise ValueError("its checksum is that of another line")
    return content


@contextlib.contextmanager
def list_locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder's list of checksums, where the file system has locks."""
    descriptor = None
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def verify(folder: Path) -> Iterator[Checked]:
    """Check every file below a folder; a list that is damaged is itself reported, once."""
    for place, folders, names in os.walk(folder):
        folders.sort()
        here = Path(place)
        try:
            sums = read_checksums(here)
        except InputError:
            yield Checked(here / CHECKSUMS, "damaged")
            continue
        for name in sorted({*names, *sums} - {CHECKSUMS, "done"}):
            if name.startswith(".lock") or name.endswith((".part", ".claim")):  # a lock, or a temporary file
                continue
            found = errors.state(here / name)
            if found != "whole" or (here / name).exists():
                yield Checked(here / name, found)


def first_broken(folder: Path, *, content: bool = True) -> Checked | None:
    """Return a file of a folder's list that is missing or, if `content`, has another content than was written."""
    sums = read_checksums(folder)
    paths = [folder / name for name in sums]
    sizes = {path: path.stat().st_size if path.is_file() else 0 for path in paths}
    left = errors.MOST_READ if content else 0
    for path in sorted(paths, key=lambda one: sizes[one]):
        left -= sizes[path]
        if not path.is_file():
            if sums[path.name][-1] != errors.ABSENT:
                return Checked(path, "missing")
        elif left > 0 and errors.state(path) == "damaged":
            return Checked(path, "damaged")
    return None


@contextlib.contextmanager
def atomic_write(path: str | Path, *, checked: bool = False) -> Iterator[IO[bytes]]:
    """Open a binary file that becomes `path` when the block ends, and is deleted when the block fails."""
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
            digest = sha256(temporary) if checked else ""
            record_written(path, temporary, digest)
            if checked:
                with list_locked(path.parent):
                    _list_checksum(path, digest)
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
    """Create a folder where it is missing, and refuse one that cannot be written to, before long work whose results go there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise explain(error, folder) from error


def _temporary(path: Path, ending: str) -> Path:
    """Return a new name in the folder of `path`, cut to the 255 bytes that most file systems allow."""
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
    with atomic_write(path, checked=checked) as handle:
        handle.write(content)


def write_json(path: str | Path, content: Any, *, checked: bool = False, indented: bool = True) -> None:
    """Write JSON atomically; NaN and infinity are refused."""
    text = json_text(content) if indented else json.dumps(content, allow_nan=False, separators=(",", ":")) + "\n"
    write_bytes(path, text.encode(), checked=checked)


def json_text(content: Any) -> str:
    """Return `content` as indented JSON that ends with a newline; NaN and infinity are refused."""
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def _list_checksum(path: Path, digest: str) -> None:
    """Accept the checksum that `path` is about to have, in addition to the one that it has; `ABSENT` for a deletion."""
    sums = read_checksums(path.parent)
    before = settled(path.parent, {path.name: sums[path.name]}) if path.name in sums else {}
    there = (sha256(path),) if path.name not in sums and path.exists() else (errors.ABSENT,)
    sums[path.name] = tuple(dict.fromkeys((*before.get(path.name, there), digest)))
    _write_checksums(path.parent, sums)


def _write_checksums(folder: Path, sums: Sums) -> None:
    if sums:
        write_bytes(folder / CHECKSUMS, checksum_lines(sums))
    else:
        record_written(folder / CHECKSUMS, None)
        (folder / CHECKSUMS).unlink(missing_ok=True)


def settle(folder: Path, *, interrupted: bool = False) -> None:
    """Leave one checksum for each file of a folder whose work is complete, and none for files that are gone (see `settled`)."""
    with list_locked(folder):
        sums = read_checksums(folder)
        if (left := settled(folder, sums, interrupted=interrupted)) != sums:
            _write_checksums(folder, left)


def remove(path: Path) -> None:
    """Delete a file that was written with ``checked=True``, and its line in the list, or a folder; it may be missing."""
    record_written(path, None)
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
        return
    with list_locked(path.parent):
        if path.name not in read_checksums(path.parent):
            path.unlink(missing_ok=True)
            return
        _list_checksum(path, errors.ABSENT)
        path.unlink(missing_ok=True)
        sums = read_checksums(path.parent)
        if sums.pop(path.name, None):  # otherwise the folder is gone as well
            _write_checksums(path.parent, sums)


def claim(path: str | Path, content: Any) -> None:
    """Write `content` as JSON to `path`, checked, unless the file exists; of several processes at once one succeeds, by a hard link where there are any."""
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
                    record_written(path, own)
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
    """Delete temporary files of killed writes in `folder`: those whose lock no writer holds, or older than an hour on a file system without locks."""
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


_sweep_once = functools.cache(sweep)  # before the first write of this process into a folder: listing it may take long


def explain(error: OSError, path: Path) -> InputError | errors.WorkError:
    """Return the error, in one line with a hint, for an operating-system error about writing `path`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return errors.WorkError(
            f"{path}: no space left on the disk. Free some space and repeat the command; "
            "finished work stays, and the command continues it."
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        problem = "cannot be written (read-only or no permission)"
    elif error.errno in (errno.ENOTDIR, errno.EEXIST, errno.EISDIR):
        problem = "cannot be written: a part of the path is a file where a folder is needed, or the reverse"
    elif error.errno == errno.ENOENT:
        problem = "cannot be written: its folder is gone, or can hold no other"
    else:
        return errors.WorkError(f"{path}: {error.strerror or error}.")
    return InputError(problem, file=path, hint="Choose another --out.")


def _flush_folder(folder: Path) -> None:
    """Flush a rename in `folder` to the disk, if the platform supports it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
