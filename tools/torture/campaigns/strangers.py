"""Files of a stranger that were made to do harm: bombs, paths that lead out, code, and names that are more than text.

Bombs are small files that stand for huge ones; each must be refused, or read, within the limits of a trial. Of hostile paths and
pickles a witness tells whether any was followed. Names must stay text in every page, spreadsheet, terminal and document.
"""

import base64
import csv
import getpass
import hashlib
import io
import json
import os
import pickle
import re
import socket
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from retinabench.core.errors import visible
from retinabench.data.dataset import SPLITS, Records
from retinabench.data.prepared import FORMAT, write_shard
from retinabench.predictions.io import write_predictions
from retinabench.predictions.table import Predictions
from torture.fuzz.case import Case, Must, perform, trials
from torture.outcomes import Outcome

UNIT, SHARE = "attacks", 0.5
WHOLE = b"image_id,label,prob\na,0,0.1\nb,1,0.8\n"
PREPARE = (
    "prepare folder --source @/raw --labels labels.csv --column image=image --column grade=grade --split test --out @/out "
    "--workers 1 --quiet"
)


def campaign(seed: int, scratch: Path) -> Iterator[Outcome]:
    random = np.random.default_rng([seed, 0x57A])
    perform(Case("", "", {"t.csv": WHOLE}, _score("t.csv")), scratch / "warm")  # imports what every trial needs
    yield from trials([*paths(random), *codes(random), *bombs(random), *names(random)], scratch)


def _score(name: str) -> list[str]:
    return ["score", f"@/{name}", "--bootstrap", "0", "--quiet"]


def bombs(random: np.random.Generator) -> Iterator[Case]:
    power, depth = int(random.integers(6, 13)), int(10 ** random.uniform(2, 5))
    length, wide = int(10 ** random.uniform(4, 6)), int(10 ** random.uniform(3, 5.3))
    plan, look = ["benchmark", "@/s.toml", "--plan"], ["inspect", "@/p"]
    attacks: list[tuple[str, str, bytes, list[str], Must]] = [
        (f"NPZ array of 10^{power} zeros", "t.npz", zeros(10**power), _score("t.npz"), ""),
        (f"NPZ header of 10^{power} rows", "t.npz", npz(10**power, b"12345678"), _score("t.npz"), "refuse"),
        ("NPZ by bzip2", "t.npz", zeros(10**6, zipfile.ZIP_BZIP2), _score("t.npz"), "refuse"),
        ("NPZ by LZMA", "t.npz", zeros(10**6, zipfile.ZIP_LZMA), _score("t.npz"), "refuse"),
        (f"Parquet dictionary of {length}", "t.parquet", dictionary(length), _score("t.parquet"), "refuse"),
        (f"CSV of {wide} columns", "t.csv", wide_csv(wide), _score("t.csv"), ""),
        (f"TOML of depth {depth}", "s.toml", b"a = " + b"[" * depth + b"]" * depth, plan, "refuse"),
        (f"TOML number of {depth} digits", "s.toml", b"a = " + b"9" * depth, plan, "refuse"),
        ("dataset.json of depth 1,000", "p/dataset.json", b"[" * 1_000, look, "refuse"),
        ("dataset.json of depth 100,000", "p/dataset.json", b"[" * 100_000, look, "refuse"),
    ]
    for what, name, bomb, command, must in attacks:
        yield Case("strangers/bombs", what, {name: bomb, "p/prepare.json": b"{}"}, command, must=must)
    side = int(random.integers(10_001, 2**31 - 1))
    pictures = {"PNG": png(side), "JPEG": jpeg(min(side, 65_000)), "BMP": bmp(side)}
    raw = {f"{kind} of {side} px": {"a.png": one, "b.png": one} for kind, one in pictures.items()}
    raw["a zip of zips"] = {"c.zip": zips(int(random.integers(9, 40)))}
    raw["a member that claims a gigabyte"] = {"c.zip": claiming(1 << 30)}
    for what, files in raw.items():
        content = {f"raw/{name}": one for name, one in files.items()}
        content["raw/labels.csv"] = b"image,grade\na.png,0\nb.png,3\n"
        yield Case("strangers/bombs", what, content, PREPARE.split(), must="refuse")


def npz(rows: int, content: bytes, kinds: Sequence[str] = ("<f8",) * 3, method: int = zipfile.ZIP_STORED) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", method) as archive:
        for name, kind in zip(("image_id", "label", "prob"), kinds, strict=True):
            head = io.BytesIO()
            np.lib.format.write_array_header_1_0(head, {"descr": kind, "fortran_order": False, "shape": (rows,)})
            with archive.open(f"{name}.npy", "w", force_zip64=True) as handle:
                handle.write(head.getvalue())
                handle.write(content)
    return sink.getvalue()


