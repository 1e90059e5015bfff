"""Files of predictions: valid tables in many dialects and formats, tables with one fault each, and damaged files."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from retinabench.predictions.formats import npz_bytes, parquet_bytes
from retinabench.predictions.table import Predictions
from torture.fuzz import plain
from torture.fuzz.case import Case, Must, nothing_wrong
from torture.fuzz.damage import damages
from torture.fuzz.tables import Truth, as_float32, csv_file, dialects, npz_file, parquet_file, truths, valid

SCORE = ("score", "@/table", "--bootstrap", "0", "--quiet", "--json", "@/scores.json")
Columns = dict[str, list[Any]]
Fault = Callable[[Columns, random.Random], Columns]


def _cell(name: str, *values: str) -> Fault:
    def fault(columns: Columns, rng: random.Random) -> Columns:
        row = rng.randrange(len(columns["label"]))
        cells = [rng.choice(values) if k == row else value for k, value in enumerate(columns[name])]
        return {**columns, name: cells}

    return fault


def _renamed(old: str, *names: str) -> Fault:
    def fault(columns: Columns, rng: random.Random) -> Columns:
        new = rng.choice(names)
        return {new if name == old else name: values for name, values in columns.items()}

    return fault


def _alike(name: str) -> Fault:
    """Two ids that a reader cannot tell apart."""

    def fault(columns: Columns, rng: random.Random) -> Columns:
        ids = [str(value) for value in columns[name]]
        first, second = rng.sample(range(len(ids)), 2)
        word, decomposed = "Zoë é", unicodedata.normalize("NFD", "Zoë é")
        forms = (f"{word} ", f" {word}", f"{word}\u200b", f"{word}\u00a0", f"{word}\0", decomposed, "Zoë  é")
        ids[first], ids[second] = word, rng.choice(forms)
        return {**columns, name: ids}

    return fault


def _twice(columns: Columns, rng: random.Random) -> Columns:
    ids = [*columns["image_id"]]
    first, second = rng.sample(range(len(ids)), 2)
    ids[first] = ids[second]
    return {**columns, "image_id": ids}


def _contradiction(columns: Columns, rng: random.Random) -> Columns:
    grades = [2 if label else 0 for label in columns["label"]]
    row = rng.randrange(len(grades))
    grades[row] = rng.choice((0, 1)) if columns["label"][row] else rng.choice((2, 3, 4))
    return {**columns, "grade": grades}


def _classes(columns: Columns, rng: random.Random) -> Columns:
    n, classes = len(columns["label"]), rng.choice((2, 3, 5))
    kept = {name: values for name, values in columns.items() if not name.startswith("prob")}
    rows = []
    for _ in range(n):
        raw = [rng.random() ** 3 + 1e-3 for _ in range(classes)]
        rows.append([round(value / sum(raw), 6) for value in raw])
    return {**kept, **{f"prob_{k}": [row[k] for row in rows] for k in range(classes)}}


REFUSED: dict[str, tuple[Fault, tuple[str, ...]]] = {  # name -> fault, columns that it needs
    "image twice": (_twice, ()),
    "images alike": (_alike("image_id"), ()),
    "patients alike": (_alike("patient_id"), ("patient_id",)),
    "label out of range": (_cell("label", "2", "-1", "0.5", "3", "1e9"), ()),
    "label no number": (_cell("label", "yes", "x", "nan", "", "½", "１"), ()),
    "prob out of range": (_cell("prob", "1.2", "-0.1", "50", "1e400", "inf", "-inf"), ("prob",)),
    "prob no number": (_cell("prob", "nan", "NA", "abc", "", "0..5", "0x1p-2", "0,5.5", "1_0"), ("prob",)),
    "sample no number": (_cell("prob_1", "nan", "", "x", "1.5"), ("prob_1",)),
    "grade out of range": (_cell("grade", "5", "-1.5", "1.5", "mild"), ("grade",)),
    "uncertainty no number": (_cell("uncertainty", "inf", "high", "", "nan"), ("uncertainty",)),
    "unknown split": (_cell("split", "train", "fold1", "", "tests", "валидация"), ("split",)),
    "unknown domain": (_cell("domain", "out", "in domain 2", "", "shiftеd"), ("domain",)),
    "empty image id": (_cell("image_id", ""), ()),
    "very long id": (_cell("image_id", "x" * 5000), ()),
    "line break in id": (_cell("image_id", "a\nb", "a\r\nb"), ()),
    "label contradicts grade": (_contradiction, ()),
    "class probabilities": (_classes, ()),
    "Cyrillic patient_id": (_renamed("patient_id", "раtient_id", "pаtient_id", "patient_іd", "patient\u200b_id", "\u2060patient_id"), ("patient_id",)),
    "Cyrillic prob": (_renamed("prob", "рrob", "prоb", "prob\u00ad"), ("prob",)),
    "misspelt patient_id": (_renamed("patient_id", "patiend_id", "pateint_id", "patint_id", "patient_idd", "patient_ic", "subect_id"), ("patient_id",)),
    "misspelt split": (_renamed("split", "splt", "spilt", "splits"), ("split",)),
    "misspelt domain": (_renamed("domain", "domian", "doman", "domains"), ("domain",)),
    "misspelt uncertainty": (_renamed("uncertainty", "uncertanty", "uncertainity", "uncertaint"), ("uncertainty",)),
    "two labels": (lambda columns, rng: {**columns, rng.choice(("Label ", " LABEL", "La-bel")): columns["label"]}, ()),
}  # fmt: skip

SYNONYMS: dict[str, Fault] = {
    "image_id": _renamed("image_id", "Image", "filename", "IMAGE_ID", "image id", "Image-ID"),
    "label": _renamed("label", "y_true", "Target", "LABEL"),
    "prob": _renamed("prob", "y_score", "Score", "PROB", "yprob"),
    "patient_id": _renamed("patient_id", "Patient_ID", "patientid", "patient", "subject_id", "PatientID", "Patient ID"),
    "split": _renamed("split", "Split", "set", "SET"),
    "domain": _renamed("domain", "Domain", "DOMAIN"),
    "grade": _renamed("grade", "Grade"),
    "uncertainty": _renamed("uncertainty", "Uncertainty"),
}


@st.composite
def tables(draw: st.DrawFn) -> Truth:
    """Tables that have to be accepted."""
    return draw(truths().filter(valid))


@st.composite
def csv_valid(draw: st.DrawFn) -> Case:
    """A valid CSV in a usual dialect, sometimes with usual names of other tools."""
    truth, dialect = draw(tables()), draw(dialects())
    columns = truth.columns()
    rng = random.Random(draw(st.integers(0, 2**32)))
    named = draw(st.lists(st.sampled_from(sorted(SYNONYMS)), max_size=3, unique=True)) if not dialect.case else []
    for name in named:
        columns = SYNONYMS[name](columns, rng)
    content = csv_file(columns, dialect)
    said = f"valid: {dialect}, other names for {named}, {len(truth)} rows of {truth.width}"
    return Case("predictions, CSV", said, {"table": content}, SCORE, plain.score_differs(truth), must="accept")


@st.composite
def csv_faulty(draw: st.DrawFn) -> Case:
    """A CSV with one fault."""
    name = draw(st.sampled_from(sorted(REFUSED)))
    fault, needed = REFUSED[name]
    truth = draw(tables().filter(lambda truth: all(key in truth.columns() for key in needed)))
    columns = fault(truth.columns(), random.Random(draw(st.integers(0, 2**32))))
    return Case("predictions, CSV", name, {"table": csv_file(columns)}, SCORE, must="refuse")


@st.composite
def csv_damaged(draw: st.DrawFn) -> Case:
    """A CSV with damaged bytes, which is read or refused in one line."""
    truth, dialect = draw(tables()), draw(dialects())
    content, said = draw(damages(csv_file(truth.columns(), dialect)))
    return Case("predictions, CSV", f"{said}; {dialect}", {"table": content}, SCORE)


@st.composite
def csv_cut(draw: st.DrawFn) -> Case:
    """A CSV that ends within its last row: refused where a cell is lost, and said where the last number may be cut."""
    truth = draw(tables())
    whole = csv_file(truth.columns())
    end = draw(st.integers(1, len(whole.splitlines(keepends=True)[-1]) - 1))
    content = whole[:-end]
    ended = content.endswith(b"\n")
    refused = not ended and content.splitlines()[-1].count(b",") < whole.splitlines()[0].count(b",")

    def check(folder: Any, printed: str) -> str:
        return "" if ended or "line end" in printed else "nothing says that the last line has no end"

    must: Must = "refuse" if refused else ""
    return Case("predictions, CSV", f"cut by {end}", {"table": content}, SCORE, check, must=must)


def of_package(truth: Truth) -> Predictions:
    """The table as an object of this package."""
    names = ("grade", "patient_id", "domain", "split", "uncertainty")
    optional: dict[str, Any] = {
        name: np.array(values) for name in names if (values := getattr(truth, name)) is not None
    }
    groups = {name: np.array(values) for name, values in truth.further.items()}
    ids, label, samples = np.array(truth.image_id), np.array(truth.label), np.array(truth.samples)
    return Predictions(ids, label, samples, **optional, subgroups=groups, metadata={"method": "dropout", "seed": 3})


@st.composite
def binary_files(draw: st.DrawFn) -> Case:
    """A Parquet or NPZ file of this package or of another writer: accepted whole, and damaged refused or read right."""
    truth, rng = draw(tables()), random.Random(draw(st.integers(0, 2**32)))
    kind, own = draw(st.sampled_from(("Parquet", "NPZ"))), draw(st.booleans())
    wanted = truth
    if own:
        content = (parquet_bytes if kind == "Parquet" else npz_bytes)(of_package(truth))
    elif kind == "NPZ":
        content = npz_file(truth, rng)
    else:
        single = draw(st.booleans())
        content = parquet_file(truth, rng, single=single)
        wanted = as_float32(truth) if single else truth
    check, reader = plain.score_differs(wanted), f"predictions, {kind}"
    if draw(st.booleans()):
        return Case(reader, "valid", {"table": content}, SCORE, check, must="accept")
    content, said = draw(damages(content))  # checksums of both formats find what is changed
    check = nothing_wrong if kind == "Parquet" and not own else check
    return Case(reader, f"{'own' if own else 'foreign'}, {said}", {"table": content}, SCORE, check)


@st.composite
def odd_arrays(draw: st.DrawFn) -> Case:
    """An NPZ file of which one array is odd or of another length."""
    truth = draw(tables())
    n, rng = len(truth), random.Random(draw(st.integers(0, 2**32)))
    odd = (
        b"", b"\x93NUMPY", b"not an array", np.zeros(n + 1), np.zeros((n, 1, 1)), np.zeros((n, 0)), np.array(3.0),
        np.array([None] * n, object), np.arange(n) * 1j, np.full(n, np.datetime64("2020-01-01")), np.full(n, np.nan),
        np.arange(n, dtype=np.uint64) + 2**63, np.array([0x110000, 0x41] * n, np.uint32).view("<U2"),
    )  # fmt: skip
    name = draw(st.sampled_from(("image_id", "label", "probs", "patient_id", "grade", "uncertainty", "split")))
    content = npz_file(truth, rng, other={name: rng.choice(odd)})
    return Case("predictions, NPZ", f"odd array {name}", {"table": content}, SCORE)
