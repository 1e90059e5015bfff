"""Tables of patients instead of images: read from CSV or Parquet once, and encoded by the training rows of each run.

A prepared table holds `features.parquet` instead of images: one column per feature, as numbers or text, with empty cells where a
value is missing. Nothing is fitted when it is prepared. `encode` turns it into the inputs of a network, and every statistic
that it needs (median, most frequent word, mean, std, the list of words) is of the training rows alone, so that a fold
that tests has no part in them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import expit

from retinabench.core.errors import InputError, nearest
from retinabench.core.errors import check as check_file
from retinabench.core.files import sweep, write_bytes
from retinabench.core.results import JsonObject
from retinabench.core.seeds import numpy_generator
from retinabench.core.settings import Frozen
from retinabench.core.workspace import Workspace
from retinabench.data.dataset import SPLITS, Records, Rows, make_records, to_parquet
from retinabench.data.datasets.folder import SPLIT_NAMES, STAND_IN
from retinabench.data.prepare import begin_folder, place_of
from retinabench.data.prepared import COMPLETE, FEATURES, FORMAT, Prepared, complete, open_prepared
from retinabench.predictions.check import Check, named_by_row
from retinabench.predictions.columns import check_count, from_arrow, to_arrow
from retinabench.predictions.io import csv_columns, csv_dialect, read_table, unreadable
from retinabench.predictions.values import combined

ROLES = ("label", "patient", "image", "split")
MOST_WORDS = 50  # of a column of categories
WORDS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}
Columns = dict[str, NDArray[np.float64] | NDArray[np.str_]]


def prepare_table(
    out: Path,
    source: Path | None,
    roles: Mapping[str, str],
    features: Sequence[str] | None = None,
    *,
    rows: int | None = None,
    seed: int | None = None,
) -> tuple[Prepared, list[str]]:
    """Prepare a table into a folder; return it opened, and notes.

    `roles`: role of `ROLES` -> its column; `features`: None for every other column. Without a source `rows` patients are drawn.
    """
    for role in roles:
        if role not in ROLES:
            raise InputError(f"unknown role '{role}' of a column", hint=nearest(role, ROLES))
    named, drawn = {"label": "label", **roles}, JsonObject()
    truth: NDArray[np.float64] | float = np.nan
    if source is None:
        if roles or features:
            raise InputError("a drawn table has its own columns", hint="Leave out --label, --patient and --features.")
        drawn = {"rows": rows or 52_888, "seed": seed or 0}
        columns, truth = draw_patients(**drawn)
        named = {"label": "outcome", "patient": "id"}
    elif rows is not None or seed is not None:
        raise InputError("--images and --seed draw a table, and --source names one", hint="Leave them out.")
    else:
        columns = read_columns(source)
    records, notes = _records(columns, named, truth, source)
    names = _features(columns, named, features, source)
    check_features({name: columns[name] for name in names}, records.grade > 0, source)
    words = {name: len(np.unique(columns[name])) for name in names if columns[name].dtype.kind == "U"}
    if words and source is not None:
        shown = ", ".join(f"{name} ({number})" for name, number in list(words.items())[:20])
        notes.append(f"read as categories (number of different values): {shown}{', …' if len(words) > 20 else ''}")
    table = to_parquet(pa.table({name: to_arrow(columns[name]) for name in names}))
    settings: JsonObject = {
        "dataset": "table", "source": place_of(source), "columns": named, "features": names, "format": FORMAT,
        "label_table": hashlib.sha256(records.to_parquet() + table).hexdigest(), **drawn,
    }  # fmt: skip
    workspace = Workspace(out, "prepared data set", "prepare.json")
    begin_folder(workspace, settings)
    sweep(out)
    with workspace.lock(wait=True):
        if not (out / COMPLETE).is_file():
            write_bytes(out / FEATURES, table, checked=True)
            name = "table" if source is None else source.stem
            complete(out, records, [out / FEATURES], settings, name=name, size=1, features=FEATURES)
    return open_prepared(out), notes


def read_columns(path: Path) -> Columns:
    """Return the columns of a CSV or Parquet file, each as numbers with NaN or text with "" where a cell is empty."""
    try:
        with open(check_file(path, named=True), "rb") as handle:
            head = handle.read(4)
        if head.startswith(b"PK"):
            hint = "Save the table as 'CSV UTF-8' or Parquet."
            raise InputError("is a zip archive, such as an Excel file", file=path, hint=hint)
        if parquet := head == b"PAR1":
            table = read_table(path)
        else:
            encoding, delimiter, names = csv_dialect(path)
            table = csv_columns(path, encoding, delimiter, len(names), range(len(names)), ()).rename_columns(names)
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise unreadable(path, error) from None
    check_count(path, table.column_names)
    columns: Columns = {}
    for name, cells in zip(table.column_names, table.columns, strict=True):
        if name in columns:
            raise InputError("appears twice in the header", file=path, column=name, hint="Rename one of them.")
        try:
            columns[name] = from_arrow(combined(cells), untyped=not parquet)
        except (ValueError, pa.ArrowException) as error:
            problem = str(error).partition("\n")[0]
            raise InputError(problem, file=path, column=name, hint="Mend or remove the column.") from None
    return columns


def _records(
    columns: Columns, roles: Mapping[str, str], truth: NDArray[np.float64] | float, source: Path | None
) -> tuple[Records, list[str]]:
    check = Check(source)
    for role, name in roles.items():
        if name not in columns:
            shown = list(columns)[:20]
            raise check.fail(name, None, "is missing", f"{nearest(name, shown)} --{role} NAME names the column.")
    label = _labels(check, roles["label"], columns[roles["label"]])
    patients, notes = None, []
    if "patient" in roles:
        patients = check.text(roles["patient"], columns[roles["patient"]])
    else:
        notes.append("no --patient, so every row counts as a patient of its own")
    own = roles.get("image", roles.get("patient"))
    ids = check.text(own, columns[own]) if own else named_by_row(len(label))[0]
    try:
        check.unique(own or "", ids)
    except InputError as error:
        hint = "Write one row per patient, or name the column that tells the rows apart: --column image=NAME."
        raise InputError(error.problem, file=source, row=error.row, column=own, hint=hint) from None
    split: NDArray[np.str_] | str = "train"
    if "split" in roles:
        words = [SPLIT_NAMES.get(word.lower(), word) for word in check.text(roles["split"], columns[roles["split"]])]
        split = check.one_of(roles["split"], np.array(words), SPLITS, "train", len(label))
    grades = np.where(label > 0, STAND_IN["1"], STAND_IN["0"])
    return make_records(ids, grades, patient_id=patients, split=split, p_referable=truth), notes


def _labels(check: Check, column: str, values: NDArray[np.float64] | NDArray[np.str_]) -> NDArray[np.float64]:
    """Return labels (N,), 0 or 1; true, false, yes and no are read as well."""
    text = values.dtype.kind == "U"
    labels = np.array([WORDS.get(word.lower(), np.nan) for word in values.tolist()]) if text else values
    if (bad := np.flatnonzero((labels != 0) & (labels != 1))).size:
        cell = values[bad[0]]
        shown = "empty" if str(cell) in ("", "nan") else f"'{cell}'" if text else f"{cell:g}"
        hint = "The outcome is 1 or 0; leave out the rows where it is not known."
        raise check.fail(column, bad[0], f"is {shown}, not 0 or 1", hint)
    if len(np.unique(labels)) < 2:
        raise check.fail(column, None, f"is {labels[0]:g} in every row", "Both outcomes are needed to learn from.")
    return np.asarray(labels, np.float64)


def _features(
    columns: Columns, roles: Mapping[str, str], asked: Sequence[str] | None, source: Path | None
) -> list[str]:
    """Return the names of the features: those asked for, else all columns without a role."""
    used, check = {name: role for role, name in roles.items()}, Check(source)
    names = [name for name in columns if name not in used] if asked is None else list(asked)
    for place, name in enumerate(names):
        if name not in columns:
            raise check.fail(name, None, "is missing", nearest(name, list(columns)[:20]))
        if name in used:
            raise check.fail(name, None, f"is the {used[name]}, and cannot be a feature", "Leave it out of --features.")
        if name in names[:place]:
            raise check.fail(name, None, "is named twice in --features", "Name it once.")
    if not names:
        raise InputError("holds no column of features", file=source, hint="Add one, or name some with --features.")
    return names


def check_features(columns: Columns, label: NDArray[np.bool_], source: Path | None) -> None:
    """Refuse features that hold nothing, too many words, or the label itself."""
    check, without = Check(source), "Leave it out: --features names the columns to use."
    for name, values in columns.items():
        text = values.dtype.kind == "U"
        known = values[values != ""] if text else values[~np.isnan(values)]
        levels = np.unique(known)
        if not len(levels):
            raise check.fail(name, None, "is empty in every row", without)
        if len(levels) == 1 and len(known) == len(values):
            raise check.fail(name, None, f"is '{str(levels[0])[:40]}' in every row", without)
        if text and len(levels) > MOST_WORDS:
            problem = f"holds {len(levels):,} different words such as '{levels[0][:40]}', more than {MOST_WORDS}"
            raise check.fail(name, None, problem, f"Group them, or correct the cells that should be numbers. {without}")
        if not text and np.array_equal(values, label.astype(np.float64)):
            raise check.fail(name, None, "equals the label in every row", without)


class Feature(Frozen):
    """How a column becomes inputs of a network, by statistics of the training rows."""

    column: str
    fill: float | str  # where it is missing: the median, or the most frequent word
    mean: float = 0.0
    std: float = Field(0.0, ge=0)  # 0: a number that does not vary
    words: tuple[str, ...] = ()  # that give a column of 0 and 1 each
    missing: bool  # whether a column says where it is missing

    @property
    def width(self) -> int:
        return (len(self.words) if isinstance(self.fill, str) else int(self.std > 0)) + self.missing


def encode(table: pa.Table, train: Rows) -> NDArray[np.float32]:
    """Return the inputs (N, D) of a network, by statistics of the training rows alone.

    A number is standardised, with the median where it is missing. A category is one column of 0 and 1 for each word of the training
    rows (one of two words), with the most frequent word where it is missing; a word that they lack is 0 in all. Each column of
    which training rows are missing also gives a column that is 1 there. What does not vary in the training rows is left out.
    """
    columns = columns_of(table)
    return encoded(columns, fit_features(columns, train))


def columns_of(table: pa.Table) -> Columns:
    return {name: from_arrow(combined(table[name])) for name in table.column_names}


def fit_features(columns: Columns, train: Rows) -> tuple[Feature, ...]:
    """Return what `encode` does with each column that gives an input."""
    features = []
    for name, values in columns.items():
        missing = is_missing(values)
        seen, gaps = values[train][~missing[train]], bool(missing[train].any())
        if not len(seen):
            continue
        if values.dtype.kind == "U":
            levels, counts = np.unique(seen, return_counts=True)
            words, fill = levels.tolist(), str(levels[counts.argmax()])
            features.append(Feature(column=name, fill=fill, words=words if len(words) > 2 else words[1:], missing=gaps))
        else:
            median = float(np.median(np.asarray(seen, np.float64)))
            filled = np.where(missing, median, values)[train]
            mean, std = float(filled.mean()), float(filled.std())
            varies = std > 1e-12 * abs(mean)  # a constant has a std of rounding errors
            features.append(Feature(column=name, fill=median, mean=mean, std=std if varies else 0.0, missing=gaps))
    if not (features := [one for one in features if one.width]):
        raise InputError("no feature varies in the training rows", hint="Prepare the table with other --features.")
    return tuple(features)


def encoded(columns: Columns, features: Sequence[Feature]) -> NDArray[np.float32]:
    """Return the inputs (N, D) that columns give."""
    parts: list[NDArray[np.generic]] = []
    for one in features:
        values = columns[one.column]
        missing = is_missing(values)
        if isinstance(one.fill, str):
            filled = np.where(missing, one.fill, values)
            parts += [filled == word for word in one.words]
        elif one.std:
            parts.append((np.where(missing, one.fill, values) - one.mean) / one.std)
        if one.missing:
            parts.append(missing)
    return np.stack([part.astype(np.float32) for part in parts], axis=1)


def is_missing(values: NDArray[np.float64] | NDArray[np.str_]) -> NDArray[np.bool_]:
    return values == "" if values.dtype.kind == "U" else np.isnan(values)


PREVALENCE = 0.04
# Column -> mean, std, and its correlation with how severe the injury is.
VITALS = {
    "age": (45, 21, 0.0), "systolic": (132, 22, -0.45), "diastolic": (80, 13, -0.35), "heart_rate": (90, 18, 0.35),
    "respiratory_rate": (18, 4, 0.3), "oxygen_saturation": (97, 2.5, -0.4), "temperature": (36.7, 0.6, -0.15),
    "gcs": (14.2, 1.6, -0.5), "glucose": (135, 35, 0.15), "lactate": (2.2, 1.1, 0.5), "haemoglobin": (13.3, 1.8, -0.3),
    "pain": (5, 2.5, 0.1), "minutes_to_scene": (11, 5, 0.0), "minutes_to_hospital": (22, 9, 0.05),
    "height_of_fall": (1.4, 1.8, 0.2), "speed": (31, 19, 0.2), "weight": (79, 17, 0.0), "capillary_refill": (1.9, 0.6, 0.4),
}  # fmt: skip
# Column -> its words, from the most frequent on.
CATEGORIES = {
    "sex": ("male", "female"), "mechanism": ("fall", "car", "motorcycle", "pedestrian", "stab", "gunshot"),
    "transport": ("ground", "air"), "region": ("head", "leg", "chest", "arm", "abdomen", "spine"),
    "airway": ("own", "assisted", "tube"), "pupils": ("equal", "unequal", "fixed"), "bleeding": ("none", "minor", "major"),
    "seatbelt": ("yes", "no", "unknown"), "shift": ("day", "evening", "night"), "season": ("summer", "autumn", "spring", "winter"),
    "anticoagulant": ("no", "yes"), "alcohol": ("no", "yes"),
}  # fmt: skip
MISSING = {
    "lactate": 0.3, "glucose": 0.15, "temperature": 0.12, "haemoglobin": 0.1, "speed": 0.1, "pupils": 0.06,
    "seatbelt": 0.1,
}  # fmt: skip


def draw_patients(rows: int, seed: int) -> tuple[Columns, NDArray[np.float64]]:
    """Return the columns of a drawn table, with `id` and `outcome`, and the true risk (N,) of every patient.

    30 features of an in-field trauma triage, where 4 % have the outcome, as many as in the registry of Brown, Talbert and Talbert,
    whose data are not public; the columns and their effects are made up. The risk holds interactions, a U shape and an age effect,
    so that no linear model has it, and cells are missing at random as well as more often in severe cases.
    """
    from scipy.optimize import brentq  # which training does without

    if not 100 <= rows <= 1_000_000:
        raise InputError(f"{rows:,} patients", hint="Draw 100 to 1,000,000 (--images).")
    random = numpy_generator(seed, "patients")
    severity = random.standard_normal(rows)
    scores = {}
    columns: Columns = {"id": np.array([f"p{k:06d}" for k in range(rows)])}
    for name, (mean, std, correlation) in VITALS.items():
        own = random.standard_normal(rows)
        scores[name] = correlation * severity + np.sqrt(1 - correlation**2) * own
        columns[name] = np.round(mean + std * scores[name], 1)
    for name, words in CATEGORIES.items():
        share = 0.5 ** np.arange(len(words))
        columns[name] = random.choice(words, rows, p=share / share.sum())
    named = ("mechanism", "region", "bleeding", "pupils")
    is_word = {word: (columns[name] == word).astype(float) for name in named for word in CATEGORIES[name]}
    logit = 1.6 * (
        1.1 * severity + 0.5 * scores["lactate"] - 0.4 * scores["gcs"] + 0.25 * scores["age"] ** 2
        + 0.5 * scores["heart_rate"] * -scores["systolic"] + 0.5 * scores["age"] * is_word["fall"]
        + 1.2 * is_word["gunshot"] * is_word["chest"] + 1.0 * is_word["head"] * (scores["gcs"] < -0.5)
        + 0.9 * is_word["major"] + 0.7 * is_word["fixed"]
    )  # fmt: skip
    risk = expit(logit + brentq(lambda shift: expit(logit + shift).mean() - PREVALENCE, -30.0, 10.0))
    columns["outcome"] = (random.random(rows) < risk).astype(np.float64)
    for name, rate in MISSING.items():
        gone = random.random(rows) < rate * np.exp(0.4 * severity - 0.08)
        columns[name] = np.where(gone, "" if name in CATEGORIES else np.nan, columns[name])
    return columns, np.asarray(risk)
