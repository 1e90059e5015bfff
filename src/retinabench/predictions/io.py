"""Reading and writing a predictions file as Parquet, CSV or NPZ, as a table of columns and with a bound on memory.

The first bytes decide the format, never the name of the file. Nothing is ever unpickled. What a file declares is checked before it
is unfolded: a few kilobytes of Parquet can stand for terabytes, by a dictionary with one long text that every row names, runs of equal
numbers, or a footer of a million columns. So the footer is measured first, text is read as a dictionary and never unfolded to more than
`MAX_TEXT_BYTES`, and all cells together are at most `MAX_VALUES`.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import lzma
import math
import re
import struct
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
from numpy.typing import NDArray

from retinabench.core.errors import FORMULA, QUOTED, InputError, check, plain_cell, unquoted
from retinabench.core.files import atomic_write
from retinabench.predictions import columns as table_columns
from retinabench.predictions import values as column_values
from retinabench.predictions.check import BLOCK, Check
from retinabench.predictions.columns import KNOWN, LISTS, MAX_BYTES, MAX_VALUES, OPTIONAL, check_size, sample_number
from retinabench.predictions.table import Predictions
from retinabench.predictions.values import UNKNOWN_GRADE, FileColumns, Reading, arguments_of, arguments_of_arrow

if TYPE_CHECKING:
    import pyarrow.parquet


MAX_FOOTER = 1 << 25
UNFOLDING = "DELTA_BYTE_ARRAY"
"""An encoding of text by shared beginnings, which nothing bounds; usual writers do not choose it."""

METADATA_KEY, CHECKSUM_KEY = b"retinabench", b"retinabench.sha256"
MAX_CSV_BYTES = 2 * 1024**3
AT_ONCE = 1 << 24  # bytes of a CSV that are looked at together
_QUOTED_BEHIND_BLANKS = r'^ +"([^"]*)" *$'
SUBGROUPS = "subgroups/"
# What the standard library raises for archives and arrays that are damaged or forged; `OSError` as well.
DAMAGED_ARRAYS = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, RuntimeError, ValueError, IndexError, TypeError,
    KeyError, AttributeError, OverflowError, SyntaxError, tokenize.TokenError,
)  # fmt: skip
MAX_METADATA = 1 << 22  # characters
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""What NumPy writes. Python bounds the memory that these unfold to, but not that of bzip2 and LZMA."""
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


MOST_FILES = 2_000
ReadEach = Callable[[Sequence[Path]], Iterable[Predictions]]
"""Reads files or run folders one after the other: `read_each`, or with the options of the command line."""


def find_files(paths: Sequence[Path]) -> list[Path]:
    """Return predictions files: a run folder stands for the `predictions.parquet` in it."""
    if len(paths) > MOST_FILES:
        hint = "Name those of the methods that you compare; `tune` ranks any number of trials."
        raise InputError(f"{len(paths):,} files are more than are read at once ({MOST_FILES:,})", hint=hint)
    files = []
    for path in paths:
        if path.is_dir():
            if not (path / "predictions.parquet").is_file():
                raise InputError("holds no predictions.parquet", file=path, hint="Name run folders or files.")
            path = path / "predictions.parquet"
        files.append(path)
    return files


def read_each(paths: Sequence[Path]) -> Iterator[Predictions]:
    for path in find_files(paths):
        yield read_predictions(path)


