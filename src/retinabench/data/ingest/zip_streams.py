"""Members of zip archives, and archives in parts as one stream."""

from __future__ import annotations

import bisect
import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from retinabench.core.errors import InputError

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
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position in the whole stream."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position without reading."""
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
        """Return the bytes, or raise `InputError` if they are damaged or too many."""
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
            raise InputError(
                f"is damaged in its archive ({reason})", file=where, hint="Download the archive again."
            ) from None

    def segment(self) -> Segment:
        """Return where the bytes of a stored member lie, or a copy of a small compressed one."""
        if self.info.compress_type != zipfile.ZIP_STORED:
            if self.info.file_size > LARGEST_INNER:
                raise InputError(
                    f"'{self.info.filename}' is a compressed archive inside an archive",
                    file=self.label,
                    hint="Unpack the outer archive once; the inner ones can stay as they are.",
                )
            return io.BytesIO(self.read()), 0, self.info.file_size
        try:
            self.stream.seek(self.info.header_offset + 26)
            name, extra = struct.unpack("<HH", self.stream.read(4))
        except BROKEN:
            raise InputError(
                f"'{self.info.filename}' is cut off", file=self.label, hint="Download it again."
            ) from None
        return self.stream, self.info.header_offset + 30 + name + extra, self.info.file_size
