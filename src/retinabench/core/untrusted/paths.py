"""Names of files from untrusted folders: a manifest may name files of its own folder only.

A folder that someone sends may hold names such as ``../../secret`` or links that lead out of it. What is read by such a name
would enter a report, and what is written would change another file.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from retinabench.core.errors import InputError

NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
"""Flag of `os.open` for files that are written in place: a link in an untrusted folder is not followed."""


def inside(folder: Path, name: object) -> Path:
    """Return the file of that name in `folder`, links in it included as long as they stay in the folder.

    Args:
        folder: The folder.
        name: What a manifest says: the name of a file, without folders.

    Returns:
        The path.

    Raises:
        InputError: The name is no file name, or a link that leads out of the folder.
    """
    if not isinstance(name, str) or name in ("", ".", "..") or any(mark in name for mark in "/\\\0"):
        raise InputError(f"names the file {str(name)[:80]!r}, which is not a name in it", file=folder)
    return kept_inside(folder, folder / name)


def kept_inside(folder: Path, path: Path) -> Path:
    """Return `path`, or raise `InputError` where it is a link that leads out of `folder`."""
    if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
        raise InputError(
            "is a link that leads out of its folder",
            file=path,
            hint="Put the file itself there, if you trust the folder.",
        )
    return path


def open_in_place(path: Path, flags: int) -> int:
    """Open a file of a working folder for writing in place, and return its descriptor.

    Args:
        path: The file; it is created where it does not exist.
        flags: Further flags of `os.open`, such as `os.O_APPEND`.

    Raises:
        InputError: It is a link or no regular file.
        OSError: It cannot be opened.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise InputError("is a link or no regular file, and is not written to", file=path, hint="Remove it.")
    return os.open(path, flags | os.O_CREAT | NO_LINKS, 0o666)


def shown(path: str | Path) -> str:
    """Return a path as reports and JSON show it: without the folders that would tell of this machine and its user.

    Args:
        path: A path.

    Returns:
        A path below the current folder relative to it, of any other its last two names.
    """
    path = Path(path)
    if path.is_absolute():
        below = path.is_relative_to(Path.cwd())
        path = path.relative_to(Path.cwd()) if below else Path(*path.parts[1:][-2:])
    if ".." in path.parts:
        path = Path(*[part for part in path.parts if part != ".."][-2:])
    return str(path)


def told_apart(paths: Sequence[str | Path]) -> list[str]:
    """Return the shortest ends of paths, each of at least one name, that differ wherever the paths do."""
    parts = [Path(path).parts for path in paths]
    names: list[str] = [""] * len(parts)
    left = set(range(len(parts)))
    for length in range(1, max(map(len, parts), default=0) + 1):
        ends = Counter(own[-length:] for own in {parts[k] for k in left})
        for k in list(left):
            if ends[parts[k][-length:]] == 1 or length >= len(parts[k]):
                names[k] = str(Path(*parts[k][-length:]))
                left.remove(k)
    return names
