"""Small files that stand for huge ones; each must be refused, or read, within 2 GB and 20 seconds."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from torture.fuzz.case import Case

LABELS = b"image,grade\na.png,0\nb.png,3\n"


def cases(random: np.random.Generator) -> Iterator[Case]:
    """Yield one bomb of every kind, of random size."""
    power = int(random.integers(6, 13))
    yield Case("strangers/bombs", f"NPZ array of 10^{power} zeros", {"t.npz": npz(10**power)}, _score("t.npz"))
    yield Case(
        "strangers/bombs",
        f"NPZ header of 10^{power} rows",
        {"t.npz": forged(10**power)},
        _score("t.npz"),
        must="refuse",
    )
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        content = npz(10**6, method)
        yield Case("strangers/bombs", f"NPZ by method {method}", {"t.npz": content}, _score("t.npz"), must="refuse")
    length = int(10 ** random.uniform(4, 6))
    yield Case(
        "strangers/bombs",
        f"Parquet dictionary of {length}",
        {"t.parquet": dictionary(length)},
        _score("t.parquet"),
        must="refuse",
    )
    wide = int(10 ** random.uniform(3, 5.3))
    yield Case("strangers/bombs", f"CSV of {wide} columns", {"t.csv": wide_csv(wide)}, _score("t.csv"))
    depth = int(10 ** random.uniform(2, 5))
    for word, content in (("TOML", b"a = " + b"[" * depth + b"]" * depth), ("TOML number", b"a = " + b"9" * depth)):
        files = {"s.toml": content}
        yield Case(
            "strangers/bombs", f"{word} of depth {depth}", files, ("benchmark", "@/s.toml", "--plan"), must="refuse"
        )
    side = int(random.integers(10_001, 2**31 - 1))
    for kind, content in (("PNG", png(side)), ("JPEG", jpeg(min(side, 65_000))), ("BMP", bmp(side))):
        yield _images(f"{kind} of {side} px", {f"{name}.png": content for name in "ab"})
    yield _images("a zip of zips", {"c.zip": zips(int(random.integers(9, 40)))})
    yield _images("a member that claims a gigabyte", {"c.zip": claiming(1 << 30)})
    for depth in (10**3, 10**5):
        yield Case("strangers/bombs", f"dataset.json of depth {depth}", {"p/dataset.json": b"[" * depth, "p/prepare.json": b"{}"}, ("inspect", "@/p"), must="refuse")  # fmt: skip


def _score(name: str) -> tuple[str, ...]:
    return ("score", f"@/{name}", "--bootstrap", "0", "--quiet")


def _images(what: str, files: dict[str, bytes]) -> Case:
    command = ("prepare", "folder", "--source", "@/raw", "--labels", "labels.csv", "--column", "image=image", "--column",
               "grade=grade", "--split", "test", "--out", "@/out", "--workers", "1", "--quiet")  # fmt: skip
    content = {f"raw/{name}": one for name, one in {"labels.csv": LABELS, **files}.items()}
    return Case("strangers/bombs", what, content, command, must="refuse")


def npz(rows: int, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return an NPZ of a column of zeros, compressed a thousandfold; at most 200 MB are made."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", method) as archive:
        for name in ("image_id", "label", "prob"):
            kind = "<U40" if name == "image_id" else "<f8"
            head = io.BytesIO()
            np.lib.format.write_array_header_1_0(head, {"descr": kind, "fortran_order": False, "shape": (rows,)})
            with archive.open(f"{name}.npy", "w", force_zip64=True) as handle:
                handle.write(head.getvalue())
                handle.write(bytes(min(rows * 8, 2 * 10**8)))
    return sink.getvalue()


def forged(rows: int) -> bytes:
    """Return an NPZ whose headers claim rows that are not there."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        for name in ("image_id", "label", "prob"):
            head = io.BytesIO()
            np.lib.format.write_array_header_1_0(head, {"descr": "<f8", "fortran_order": False, "shape": (rows,)})
            archive.writestr(f"{name}.npy", head.getvalue() + b"12345678")
    return sink.getvalue()


def dictionary(length: int) -> bytes:
    """Return a Parquet file in which a million rows name one long text."""
    rows = 10**6
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), ["x" * length])
    table = {"image_id": column, "label": np.zeros(rows, np.int8), "prob": np.zeros(rows)}
    sink = io.BytesIO()
    pa.parquet.write_table(pa.table(table), sink)
    return sink.getvalue()


def wide_csv(columns: int) -> bytes:
    """Return a CSV of many columns."""
    names = ",".join(f"c{k}" for k in range(columns))
    return (
        f"image_id,label,prob,{names}\n" + "".join(f"i{r},{r % 2},0.5{',1' * columns}\n" for r in range(3))
    ).encode()


def png(side: int) -> bytes:
    """Return a PNG of a few bytes that claims a side."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(bytes(10**6)))
        + chunk(b"IEND", b"")
    )


def jpeg(side: int) -> bytes:
    """Return the beginning of a JPEG that claims a side."""
    frame = struct.pack(">BHHB", 8, side, side, 1) + b"\x01\x11\x00"
    return b"\xff\xd8\xff\xc0" + struct.pack(">H", len(frame) + 2) + frame + b"\xff\xd9"


def bmp(side: int) -> bytes:
    """Return a BMP header that claims a side."""
    return b"BM" + struct.pack("<IHHIIiiHHIIiiII", 58, 0, 0, 54, 40, side, side, 1, 24, 0, 4, 0, 0, 0, 0) + bytes(4)


def zips(count: int) -> bytes:
    """Return a zip of compressed zips of 60 MB of zeros each."""
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("zeros.bin", bytes(60 * 10**6))
    outer = io.BytesIO()
    with zipfile.ZipFile(outer, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(count):
            archive.writestr(f"{number}.zip", inner.getvalue())
    return outer.getvalue()


def claiming(size: int) -> bytes:
    """Return a zip whose directory claims that an image has `size` bytes."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("a.png", b"x")
        archive.filelist[0].file_size = size
    return sink.getvalue()