def read_predictions(
    path: str | Path,
    *,
    columns: Mapping[str, str] | None = None,
    softmax: bool = False,
    grades: bool = False,
    referable_from: int | Literal["label"] | None = None,
    method: str | None = None,
    seed: int | None = None,
    unlabelled: bool = False,
    ungradable: bool = False,
) -> Predictions:
    """Read and check a predictions file: Parquet, CSV or NPZ, which its first bytes tell.

    Args:
        path: The file; see `Predictions` for its columns. Usual names of other tools are recognised, and `notes` say so.
        columns: Name in `Predictions` -> the file's column, such as `{"label": "y_true"}`.
        softmax: Whether `prob_0 …` are probabilities of classes, whose rows sum to 1, not posterior samples.
        grades: Whether these classes are the grades 0 to 4: P(referable) is the sum from grade 2 on.
        referable_from: The lowest referable grade where it is not 2, or "label" where a label that contradicts the grade
            stands, such as one that also counts macular oedema.
        method: Name of the method. Files of one method are its seeds, which reports pool.
        seed: Seed of the model.
        unlabelled: Whether labels may be empty, as `monitor` reads them: they become 0, and `subgroups["labelled"]` is "no".
        ungradable: Whether images are kept whose column `gradable` is 0, as `clinic` counts them; an empty probability becomes
            0.5. Otherwise their rows are dropped, and `notes` say how many.

    Returns:
        The predictions.

    Raises:
        InputError: The file is not valid; the message names file, row, column and hint.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import retinabench as rb
        >>> path = Path(tempfile.mkdtemp()) / "predictions.csv"
        >>> _ = path.write_text("image_id,label,prob\\na,0,0.1\\nb,1,0.8\\n")
        >>> rb.read_predictions(path).prob.tolist()
        [0.1, 0.8]
    """
    path = Path(path)
    reading = Reading(columns or {}, softmax, grades, referable_from, method, seed, unlabelled)
    try:
        with open(check(path, named=True), "rb") as handle:
            head = handle.read(8)
        found = _reader(path, head)(path, reading)
    except (MemoryError, UnicodeDecodeError, OSError, pa.ArrowException) as error:
        raise unreadable(path, error) from None
    if len(found) > BLOCK:
        pa.default_memory_pool().release_unused()
    return found if ungradable else found.gradable


def unreadable(path: Path, error: Exception) -> InputError:
    problems: dict[type[Exception], tuple[str, str | None]] = {
        IsADirectoryError: ("is a folder, not a file", "Name the file in it."),
        FileNotFoundError: ("does not exist", None),
        PermissionError: ("cannot be read (no permission)", None),
        MemoryError: ("does not fit into memory", "Score a random part of it, drawn by patient."),
        UnicodeDecodeError: ("holds text that is not UTF-8", "Write it again as UTF-8."),
    }
    for kind, (problem, hint) in problems.items():
        if isinstance(error, kind):
            return InputError(problem, file=path, hint=hint)
    return InputError(f"cannot be read: {str(error).partition(chr(10))[0]}", file=path)


def write_predictions(predictions: Predictions, path: str | Path, *, checked: bool = False) -> None:
    """Write predictions atomically. A CSV has no room for the file metadata; Parquet and NPZ keep it.

    Args:
        predictions: What to write.
        path: The file; its ending (.parquet, .csv or .npz) chooses the format.
        checked: Whether its checksum is listed in `SHA256SUMS` beside it, as for the files of a run.

    Raises:
        InputError: The ending is unknown, or an id is not valid Unicode text.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import retinabench as rb
        >>> path = Path(tempfile.mkdtemp()) / "predictions.parquet"
        >>> rb.write_predictions(rb.Predictions(["a", "b"], [0, 1], [0.1, 0.8]), path)
        >>> rb.read_predictions(path).label.tolist()
        [0, 1]
    """
    path = Path(path)
    writers: dict[str, Callable[[Predictions], bytes]] = {
        ".parquet": parquet_bytes,
        ".csv": csv_bytes,
        ".npz": npz_bytes,
    }
    if path.suffix not in writers:
        raise InputError(f"cannot write '{path.suffix}'", file=path, hint="Valid: .parquet, .csv, .npz.")
    try:
        content = writers[path.suffix](predictions)
    except UnicodeError:  # half a surrogate pair, as file names of a foreign encoding have it
        raise InputError("cannot be written: an id is not valid Unicode text", file=path) from None
    with atomic_write(path, checked=checked) as handle:
        handle.write(content)


