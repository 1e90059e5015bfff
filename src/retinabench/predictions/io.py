"""Reading and writing the predictions file as Parquet, CSV or NPZ.

The first bytes decide the format, never the name of the file. Nothing is ever unpickled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from retinabench.core.errors import InputError, printable
from retinabench.core.files import atomic_write, check
from retinabench.core.untrusted import told_apart
from retinabench.predictions.check import BLOCK, all_differ
from retinabench.predictions.formats import csv_bytes, npz_bytes, parquet_bytes, read_csv, read_npz, read_parquet
from retinabench.predictions.table import Predictions, concatenate
from retinabench.predictions.values import Reading

MOST_FILES = 2_000
MAX_TITLE = 200  # characters of a method's name in tables and figures
ReadEach = Callable[[Sequence[Path]], Iterable[Predictions]]
"""Reads files or run folders one after the other: `read_each`, or with the options of the command line."""


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


def find_files(paths: Sequence[Path]) -> list[Path]:
    """Return predictions files: a run folder stands for the `predictions.parquet` in it."""
    if len(paths) > MOST_FILES:
        raise InputError(
            f"{len(paths):,} files are more than are read at once ({MOST_FILES:,})",
            hint="Name those of the methods that you compare; `tune` ranks any number of trials.",
        )
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


def method_names(files: Sequence[Path], predictions: Sequence[Predictions]) -> list[str]:
    """Name each file: runs by their method, with the setting where it differs; other files by their file name."""
    titles = [str(one.metadata.get("title", "")) for one in predictions]
    settings = [str(one.metadata.get("setting", "")) for one in predictions]
    of_title: dict[str, set[str]] = {}
    for title, setting in zip(titles, settings, strict=True):
        of_title.setdefault(title, set()).add(setting)
    stems = Counter(file.stem for file in files)
    names = []
    for file, end, title, setting in zip(files, told_apart(files), titles, settings, strict=True):
        named = f"{title} ({setting})" if len(of_title[title]) > 1 else title
        names.append(printable(named or (file.stem if stems[file.stem] == 1 else end), MAX_TITLE))
    return names


def join_folds(files: Sequence[Path], predictions: Sequence[Predictions]) -> tuple[list[Path], list[Predictions]]:
    """Join the files of one method and seed whose test images are all different: the folds of a cross-validation."""
    groups: dict[tuple[str, object], list[int]] = {}
    for place, (name, one) in enumerate(zip(method_names(files, predictions), predictions, strict=True)):
        groups.setdefault((name, one.metadata.get("seed")), []).append(place)
    places, found = [], []
    for group in groups.values():
        tests = [part for place in group if (part := predictions[place].select(split="test")) is not None]
        if len(group) < 2 or len(tests) < len(group) or not all_differ(np.concatenate([one.image_id for one in tests])):
            places += group
            found += [predictions[place] for place in group]
            continue
        if any(one.fold is None for one in tests):
            tests = [replace(one, fold=np.full(len(one), number)) for number, one in enumerate(tests)]
        note = f"{len(group)} files hold different images: they are joined as the folds of a cross-validation"
        joined = concatenate(tests)
        found.append(replace(joined, notes=(*joined.notes, note)))
        places.append(group[0])
    return [files[place] for place in places], found


def notes_of_files(names: Sequence[str], notes: Sequence[Iterable[str]]) -> list[str]:
    """Join the notes of several files: a note on all of them comes once, any other begins with the names of its files."""
    about: dict[str, list[str]] = {}
    for name, said in zip(names, notes, strict=True):
        for note in dict.fromkeys(said):
            about.setdefault(note, []).append(name)
    return [note if len(of) == len(names) else f"{', '.join(of)}: {note}" for note, of in about.items()]


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
