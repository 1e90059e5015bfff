"""Predictions tables of which everything is known, and their files in every dialect."""

from __future__ import annotations

import csv
import io
import random
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from hypothesis import strategies as st

WORDS = (
    "img", "left eye", "IDRiD_", "图像", "œil-", "Ä", "a,b", 'say "x"', "=1+1", "-3", "0007", "<b>", "1e5", "%s", "p'", "a;b",
    "x\ty",
)  # fmt: skip
CAMERAS = ("Topcon", "Canon CR-2", "", "0012", "=cmd()", "Zeiß")


@dataclass(frozen=True)
class Truth:
    """A table of predictions; `samples` holds one or more probabilities per image, as they are printed."""

    image_id: list[str]
    label: list[int]
    samples: list[list[float]]
    patient_id: list[str] | None = None
    domain: list[str] | None = None
    split: list[str] | None = None
    grade: list[int] | None = None
    uncertainty: list[float] | None = None
    further: dict[str, list[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.image_id)

    @property
    def width(self) -> int:
        """Samples of an image."""
        return len(self.samples[0])

    def columns(self) -> dict[str, list[Any]]:
        """Name -> cells, with one column per sample."""
        found: dict[str, list[Any]] = {"image_id": self.image_id, "label": self.label}
        names = ["prob"] if self.width == 1 else [f"prob_{k}" for k in range(self.width)]
        found |= {name: [row[k] for row in self.samples] for k, name in enumerate(names)}
        for name in ("patient_id", "domain", "split", "grade", "uncertainty"):
            if (values := getattr(self, name)) is not None:
                found[name] = values
        return found | self.further


@st.composite
def truths(draw: st.DrawFn, *, smallest: int = 2) -> Truth:
    """Draw a valid table of up to 30 images."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    n = draw(st.integers(smallest, 30))
    width = draw(st.sampled_from((1, 1, 1, 2, 3, 6)))
    word = draw(st.sampled_from(WORDS))
    label = [int(rng.random() < 0.4) for _ in range(n)]
    digits = draw(st.sampled_from((2, 4, 17)))

    def prob(one: int) -> float:
        return float(f"{min(1.0, max(0.0, rng.gauss(0.35 + 0.3 * one, 0.25))):.{digits}g}")

    # Posterior samples that differ: rows that sum to 1 would rightly be taken for classes.
    samples = [[prob(one) for _ in range(width)] for one in label]
    per_patient = draw(st.sampled_from((1, 2, 3)))
    has = draw(
        st.fixed_dictionaries(
            {name: st.booleans() for name in ("patient", "domain", "split", "grade", "uncertainty", "further")}
        )
    )
    return Truth(
        [f"{word}{k}" for k in range(n)],
        label,
        samples,
        [f"{word}P{k // per_patient}" for k in range(n)] if has["patient"] else None,
        [rng.choice(("in_domain", "shifted")) for _ in range(n)] if has["domain"] else None,
        ["test" if k == 0 else rng.choice(("validation", "test")) for k in range(n)] if has["split"] else None,
        [rng.choice((2, 3, 4) if one else (0, 1)) for one in label] if has["grade"] else None,
        [round(rng.uniform(-5, 5), 3) for _ in range(n)] if has["uncertainty"] else None,
        {"camera": [rng.choice(CAMERAS) for _ in range(n)], "age": [str(rng.randrange(20, 90)) for _ in range(n)]}
        if has["further"]
        else {},
    )


def valid(truth: Truth) -> bool:
    """Whether the table has no property for which a reader may rightly refuse it."""
    sums = [abs(sum(row) - 1) < 0.04 for row in truth.samples]
    decisions = all(value in (0, 1) for row in truth.samples for value in row)
    return not (truth.width > 1 and any(sums)) and not decisions


@dataclass(frozen=True)
class Dialect:
    """How a CSV is written."""

    delimiter: str = ","
    comma: bool = False  # decimal commas
    quote_all: bool = False
    newline: str = "\n"
    final: bool = True  # a line end behind the last row
    encoding: str = "utf-8"
    shuffled: int = 0
    case: str = ""


@st.composite
def dialects(draw: st.DrawFn) -> Dialect:
    """Draw a usual dialect."""
    delimiter = draw(st.sampled_from((",", ",", ";", "\t")))
    return Dialect(
        delimiter, delimiter != "," and draw(st.booleans()), draw(st.booleans()),
        draw(st.sampled_from(("\n", "\r\n"))), draw(st.sampled_from((True, True, False))),
        draw(st.sampled_from(("utf-8", "utf-8-sig", "utf-16"))), draw(st.integers(0, 3)),
        draw(st.sampled_from(("", "", "upper", "title"))),
    )  # fmt: skip


def csv_file(columns: dict[str, list[Any]], dialect: Dialect = Dialect()) -> bytes:
    """Write columns as a CSV."""
    names = list(columns)
    random.Random(dialect.shuffled).shuffle(names) if dialect.shuffled else None
    sink = io.StringIO()
    writer = csv.writer(
        sink,
        delimiter=dialect.delimiter,
        quoting=csv.QUOTE_ALL if dialect.quote_all else csv.QUOTE_MINIMAL,
        lineterminator=dialect.newline,
    )
    cases: dict[str, Callable[[str], str]] = {"": str, "upper": str.upper, "title": str.title}
    shown = cases[dialect.case]
    writer.writerow([name if name in ("camera", "age") or name.startswith("prob_") else shown(name) for name in names])
    for row in zip(*(columns[name] for name in names), strict=True):
        writer.writerow([_cell(value, dialect) for value in row])
    text = sink.getvalue()
    return (text if dialect.final else text.removesuffix(dialect.newline)).encode(dialect.encoding)


def _cell(value: Any, dialect: Dialect) -> str:
    text = repr(value) if isinstance(value, float) else str(value)
    return text.replace(".", ",") if dialect.comma and isinstance(value, float) else text


def parquet_file(truth: Truth, rng: random.Random, *, single: bool = False) -> bytes:
    """Write a table as Parquet with a choice of column types, codecs and row groups, as foreign tools do."""
    text = rng.choice((pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())))
    number = pa.float32() if single else pa.float64()
    whole = rng.choice((pa.int8(), pa.int64(), pa.float32(), pa.bool_()))
    columns: dict[str, pa.Array] = {}
    for name, values in truth.columns().items():
        if name.startswith("prob_"):
            continue
        kind = {"label": whole, "prob": number, "uncertainty": pa.float64(), "grade": pa.int64()}.get(name, text)
        values = [bool(v) for v in values] if kind == pa.bool_() else values
        columns[name] = (
            pa.array(values, pa.string()).dictionary_encode()
            if pa.types.is_dictionary(kind)
            else pa.array(values, kind)
        )
    if truth.width > 1:
        kind = rng.choice((pa.list_(number), pa.large_list(number), pa.list_(number, truth.width)))
        columns["probs"] = pa.array(truth.samples, kind)
    table = pa.table(columns)
    sink = io.BytesIO()
    pa.parquet.write_table(
        table, sink, compression=rng.choice(("none", "snappy", "zstd", "gzip")), row_group_size=rng.choice((3, 1000)),
        version=rng.choice(("1.0", "2.6")), write_page_checksum=rng.choice((True, False)),
    )  # fmt: skip
    return sink.getvalue()


def as_float32(truth: Truth) -> Truth:
    """The table as single-precision numbers hold it."""
    return replace(truth, samples=[[float(np.float32(v)) for v in row] for row in truth.samples])


def npz_file(truth: Truth, rng: random.Random, other: dict[str, Any] | None = None) -> bytes:
    """Write a table as NPZ, stored or deflated; `other` arrays replace or join its own."""
    arrays: dict[str, Any] = {
        "image_id": np.array(truth.image_id),
        "label": np.array(truth.label, rng.choice((np.int8, np.int64, np.float64, bool))),
        "probs": np.array(truth.samples) if truth.width > 1 else np.array(truth.samples)[:, 0],
    }
    for name in ("patient_id", "domain", "split", "grade", "uncertainty"):
        if (values := getattr(truth, name)) is not None:
            arrays[name] = np.array(values)
    arrays |= {f"subgroups/{name}": np.array(values) for name, values in truth.further.items()}
    members = {
        f"{name}.npy": npy_file(values) for name, values in (arrays | (other or {})).items() if values is not None
    }
    method = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    return zip_file(members, method)


def npy_file(values: Any) -> bytes:
    """One array as it stands in an NPZ; bytes are taken as they are."""
    if isinstance(values, bytes):
        return values
    sink = io.BytesIO()
    np.lib.format.write_array(sink, np.asarray(values), allow_pickle=True)
    return sink.getvalue()


def zip_file(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip archive."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return sink.getvalue()
