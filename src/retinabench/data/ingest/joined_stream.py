"""Pieces of files and of other streams, read as one."""

from __future__ import annotations

import bisect
import io
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO

Segment = tuple[Path | BinaryIO, int, int]  # a file or a seekable stream, first byte, number of bytes


class Chain(io.RawIOBase):
    """Pieces of files and of other streams as one seekable stream."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = [segment for segment in segments if segment[2]]
        self._starts = [0]
        for _, _, length in self._segments:
            self._starts.append(self._starts[-1] + length)
        self._position = 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move without reading."""
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
