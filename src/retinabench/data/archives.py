"""Files of a download: a folder, a zip, zips in a folder, or a zip in parts; nothing is unpacked to the disk.

Kaggle distributes `train.zip.001 … train.zip.005`, one zip in parts. The parts are read as one seekable stream, so that
reading one image reads the central directory (once) and the bytes of that image.

Downloads go over one connection, by https alone, are resumed after interruptions, and verified.
"""

from __future__ import annotations

import bisect
import hashlib
import http.client
import io
import lzma
import os
import re
import stat as stat_kinds
import struct
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from retinabench.core.errors import QUIET, InputError, Progress, WorkError
from retinabench.core.files import explain
from retinabench.core.version import __version__

Segment = tuple[Path | BinaryIO, int, int]  # a file or a seekable stream, its first byte, number of bytes
LARGEST_FILE = 1 << 28  # bytes of one file; an uncompressed image of 50 megapixels takes 150 MB
LARGEST_INNER = 1 << 26  # bytes of a compressed zip inside a zip that is held in memory
MOST_INNER = 1 << 29  # bytes of all of them
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Python bounds the memory that these unfold to, but not that of bzip2 and LZMA."""

BROKEN = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, struct.error, OSError, RuntimeError, ValueError,
)  # fmt: skip


class Chain(io.RawIOBase):
    """Pieces of files and of other streams as one seekable stream, so that a zip in parts is read as one file."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = [segment for segment in segments if segment[2]]
        self._starts = [0]
        for _, _, length in self._segments:
            self._starts.append(self._starts[-1] + length)
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._starts[-1]}[whence]
        if base + offset < 0:
            raise OSError(f"seek to {base + offset}")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: object) -> int:
        """Read up to the end of one segment; a buffered reader on top asks again."""
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        if self._position >= self._starts[-1]:
            return 0
        k = bisect.bisect_right(self._starts, self._position) - 1
        place, first, length = self._segments[k]
        inside = self._position - self._starts[k]
        # Files are opened for every read: nothing stays open, and processes share no position.
        with open(place, "rb", buffering=0) if isinstance(place, Path) else nullcontext(place) as stream:
            stream.seek(first + inside)
            data = stream.read(min(len(view), length - inside))
        view[: len(data)] = data
        self._position += len(data)
        return len(data)


@dataclass(frozen=True, eq=False)
class Member:
    """One file inside an opened archive."""

    archive: zipfile.ZipFile
    info: zipfile.ZipInfo
    label: str  # the archive's name in messages
    stream: BinaryIO
    stamp: str  # of the archive on the disk, see `stamp`

    def read(self) -> bytes:
        where = f"{self.label}: {self.info.filename}"
        if self.info.file_size > LARGEST_FILE:
            raise InputError(f"claims {self.info.file_size:,} bytes", file=where)
        if self.info.compress_type not in METHODS:
            hint = "Unpack the archive once."
            raise InputError("is compressed in another way than stored or deflated", file=where, hint=hint)
        try:
            return self.archive.read(self.info)
        except BROKEN as error:
            reason = str(error).partition(" for file ")[0]  # without repeating the name
            hint = "Download the archive again."
            raise InputError(f"is damaged in its archive ({reason})", file=where, hint=hint) from None

    def segment(self) -> Segment:
        """Return where the bytes of a stored member lie, or a copy of a small compressed one."""
        if self.info.compress_type != zipfile.ZIP_STORED:
            if self.info.file_size > LARGEST_INNER:
                problem = f"'{self.info.filename}' is a compressed archive inside an archive"
                hint = "Unpack the outer archive once; the inner ones can stay as they are."
                raise InputError(problem, file=self.label, hint=hint)
            return io.BytesIO(self.read()), 0, self.info.file_size
        try:
            self.stream.seek(self.info.header_offset + 26)
            name, extra = struct.unpack("<HH", self.stream.read(4))
        except BROKEN:
            raise InputError(f"'{self.info.filename}' is cut off", file=self.label, hint="Download it again.") from None
        return self.stream, self.info.header_offset + 30 + name + extra, self.info.file_size


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
        return sorted(self.loose | self.members.keys())

    def __contains__(self, name: str) -> bool:
        return name in self.loose or name in self.members

    def read(self, name: str) -> bytes:
        if name not in self.loose and name in self.members:
            return self.members[name].read()
        path = self.root / name
        try:
            found = path.stat()
            regular = stat_kinds.S_ISREG(found.st_mode) or stat_kinds.S_ISDIR(found.st_mode)
            if not regular or found.st_size > LARGEST_FILE:
                problem = f"is not a regular file of at most {LARGEST_FILE:,} bytes"
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
        member = None if name in self.loose else self.members.get(name)
        return f"{member.label}: {name}" if member else str(self.root / name)

    def stamp(self, name: str) -> str:
        """Return a text that changes when the bytes of a file, or of the archive that holds it, may have changed."""
        member = None if name in self.loose else self.members.get(name)
        return member.stamp if member else stamp(self.root / name)

    def fresh(self) -> bool:
        return all(stamp(path) == before for path, before in self.parts.items())