def zeros(rows: int, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return an NPZ of columns of zeros, compressed a thousandfold; at most 200 MB are made."""
    return npz(rows, bytes(min(rows * 8, 2 * 10**8)), ("<U40", "<f8", "<f8"), method)


def dictionary(length: int) -> bytes:
    rows = 10**6
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), ["x" * length])
    sink = io.BytesIO()
    table = pa.table({"image_id": column, "label": np.zeros(rows, np.int8), "prob": np.zeros(rows)})
    pa.parquet.write_table(table, sink)
    return sink.getvalue()


def wide_csv(columns: int) -> bytes:
    head = ",".join(f"c{k}" for k in range(columns))
    rows = [f"i{r},{r % 2},0.5{',1' * columns}" for r in range(3)]
    return "\n".join([f"image_id,label,prob,{head}", *rows, ""]).encode()


def png(side: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(bytes(10**6))), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(kind, data) for kind, data in chunks)


def jpeg(side: int) -> bytes:
    frame = struct.pack(">BHHB", 8, side, side, 1) + b"\x01\x11\x00"
    return b"\xff\xd8\xff\xc0" + struct.pack(">H", len(frame) + 2) + frame + b"\xff\xd9"


def bmp(side: int) -> bytes:
    return b"BM" + struct.pack("<IHHIIiiHHIIiiII", 58, 0, 0, 54, 40, side, side, 1, 24, 0, 4, 0, 0, 0, 0) + bytes(4)


def zip_file(members: Mapping[str, bytes], method: int = zipfile.ZIP_STORED, claimed: int | None = None) -> bytes:
    """Return a zip archive, whose directory states `claimed` bytes of each member where that is given."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
            archive.filelist[-1].file_size = len(content) if claimed is None else claimed
    return sink.getvalue()


def zips(count: int) -> bytes:
    inner = zip_file({"zeros.bin": bytes(60 * 10**6)})
    return zip_file({f"{number}.zip": inner for number in range(count)}, zipfile.ZIP_DEFLATED)


def claiming(size: int) -> bytes:
    return zip_file({"a.png": b"x"}, claimed=size)


SHARDS = (
    "../witness.npy", "/etc/hostname", "..", "link.npy", "a/../../witness.npy", "\\\\host\\share", "", None, 7, ["x"],
)  # fmt: skip


def paths(random: np.random.Generator) -> Iterator[Case]:
    for name in SHARDS:
        write = partial(prepared, name)
        yield Case("strangers/paths", f"shard {name!r}", {}, ("inspect", "@/p"), unharmed, "refuse", write)
    for member in ("../up.png", "/abs.png", "a/../../b.png", "C:\\x.png", "..\\x.png"):
        files = {"raw/x.zip": zip_file({member: b"x"}), "raw/labels.csv": b"image,grade\na.png,0\n"}
        yield Case("strangers/paths", f"zip member {member}", files, PREPARE.split(), unharmed, "refuse")


class _Code:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.path),)


def codes(random: np.random.Generator) -> Iterator[Case]:
    for name in ("t.npz", "t.csv", "t.parquet", "t.pkl"):

        def write(folder: Path, name: str = name, protocol: int = int(random.integers(0, 5))) -> None:
            carried = pickle.dumps(_Code(folder / "harm"), protocol=protocol)
            (folder / name).write_bytes(npz(1, carried, ("|O",) * 3) if name == "t.npz" else carried)

        yield Case("strangers/code", f"a pickle as {name}", {}, _score(name), unharmed, "refuse", write)


def unharmed(folder: Path, printed: str) -> str:
    return "code ran" if (folder / "harm").exists() else ""


def prepared(shard: object, folder: Path) -> None:
    """Write a prepared folder whose manifest names `shard`; `link.npy` is a link out of it."""
    inside = folder / "p"
    inside.mkdir(parents=True)
    write_shard(folder / "witness.npy", np.zeros((2, 16, 16, 3), np.uint8))
    (inside / "link.npy").symlink_to(folder / "witness.npy")
    text = np.array(["a", "b"])
    rows = Records(text, text, np.array(["", ""]), np.array([0, 3], np.int8), np.array(["in_domain"] * 2),
                   np.array([SPLITS[0]] * 2), text, np.array([np.nan, np.nan]))  # fmt: skip
    (inside / "records.parquet").write_bytes(rows.to_parquet())
    about = {"name": "x", "format": FORMAT, "size": 16, "images": 2, "fingerprint": "0" * 64, "shards": [shard]}
    (inside / "dataset.json").write_text(json.dumps(about | {"settings": {}}))
    (inside / "prepare.json").write_text("{}")