def _reader(path: Path, head: bytes) -> Callable[[Path, Reading], Predictions]:
    if not head:
        raise InputError("is empty", file=path, hint="Write one row per image.")
    if head.startswith(b"PAR1"):
        return read_parquet
    if head.startswith(b"PK"):
        return read_npz
    if head.startswith((b"\x80", b"\x93NUMPY", b"\x1f\x8b", b"\x89HDF")) or b"\x00" in head.lstrip(b"\xff\xfe"):
        kind = "a pickle, which is never loaded" if head.startswith(b"\x80") else "not Parquet, CSV or NPZ"
        if head.startswith(b"\x1f\x8b"):
            raise InputError("is compressed (gzip)", file=path, hint="Unpack it, whatever its name ends in.")
        if not head.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise InputError(f"is {kind}", file=path, hint="Write a CSV with image_id, label, prob.")
    return read_csv


def open_parquet(path: Path) -> pa.parquet.ParquetFile:
    """Open a Parquet file after measuring its footer; its text is read as dictionaries."""
    with open(path, "rb") as handle:
        handle.seek(max(0, path.stat().st_size - 8))
        length = int.from_bytes(handle.read(4), "little")
    if MAX_FOOTER < length < path.stat().st_size:
        hint = "Write fewer columns."
        raise InputError(f"describes its columns in {length:,} bytes, more than {MAX_FOOTER:,}", file=path, hint=hint)
    from pyarrow import parquet  # which CSV files do without

    schema = parquet.read_schema(path)
    kinds = pa.types.is_string, pa.types.is_large_string, pa.types.is_binary
    words = [field.name for field in schema if any(is_kind(field.type) for is_kind in kinds)]
    return parquet.ParquetFile(path, read_dictionary=words, page_checksum_verification=True)


def read_columns(file: pa.parquet.ParquetFile, path: Path, names: Sequence[str] | None = None) -> pa.Table:
    _check_declared(file.metadata, path, names)
    return file.read(columns=None if names is None else list(names))


def read_table(path: Path, names: Sequence[str] | None = None) -> pa.Table:
    return unfold_all(read_columns(open_parquet(path), path, names), path)


def unfold_all(table: pa.Table, path: Path) -> pa.Table:
    """Return a table without dictionaries, or raise `InputError` where a column is too wide for its rows."""
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            column = column_values.unfolded(table.column(place), field.name, path)
            table = table.set_column(place, field.name, column)
    return table


def _check_declared(metadata: pa.parquet.FileMetaData, path: Path, names: Sequence[str] | None) -> None:
    wanted = None if names is None else set(names)
    values = size = 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group)
        for place in range(rows.num_columns):
            column = rows.column(place)
            name = column.path_in_schema.partition(".")[0]
            if wanted is not None and name not in wanted:
                continue
            values += column.num_values
            size += column.total_uncompressed_size
            if UNFOLDING in column.encodings:
                problem = f"is encoded as {UNFOLDING}, whose size nothing bounds"
                raise Check(path).fail(name, None, problem, "Write it again without this encoding.")
    if values > MAX_VALUES or size > MAX_BYTES:
        problem = (
            f"unfolds to {values:,} values of {size:,} bytes, more than are read at once "
            f"({MAX_VALUES:,} values, {MAX_BYTES:,} bytes)"
        )
        raise InputError(problem, file=path, hint="Write a part of it.")


