"""Checksums of the files that commands keep in their folders, so that damage on the disk is named and never used.

Each folder has one file `SHA256SUMS`, which `sha256sum --check` reads too: a line for every file that was written with
`atomic_files.atomic_write(path, checked=True)`. The checksum is listed before the file is renamed, so a kill between the
two leaves a file whose checksum is listed: that of the old file or that of the new one. Files without a line, such as those
of older versions and of users' own tools, are read unchecked.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from retinabench.core.errors import InputError, printable
from retinabench.core.results import JsonObject

try:
    import fcntl
except ImportError:  # Windows: two processes that write to one folder at once are then not kept apart
    fcntl = None  # type: ignore[assignment]

CHECKSUMS = "SHA256SUMS"
LINE = re.compile(r"([0-9a-f]{64})  ([^/]+)")
ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r"}  # as `sha256sum` escapes names
SEAL = "checksum"
ABSENT = "0" * 64  # is listed beside a checksum while there may not yet, or no longer, be a file
HINT = "Restore it from a copy, or delete {} and repeat the command that made it."

State = Literal["whole", "damaged", "missing", "without checksum"]
Sums = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Checked:
    """What was found of one file.

    Args:
        path: The file.
        state: ``whole``, ``damaged``, ``missing`` (it is listed) or ``without checksum``.
    """

    path: Path
    state: State


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def check(path: str | Path, hint: str | None = None) -> Path:
    """Return `path` if its content is what was written, or if no checksum is known.

    Args:
        path: A file; it may be missing.
        hint: What a user can do about damage.

    Raises:
        InputError: The content differs from what was written, or the list of checksums is damaged.
    """
    path = Path(path)
    if state(path) == "damaged":
        raise InputError(
            f"is damaged: its content is not what was written ({CHECKSUMS} lists another checksum)",
            file=path,
            hint=hint or HINT.format(path.parent),
        )
    return path


def state(path: Path) -> State:
    """Compare a file with its line in the list."""
    while True:
        known = read_checksums(path.parent).get(path.name)
        if known is None:
            return "without checksum"
        try:
            # Reading a pipe, which a folder from elsewhere may hold, would never end.
            found = sha256(path) if path.is_file() else ABSENT
        except FileNotFoundError:
            found = ABSENT
        if found in known:
            return "whole"
        if read_checksums(path.parent).get(path.name) == known:  # otherwise it was replaced while it was read
            return "missing" if found == ABSENT else "damaged"


def read_checksums(folder: Path) -> Sums:
    """Return name -> accepted checksums of a folder; empty where it has no list.

    Two are accepted while a file is being written, replaced or deleted, or where that was interrupted.

    Raises:
        InputError: The list is damaged.
    """
    path = folder / CHECKSUMS
    sums: Sums = {}
    try:
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").split("\n")
    except (FileNotFoundError, NotADirectoryError):
        return sums
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", file=path) from None
    for number, line in enumerate(lines[:-1], start=1):
        escaped = line.startswith("\\")
        match = LINE.fullmatch(line[escaped:])
        if match is None:
            raise _damaged_list(path, number)
        name = _unescaped(match[2]) if escaped else match[2]
        sums[name] = (*sums.get(name, ()), match[1])
    if lines[-1] or not sums:
        raise _damaged_list(path, len(lines))
    return sums


def _damaged_list(path: Path, row: int) -> InputError:
    hint = "Restore it, or delete it: the files beside it are then read without a check."
    return InputError("is damaged: not a list of checksums", file=path, row=row, hint=hint)


def _unescaped(name: str) -> str:
    return re.sub(r"\\(.)", lambda found: {"n": "\n", "r": "\r"}.get(found[1], found[1]), name)


def checksum_lines(sums: Mapping[str, tuple[str, ...]]) -> bytes:
    """Return the content of a list."""
    lines = []
    for name, digests in sorted(sums.items()):
        escaped = "".join(ESCAPES.get(character, character) for character in name)
        lines += [f"{'' if escaped == name else chr(92)}{digest}  {escaped}\n" for digest in digests]
    return "".join(lines).encode("utf-8", "surrogateescape")


def settled(folder: Path, sums: Sums) -> Sums:
    """Leave the one checksum that a file has, where two are accepted, and drop files that are gone."""
    one: Sums = {}
    for name, digests in sums.items():
        if (folder / name).is_file():
            now = sha256(folder / name) if len(digests) > 1 else digests[0]
            one[name] = (now,) if now in digests else digests
    return one


def sealed(content: Mapping[str, object]) -> bytes:
    """Return a line of JSON with a checksum of its own, for files to which lines are appended."""
    line = json.dumps(content, allow_nan=False)
    return f'{line[:-1]}{", " if content else ""}"{SEAL}": "{_seal(line)}"}}\n'.encode()


def unsealed(line: bytes) -> JsonObject:
    """Return the content of a line that `sealed` wrote, or of a line of JSON without a checksum.

    Raises:
        ValueError: It is neither, or its checksum is that of another line.
    """
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


def _seal(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()[:16]


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
    """Check every file below a folder; a list that is damaged is itself reported, once.

    Args:
        folder: The top of the tree; symbolic links to folders are not followed.

    Yields:
        What was found, in the order of the paths.
    """
    for place, folders, names in os.walk(folder):
        folders.sort()
        here = Path(place)
        try:
            sums = read_checksums(here)
        except InputError:
            yield Checked(here / CHECKSUMS, "damaged")
            continue
        for name in sorted({*names, *sums} - {CHECKSUMS}):
            if not _passing(name):
                found = state(here / name)
                if found != "whole" or (here / name).exists():
                    yield Checked(here / name, found)


def _passing(name: str) -> bool:
    """Whether a file is a lock or a temporary one."""
    return name.startswith(".lock") or name.endswith((".part", ".claim")) or name == "done"


def described(checked: Checked) -> str:
    """Return one line about a file that is not whole, with what to do."""
    what = "is damaged" if checked.state == "damaged" else "is missing"
    return printable(f"{checked.path}: {what}. {HINT.format(checked.path.parent)}")
