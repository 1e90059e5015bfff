"""Files of a download: a folder, a zip, zips in a folder, or a zip in parts; nothing is unpacked to the disk.

Kaggle distributes `train.zip.001 … train.zip.005`, one zip in parts. The parts are read as one seekable stream, so that
reading one image reads the central directory (once) and the bytes of that image.
"""

from __future__ import annotations

import io
import os
import re
import stat as stat_kinds
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from retinabench.core.errors import InputError
from retinabench.data.ingest.zip_streams import BROKEN, LARGEST_FILE, MOST_INNER, Chain, Member, Segment

AHEAD = 1 << 15  # bytes that are read at once, at least
PART = re.compile(r"(?P<whole>.+\.zip)(?:\.(?P<number>\d{3}))?", re.IGNORECASE)


@dataclass(eq=False)
class Files:
    """All files below a root by their relative names, whether loose or in archives; loose ones come first."""

    root: Path
    loose: set[str] = field(default_factory=set)
    members: dict[str, Member] = field(default_factory=dict)
    parts: dict[Path, str] = field(default_factory=dict)  # archives on the disk, and their stamps
    held: int = 0  # bytes of compressed archives inside archives, which are held in memory

    def names(self) -> list[str]:
        """Return all names, sorted."""
        return sorted(self.loose | self.members.keys())

    def __contains__(self, name: str) -> bool:
        return name in self.loose or name in self.members

    def read(self, name: str) -> bytes:
        """Return the bytes of one file, or raise `InputError` if it is missing or damaged."""
        if name not in self.loose and name in self.members:
            return self.members[name].read()
        path = self.root / name
        try:
            found = path.stat()
            regular = stat_kinds.S_ISREG(found.st_mode) or stat_kinds.S_ISDIR(found.st_mode)
            if not regular or found.st_size > LARGEST_FILE:
                problem = f"is no regular file of at most {LARGEST_FILE:,} bytes"
                raise InputError(problem, file=path)
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise InputError("does not exist", file=path) from None
        except OSError as error:
            raise InputError(f"cannot be read ({error.strerror})", file=path) from None

    def find(self, basename: str) -> str | None:
        """Return the name of the file called `basename`, whatever its case; the least deep one where several are."""
        wanted = basename.lower()
        found = [name for name in self.names() if name.rpartition("/")[2].lower() == wanted]
        return min(found, key=lambda name: (name.count("/"), name), default=None)

    def where(self, name: str) -> str:
        """Return the name as messages show it."""
        member = None if name in self.loose else self.members.get(name)
        return f"{member.label}: {name}" if member else str(self.root / name)

    def stamp(self, name: str) -> str:
        """Return a text that changes when the bytes of a file, or of the archive that holds it, may have changed."""
        member = None if name in self.loose else self.members.get(name)
        return member.stamp if member else stamp(self.root / name)

    def fresh(self) -> bool:
        """Tell whether the archives are as they were when opened."""
        return all(stamp(path) == before for path, before in self.parts.items())


def open_files(root: Path) -> Files:
    """List a folder with all archives in it, or one zip."""
    files = Files(root)
    if root.is_dir():
        for name in _walk(root):
            files.loose.add(name)
    elif not root.exists():
        raise InputError("does not exist", file=root, hint="Name an existing folder or zip.")
    elif not PART.fullmatch(root.name):
        raise InputError("is neither a folder nor a zip archive", file=root)
    base = root if root.is_dir() else root.parent
    on_disk = files.loose if root.is_dir() else {path.name for path in _siblings(root)}
    for whole, parts in _archives(on_disk):
        paths = [base / part for part in parts]
        stamps = {path: stamp(path) for path in paths}
        files.parts |= stamps
        segments: list[Segment] = [(path, 0, path.stat().st_size) for path in paths]
        _add(files, PurePosixPath(whole), segments, str(base / whole), " ".join(stamps.values()), depth=0)
    files.loose -= {name for name in files.loose if PART.fullmatch(name)}
    return files


_SHARED: dict[Path, Files] = {}


def shared_files(root: Path) -> Files:
    """Return the files below a root, which each process opens once and again when an archive has changed."""
    files = _SHARED.get(root)
    if files is None or not files.fresh():
        files = _SHARED[root] = open_files(root)
    return files


