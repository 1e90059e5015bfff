"""Inputs that are folders: images with labels for `prepare`, prepared folders, and exported models."""

from __future__ import annotations

import functools
import io
import json
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from PIL import Image

from retinabench.core.files import CHECKSUMS
from retinabench.data.prepare import prepare
from retinabench.data.prepared import open_prepared
from retinabench.data.preprocessing.preprocess import Recipe
from torture.fuzz import plain
from torture.fuzz.case import Case, Must
from torture.fuzz.damage import damages
from torture.fuzz.tables import Dialect, csv_file, dialects

NUMBERS = 6
JSON_VALUES = (
    "null",
    "3",
    '"x"',
    "[]",
    "{}",
    "-1",
    "1e400",
    "NaN",
    "[" * 3000 + "]" * 3000,
    "1" * 5000,
    '"\\ud800"',
    '"../../x"',
    "true",
    '["/etc/passwd"]',
)


@functools.cache
def png(number: int) -> bytes:
    """A bright disc on black."""
    rows, columns = np.mgrid[:24, :24]
    disc = ((rows - 11.5) ** 2 + (columns - 11.5) ** 2 < 11**2)[..., None]
    sink = io.BytesIO()
    Image.fromarray(np.where(disc, [120 + 9 * number, 90, 60], 0).astype(np.uint8)).save(sink, "PNG")
    return sink.getvalue()


def labels(rng: random.Random) -> dict[str, list[Any]]:
    """A table of labels of a folder."""
    return {
        "image": [f"eye{k}.png" for k in range(NUMBERS)],
        "grade": [rng.randrange(5) for _ in range(NUMBERS)],
        "patient": [f"p{k // 2}" for k in range(NUMBERS)],
        "split": [rng.choice(("train", "validation", "test")) for _ in range(NUMBERS)],
        "eye": [("left", "R")[k % 2] for k in range(NUMBERS)],
    }


FAULTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "grade out of range": ("grade", ("5", "-1", "", "1.5", "mild", "1e0", "٣")),
    "no such file": ("image", ("eye9.png", "../eye0.png", "/etc/passwd", "")),
    "image twice": ("image", ("eye0.png", "eye0")),
    "no patient": ("patient", ("",)),
    "patients alike": ("patient", ("p1\u200b", "p\u00ad1", "\u2060p1")),
    "unknown split": ("split", ("tests", "", "fold")),
    "a zero byte": ("patient", ("p1\0", "p\0002")),
}


def _prepared_differs(folder: Path) -> str:
    """Prepare the folder and compare its records with the plain reading of labels.csv."""
    data = prepare("folder", source=folder / "source", out=folder / "out", recipe=Recipe(16), workers=1)
    try:
        lines = (folder / "source" / "labels.csv").read_bytes().splitlines(keepends=True)
        table = plain.csv_columns(
            b"".join(line for line in lines if line.strip(b'",;\t \r\n'))
        )  # without blank rows
        if not {"patient", "split"} <= table.keys():
            return ""  # both are optional
        wanted = {
            image.strip().removesuffix(".png"): (int(float(grade)), patient.strip(), split.strip().lower())
            for image, grade, patient, split in zip(
                *(table[name] for name in ("image", "grade", "patient", "split")), strict=True
            )
        }
    except (plain.UnreadableError, KeyError, ValueError) as error:
        return f"the plain reader sees no table: {error!r}"
    records = data.records
    found = {
        Path(image).stem if image.endswith(".png") else image: (int(grade), patient, split)
        for image, grade, patient, split in zip(
            *(getattr(records, name).tolist() for name in ("image_id", "grade", "patient_id", "split")),
            strict=True,
        )
    }
    return "" if found == wanted else f"its records are {found}, not {wanted}"


@st.composite
def label_tables(draw: st.DrawFn) -> Case:
    """A folder of images with its labels: valid in some dialect, with one fault, or damaged."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(("valid", "fault", "fault", "damage")))
    columns, said = labels(rng), kind
    must: Must = "accept"
    drawn = draw(dialects())
    dialect = Dialect(
        drawn.delimiter,
        quote_all=drawn.quote_all,
        newline=drawn.newline,
        final=drawn.final,
        shuffled=drawn.shuffled,
    )
    if kind == "fault":
        said = draw(st.sampled_from(sorted(FAULTS)))
        column, values = FAULTS[said]
        row = rng.randrange(4 if said == "patients alike" else 1, NUMBERS)
        columns[column] = [rng.choice(values) if k == row else cell for k, cell in enumerate(columns[column])]
        must = "refuse"
    content = csv_file(columns, dialect)
    if kind == "damage":
        content, said = draw(damages(content))
        must = ""
    files = {f"source/eye{k}.png": png(k) for k in range(NUMBERS)} | {"source/labels.csv": content}
    return Case("labels of prepare", said, files, (), must=must, function=_prepared_differs)


@functools.cache
def prepared() -> dict[str, bytes]:
    """The files of a small prepared folder."""
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "source"
        source.mkdir()
        for k in range(NUMBERS):
            (source / f"eye{k}.png").write_bytes(png(k))
        (source / "labels.csv").write_bytes(csv_file(labels(random.Random(0))))
        out = Path(scratch) / "out"
        prepare("folder", source=source, out=out, recipe=Recipe(16), workers=1)
        return {file.name: file.read_bytes() for file in out.iterdir() if file.is_file()}


def _opened_differs(folder: Path) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        for name, content in prepared().items():
            (Path(scratch) / name).write_bytes(content)
        wanted, found = open_prepared(scratch), open_prepared(folder / "data")
        rows = np.arange(len(wanted))
        for name in vars(wanted.records):
            if not np.array_equal(
                getattr(found.records, name), getattr(wanted.records, name), equal_nan=name == "p_referable"
            ):
                return f"its {name} are others"
        if len(found) != len(wanted) or not np.array_equal(found.images(rows), wanted.images(rows)):
            return "its images are others"
    return ""


@st.composite
def prepared_folders(draw: st.DrawFn) -> Case:
    """A prepared folder with a damaged file, a strange value, or a lost file; with its list of checksums or without."""
    files = dict(prepared())
    listed = draw(st.booleans())
    name = draw(st.sampled_from(sorted(set(files) - {CHECKSUMS, ".lock"})))
    kind = (
        draw(st.sampled_from(("damage", "value", "lost")))
        if name.endswith("json")
        else draw(st.sampled_from(("damage", "damage", "lost")))
    )
    said = f"{name} {kind}"
    function = _opened_differs
    if kind == "damage":
        files[name], how = draw(damages(files[name]))
        said = f"{name}: {how}"
    elif kind == "value":
        content = json.loads(files[name])
        key, value = draw(st.sampled_from(sorted(content))), draw(st.sampled_from(JSON_VALUES))
        marked = json.dumps({**content, key: "@value@"})
        files[name] = marked.replace('"@value@"', value).encode()
        said, listed = f"{name}: {key} = {value[:20]}", False
        function = _opens
    else:
        del files[name]
    if not listed:
        files.pop(CHECKSUMS, None)
        if not name.endswith(("parquet", "npy")):
            function = _opens
        if kind == "damage":  # nothing tells a flipped pixel, but it must end cleanly
            function = _opens
    said += "" if listed else ", without checksums"
    return Case(
        "prepared folder", said, {f"data/{key}": value for key, value in files.items()}, (), function=function
    )


def _opens(folder: Path) -> str:
    data = open_prepared(folder / "data")
    data.images(np.arange(len(data)))
    return ""