def read_parquet(path: Path, reading: Reading) -> Predictions:
    try:
        file = open_parquet(path)
        own = file.schema_arrow.names
        layout = table_columns.recognise(own, reading.columns, str(path))
        table_columns.check_columns(path, layout.names, own, unlabelled=reading.unlabelled)
        check_size(path, file.metadata.num_rows, sum(sample_number(name) is not None for name in layout.names))
        places, layout = table_columns.kept_places(layout)
        table = read_columns(file, path, None if len(places) == len(own) else [own[place] for place in places])
    except (pa.ArrowInvalid, pa.ArrowException, OSError) as error:
        if isinstance(error, (FileNotFoundError, PermissionError)):
            raise
        raise InputError("is not a whole Parquet file", file=path, hint="Write or copy it again.") from None
    footer = file.schema_arrow.metadata or {}
    text = footer.get(METADATA_KEY, b"{}")
    if CHECKSUM_KEY in footer and footer[CHECKSUM_KEY] != _checksum(unfold_all(table, path), text):
        problem = "does not match its checksum: it is damaged, or another program changed it"
        hint = "Copy it again; after a change that is meant, write it with write_predictions."
        raise InputError(problem, file=path, hint=hint)
    metadata = table_columns.read_metadata(path, text)
    with layout.own_names():
        return Predictions(**arguments_of_arrow(str(path), table, layout, reading, metadata))


def to_table(predictions: Predictions) -> pa.Table:
    columns: dict[str, Any] = {"image_id": predictions.image_id, "label": predictions.label}
    if predictions.samples == 1:
        columns["prob"] = predictions.probs[:, 0]
    else:
        columns["probs"] = predictions.probs
    columns |= {name: values for name in OPTIONAL if (values := getattr(predictions, name)) is not None}
    for name in LISTS.keys() & columns.keys():
        n, length = columns[name].shape
        offsets = pa.array(np.arange(0, n * length + 1, length, dtype=np.int64))
        columns[name] = pa.LargeListArray.from_arrays(offsets, pa.array(columns[name].ravel()))
    if predictions.grade is not None:
        columns["grade"] = pa.array(predictions.grade, mask=predictions.grade == UNKNOWN_GRADE)
    columns |= predictions.named_uncertainties
    columns |= {name: table_columns.to_arrow(values) for name, values in predictions.subgroups.items()}
    return pa.table(columns)


def parquet_bytes(predictions: Predictions) -> bytes:
    from pyarrow import parquet

    table, text = to_table(predictions), table_columns.metadata_json(predictions.metadata, predictions.samples).encode()
    table = table.replace_schema_metadata({METADATA_KEY: text, CHECKSUM_KEY: _checksum(table, text)})
    sink = io.BytesIO()
    parquet.write_table(table, sink, compression="zstd", write_page_checksum=True)
    return sink.getvalue()


def _checksum(table: pa.Table, metadata: bytes) -> bytes:
    """SHA-256 of names, values and metadata. The checksums of pages, which are written as well, leave out the footer."""
    digest = hashlib.sha256(metadata)
    for name, chunked in zip(table.column_names, table.columns, strict=True):
        column = column_values.combined(chunked)
        digest.update(f"\n{name}\n{len(column)}\n".encode("utf-8", "surrogatepass"))
        if pa.types.is_large_list(column.type):
            digest.update(np.asarray(column.value_lengths().fill_null(-1)).tobytes())
            column = column.flatten()
        digest.update(np.packbits(np.asarray(column.is_valid())).tobytes())
        if pa.types.is_string(column.type):
            filled = column.fill_null("")
            ends = np.frombuffer(filled.buffers()[1], np.int32)[filled.offset :][: len(filled) + 1]
            digest.update((ends - ends[0]).tobytes())
            digest.update(memoryview(filled.buffers()[2] or b"")[ends[0] : ends[-1]])
        elif pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            digest.update(np.asarray(column.fill_null(0)).tobytes())
    return digest.hexdigest().encode()