def open_files(root: Path) -> Files:
    files = Files(root)
    base, on_disk = root.parent, {root.name}
    if root.is_dir():
        files.loose |= set(_walk(root))
        base, on_disk = root, files.loose
    elif not root.exists():
        raise InputError("does not exist", file=root, hint="Name an existing folder or zip.")
    elif (match := PART.fullmatch(root.name)) is None:
        raise InputError("is neither a folder nor a zip archive", file=root)
    elif match["number"] is not None:  # of a zip in parts any one may be named
        part = re.compile(re.escape(match["whole"]) + r"\.\d{3}")
        on_disk = {path.name for path in base.iterdir() if part.fullmatch(path.name)}
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


def _archives(names: set[str]) -> list[tuple[str, list[str]]]:
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
            hint = f"Download {whole}.{missing[0]:03d} too."
            raise InputError(f"part {missing[0]:03d} is missing", file=whole, hint=hint)
        groups.append((whole, [parts[n] for n in sorted(parts)]))
    return groups


def _add(files: Files, whole: PurePosixPath, segments: list[Segment], label: str, stamp: str, depth: int) -> None:
    if depth > 2:
        raise InputError("archives are nested more than three deep", file=label)
    stream = cast(BinaryIO, io.BufferedReader(Chain(segments), AHEAD))
    try:
        archive = zipfile.ZipFile(stream)
    except BROKEN as error:
        last = f" after part {len(segments):03d}" if len(segments) > 1 else ""
        hint = f"Is a part{last} missing? Download it again, or remove it where it is unpacked already."
        raise InputError(f"is not a complete zip archive ({error})", file=label, hint=hint) from None
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
            hint = "Keep one."
            raise InputError(f"and {other.label} both hold '{place}', with different bytes", file=label, hint=hint)
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


BLOCK = 1 << 18
TIMEOUT = 60  # seconds without a byte
ATTEMPTS = 6
TRANSIENT = {408, 425, 429, 500, 502, 503, 504}  # HTTP status codes after which a retry may succeed
OWN_MACHINE = ("127.0.0.1", "localhost")
AGENT = f"retinabench/{__version__} (Python urllib)"


