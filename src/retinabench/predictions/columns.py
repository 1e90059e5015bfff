"""What all formats of the predictions file share: its columns, its limits, its metadata."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from retinabench.core.errors import InputError, nearest
from retinabench.core.results import JsonObject
from retinabench.core.untrusted import json_object

SCHEMA = "retinabench.predictions/1"
DOMAINS = ("in_domain", "shifted")
SPLITS = ("validation", "test")
OPTIONAL = ("grade", "patient_id", "domain", "split", "uncertainty")
LABELLED = "labelled"
"""The subgroup that tells known labels from empty ones ("no"), where a reader was told that labels may be empty."""
MAX_ROWS = 20_000_000  # image ids of so many rows still fit an ordinary machine's memory
MAX_VALUES = 400_000_000  # 3.2 GB of float64 probabilities
MAX_FILE_COLUMNS = 20_000
MAX_TEXT = 1000  # characters of one id
MAX_BYTES = 8 * MAX_VALUES  # of all arrays or columns of one file
MAX_TEXT_BYTES = 1 << 32  # of one array of text, as wide as its longest cell: 5,000,000 ids of 214 characters
TEXT = ("image_id", "patient_id", "domain", "split")
KNOWN = ("image_id", "label", "prob", "probs", *OPTIONAL)


def sample_number(name: str) -> int | None:
    """The j of a column `prob_j`, else None."""
    match = re.fullmatch(r"prob_([0-9]{1,9})", name)
    return int(match[1]) if match else None


def is_known(name: str) -> bool:
    """Tell whether a column is one of `Predictions`, not a further one."""
    return name in KNOWN or sample_number(name) is not None


def is_number(name: str) -> bool:
    """Tell whether a known column holds numbers."""
    return is_known(name) and name not in TEXT


def check_columns(path: str | Path | None, names: Sequence[str], own: Sequence[str]) -> None:
    """Check that the needed columns are there, once each, and name the likely misspelling where not."""
    for name, times in Counter(names).items():
        if times > 1 and (name in KNOWN or sample_number(name) is not None):
            raise InputError("stands twice in the header", file=path, column=name)
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
    has_label = "label" in names or "grade" in names
    for needed, there in (
        ("image_id", "image_id" in names or (has_label and kinds)),
        ("label", has_label),
        ("prob", kinds),
    ):
        if not there:
            shown = [name[:40] for name in own if name not in KNOWN] or own
            close = nearest(needed, shown).partition("Valid: ")[0]
            more = ", …" if len(shown) > 12 else "."
            otherwise = ", or grades 0 to 4 with --column grade=NAME" if needed == "label" else ""
            if needed == "prob" and len(shown) > 1:
                otherwise = (
                    ", or a softmax with --softmax --column prob_0=NAME --column prob_1=NAME and so on"
                )
            raise InputError(
                "is missing",
                file=path,
                column=needed,
                hint=f"{close}Add it, or name it with --column {needed}=NAME{otherwise}; the file has: {', '.join(shown[:12])}{more}",
            )


def check_count(path: str | Path | None, names: Sequence[str]) -> None:
    """Raise `InputError` where a table has so many columns that telling them apart would take minutes."""
    if len(names) > MAX_FILE_COLUMNS:
        raise InputError(
            f"has {len(names):,} columns, more than {MAX_FILE_COLUMNS:,}",
            file=path,
            hint="Keep those that are needed.",
        )


def check_size(path: str | Path | None, rows: int, samples: int) -> None:
    """Refuse what would not fit an ordinary machine, before it is read."""
    if rows > MAX_ROWS or rows * samples > MAX_VALUES:
        raise InputError(
            f"holds {rows:,} rows of {samples} samples, more than are scored at once "
            f"({MAX_ROWS:,} rows, {MAX_VALUES:,} values)",
            file=path,
            hint="Score a random part of it, drawn by patient.",
        )


def check_width(rows: int, longest: int, name: str, path: str | Path | None) -> None:
    """Refuse text whose array would take too much memory: it is as wide as its longest cell in every row."""
    if 4 * rows * longest > MAX_TEXT_BYTES:
        raise InputError(
            f"has a cell of {longest:,} characters, too long for {rows:,} rows",
            file=path,
            column=name,
            hint=f"Shorten it to {MAX_TEXT_BYTES // (4 * rows)} characters.",
        )


def read_metadata(path: Path, text: bytes) -> JsonObject:
    """The file metadata as a dictionary; `InputError` for another schema or for no JSON object."""
    try:
        content = json_object(text)
    except ValueError:
        raise InputError(
            "has unreadable metadata", file=path, hint="Write it again with write_predictions."
        ) from None
    schema = content.get("schema", SCHEMA)
    if schema != SCHEMA:
        raise InputError(f"has schema '{schema}', this version reads '{SCHEMA}'", file=path)
    return dict(content)


def metadata_json(metadata: Mapping[str, object], samples: int) -> str:
    """The file metadata with schema and number of samples, as JSON text."""
    content = {**metadata, "schema": SCHEMA, "samples": samples}
    # NumPy's numbers become numbers, anything else that JSON does not know (a path, a date) becomes text.
    return json.dumps(content, sort_keys=True, default=lambda v: v.item() if hasattr(v, "item") else str(v))
