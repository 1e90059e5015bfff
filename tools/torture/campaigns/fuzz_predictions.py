"""Predictions files of every format and dialect, with faults and damage, against a count by hand and scikit-learn.

Valid tables must be read right, tables with one fault refused; damaged files are read right or refused in one clear line.
"""

import json
import math
import random
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from retinabench.predictions.io import npz_bytes, parquet_bytes
from retinabench.predictions.table import Predictions
from torture.fuzz import tables
from torture.fuzz.case import Case, Check, Must, cases, nothing_wrong, perform, trials
from torture.fuzz.damage import damages
from torture.fuzz.tables import Columns, Truth, csv_file, dialects, npz_file
from torture.outcomes import Outcome

UNIT, INPUTS, SHARE = "inputs", 1000, 2.0
WHOLE = b"image_id,label,prob\na,0,0.1\nb,1,0.8\n"
SCORE = ("score", "@/table", "--bootstrap", "0", "--quiet", "--json", "@/scores.json")
TOLERANCE = 1e-9
Fault = Callable[[Columns, random.Random], Columns]


def _cell(name: str, *values: str) -> Fault:
    def fault(columns: Columns, rng: random.Random) -> Columns:
        row = rng.randrange(len(columns["label"]))
        return {**columns, name: [rng.choice(values) if k == row else value for k, value in enumerate(columns[name])]}

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
    "split": _renamed("split", "Split", "set", "SET"), "domain": _renamed("domain", "Domain", "DOMAIN"),
    "grade": _renamed("grade", "Grade"), "uncertainty": _renamed("uncertainty", "Uncertainty"),
}  # fmt: skip


def numbers(truth: Truth) -> dict[str, dict[str, Any]]:
    """Return what `score` must find on the test images of each domain and of both."""
    columns, prob = truth.others, [math.fsum(row) / len(row) for row in truth.samples]
    rows = [k for k in range(len(truth)) if columns.get("split", ["test"] * len(truth))[k] == "test"]
    domain = columns.get("domain", ["in_domain"] * len(truth))
    sets = {name: [k for k in rows if domain[k] == name] for name in ("in_domain", "shifted")}
    if all(sets.values()):
        sets["joint"] = rows
    found = {}
    for name, chosen in sets.items():
        if chosen:
            label, score = [columns["label"][k] for k in chosen], [prob[k] for k in chosen]
            patients = columns.get("patient_id")
            found[name] = {
                "images": len(chosen),
                "patients": None if patients is None else len({patients[k] for k in chosen}),
                "positives": sum(label),
                "accuracy": sum((p > 0.5) == bool(y) for p, y in zip(score, label, strict=True)) / len(chosen),
                "auroc": roc_auc_score(label, score) if len(set(label)) == 2 else None,
            }
    return found


def score_differs(truth: Truth) -> Check:
    def check(folder: Path, printed: str) -> str:
        found = json.loads((folder / "scores.json").read_text())["sets"]
        wanted = numbers(truth)
        if lacking := set(wanted) - set(found):
            return f"there is no set {lacking}"
        for name, values in wanted.items():
            for key, value in values.items():
                said = found[name][key] if key in found[name] else found[name]["scores"].get(key, {}).get("value")
                # An empty column of patients is read as absent, or makes each image its own patient.
                no_patients = key == "patients" and value is None and said == values["images"]
                same = said is value if None in (said, value) else abs(said - value) <= TOLERANCE
                if not same and not no_patients:
                    return f"{name} {key} is {said}, not {value}"
        if extra := set(found) - set(wanted) - {"joint", "balanced"}:
            return f"there is a set {extra}"
        return ""

    return check


TABLES = tables.truths().filter(tables.valid)  # have to be accepted


@st.composite
def csv_valid(draw: st.DrawFn) -> Case:
    """A valid CSV in a usual dialect, sometimes with usual names of other tools."""
    truth, dialect = draw(TABLES), draw(dialects())
    columns = truth.columns()
    rng = random.Random(draw(st.integers(0, 2**32)))
    named = draw(st.lists(st.sampled_from(sorted(SYNONYMS)), max_size=3, unique=True)) if not dialect.case else []
    for name in named:
        columns = SYNONYMS[name](columns, rng)
    content = csv_file(columns, dialect)
    said = f"valid: {dialect}, other names for {named}, {len(truth)} rows of {truth.width}"
    return Case("predictions, CSV", said, {"table": content}, SCORE, score_differs(truth), must="accept")