def read_csv(path: Path, reading: Reading) -> Predictions:
    """Read a CSV of any usual dialect; a broken line or a word among the numbers is named by its row."""
    if path.stat().st_size > MAX_CSV_BYTES:
        raise InputError("is larger than 2 GiB", file=path, hint="Convert it to Parquet, or score a part of it.")
    encoding, delimiter, header_names = csv_dialect(path)
    layout = table_columns.recognise(header_names, reading.columns, str(path))
    table_columns.check_columns(path, layout.names, header_names, unlabelled=reading.unlabelled)
    _csv_size(path, sum(sample_number(name) is not None for name in layout.names))
    places, layout = table_columns.kept_places(layout)
    numbers = {
        place
        for place, name in zip(places, layout.names, strict=True)
        if table_columns.is_known(name) and name not in table_columns.TEXT
    }
    table = csv_columns(path, encoding, delimiter, len(header_names), places, numbers)
    check_size(path, table.num_rows, max(1, len(places) - 2))
    with open(path, "rb") as handle:
        handle.seek(max(0, path.stat().st_size - 4))
        ended = handle.read().rstrip(b"\0").endswith((b"\n", b"\r"))
    if not ended:
        note = (
            f"row {table.num_rows:,}, the last, has no line end: if the file was cut off, its last value is not whole"
        )
        layout = replace(layout, notes=(*layout.notes, note))
    with layout.own_names():
        return Predictions(**arguments_of_arrow(str(path), table, layout, reading, {}, untyped=True))


def csv_dialect(path: Path) -> tuple[str, str, list[str]]:
    encoding, header = csv_header(path)
    # A name may hold another separator: the true one gives more names that are known, or more names.
    names = {one: [name.strip(' "') for name in header.split(one)] for one in ",;\t"}
    delimiter = max(names, key=lambda one: (sum(map(table_columns.is_usual, names[one])), len(names[one])))
    if delimiter not in header and "|" in header:
        hint = "Separate them by commas, semicolons or tabs."
        raise InputError("separates its columns by '|'", file=path, hint=hint)
    fields = csv.reader([header], delimiter=delimiter, skipinitialspace=True)
    return encoding, delimiter, [unquoted(name.strip()) for name in next(fields)]


def csv_columns(
    path: Path,
    encoding: str,
    delimiter: str,
    width: int,
    places: Sequence[int],
    numbers: Collection[int],
    null_values: Sequence[str] = ("", " "),
) -> pa.Table:
    """Read the columns at some places of a CSV, those at `numbers` as float64 where all cells are numbers; a second or third try tells which are not."""
    every = [str(place) for place in range(width)]

    def load(text: bool, decimal: str) -> pa.Table:
        kinds = {str(k): pa.float64() if k in numbers and not text else pa.string() for k in places}
        return pa.csv.read_csv(
            path,
            # Only one thread can say in which row a line is broken.
            read_options=pa.csv.ReadOptions(encoding=encoding, column_names=every, skip_rows=1, use_threads=not text),
            parse_options=pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(
                column_types=kinds,
                include_columns=list(kinds),
                decimal_point=decimal,
                strings_can_be_null=True,
                null_values=list(null_values),
                quoted_strings_can_be_null=True,
            ),
        )

    try:
        for decimal in (".", ",")[: 2 if delimiter != "," else 1]:
            with contextlib.suppress(pa.ArrowInvalid):
                return unquote(load(False, decimal))
        return unquote(load(True, "."))
    except (pa.ArrowInvalid, UnicodeError) as error:
        raise broken_csv(path, str(error)) from None


def csv_header(path: Path) -> tuple[str, str]:
    with open(path, "rb") as handle:
        head = handle.read(AT_ONCE)
    wide = head.startswith((b"\xff\xfe", b"\xfe\xff"))
    if head.startswith(b"\xff\xfe\x00\x00"):
        raise InputError("is UTF-32 text", file=path, hint="Save it as 'CSV UTF-8'.")
    if b"\x00" in head and not wide:
        raise InputError("holds zero bytes: no CSV", file=path, hint="Write a CSV with image_id, label, prob.")
    encoding = "utf-16" if wide else "utf8"
    text = head.decode(encoding, errors="replace").lstrip("\ufeff")
    first = re.split(r"\r\n|\r|\n", text, maxsplit=1)[0]
    if "\ufffd" in first:
        raise InputError("holds a header that is not text in its encoding", file=path, hint="Save it as 'CSV UTF-8'.")
    if not text.strip():
        raise InputError("is empty", file=path, hint="Begin with the names of the columns.")
    if not first.strip():
        raise InputError("has an empty first line", file=path, hint="Begin with the names of the columns.")
    return encoding, first


