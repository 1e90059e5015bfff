"""The second reading: columns by `csv`, pyarrow and NumPy directly, and numbers by counting; nothing of retinabench."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet

from torture.fuzz.tables import Truth

TOLERANCE = 1e-9
SYNONYMS = {
    "imageid": "image_id", "image": "image_id", "filename": "image_id", "label": "label", "target": "label", "ytrue": "label",
    "prob": "prob", "yprob": "prob", "yscore": "prob", "score": "prob", "grade": "grade", "patientid": "patient_id",
    "patient": "patient_id", "subjectid": "patient_id", "domain": "domain", "split": "split", "set": "split", "uncertainty": "uncertainty",
}  # fmt: skip
MISSING = ("", "nan", "na", "n/a", "<na>", "nat", "none", "null")


class UnreadableError(ValueError):
    """The plain reader sees no table."""


def csv_columns(content: bytes) -> dict[str, list[str]]:
    """Return the cells of a CSV by column."""
    wide = content.startswith((b"\xff\xfe", b"\xfe\xff"))
    try:
        text = content.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeError as error:
        raise UnreadableError(str(error)) from None
    first = text.replace("\r\n", "\n").replace("\r", "\n").partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    try:
        header, *rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    except (csv.Error, ValueError) as error:
        raise UnreadableError(str(error)) from None
    rows = [row for row in rows if row]
    if any(len(row) != len(header) for row in rows) or len(set(header)) < len(header):
        raise UnreadableError("rows of several lengths, or a column twice")
    return {name.strip(): [row[k] for row in rows] for k, name in enumerate(header)}


def parquet_columns(content: bytes) -> dict[str, list[Any]]:
    """Return the values of a Parquet file by column."""
    try:
        columns = pyarrow.parquet.read_table(io.BytesIO(content)).to_pydict()
        return {name: cells for name, cells in columns.items() if any(cell is not None for cell in cells)}
    except Exception as error:
        raise UnreadableError(str(error)) from None


def npz_columns(content: bytes) -> dict[str, list[Any]]:
    """Return the arrays of an NPZ file by name."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return {name: arrays[name].tolist() for name in arrays.files if name != "metadata"}
    except Exception as error:
        raise UnreadableError(str(error)) from None


def truth_of(columns: dict[str, list[Any]]) -> Truth:
    """Interpret columns by their names, in any case and by usual synonyms; numbers with a decimal point or comma."""
    known = {
        SYNONYMS.get("".join(name.lower().replace("_", "").split()), name): values
        for name, values in columns.items()
    }
    samples = sorted(
        (name for name in known if name.startswith("prob_")),
        key=lambda name: int(name[5:]) if name[5:].isdigit() else -1,
    )
    try:
        if "probs" in known:
            probs = [[float(v) for v in (row if isinstance(row, list) else [row])] for row in known["probs"]]
        else:
            names = samples or ["prob"]
            probs = [
                [number(cell) for cell in row] for row in zip(*(known[name] for name in names), strict=True)
            ]
        n = len(probs)
        ids = [str(cell) for cell in known.get("image_id", range(1, n + 1))]
        grade = (
            [-1 if _gone(cell) else int(number(cell)) for cell in known["grade"]]
            if "grade" in known
            else None
        )
        label = (
            [_label(cell) for cell in known["label"]]
            if "label" in known
            else [int(g >= 2) for g in grade or ()]
        )
        patient = (
            [_own(cell, ids[k]) for k, cell in enumerate(known["patient_id"])]
            if "patient_id" in known
            else None
        )
        if patient is not None and all(_gone(cell) for cell in known["patient_id"]):
            patient = None
        domain = [_word(cell) for cell in known["domain"]] if "domain" in known else None
        split = [_split(cell) for cell in known["split"]] if "split" in known else None
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise UnreadableError(f"{type(error).__name__}: {error}") from None
    return Truth(ids, label, probs, patient, domain, split, grade)


def number(cell: Any) -> float:
    """Return a cell as a number, with a decimal point or comma."""
    return float(cell.strip().replace(",", ".")) if isinstance(cell, str) else float(cell)


def _gone(cell: Any) -> bool:
    return cell is None or cell != cell or str(cell).strip().lower() in MISSING


def _own(cell: Any, image: str) -> str:
    return f"image {image}" if _gone(cell) else str(cell)


def _label(cell: Any) -> int:
    words = {"true": 1, "false": 0}
    value = words.get(str(cell).lower())
    found = number(cell) if value is None else value
    if found not in (0, 1):
        raise ValueError(f"label {cell!r}")
    return int(found)


def _word(cell: Any) -> str:
    return str(cell).strip().lower().replace("-", "_").replace(" ", "_")


def _split(cell: Any) -> str:
    word = str(cell).strip().lower()
    return {"val": "validation", "valid": "validation", "dev": "validation", "testing": "test"}.get(
        word, word
    )


def auroc(label: Sequence[int], score: Sequence[float]) -> float:
    """Area under the ROC curve by counting pairs."""
    pairs = [
        (p > q) + 0.5 * (p == q)
        for p, y in zip(score, label, strict=True)
        if y
        for q, z in zip(score, label, strict=True)
        if not z
    ]
    return math.fsum(pairs) / len(pairs) if pairs else math.nan


def numbers(truth: Truth) -> dict[str, dict[str, Any]]:
    """Return what `score` must find on the test images of each domain and of both."""
    prob = [math.fsum(row) / len(row) for row in truth.samples]
    rows = [k for k in range(len(truth)) if truth.split is None or truth.split[k] == "test"]
    domain = truth.domain or ["in_domain"] * len(truth)
    sets = {name: [k for k in rows if domain[k] == name] for name in ("in_domain", "shifted")}
    if all(sets.values()):
        sets["joint"] = rows
    found = {}
    for name, chosen in sets.items():
        if chosen:
            label, score = [truth.label[k] for k in chosen], [prob[k] for k in chosen]
            found[name] = {
                "images": len(chosen),
                "patients": None if truth.patient_id is None else len({truth.patient_id[k] for k in chosen}),
                "positives": sum(label),
                "accuracy": sum((p > 0.5) == bool(y) for p, y in zip(score, label, strict=True))
                / len(chosen),
                "auroc": auroc(label, score),
            }
    return found


def score_differs(truth: Truth) -> Callable[[Path, str], str]:
    """Return the check that `scores.json` agrees with a table."""

    def check(folder: Path, printed: str) -> str:
        found = json.loads((folder / "scores.json").read_text())["sets"]
        wanted = numbers(truth)
        for name, numbers_ in wanted.items():
            if name not in found:
                return f"there is no set '{name}'"
            for key, value in numbers_.items():
                scores = found[name]["scores"]
                said = found[name][key] if key in found[name] else scores.get(key, {}).get("value")
                # An empty column of patients is read as absent, or makes each image its own patient.
                no_patients = key == "patients" and value is None
                if not same(said, value) and not (no_patients and said == numbers_["images"]):
                    return f"{name} {key} is {said}, not {value}"
        if extra := set(found) - set(wanted) - {"joint", "balanced"}:
            return f"there is a set {extra}"
        return ""

    return check


def same(found: Any, wanted: Any) -> bool:
    """Whether two numbers agree; undefined ones are null or NaN."""
    if found is None or wanted is None or wanted != wanted:
        return found is None and (wanted is None or wanted != wanted)
    return bool(abs(found - wanted) <= TOLERANCE)