@st.composite
def csv_faulty(draw: st.DrawFn) -> Case:
    name = draw(st.sampled_from(sorted(REFUSED)))
    fault, needed = REFUSED[name]
    truth = draw(TABLES.filter(lambda truth: all(key in truth.columns() for key in needed)))
    columns = fault(truth.columns(), random.Random(draw(st.integers(0, 2**32))))
    return Case("predictions, CSV", name, {"table": csv_file(columns)}, SCORE, must="refuse")


@st.composite
def csv_damaged(draw: st.DrawFn) -> Case:
    truth, dialect = draw(TABLES), draw(dialects())
    content, said = draw(damages(csv_file(truth.columns(), dialect)))
    return Case("predictions, CSV", f"{said}; {dialect}", {"table": content}, SCORE)


@st.composite
def csv_cut(draw: st.DrawFn) -> Case:
    """A CSV that ends within its last row: refused where a cell is lost, and said where the last number may be cut."""
    truth = draw(TABLES)
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
    arrays: dict[str, Any] = {name: np.array(values) for name, values in truth.others.items()}
    groups = {name: arrays.pop(name) for name in tables.FURTHER if name in arrays}
    about = {"method": "dropout", "seed": 3}
    return Predictions(**arrays, probs=np.array(truth.samples), subgroups=groups, metadata=about)


@st.composite
def binary_files(draw: st.DrawFn) -> Case:
    """A Parquet or NPZ file of this package or of another writer: accepted whole, and damaged refused or read right."""
    truth, rng = draw(TABLES), random.Random(draw(st.integers(0, 2**32)))
    kind, own = draw(st.sampled_from(("Parquet", "NPZ"))), draw(st.booleans())
    wanted = truth
    if own:
        content = (parquet_bytes if kind == "Parquet" else npz_bytes)(of_package(truth))
    elif kind == "NPZ":
        content = npz_file(truth, rng)
    else:
        single = draw(st.booleans())
        content = tables.parquet_file(truth, rng, single=single)
        wanted = tables.as_float32(truth) if single else truth
    check, reader = score_differs(wanted), f"predictions, {kind}"
    if draw(st.booleans()):
        return Case(reader, "valid", {"table": content}, SCORE, check, must="accept")
    content, said = draw(damages(content))  # checksums of both formats find what is changed
    check = nothing_wrong if kind == "Parquet" and not own else check
    return Case(reader, f"{'own' if own else 'foreign'}, {said}", {"table": content}, SCORE, check)


@st.composite
def odd_arrays(draw: st.DrawFn) -> Case:
    truth = draw(TABLES)
    n, rng = len(truth), random.Random(draw(st.integers(0, 2**32)))
    odd = (
        b"", b"\x93NUMPY", b"not an array", np.zeros(n + 1), np.zeros((n, 1, 1)), np.zeros((n, 0)), np.array(3.0),
        np.array([None] * n, object), np.arange(n) * 1j, np.full(n, np.datetime64("2020-01-01")), np.full(n, np.nan),
        np.arange(n, dtype=np.uint64) + 2**63, np.array([0x110000, 0x41] * n, np.uint32).view("<U2"),
    )  # fmt: skip
    name = draw(st.sampled_from(("image_id", "label", "probs", "patient_id", "grade", "uncertainty", "split")))
    content = npz_file(truth, rng, other={name: rng.choice(odd)})
    return Case("predictions, NPZ", f"odd array {name}", {"table": content}, SCORE)


BINARY = binary_files()
STRATEGY = st.one_of(csv_valid(), csv_faulty(), csv_damaged(), csv_cut(), BINARY, BINARY, odd_arrays())


def campaign(seed: int, scratch: Path) -> Iterator[Outcome]:
    perform(Case("", "", {"table": WHOLE}, SCORE), scratch / "warm")  # imports what every trial needs
    yield from trials(cases(STRATEGY, seed, INPUTS), scratch)