def _csv_size(path: Path, samples: int) -> None:
    """Refuse a file of too many rows before it is parsed, by its line ends; small files need no count."""
    size = path.stat().st_size
    if size < table_columns.MAX_VALUES // 4:
        return
    with open(path, "rb") as handle:
        rows = sum(block.count(b"\n") for block in iter(lambda: handle.read(AT_ONCE), b""))
    check_size(path, rows, max(1, samples))


def broken_csv(path: Path, message: str) -> InputError:
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
    for name in [name for name in LISTS if name in table.column_names]:
        place = table.column_names.index(name)
        table = table.drop_columns([name])
        for number, values in enumerate(getattr(predictions, name).T):
            table = table.add_column(place + number, f"{LISTS[name]}_{number}", pa.array(values))
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
    """Return a table of a CSV without the apostrophes that `_quoted` put before cells, and quotes after ", "."""
    for place, field in enumerate(table.schema):
        if not pa.types.is_string(field.type):
            continue
        for quoted, kept in ((_QUOTED_BEHIND_BLANKS, r"\1"), (QUOTED, r"\1\2")):
            column = table.column(place)
            if pa.compute.any(pa.compute.match_substring_regex(column, quoted)).as_py():
                column = pa.compute.replace_substring_regex(column, quoted, kept)
                table = table.set_column(place, field.name, column)
    return table


def read_npz(path: Path, reading: Reading) -> Predictions:
    """Read the plain arrays of an NPZ file; objects are never unpickled."""
    try:
        with zipfile.ZipFile(path) as archive:
            table = _table(path, archive, reading)
    except InputError:
        raise
    except DAMAGED_ARRAYS:
        raise InputError("is not a whole NPZ file", file=path, hint="Write or copy it again.") from None
    with table.layout.own_names():
        return Predictions(**arguments_of(table, reading))


def _table(path: Path, archive: zipfile.ZipFile, reading: Reading) -> FileColumns:
    arrays = [info for info in archive.infolist() if info.filename.endswith(".npy")]
    if not arrays:
        hint = "Write a CSV with image_id, label, prob."
        raise InputError("is a zip archive without arrays, such as an Excel file", file=path, hint=hint)
    names = [info.filename.removesuffix(".npy") for info in arrays]
    if any(sample_number(name) is not None for name in names):
        raise InputError("holds one array per sample", file=path, hint="Store them as one (N, S) array named 'probs'.")
    layout = table_columns.recognise(names, reading.columns, str(path))
    table_columns.check_columns(path, layout.names, names, unlabelled=reading.unlabelled)
    entries = dict(zip(layout.names, arrays, strict=True))
    _, layout = table_columns.kept_places(layout)
    total = sum(entries[name].file_size for name in {*KNOWN, *layout.names} if name in entries)
    if total > MAX_BYTES + table_columns.MAX_TEXT_BYTES:
        hint = "Write a part of it."
        raise InputError(f"unfolds to {total:,} bytes, more than are read at once", file=path, hint=hint)
    names_of_known = [name for name in entries if name in ("metadata", *KNOWN) or table_columns.uncertainty_name(name)]
    known = {name: read_member(path, archive, entries[name], name) for name in names_of_known}
    metadata = table_columns.read_metadata(path, str(known.pop("metadata", "{}")).encode())
    if "prob" in known:
        known["probs"] = known.pop("prob")
    further, notes = {}, []
    for name in layout.names:
        if name in names_of_known:
            continue
        own = name.removeprefix(SUBGROUPS)
        try:
            further[own] = read_member(
                path, archive, entries[name], own, shape=np.shape(known["label" if "label" in known else "grade"])
            )
        except InputError as error:
            notes.append(f"the array '{own[:60]}' is left out: {error.problem}")
    return FileColumns(known, further, replace(layout, notes=(*layout.notes, *notes)), metadata, str(path))


