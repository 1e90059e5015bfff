"""Folders whose names and links lead elsewhere, and files that carry code; a witness outside tells whether any was followed."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from retinabench.data.dataset import SPLITS, Records
from retinabench.data.prepared import FORMAT, write_shard
from torture.fuzz.case import Case

SECRET = b"the witness"
NAMES = (
    "../witness.npy", "/etc/hostname", "..", "link.npy", "a/../../witness.npy", "\\\\host\\share", "", None, 7, ["x"],
)  # fmt: skip


class _Code:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.path),)


def cases(random: np.random.Generator) -> Iterator[Case]:
    """Yield hostile names, links and pickles for each kind of folder and file."""
    for name in NAMES:

        def write(folder: Path, name: object = name) -> None:
            prepared(folder, name)

        yield Case("strangers/paths", f"shard {name!r}", {}, ("inspect", "@/p"), unharmed, "refuse", write)
    for name in ("../up.png", "/abs.png", "a/../../b.png", "C:\\x.png", "..\\x.png"):
        sink = io.BytesIO()
        with zipfile.ZipFile(sink, "w") as archive:
            archive.writestr(name, b"x")
        files = {"raw/x.zip": sink.getvalue(), "raw/labels.csv": b"image,grade\na.png,0\n"}
        command = ("prepare", "folder", "--source", "@/raw", "--labels", "labels.csv", "--column", "image=image", "--column",
                   "grade=grade", "--split", "test", "--out", "@/out", "--quiet")  # fmt: skip
        yield Case("strangers/paths", f"zip member {name}", files, command, unharmed, "refuse")
    for kind in ("t.npz", "t.csv", "t.parquet", "t.pkl"):

        def code(folder: Path, kind: str = kind) -> None:
            folder.mkdir(parents=True, exist_ok=True)
            carried = pickle.dumps(_Code(folder / "harm"), protocol=int(random.integers(0, 5)))
            if kind == "t.npz":
                with zipfile.ZipFile(folder / kind, "w") as archive:
                    head = io.BytesIO()
                    np.lib.format.write_array_header_1_0(head, {"descr": "|O", "fortran_order": False, "shape": (1,)})
                    for column in ("image_id", "label", "prob"):
                        archive.writestr(f"{column}.npy", head.getvalue() + carried)
            else:
                (folder / kind).write_bytes(carried)

        score = ("score", f"@/{kind}", "--bootstrap", "0", "--quiet")
        yield Case("strangers/code", f"a pickle as {kind}", {}, score, unharmed, "refuse", code)


def unharmed(folder: Path, printed: str) -> str:
    """Return what was done outside the rules."""
    return "code ran" if (folder / "harm").exists() else ""


def prepared(folder: Path, shard: object) -> None:
    """Write a prepared folder whose manifest names `shard`; `link.npy` is a link out of it."""
    inside = folder / "p"
    inside.mkdir(parents=True)
    write_shard(folder / "witness.npy", np.zeros((2, 16, 16, 3), np.uint8))
    (inside / "link.npy").symlink_to(folder / "witness.npy")
    text = np.array(["a", "b"])
    rows = Records(text, text, np.array(["", ""]), np.array([0, 3], np.int8), np.array(["in_domain"] * 2),
                   np.array([SPLITS[0]] * 2), text, np.array([np.nan, np.nan]))  # fmt: skip
    (inside / "records.parquet").write_bytes(rows.to_parquet())
    about = {
        "name": "x", "format": FORMAT, "size": 16, "images": 2, "fingerprint": "0" * 64, "shards": [shard],
        "settings": {},
    }  # fmt: skip
    (inside / "dataset.json").write_text(json.dumps(about))
    (inside / "prepare.json").write_text("{}")