def _walk(root: Path) -> Iterator[str]:
    seen = set()  # linked folders count, but a link may lead back up
    for folder, below, names in os.walk(root, followlinks=True):
        if (real := os.path.realpath(folder)) in seen:
            below.clear()
            continue
        seen.add(real)
        below[:] = sorted(name for name in below if not _hidden(name))
        place = PurePosixPath(Path(folder).relative_to(root).as_posix())
        yield from (str(place / name) for name in names if not _hidden(name))


def _hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _siblings(root: Path) -> list[Path]:
    """Return a zip with its other parts: any one of them may be named."""
    match = PART.fullmatch(root.name)
    assert match is not None
    if match["number"] is None:
        return [root]
    return [
        path
        for path in root.parent.iterdir()
        if re.fullmatch(re.escape(match["whole"]) + r"\.\d{3}", path.name)
    ]


def _archives(names: Iterator[str] | set[str]) -> list[tuple[str, list[str]]]:
    """Group the names of zips and their parts, or raise `InputError` if a part is missing."""
    found: dict[str, dict[int, str]] = {}
    for name in sorted(names):
        if match := PART.fullmatch(name):
            found.setdefault(match["whole"], {})[int(match["number"] or 0)] = name
    groups = []
    for whole, parts in found.items():
        if 0 in parts:  # the joined zip beside its parts
            groups.append((whole, [parts[0]]))
            continue
        missing = [n for n in range(1, max(parts) + 1) if n not in parts]
        if missing:
            raise InputError(
                f"part {missing[0]:03d} is missing",
                file=whole,
                hint=f"Download {whole}.{missing[0]:03d} too.",
            )
        groups.append((whole, [parts[n] for n in sorted(parts)]))
    return groups


def _add(
    files: Files, whole: PurePosixPath, segments: list[Segment], label: str, stamp: str, depth: int
) -> None:
    """Add the members of one archive, and of the archives in it."""
    if depth > 2:
        raise InputError("archives are nested more than three deep", file=label)
    stream = cast(BinaryIO, io.BufferedReader(Chain(segments), AHEAD))
    try:
        archive = zipfile.ZipFile(stream)
    except BROKEN as error:
        last = f" after part {len(segments):03d}" if len(segments) > 1 else ""
        raise InputError(
            f"is no whole zip archive ({error})",
            file=label,
            hint=f"Is a part{last} missing? Download it again, or remove it where it is unpacked already.",
        ) from None
    inner: dict[str, Member] = {}
    for info in archive.infolist():
        inside = PurePosixPath(info.filename.replace("\\", "/"))
        if inside.is_absolute() or ".." in inside.parts or any(":" in part for part in inside.parts[:1]):
            raise InputError(f"holds the unsafe name '{info.filename}'", file=label, hint="Do not use it.")
        if info.filename.endswith("/") or any(map(_hidden, inside.parts)):
            continue
        if not inside.parts:
            raise InputError("holds a file without a name", file=label, hint="Do not use it.")
        if info.flag_bits & 1:
            raise InputError("is encrypted", file=label, hint="Unpack it with its password first.")
        member = Member(archive, info, label, stream, stamp)
        place = str(whole.parent / inside)
        if PART.fullmatch(place):
            inner[place] = member
        elif (other := files.members.setdefault(place, member)).info.CRC != info.CRC:
            raise InputError(
                f"and {other.label} both hold '{place}', with different bytes", file=label, hint="Keep one."
            )
    files.held += sum(one.info.file_size for one in inner.values() if one.info.compress_type)
    if files.held > MOST_INNER:
        hint = "Unpack the outer archive once; the inner ones can stay as they are."
        raise InputError(f"holds compressed archives of {files.held:,} bytes", file=label, hint=hint)
    for name, parts in _archives(set(inner)):
        pieces = [inner[part].segment() for part in parts]
        _add(files, PurePosixPath(name), pieces, f"{label}: {name}", stamp, depth + 1)


def stamp(path: Path) -> str:
    """Return size and time of change of a file on the disk, '' where there is none."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return ""
    return f"{found.st_size}-{found.st_mtime_ns}"
