"""Reading and writing the predictions file as Parquet, CSV or NPZ.

The format is told by the first bytes, never by the file's name, and nothing is ever unpickled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from retinabench.core.atomic_files import atomic_write
from retinabench.core.errors import InputError
from retinabench.predictions.csv_format import csv_bytes, read_csv
from retinabench.predictions.npz_format import npz_bytes, read_npz
from retinabench.predictions.parquet_format import parquet_bytes, read_parquet
from retinabench.predictions.table import Predictions


def read_predictions(path: str | Path) -> Predictions:
    """Read and check a predictions file: Parquet, CSV or NPZ, which its first bytes tell.

    Args:
        path: The file; see `Predictions` for its columns.

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
    try:
        with open(path, "rb") as handle:
            head = handle.read(8)
        return _reader(path, head)(path)
    except IsADirectoryError:
        raise InputError(
            "is a folder, not a predictions file",
            file=path,
            hint="Name the file, such as predictions.parquet in it.",
        ) from None
    except FileNotFoundError:
        raise InputError("does not exist", file=path) from None
    except PermissionError:
        raise InputError("cannot be read (no permission)", file=path) from None
    except MemoryError:
        raise InputError(
            "does not fit into memory", file=path, hint="Score a random part of it, drawn by patient."
        ) from None
    except UnicodeDecodeError:
        raise InputError("holds text that is not UTF-8", file=path, hint="Write it again as UTF-8.") from None
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"cannot be read: {str(error).partition(chr(10))[0]}", file=path) from None


def find_files(paths: Sequence[Path]) -> list[Path]:
    """Return predictions files: a run folder stands for the `predictions.parquet` in it.

    Raises:
        InputError: Where a folder holds none.
    """
    files = []
    for path in paths:
        if path.is_dir():
            if not (path / "predictions.parquet").is_file():
                raise InputError("holds no predictions.parquet", file=path, hint="Name run folders or files.")
            path = path / "predictions.parquet"
        files.append(path)
    return files


def method_names(files: Sequence[Path], predictions: Sequence[Predictions]) -> list[str]:
    """Name each file: runs by their method, told apart where they differ in more than the seed; others by file.

    Args:
        files: The files.
        predictions: Their content.

    Returns:
        One name per file; runs of one method and setting share theirs.
    """
    titles = [str(one.metadata.get("title", "")) for one in predictions]
    settings = [str(one.metadata.get("setting", "")) for one in predictions]
    names = []
    for file, title, setting in zip(files, titles, settings, strict=True):
        shared = {other for other, same in zip(settings, titles, strict=True) if same == title}
        alone = sum(other.stem == file.stem for other in files) == 1
        names.append(
            (f"{title} ({setting})" if len(shared) > 1 else title) or (file.stem if alone else str(file))
        )
    return names


def write_predictions(predictions: Predictions, path: str | Path) -> None:
    """Write predictions atomically. A CSV has no room for the file metadata; Parquet and NPZ keep it.

    Args:
        predictions: What to write.
        path: The file; its ending (.parquet, .csv or .npz) chooses the format.

    Raises:
        InputError: The ending is unknown, or an id is no valid Unicode text.

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
        raise InputError("cannot be written: an id is no valid Unicode text", file=path) from None
    with atomic_write(path) as handle:
        handle.write(content)


def _reader(path: Path, head: bytes) -> Callable[[Path], Predictions]:
    if not head:
        raise InputError("is empty", file=path, hint="Write one row per image.")
    if head.startswith(b"PAR1"):
        return read_parquet
    if head.startswith(b"PK"):
        return read_npz
    if head.startswith((b"\x80", b"\x93NUMPY", b"\x1f\x8b", b"\x89HDF")) or b"\x00" in head.lstrip(
        b"\xff\xfe"
    ):
        kind = "a pickle, which is never loaded" if head.startswith(b"\x80") else "not Parquet, CSV or NPZ"
        if not head.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise InputError(f"is {kind}", file=path, hint="Write a CSV with image_id, label, prob.")
    return read_csv
