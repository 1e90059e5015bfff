"""The predictions file as CSV: separated by commas, semicolons or tabs, UTF-8 or UTF-16, with decimal points or commas."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from retinabench.core.errors import InputError
from retinabench.core.untrusted import FORMULA, QUOTED_ARROW, plain_cell, unquoted
from retinabench.predictions import columns
from retinabench.predictions.arrow_columns import arguments_of_arrow
from retinabench.predictions.columns import check_columns, check_size, is_number, sample_number
from retinabench.predictions.formats.parquet_format import to_table
from retinabench.predictions.layouts import recognise
from retinabench.predictions.reading import Reading
from retinabench.predictions.subgroups import kept_places
from retinabench.predictions.table import Predictions

MAX_CSV_BYTES = 2 * 1024**3
BLOCK = 1 << 24


def read_csv(path: Path, reading: Reading) -> Predictions:
    """Read a CSV of any usual dialect; a broken line or a word among the numbers is named by its row."""
    if path.stat().st_size > MAX_CSV_BYTES:
        raise InputError(
            "is larger than 2 GiB", file=path, hint="Convert it to Parquet, or score a part of it."
        )
    encoding, header = csv_header(path)
    delimiter = max(",;\t", key=header.count)
    if delimiter not in header and "|" in header:
        hint = "Separate them by commas, semicolons or tabs."
        raise InputError("separates its columns by '|'", file=path, hint=hint)
    fields = csv.reader([header], delimiter=delimiter, skipinitialspace=True)
    header_names = [unquoted(name.strip()) for name in next(fields)]
    layout = recognise(header_names, reading.columns, str(path))
    check_columns(path, layout.names, header_names)
    _csv_size(path, sum(sample_number(name) is not None for name in layout.names))
    kept, layout = kept_places(layout)
    places = [str(place) for place in kept]
    every = [str(place) for place in range(len(header_names))]

    def load(text: bool, decimal: str) -> pa.Table:
        kinds = (pa.float64() if is_number(name) and not text else pa.string() for name in layout.names)
        return pa.csv.read_csv(
            path,
            # Only one thread can say in which row a line is broken.
            read_options=pa.csv.ReadOptions(
                encoding=encoding, column_names=every, skip_rows=1, use_threads=not text
            ),
            parse_options=pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict(zip(places, kinds, strict=True)),
                include_columns=places,
                decimal_point=decimal,
                strings_can_be_null=True,
                null_values=[""],
                quoted_strings_can_be_null=True,
            ),
        )

    try:
        try:
            table = load(text=False, decimal=".")
        except pa.ArrowInvalid:
            # A decimal comma, a word among the numbers or a broken line: the second try tells which.
            try:
                table = load(text=False, decimal=",") if delimiter != "," else load(text=True, decimal=".")
            except pa.ArrowInvalid:
                table = load(text=True, decimal=".")
    except (pa.ArrowInvalid, UnicodeError) as error:
        raise broken_csv(path, str(error)) from None
    check_size(path, table.num_rows, max(1, len(places) - 2))
    if not _ends_with_line_end(path):
        note = f"row {table.num_rows:,}, the last, has no line end: if the file was cut off, its last value is not whole"
        layout = replace(layout, notes=(*layout.notes, note))
    with layout.own_names():
        return Predictions(**arguments_of_arrow(str(path), unquote(table), layout, reading, {}, untyped=True))


def _ends_with_line_end(path: Path) -> bool:
    with open(path, "rb") as handle:
        handle.seek(max(0, path.stat().st_size - 4))
        return handle.read().rstrip(b"\0").endswith((b"\n", b"\r"))


def csv_header(path: Path) -> tuple[str, str]:
    """Encoding and first line of a CSV, however many sample columns it names."""
    with open(path, "rb") as handle:
        head = handle.read(BLOCK)
    wide = head.startswith((b"\xff\xfe", b"\xfe\xff"))
    if head.startswith(b"\xff\xfe\x00\x00"):
        raise InputError("is UTF-32 text", file=path, hint="Save it as 'CSV UTF-8'.")
    if b"\x00" in head and not wide:
        raise InputError(
            "holds zero bytes: no CSV", file=path, hint="Write a CSV with image_id, label, prob."
        )
    encoding = "utf-16" if wide else "utf8"
    text = head.decode(encoding, errors="replace").lstrip("\ufeff")
    first = re.split(r"\r\n|\r|\n", text, maxsplit=1)[0]
    if "\ufffd" in first:
        raise InputError(
            "holds a header that is no text of its encoding", file=path, hint="Save it as 'CSV UTF-8'."
        )
    if not text.strip():
        raise InputError("is empty", file=path, hint="Begin with the names of the columns.")
    if not first.strip():
        raise InputError("has an empty first line", file=path, hint="Begin with the names of the columns.")
    return encoding, first


def _csv_size(path: Path, samples: int) -> None:
    """Refuse a file of too many rows before it is parsed, by its line ends; small files need no count."""
    size = path.stat().st_size
    if size < columns.MAX_VALUES // 4:
        return
    with open(path, "rb") as handle:
        rows = sum(block.count(b"\n") for block in iter(lambda: handle.read(BLOCK), b""))
    check_size(path, rows, max(1, samples))


def broken_csv(path: Path, message: str) -> InputError:
    """The error that names the broken line, from what the CSV reader said."""
    if "UTF8" in message or "codec" in message:
        return InputError("is not UTF-8 text", file=path, hint="Save it as 'CSV UTF-8'.")
    if line := re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", message):
        return InputError(
            f"has {line[3]} columns where the header has {line[2]}",
            file=path,
            row=int(line[1]) - 1,
            hint="Quote values that contain the separator, and write decimals with a point.",
        )
    return InputError(f"cannot be read as CSV: {message.splitlines()[0]}", file=path)


def csv_bytes(predictions: Predictions) -> bytes:
    """A comma-separated file in UTF-8, samples as prob_0, prob_1, …; numbers read back bit by bit."""
    table = to_table(predictions)
    if "probs" in table.column_names:
        place = table.column_names.index("probs")
        table = table.drop_columns(["probs"])
        for number, values in enumerate(predictions.probs.T):
            table = table.add_column(place + number, f"prob_{number}", pa.array(values))
    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            table = table.set_column(place, field.name, _quoted(table.column(place)))
    sink = io.BytesIO()
    pa.csv.write_csv(table.rename_columns([plain_cell(name) for name in table.column_names]), sink)
    return sink.getvalue()


def _quoted(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Put an apostrophe before what a spreadsheet would read as a formula; `read_csv` takes it off."""
    if not pa.compute.any(pa.compute.match_substring_regex(column, FORMULA)).as_py():
        return column
    words = [None if word is None else plain_cell(word) for word in column.to_pylist()]
    return pa.chunked_array([pa.array(words, column.type)])


def unquote(table: pa.Table) -> pa.Table:
    """Return a table of a CSV without the apostrophes that `_quoted` put before cells."""
    for place, field in enumerate(table.schema):
        if not pa.types.is_string(field.type):
            continue
        column = table.column(place)
        if pa.compute.any(pa.compute.match_substring_regex(column, QUOTED_ARROW)).as_py():
            column = pa.compute.replace_substring_regex(column, QUOTED_ARROW, r"\1")
            table = table.set_column(place, field.name, column)
    return table
