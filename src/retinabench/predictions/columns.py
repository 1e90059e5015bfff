"""Which column of a table is which: the known ones by their names, the others as subgroups."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError, json_object, nearest, one_edit
from retinabench.core.results import JsonObject
from retinabench.predictions.check import Check

SCHEMA = "retinabench.predictions/1"
DOMAINS = ("in_domain", "shifted")
SPLITS = ("validation", "test")
OPTIONAL = ("grade", "grade_prob", "patient_id", "domain", "split", "fold", "uncertainty")
GRADES = 5
LABELLED = "labelled"
"""The subgroup that says whether a label is known ("yes") or was empty ("no"); only of files that may lack labels."""

MAX_ROWS = 20_000_000  # image ids of so many rows still fit an ordinary machine's memory
MAX_VALUES = 400_000_000  # 3.2 GB of float64 probabilities
MAX_FILE_COLUMNS = 20_000
MAX_TEXT = 1000  # characters of one id
MAX_BYTES = 8 * MAX_VALUES  # of all arrays or columns of one file
MAX_TEXT_BYTES = 1 << 32  # of one array of text, as wide as its longest cell: 5,000,000 ids of 214 characters
TEXT = ("image_id", "patient_id", "domain", "split")
KNOWN = ("image_id", "label", "prob", "probs", *OPTIONAL)


NAMED = "uncertainty_"  # what the names of further uncertainties begin with
LISTS = {"probs": "prob", "grade_prob": "grade_prob"}
"""Columns of several numbers per image: one list in Parquet, and the columns `prob_0`, `prob_1` … in a CSV."""

# Usual names in other tools, without case, blanks, points, hyphens and underscores. Those of the second list are taken
# only where the file has none of the first.
USUAL: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "image_id": (
        ("imageid", "image", "imagename", "imagefile", "imgid", "img", "imgname", "filename", "idcode"),
        ("id", "name", "file", "imagepath", "filepath", "path", "uid", "sampleid"),
    ),
    "label": (
        ("label", "labels", "target", "targets", "y", "ytrue", "truelabel", "truth", "groundtruth", "gt", "referable"),
        (),
    ),
    "prob": (
        ("prob", "probs", "p", "proba", "probability", "yprob", "yproba", "yscore", "score", "predprob", "predproba",
         "probreferable", "preferable", "probabilityreferable", "probpositive"),
        ("pred", "preds", "prediction", "predicted", "ypred", "yhat", "output"),
    ),
    "grade": (("grade", "drgrade", "icdr", "icdrgrade", "retinopathygrade", "adjudicateddrgrade"), ()),
    "patient_id": (("patientid", "patient", "subjectid", "subject", "participantid", "pid"), ()),
    "domain": (("domain",), ()),
    "split": (("split", "set", "subset", "partition"), ()),
    "fold": (("fold", "cvfold", "foldid"), ()),
    "uncertainty": (("uncertainty", "uncert", "unc", "predictiveuncertainty"), ()),
    "gradable": (("gradable", "gradeable", "isgradable", "isgradeable"), ()),
    "method": (("method",), ()),
    "seed": (("seed", "modelseed"), ()),
}  # fmt: skip
MAPPABLE = (*USUAL, "prob_0")
_USUAL_NAMES = {name for ranks in USUAL.values() for names in ranks for name in names}
_STEMS = (
    "prob", "probs", "p", "proba", "probability", "class", "softmax", "yprob", "yproba", "yscore", "score", "pred",
)  # fmt: skip
# One wrong, lost, doubled or exchanged letter away from these, a column is refused: scores without it would differ.
_TYPOS_OF = {
    "patient_id": ("patientid", "patient", "subjectid", "subject", "participantid"),
    "domain": ("domain",),
    "split": ("split",),
    "uncertainty": ("uncertainty", "predictiveuncertainty"),
    "gradable": ("gradable", "gradeable"),
}
# Letters of other scripts that look like Latin ones.
_TWINS = str.maketrans("аеорсухіјѕԁԛһοαρυντικӏ", "aeopcyxijsdqhoapuvtikl")
_NUMBERED = re.compile(r"(.*?)[ _.\-]?([0-9]{1,4})")
MAX_COLUMNS = 100
MAX_NAME = 100  # characters of a column's name
MAX_CELL = 200  # characters of a cell
MAX_SUBGROUP_BYTES = 1 << 30  # of all further columns
_INDEX_NAMES = ("", "Unnamed: 0", "__index_level_0__")  # the row numbers that pandas writes
_MISSING_NUMBERS = ("NA", "N/A", "NaN", "nan", "NULL", "null", "None", "<NA>")
_NUMBER = r"^[-+]?([0-9]+[.,]?[0-9]*|[.,][0-9]+)([eE][-+]?[0-9]{1,3})?$"
_CODE = r"^[-+]?0[0-9]"
_LONG = r"^[-+]?[0-9]{16,}$"
_THOUSANDS = r"^[-+]?[1-9][0-9]{0,2},[0-9]{3}$"
MOST_EXACT = 2**53  # the largest whole number up to which each has a float of its own


def sample_number(name: str, stem: str = "prob") -> int | None:
    """The j of a column `prob_j`, or of one with another stem, else None."""
    match = re.fullmatch(rf"{stem}_([0-9]{{1,9}})", name)
    return int(match[1]) if match else None


def uncertainty_name(name: str) -> str | None:
    """The NAME of a column `uncertainty_NAME`, else None."""
    return name.removeprefix(NAMED) if name.startswith(NAMED) and name != NAMED else None


def is_known(name: str) -> bool:
    return (
        name in KNOWN
        or uncertainty_name(name) is not None
        or any(sample_number(name, stem) is not None for stem in LISTS.values())
    )


def check_columns(
    path: str | Path | None, names: Sequence[str], own: Sequence[str], *, unlabelled: bool = False
) -> None:
    """Check that the needed columns are there, once each, and name the likely misspelling where not."""
    for name, times in Counter(names).items():
        if times > 1 and is_known(name):
            raise InputError("appears twice in the header", file=path, column=name)
    numbers = sorted(number for name in names if (number := sample_number(name)) is not None)
    kinds = ("prob" in names) + ("probs" in names) + bool(numbers)
    if kinds > 1:
        raise InputError("holds more than one of prob, probs and prob_0 …", file=path, hint="Keep one.")
    if numbers and numbers != list(range(len(numbers))):
        missing = next(k for k in range(len(numbers)) if numbers[k] != k)
        hint = None
        if numbers == list(range(1, len(numbers) + 1)):
            hint = "Samples and classes are counted from 0; --column prob_0=prob_1 and so on renames them."
        raise InputError("is missing among the samples", file=path, column=f"prob_{missing}", hint=hint)
    missing_grades = [f"grade_prob_{grade}" for grade in range(GRADES) if f"grade_prob_{grade}" not in names]
    if 0 < len(missing_grades) < GRADES:
        raise InputError("is missing among the probabilities of the grades", file=path, column=missing_grades[0])
    has_label = "label" in names or "grade" in names
    for needed, there in (
        ("image_id", "image_id" in names or (has_label and kinds)),
        ("label", has_label or unlabelled),
        ("prob", kinds),
    ):
        if not there:
            shown = [name[:40] for name in own if name not in KNOWN] or own
            close = nearest(needed, shown).partition("Valid: ")[0]
            more = ", …" if len(shown) > 12 else "."
            otherwise = ", or grades 0 to 4 with --column grade=NAME" if needed == "label" else ""
            if needed == "prob" and len(shown) > 1:
                if {"prob_left", "prob_right"} <= set(names):
                    close = "Write one row per image: each eye of a patient is a row. "
                otherwise = ", or a softmax with --softmax --column prob_0=NAME --column prob_1=NAME and so on"
            hint = f"{close}Add it, or name it with --column {needed}=NAME{otherwise}; the file has: {', '.join(shown[:12])}{more}"
            raise Check(path).fail(needed, None, "is missing", hint)


def check_count(path: str | Path | None, names: Sequence[str]) -> None:
    if len(names) > MAX_FILE_COLUMNS:
        hint = "Keep those that are needed."
        raise InputError(f"has {len(names):,} columns, more than {MAX_FILE_COLUMNS:,}", file=path, hint=hint)


def check_size(path: str | Path | None, rows: int, samples: int) -> None:
    """Refuse what would not fit an ordinary machine, before it is read."""
    if rows > MAX_ROWS or rows * samples > MAX_VALUES:
        problem = (
            f"holds {rows:,} rows of {samples} samples, more than are scored at once "
            f"({MAX_ROWS:,} rows, {MAX_VALUES:,} values)"
        )
        raise InputError(problem, file=path, hint="Score a random part of it, drawn by patient.")


def check_width(rows: int, longest: int, name: str, path: str | Path | None) -> None:
    """Refuse text whose array would take too much memory: it is as wide as its longest cell in every row."""
    if 4 * rows * longest > MAX_TEXT_BYTES:
        hint = f"Shorten it to {MAX_TEXT_BYTES // (4 * rows)} characters."
        raise Check(path).fail(name, None, f"has a cell of {longest:,} characters, too long for {rows:,} rows", hint)


def read_metadata(path: Path, text: bytes) -> JsonObject:
    try:
        content = json_object(text)
    except ValueError:
        raise InputError("has unreadable metadata", file=path, hint="Write it again with write_predictions.") from None
    schema = content.get("schema", SCHEMA)
    if schema != SCHEMA:
        raise InputError(f"has schema '{schema}', this version reads '{SCHEMA}'", file=path)
    return dict(content)


def metadata_json(metadata: Mapping[str, object], samples: int) -> str:
    content = {**metadata, "schema": SCHEMA, "samples": samples}
    # NumPy's numbers become numbers, anything else that JSON does not know (a path, a date) becomes text.
    return json.dumps(content, sort_keys=True, default=lambda v: v.item() if hasattr(v, "item") else str(v))


@dataclass(frozen=True)
class Layout:
    """What the columns of a file are."""

    names: tuple[str, ...]  # the file's columns in order, by their names in `Predictions`; others keep theirs
    # name in `Predictions` -> the file's name, of those that differ
    original: Mapping[str, str] = field(default_factory=dict)
    # those of `original` that were recognised by a usual name and not named by the user
    usual: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()  # what else a reader must know

    def without(self, known: str) -> Layout:
        original = {name: own for name, own in self.original.items() if name != known}
        return replace(self, original=original, usual=self.usual - {known})

    def said(self) -> list[str]:
        """Say which columns were read as which, those that the user did not name first."""
        said = []
        for names, hint in (
            ([known for known in self.original if known in self.usual], "; --column NAME=COLUMN names another"),
            ([known for known in self.original if known not in self.usual], ""),
        ):
            if names:
                pairs = ", ".join(f"'{self.original[known]}' as {known}" for known in names)
                said.append(f"read {pairs}{hint}")
        return said

    @contextmanager
    def own_names(self) -> Iterator[None]:
        """Let errors name a column as the file does."""
        try:
            yield
        except InputError as error:
            own = self.original.get(error.column or "")
            if own is None:
                raise
            raise error.again(column=f"{own} ({error.column})") from None


def recognise(names: Sequence[str], wanted: Mapping[str, str], file: str | None = None) -> Layout:
    check_count(file, names)
    found = _as_named(names, wanted, file)
    columns = list(names)
    for known, name in found.items():
        for place, other in enumerate(columns):
            if other == known and name != known:
                columns[place] = ""  # the user named another column
    usual = _as_usual([name for name in columns if name not in found.values()], found, wanted, file)
    renamed = {name: known for known, name in (found | usual).items()}
    original = {known: name for name, known in renamed.items() if known != name}
    return Layout(tuple(renamed.get(name, name) for name in columns), original, frozenset(usual), ())


def _as_named(names: Sequence[str], wanted: Mapping[str, str], file: str | None) -> dict[str, str]:
    for known, name in wanted.items():
        if known not in MAPPABLE and not is_known(known):
            raise InputError(f"unknown column '{known}'", hint=nearest(known, MAPPABLE))
        if names.count(name) != 1:
            problem = "is missing" if name not in names else "appears twice in the header"
            raise InputError(problem, file=file, column=name, hint=nearest(name, names[:20]))
    twice = next((name for name, times in Counter(wanted.values()).items() if times > 1), None)
    if twice is not None:
        raise InputError(f"column '{twice}' is named twice", hint="Give each --column a column of its own.")
    return dict(wanted)


def squash(name: str) -> str:
    """Return a name without case, blanks, points, hyphens and underscores."""
    return re.sub(r"[\s_.\-]+", "", name).casefold()


def is_usual(name: str) -> bool:
    return is_known(name) or squash(name) in _USUAL_NAMES


def _as_usual(
    names: Sequence[str], found: Mapping[str, str], wanted: Mapping[str, str], file: str | None
) -> dict[str, str]:
    """Recognised columns: name in `Predictions` -> the file's name, where they differ."""
    for name in names:
        _refuse_look_alike(name, file)
    has = {*names, *found}
    _refuse_case_twins(names, file)
    sampled = "probs" in has or any(sample_number(name) is not None for name in has)
    family = [] if sampled or "prob" in has else _numbered(names)
    usual: dict[str, str] = {}
    for known, ranks in USUAL.items():
        if known in has or (known == "prob" and sampled):
            continue
        taken = {*usual.values(), *(name for name in names if name in KNOWN), *family}
        for rank in ranks:
            fitting = [
                name for name in names if squash(name) in rank and name not in taken and not uncertainty_name(name)
            ]
            if len(fitting) > 1 or (known == "prob" and fitting and family):
                both = [*fitting, *family][:4]
                raise _several(file, known, both, f"Say which: --column {known}={both[0]}.")
            if fitting:
                usual[known] = fitting[0]
                break
    _refuse_typos([name for name in names if name not in usual.values()], {*has, *usual}, file)
    return usual | {f"prob_{k}": name for k, name in enumerate(family)}