def _check_address(url: str) -> None:
    """Raise `WorkError` unless an address is of https, or of http on this machine: other answers can be replaced on the way."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in OWN_MACHINE):
        raise WorkError(f"{url}: is not an https address, so it is not fetched.")


class _Encrypted(urllib.request.HTTPRedirectHandler):
    """Follows redirections to addresses that `_check_address` accepts."""

    def redirect_request(self, *arguments: Any) -> urllib.request.Request | None:
        _check_address(arguments[-1])
        return super().redirect_request(*arguments)


OPENER = urllib.request.build_opener(_Encrypted)


@dataclass(frozen=True)
class Remote:
    """A published file."""

    url: str  # its address
    name: str  # its name on the disk
    md5: str | None = None  # its MD5, where its publisher states one
    most: int = 1 << 32  # bytes after which a download is given up, so that a server cannot fill the disk


def fetch(remote: Remote, folder: Path, progress: Progress = QUIET, wait: Callable[[float], None] = time.sleep) -> Path:
    """Download a file into a folder, or continue there: bytes are collected in `NAME.part`, which is renamed to NAME when length and MD5 are correct."""
    _check_address(remote.url)
    path, part = folder / remote.name, folder / f"{remote.name}.part"
    if path.is_file():
        _check(path, remote)
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Progress in steps of 1 MB: the length is known only when the server has answered.
        for attempt in range(ATTEMPTS):
            try:
                if _continue(remote, part, progress):
                    break
                reason = "the connection broke"
            except urllib.error.HTTPError as error:
                error.close()
                if error.code == 416:  # the part is longer than the file: it belongs to another version
                    part.unlink(missing_ok=True)
                elif error.code not in TRANSIENT:
                    raise WorkError(f"{remote.url}: the server says {error.code} {error.reason}.") from None
                reason = f"the server says {error.code} {error.reason}"
            except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
                reason = str(getattr(error, "reason", None) or error or type(error).__name__)
            if attempt + 1 == ATTEMPTS:
                raise WorkError(
                    f"{remote.url}: {reason}, {ATTEMPTS} times. Repeat the command later; it continues at "
                    f"{part.stat().st_size if part.is_file() else 0:,} bytes."
                )
            progress.say(f"{remote.name}: {reason}; trying again")
            wait(2.0**attempt)
        _check(part, remote)
        part.replace(path)
    except OSError as error:
        raise explain(error, path) from error
    return path


def _continue(remote: Remote, part: Path, progress: Progress) -> bool:
    """Request the missing bytes and append them; return whether the file is complete."""
    have = part.stat().st_size if part.is_file() else 0
    request = urllib.request.Request(remote.url, headers={"User-Agent": AGENT, "Accept-Encoding": "identity"})  # noqa: S310 - checked by `fetch`
    if have:
        request.add_header("Range", f"bytes={have}-")
    with OPENER.open(request, timeout=TIMEOUT) as answer:
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", answer.headers.get("Content-Range") or "")
        if answer.status == 206 and match and int(match[1]) == have:
            total: int | None = int(match[2])
        else:  # the server sends the whole file
            have = 0
            length = answer.headers.get("Content-Length")
            total = int(length) if length else None
        with (
            progress.track(f"Downloading {remote.name}", -(-(total or 0) >> 20), "MB") as advance,
            open(part, "r+b" if have else "wb") as handle,
        ):
            handle.seek(have)
            advance(have >> 20)
            while block := _next_block(answer):
                handle.write(block)
                advance(((have + len(block)) >> 20) - (have >> 20))
                have += len(block)
                if have > remote.most:
                    problem = f"the server sends more than {remote.most:,} bytes. Nothing of it is used."
                    raise WorkError(f"{remote.url}: {problem}")
    return total is None or have == total


def _next_block(answer: http.client.HTTPResponse) -> bytes:
    try:
        return answer.read(BLOCK)
    except http.client.IncompleteRead as error:
        return error.partial


def _check(path: Path, remote: Remote) -> None:
    """Verify the MD5; delete a wrong partial download, but never a file that the user may have put there."""
    if remote.md5 is None:
        return
    with open(path, "rb") as handle:
        digest = hashlib.file_digest(handle, "md5").hexdigest()
    if digest == remote.md5:
        return
    if path.name == remote.name:
        raise InputError(f"has the MD5 {digest}, published is {remote.md5}", file=path, hint="Move it away and repeat.")
    path.unlink()
    raise WorkError(
        f"{remote.url}: what arrived has the MD5 {digest}, published is {remote.md5}. It is deleted; repeat the command."
    )