PIECES = (
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "javascript:alert(1)", "[x](javascript:alert(1))",
    "=cmd|' /C calc'!A0", "+1+1", "@SUM(A1)", "-2+3", "\uff1d1", "\x1b[2J\x1b]0;owned\x07", "[bold red]x[/]", "[/nothing]",
    "\\input{/etc/passwd}", "$\\frac{1}{0}$", "$", "%", "a|b`c*d_e", "\u202eabc", "</svg><script>", "]]>", "{{ 7*7 }}", "--><b>",
)  # fmt: skip
ADDRESSES = ("href", "src", "action", "formaction", "xlink:href", "srcset", "poster")
VERBS = {
    "score": "score @/a.parquet @/b.npz --json @/s.json --bootstrap 20",
    "list": "score @/a.parquet --referral-list @/r.csv --referral 0.2 --bootstrap 0",
    "report": "report @/a.parquet @/b.npz --out @/report --bootstrap 20 --quiet",
    "compare": "compare @/a.parquet @/b.npz --json @/c.json --bootstrap 20 --quiet",
    "inspect": "inspect @/a.parquet",
    "clinic": "clinic @/a.parquet --out @/clinic --quiet",
}
NUMBER = re.compile(r"[-+]?[0-9.]+([eE][-+]?[0-9]+)?")


def names(random: np.random.Generator) -> Iterator[Case]:
    for _ in range(3):
        drawn = [" ".join(random.choice(PIECES, random.integers(1, 3))) for _ in range(8)]

        for what, arguments in VERBS.items():
            case = f"{what} with {drawn[0]!a}"
            yield Case("strangers/names", case, {}, arguments.split(), wrong, "accept", partial(write_named, drawn))


def write_named(names: list[str], folder: Path) -> None:
    """Write two predictions files whose every name is one of `names`."""
    rng, n = np.random.default_rng(0), 80
    label = (np.arange(n) % 3 == 0).astype(int)
    prob = 1 / (1 + np.exp(-rng.normal(2 * label - 1, 1)))
    site = np.array([visible(names[k % 4])[:100] for k in range(n)])
    ids = np.array([f"{visible(names[0])}{k}" for k in range(n)])
    patients = np.array([f"{visible(names[2])[:20]}p{k // 2}" for k in range(n)])
    for number, file in enumerate(("a.parquet", "b.npz")):
        found = Predictions(
            ids, label, prob, patient_id=patients,
            subgroups={re.sub(r"[\x00-\x1f\x7f]", "", names[3])[:90]: site},
            metadata={"title": names[4 + number], "method": names[4 + number], "setting": names[6], "run": names[7]},
        )  # fmt: skip
        write_predictions(found, folder / file)


def wrong(folder: Path, printed: str) -> str:
    """Return what in the outputs would be read as more than text, or tells of this machine."""
    if "\x1b" in printed:
        return "standard error holds an escape sequence"
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name in ("a.parquet", "b.npz") or path.suffix in (".png", ".pdf"):
            continue
        text = path.read_bytes().decode("utf-8", "replace")
        found = {".html": _html, ".csv": _csv, ".json": _json}.get(path.suffix, _text)(text)
        words = str(folder), getpass.getuser(), socket.gethostname()
        private = [word for word in words if len(word) > 4 and word in text]
        if found or private:
            return f"{path.relative_to(folder)} {found or f'holds {private[0]}'}"
    return ""


class _Page(HTMLParser):
    """Collects what would run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "iframe", "object", "embed", "base", "link"):
            self.found.append(tag)
        for name, value in attrs:
            if name.startswith("on") or (name in ADDRESSES and not (value or "").startswith(("#", "data:image/"))):
                self.found.append(f"{tag} {name}={value}")


def _html(text: str) -> str:
    page = _Page()
    # The one script that we write, which the page's policy names by its hash, and data in which no tag can begin.
    own = re.sub(r'<script type="application/json"[^>]*>[^<]*</script>', "", text)
    for script in re.findall(r"<script>(.*?)</script>", own, flags=re.DOTALL)[-1:]:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        own = own.replace(f"<script>{script}</script>", "") if f"'sha256-{digest}'" in own else own
    page.feed(own)
    return f"would run {page.found[0][:80]}" if page.found else _text(text)


def _csv(text: str) -> str:
    for row in csv.reader(io.StringIO(text, newline="")):
        for cell in row:
            if cell[:1] in tuple("=+-@\t\r\uff1d") and not NUMBER.fullmatch(cell):
                return f"holds the formula {cell[:40]!r}"
    return _text(text)


def _json(text: str) -> str:
    json.loads(text)
    return _text(text)


def _text(text: str) -> str:
    return "" if visible(text) == text else "holds control characters"