def _refuse_case_twins(names: Sequence[str], file: str | None) -> None:
    for known in USUAL:
        twins = [name for name in names if squash(name) == squash(known) and not uncertainty_name(name)]
        if known in twins and len(set(twins)) > 1:
            raise _several(file, known, twins, "Rename those that are something else.")


def _several(file: str | None, known: str, names: Sequence[str], hint: str) -> InputError:
    return InputError(f"has several columns that may be {known}: {', '.join(names)}", file=file, hint=hint)


def _refuse_typos(names: Sequence[str], has: Collection[str], file: str | None) -> None:
    """Refuse a further column whose name is a misspelt one of a column that the table lacks."""
    for known, targets in _TYPOS_OF.items():
        for name in names if known not in has else ():
            if uncertainty_name(name) is None and any(one_edit(squash(name), target) for target in targets):
                hint = f"Say --column {known}={name} if it is meant, else rename the column."
                raise Check(file).fail(name, None, f"is spelt almost like '{known}', which the table lacks", hint)


def _numbered(names: Sequence[str]) -> list[str]:
    """Columns such as `class_0 … class_4`, in the order of their numbers; empty without two of one stem from 0 on."""
    families: dict[str, dict[int, str]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match and squash(match[1]) in _STEMS:
            families.setdefault(squash(match[1]), {})[int(match[2])] = name
    whole = [f for f in families.values() if len(f) > 1 and sorted(f) == list(range(len(f)))]
    return [whole[0][k] for k in range(len(whole[0]))] if len(whole) == 1 else []


def _refuse_look_alike(name: str, file: str | None) -> None:
    """Refuse a name that is a known one but for a letter of another script or an invisible character."""
    if (name.isascii() and name.isprintable()) or uncertainty_name(name):  # `uncertainty_` and any name
        return
    composed = unicodedata.normalize("NFKC", name)
    shown = "".join(c for c in composed if unicodedata.category(c) not in ("Cc", "Cf", "Mn"))
    alike = squash(shown.casefold().translate(_TWINS))
    for known, ranks in USUAL.items():
        if any(alike in rank for rank in ranks) or sample_number(alike) is not None:
            odd = next((c for c in name if not c.isascii() or not c.isprintable()), " ")
            said = unicodedata.name(odd, "a control character")
            problem = f"looks like '{known}' but holds U+{ord(odd):04X} ({said.lower()})"
            hint = "Write the name again by hand, or name the column with --column."
            raise Check(file).fail(name, None, problem, hint)


def kept_places(layout: Layout) -> tuple[list[int], Layout]:
    """Return the places of the columns that are read, and what these are: not all of a table of features."""
    names = Counter(layout.names)
    further = [place for place, name in enumerate(layout.names) if not is_known(name)]
    left = further[MAX_COLUMNS:]
    if not left:
        return list(range(len(layout.names))), layout
    # A column is read by its own name, so one that appears twice is left out as well.
    gone = {*left, *(place for place in further if names[layout.names[place]] > 1)}
    places = [place for place in range(len(layout.names)) if place not in gone]
    note = f"{len(gone)} further columns are left out: only {MAX_COLUMNS} are kept"
    kept = tuple(layout.names[place] for place in places)
    return places, replace(layout, names=kept, notes=(*layout.notes, note))


def check_subgroups(
    check: Check, subgroups: Mapping[str, ArrayLike], n: int, reserved: Iterable[str]
) -> dict[str, NDArray[Any]]:
    if len(subgroups) > MAX_COLUMNS:
        raise check.fail("subgroups", None, f"holds {len(subgroups)} columns, more than {MAX_COLUMNS}")
    columns = {}
    for name, values in subgroups.items():
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or re.search(r"[\x00-\x1f\x7f]", name):
            raise check.fail(str(name)[:40], None, f"is not a name of 1 to {MAX_NAME} characters")
        if name in reserved:
            raise check.fail(name, None, "cannot be a further column", "Pass it as the argument of its name.")
        columns[name] = _checked(check, name, check.length(name, values, n))
    size = sum(values.nbytes for values in columns.values())
    if size > MAX_SUBGROUP_BYTES:
        raise check.fail("subgroups", None, f"takes {size:,} bytes, more than {MAX_SUBGROUP_BYTES:,}")
    return columns


def _checked(check: Check, name: str, values: NDArray[Any]) -> NDArray[Any]:
    if values.ndim != 1:
        raise check.fail(name, None, f"has shape {values.shape}, needed is (N,)")
    kind = values.dtype.kind
    if kind in "iu" and values.size and _long((int(values.min()), int(values.max()))):
        return values.astype(np.str_)
    if kind in "iuf":
        numbers = values.astype(np.float64)
        if (infinite := np.flatnonzero(np.isinf(numbers))).size:
            raise check.fail(name, infinite[0], "is infinite", "Use NaN for a missing number.")
        return numbers
    if kind in "bMOS":
        try:
            column = pa.array(values.tolist() if kind in "OS" else values, from_pandas=True)
            return np.asarray(from_arrow(column.cast(pa.string()) if kind == "S" else column))
        except (pa.ArrowException, ValueError, TypeError, UnicodeError):
            raise check.fail(name, None, f"has type {values.dtype}, needed are numbers or text") from None
    if kind != "U":
        raise check.fail(name, None, f"has type {values.dtype}, needed are numbers or text")
    if values.dtype.itemsize > 4 * MAX_CELL and (widest := np.char.str_len(values)).max() > MAX_CELL:
        raise check.fail(name, widest.argmax(), f"has {widest.max():,} characters, more than {MAX_CELL}")
    return values


def from_arrow(column: pa.Array, *, untyped: bool = False) -> NDArray[Any]:
    kind = column.type
    if pa.types.is_dictionary(kind):
        if pa.types.is_string(kind.value_type):
            return _text(column)
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    whole = pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale <= 0)
    if (whole and not _long(pa.compute.min_max(column).as_py().values())) or (
        not whole and (pa.types.is_floating(kind) or pa.types.is_decimal(kind))
    ):
        return _numbers(column)
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        raise ValueError(f"has type {kind}")
    if pa.types.is_timestamp(kind):
        days = column.cast(pa.timestamp("s", kind.tz), safe=False)
        midnight = pa.compute.all(pa.compute.equal(days, pa.compute.floor_temporal(days, unit="day")))
        column = pa.compute.strftime(days, "%Y-%m-%d" if midnight.as_py() else "%Y-%m-%dT%H:%M:%S")
    words = column.cast(pa.string()).dictionary_encode()
    if untyped and (values := _as_numbers(words.dictionary)) is not None:
        return _spelled(words, values, np.nan)
    return _text(words)


