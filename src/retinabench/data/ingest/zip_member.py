"""One file inside a zip archive: its bytes, whole and checked, or one line about what is wrong with them."""

from __future__ import annotations

import io
import lzma
import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import BinaryIO

from retinabench.core.errors import InputError
from retinabench.data.ingest.joined_stream import Segment

LARGEST_FILE = 1 << 29  # bytes; the largest photograph or label file is a hundredth of this
LARGEST_INNER = 1 << 26  # bytes of a compressed zip inside a zip that is held in memory
BROKEN = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, struct.error, OSError, RuntimeError, ValueError,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Member:
    """One file inside an opened archive."""

    archive: zipfile.ZipFile
    info: zipfile.ZipInfo
    label: str  # the archive's name in messages
    stream: BinaryIO
    stamp: str  # of the archive on the disk, see `stamp`

    def read(self) -> bytes:
        """Return the bytes; raises `InputError` where they are damaged or too many."""
        where = f"{self.label}: {self.info.filename}"
        if self.info.file_size > LARGEST_FILE:
            raise InputError(f"claims {self.info.file_size:,} bytes", file=where)
        try:
            return self.archive.read(self.info)
        except BROKEN as error:
            reason = str(error).partition(" for file ")[0]  # which would say the name again
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
