"""Predictions tables of which everything is known, and their files in every format and dialect, by other libraries than ours."""

import csv
import io
import random
import zipfile
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
from hypothesis import strategies as st

WORDS = (
    "img", "left eye", "IDRiD_", "图像", "œil-", "Ä", "a,b", 'say "x"', "=1+1", "-3", "0007", "<b>", "1e5", "%s", "p'", "a;b",
    "x\ty",
)  # fmt: skip
CAMERAS = ("Topcon", "Canon CR-2", "", "0012", "=cmd()", "Zeiß")
FURTHER = ("camera", "age")
Columns = dict[str, list[Any]]


@dataclass(frozen=True)
class Truth:
    """A table of predictions: one or more probabilities per image, as they are printed, and the other columns."""

    samples: list[list[float]]
    others: Columns

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def width(self) -> int:
        return len(self.samples[0])

    def columns(self) -> Columns:
        """Name -> cells, with one column per sample."""
        names = ["prob"] if self.width == 1 else [f"prob_{k}" for k in range(self.width)]
        return self.others | {name: [row[k] for row in self.samples] for k, name in enumerate(names)}


@st.composite
def truths(draw: st.DrawFn) -> Truth:
    rng = random.Random(draw(st.integers(0, 2**32)))
    n, word = draw(st.integers(2, 30)), draw(st.sampled_from(WORDS))
    width, digits = draw(st.sampled_from((1, 1, 1, 2, 3, 6))), draw(st.sampled_from((2, 4, 17)))
    label = [int(rng.random() < 0.4) for _ in range(n)]

    def prob(one: int) -> float:
        return float(f"{min(1.0, max(0.0, rng.gauss(0.35 + 0.3 * one, 0.25))):.{digits}g}")

    per_patient, samples = draw(st.sampled_from((1, 2, 3))), [[prob(one) for _ in range(width)] for one in label]
    optional: Columns = {
        "patient_id": [f"{word}P{k // per_patient}" for k in range(n)],
        "domain": [rng.choice(("in_domain", "shifted")) for _ in range(n)],
        "split": ["test" if k == 0 else rng.choice(("validation", "test")) for k in range(n)],
        "grade": [rng.choice((2, 3, 4) if one else (0, 1)) for one in label],
        "uncertainty": [round(rng.uniform(-5, 5), 3) for _ in range(n)],
        "camera": [rng.choice(CAMERAS) for _ in range(n)],
        "age": [str(rng.randrange(20, 90)) for _ in range(n)],
    }
    has = {name: optional[name] for name in optional if draw(st.booleans())}
    return Truth(samples, {"image_id": [f"{word}{k}" for k in range(n)], "label": label, **has})


def valid(truth: Truth) -> bool:
    """Whether a reader cannot take the samples for classes, which sum to 1, or for decisions."""
    sums = [abs(sum(row) - 1) < 0.04 for row in truth.samples]
    return not (truth.width > 1 and any(sums)) and not all(value in (0, 1) for row in truth.samples for value in row)


@dataclass(frozen=True)
class Dialect:
    """How a CSV is written."""

    delimiter: str = ","
    decimal: str = "."
    quote_all: bool = False
    newline: str = "\n"
    final: bool = True  # a line end behind the last row
    encoding: str = "utf-8"
    shuffled: int = 0
    case: str = ""


@st.composite
def dialects(draw: st.DrawFn) -> Dialect:
    delimiter = draw(st.sampled_from((",", ",", ";", "\t")))
    return Dialect(
        delimiter, "," if delimiter != "," and draw(st.booleans()) else ".", draw(st.booleans()),
        draw(st.sampled_from(("\n", "\r\n"))), draw(st.sampled_from((True, True, False))),
        draw(st.sampled_from(("utf-8", "utf-8-sig", "utf-16"))), draw(st.integers(0, 3)),
        draw(st.sampled_from(("", "", "upper", "title"))),
    )  # fmt: skip


def csv_file(columns: Columns, dialect: Dialect = Dialect()) -> bytes:
    table = pd.DataFrame(columns)
    if dialect.shuffled:
        table = table[random.Random(dialect.shuffled).sample(list(columns), len(columns))]
    if dialect.case:
        plain = [name in FURTHER or name.startswith("prob_") for name in table]
        cased = getattr(table.columns.str, dialect.case)()
        table.columns = [old if same else new for old, new, same in zip(table, cased, plain, strict=True)]
    quoting = csv.QUOTE_ALL if dialect.quote_all else csv.QUOTE_MINIMAL
    marks = {"sep": dialect.delimiter, "decimal": dialect.decimal, "lineterminator": dialect.newline}
    text: str = table.to_csv(index=False, quoting=quoting, **marks)
    return (text if dialect.final else text.removesuffix(dialect.newline)).encode(dialect.encoding)


def parquet_file(truth: Truth, rng: random.Random, *, single: bool = False) -> bytes:
    """Write a table as Parquet with a choice of column types, codecs and row groups, as foreign tools do."""
    text = rng.choice((pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())))
    whole = rng.choice((pa.int8(), pa.int64(), pa.float32(), pa.bool_()))
    kinds = {"label": whole, "uncertainty": pa.float64(), "grade": pa.int64()}
    columns = {name: pa.array(values).cast(kinds.get(name, text)) for name, values in truth.others.items()}
    number = pa.float32() if single else pa.float64()
    if truth.width == 1:
        columns["prob"] = pa.array(truth.columns()["prob"], number)
    else:
        kind = rng.choice((pa.list_(number), pa.large_list(number), pa.list_(number, truth.width)))
        columns["probs"] = pa.array(truth.samples, kind)
    sink = io.BytesIO()
    codec, version = rng.choice(("none", "snappy", "zstd", "gzip")), rng.choice(("1.0", "2.6"))
    options = {"compression": codec, "version": version, "write_page_checksum": rng.random() < 0.5}
    pa.parquet.write_table(pa.table(columns), sink, row_group_size=rng.choice((3, 1000)), **options)
    return sink.getvalue()


def as_float32(truth: Truth) -> Truth:
    return replace(truth, samples=np.array(truth.samples, np.float32).tolist())


def npz_file(truth: Truth, rng: random.Random, other: dict[str, Any] | None = None) -> bytes:
    """Write a table as NPZ, stored or deflated; `other` arrays replace or join its own, and bytes are taken as they are."""
    probs = np.array(truth.samples)
    arrays: dict[str, Any] = {"probs": probs if truth.width > 1 else probs[:, 0]}
    for name, values in truth.others.items():
        arrays[f"subgroups/{name}" if name in FURTHER else name] = np.array(values)
    arrays["label"] = arrays["label"].astype(rng.choice((np.int8, np.int64, np.float64, bool)))
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, values in (arrays | (other or {})).items():
            member = io.BytesIO(values if isinstance(values, bytes) else b"")
            if not isinstance(values, bytes):
                np.lib.format.write_array(member, np.asarray(values), allow_pickle=True)
            archive.writestr(f"{name}.npy", member.getvalue())
    return sink.getvalue()