def read_member(
    path: str | Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str, shape: tuple[int, ...] | None = None
) -> NDArray[Any]:
    """Read one array; what its header declares is checked before memory is asked for, and no object is unpickled."""
    check = Check(path)
    if info.compress_type not in METHODS:
        hint = "Write it again with numpy.savez_compressed."
        raise check.fail(name, None, "is compressed in a way that NumPy does not write", hint)
    with warnings.catch_warnings(), archive.open(info) as handle:
        warnings.simplefilter("ignore", UserWarning)  # of Python 2, which wrote other numbers into headers
        try:
            declared, _, dtype = _HEADERS[np.lib.format.read_magic(handle)](handle)
        except (KeyError, ValueError):
            raise check.fail(name, None, "is not a plain array") from None
    _check_header(check, name, declared, dtype, shape, info.file_size)
    try:
        with warnings.catch_warnings(), archive.open(info) as handle:
            warnings.simplefilter("ignore", UserWarning)
            values = np.asarray(np.lib.format.read_array(handle, allow_pickle=False))
    except ValueError:
        raise check.fail(name, None, "is not a whole array", "Write it again.") from None
    if not _is_unicode(values):
        raise check.fail(name, None, "holds text that is not valid Unicode", "Write it again.")
    return values


def _check_header(
    check: Check, name: str, declared: tuple[int, ...], dtype: np.dtype[Any], shape: tuple[int, ...] | None, held: int
) -> None:
    """Check what the header of an array declares: its kind, its shape, and that it fits the limits and the `held` bytes."""
    if dtype.hasobject:
        hint = "Save plain arrays of numbers and text."
        raise check.fail(name, None, "holds Python objects, which are never unpickled", hint)
    if shape is not None and declared != shape:
        raise check.fail(name, None, f"has shape {declared}, needed is {shape}")
    if declared:
        check_size(check.source, declared[0], math.prod(declared[1:]))
    size = math.prod(declared) * dtype.itemsize
    if size > (table_columns.MAX_TEXT_BYTES if dtype.kind in "US" else MAX_BYTES):
        raise check.fail(name, None, f"declares {size:,} bytes, more than are read at once")
    if size > held:
        raise check.fail(name, None, f"declares the shape {declared} and holds less", "Write it again.")
    if dtype.kind in "US" and dtype.itemsize > 4 * (table_columns.MAX_TEXT if declared else MAX_METADATA):
        raise check.fail(name, None, f"holds text of type {dtype}, wider than {table_columns.MAX_TEXT:,}")


def _is_unicode(values: NDArray[Any]) -> bool:
    """Whether every code point of text is a character: none is a surrogate, and none is above U+10FFFF, where Python crashes."""
    if values.dtype.kind != "U" or not values.dtype.itemsize:
        return True
    codes = np.ascontiguousarray(values).reshape(-1).view(np.dtype(np.uint32).newbyteorder(values.dtype.byteorder))
    return not ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))).any()


def npz_bytes(predictions: Predictions) -> bytes:
    """A compressed NPZ file of plain arrays; further columns stand in its folder `subgroups/`."""
    columns = {name: getattr(predictions, name) for name in ("image_id", "label", "probs", *OPTIONAL)}
    columns |= predictions.named_uncertainties
    columns |= {f"{SUBGROUPS}{name}": values for name, values in predictions.subgroups.items()}
    columns["metadata"] = np.asarray(table_columns.metadata_json(predictions.metadata, predictions.samples))
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:  # np.savez allows no array named "file"
        for name, values in columns.items():
            if values is not None:
                if not _is_unicode(values):
                    raise UnicodeError(name)
                with archive.open(f"{name}.npy", "w", force_zip64=True) as handle:
                    np.lib.format.write_array(handle, values, allow_pickle=False)
    return sink.getvalue()