def _long(numbers: Iterable[int | None]) -> bool:
    """Whether a whole number has no float of its own: such codes are kept as text."""
    return any(abs(number) > MOST_EXACT for number in numbers if number is not None)


def _numbers(column: pa.Array) -> NDArray[np.float64]:
    values = np.array(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    if np.isinf(values).any():
        raise ValueError("holds an infinite number")
    return values


def _as_numbers(levels: pa.Array) -> NDArray[np.float64] | None:
    """The different cells as numbers, None where one is another word or a code, or a comma may divide thousands."""
    trimmed = pa.compute.utf8_trim_whitespace(levels)
    words = pa.compute.replace_with_mask(
        trimmed, pa.compute.is_in(trimmed, pa.array([*_MISSING_NUMBERS, ""])), pa.scalar(None, pa.string())
    )
    if words.null_count == len(words):
        return None
    numbers = pa.compute.match_substring_regex(words, _NUMBER)
    codes = pa.compute.match_substring_regex(words, _CODE)
    if not pa.compute.all(numbers).as_py() or pa.compute.any(codes).as_py():
        return None
    if _long(int(word) for word in words.filter(pa.compute.match_substring_regex(words, _LONG)).to_pylist()):
        return None
    commas = words.filter(pa.compute.match_substring(words, ","))
    if len(commas) and (
        pa.compute.all(pa.compute.match_substring_regex(commas, _THOUSANDS)).as_py()
        or pa.compute.any(pa.compute.match_substring(words, ".")).as_py()
    ):
        return None
    values = np.array(pa.compute.replace_substring(words, ",", ".").cast(pa.float64()).to_numpy(False))
    return None if np.isinf(values).any() else values


def _text(words: pa.DictionaryArray) -> NDArray[np.str_]:
    levels = words.dictionary
    if len(levels):
        widest = pa.compute.max(pa.compute.utf8_length(levels)).as_py() or 0
        if widest > MAX_CELL:
            raise ValueError(f"has a cell of {widest:,} characters, more than {MAX_CELL}")
        if 4 * len(words) * widest > MAX_SUBGROUP_BYTES:
            raise ValueError(f"has a cell of {widest:,} characters, too long for {len(words):,} rows")
    if pa.compute.any(pa.compute.match_substring_regex(levels, r"[\r\n\x00]")).as_py():
        raise ValueError("has a cell with a line break or a zero byte; is a quotation mark missing?")
    return _spelled(words, np.asarray(levels.to_pylist(), np.str_), "")


def _spelled(words: pa.DictionaryArray, levels: NDArray[Any], missing: float | str) -> NDArray[Any]:
    """(N,) the level of each cell, or what stands for an empty one."""
    codes = words.indices.fill_null(len(levels)).to_numpy(zero_copy_only=False)
    return np.asarray(np.append(levels, missing)[codes])


def keep_further(
    columns: Mapping[str, pa.Array | NDArray[Any]], n: int, *, untyped: bool = False
) -> tuple[dict[str, NDArray[Any]], list[str]]:
    kept: dict[str, NDArray[Any]] = {}
    left: dict[str, str] = {}
    size = 0
    for name, column in columns.items():
        if name in _INDEX_NAMES:
            continue
        try:
            values = from_arrow(column, untyped=untyped) if isinstance(column, pa.Array) else column
            (values,) = check_subgroups(Check(None), {name: values}, n, ()).values()
        except InputError as error:
            left[name] = error.problem
        except (ValueError, pa.ArrowException) as error:
            left[name] = str(error).partition("\n")[0]
        else:
            size += values.nbytes
            if len(kept) >= MAX_COLUMNS or size > MAX_SUBGROUP_BYTES:
                left[name] = f"more than {MAX_COLUMNS} further columns, or {MAX_SUBGROUP_BYTES:,} bytes of them"
                size -= values.nbytes
            else:
                kept[name] = values
    shown = list(left.items())[:5]
    notes = [f"the column '{name[:60]}' is left out: {why}" for name, why in shown]
    if len(left) > len(shown):
        notes.append(f"{len(left) - len(shown)} other further columns are left out as well")
    return kept, notes


def to_arrow(values: NDArray[Any]) -> pa.Array:
    if values.dtype.kind == "f":
        return pa.array(values, from_pandas=True)
    return pa.array(values, mask=values == "")
