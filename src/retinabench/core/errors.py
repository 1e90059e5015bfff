"""What a command refuses and says: its errors in one line, damaged files, names, paths and text of strangers, the limits of what is read, and its progress.

`InputError` is one that the user can correct (a file, a row, an option): exit code 2. `WorkError` is a failure with
correct input (the disk is full, a loss became NaN): exit code 1. A file with a line in the `SHA256SUMS` beside it (see `core/files.py`) is
refused where its content is another one; files without a line, such as those of older versions and of users' own tools, are read unchecked.

| limits of | |
|---|---|
| a predictions file, or one table of a bank | 20,000,000 rows, 400,000,000 values, 3.2 GB of numbers, 4.3 GB of one column of text, 1,000 characters of an id, 2 GiB of CSV, 20,000 columns |
| further columns | the first 100, 200 characters a cell, 1 GiB together |
| a Parquet file | a footer of 32 MiB; no text in the encoding DELTA_BYTE_ARRAY |
| an NPZ file | stored or deflated members, as large as their headers say |
| a PyTorch archive | not compressed; dense tensors no larger than their storage; together at most four times the file |
| a safetensors file | a header of 16 MiB |
| an image | 100 megapixels, known before decoding; a file of 256 MiB |
| an archive | members of 256 MiB; three levels; compressed archives inside it 512 MiB together |
| a prepared folder | images of 4,096 pixels a side, of the shape that its manifest states |
| a study | 100,000 trials, 1,000 seeds, 10,000 ensembles of a method, 1,000,000 replicates and drawn images |
| a run; a report; a board; `track` | 100,000 samples; 2,000 files; 10,000 submissions; 10,000 runs |
| a download | 4 GiB |
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path, PurePath
from typing import Any, Literal

NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
"""Flag of `os.open` for files that are written in place: a link in an untrusted folder is not followed."""

CHECKSUMS = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64})  ([^/]+)")
MOST_READ = 1 << 30  # bytes of a folder that are read again at its end, the smallest files first
ABSENT = "0" * 64  # a second accepted checksum before the first write of a file and while it is deleted
_RESTORE = "Restore it from a copy, or delete {} and repeat the command that made it."
_written: dict[Path, tuple[str, int]] | None = None  # file -> its SHA-256 and inode, while `confirming`
State = Literal["whole", "damaged", "missing", "without checksum"]
Sums = dict[str, tuple[str, ...]]


class InputError(ValueError):
    """Wrong input or options."""

    def __init__(
        self,
        problem: str,
        *,
        file: str | Path | None = None,
        row: int | None = None,
        column: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.problem, self.file, self.row, self.column, self.hint = problem, file, row, column, hint
        place = [str(file)] if file is not None else []
        place += [f"row {row}"] if row is not None else []
        place += [f"column '{column}'"] if column is not None else []
        line = f"{', '.join(place)}: {problem}" if place else problem
        super().__init__(printable(f"{line.rstrip('.')}. {hint}" if hint else line))

    def again(self, **changed: Any) -> InputError:
        """Return the error with another file, column or hint."""
        place = {name: getattr(self, name) for name in ("file", "row", "column", "hint")}
        return InputError(self.problem, **(place | changed))


class WorkError(RuntimeError):
    """A failure with correct input; the message says at which step and what may help."""


class DivergedError(WorkError):
    """A loss or a prediction is not finite; the same run would fail in the same place again."""


class OutOfMemoryError(WorkError):
    """Memory ran out, and the work cannot be cut into smaller parts; more memory may do it."""


def printable(text: str, limit: int = 1000) -> str:
    """Return `text` as one printable line: control characters escaped, cut at `limit` characters."""
    cut = text if len(text) <= limit else f"{text[: limit - 1]}…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown name: the nearest valid one, then all valid ones."""
    known = sorted(known)
    close = get_close_matches(word, known, n=1, cutoff=0.55)
    hint = f"Did you mean '{close[0]}'? " if close else ""
    return f"{hint}Valid: {', '.join(known)}."


def one_edit(word: str, target: str) -> bool:
    """Return whether `word` becomes `target` by one letter changed, added or lost, or two neighbours exchanged."""
    start = next((k for k, (a, b) in enumerate(zip(word, target, strict=False)) if a != b), None)
    if start is None:
        return abs(len(word) - len(target)) == 1
    ours, theirs = word[start:], target[start:]
    return (
        ours[1:] == theirs[1:]
        or ours[1:] == theirs
        or ours == theirs[1:]
        or (ours[:2] == theirs[1::-1] and ours[2:] == theirs[2:])
    )


def inside(folder: Path, name: object) -> Path:
    """Return the file of that name in `folder`, links in it included as long as they stay in the folder."""
    if not isinstance(name, str) or name in ("", ".", "..") or any(mark in name for mark in "/\\\0"):
        raise InputError(f"names the file {str(name)[:80]!r}, which is not a name in it", file=folder)
    return kept_inside(folder, folder / name)


def kept_inside(folder: Path, path: Path) -> Path:
    """Return `path`, or raise `InputError` where it is a link that leads out of `folder`."""
    if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
        hint = "Put the file itself there, if you trust the folder."
        raise InputError("is a link that leads out of its folder", file=path, hint=hint)
    return path


def open_in_place(path: Path, flags: int) -> int:
    """Open a file of a working folder for writing in place, and return its descriptor."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise InputError("is a link or no regular file, and is not written to", file=path, hint="Remove it.")
    return os.open(path, flags | os.O_CREAT | NO_LINKS, 0o666)


def shown(path: str | PurePath) -> str:
    """Return a path as reports and JSON show it: without the folders that would tell of this machine and its user."""
    path = Path(path)
    if path.is_absolute():
        below = path.is_relative_to(Path.cwd())
        path = path.relative_to(Path.cwd()) if below else Path(*path.parts[1:][-2:])
    if ".." in path.parts:
        path = Path(*[part for part in path.parts if part != ".."][-2:])
    return str(path)


def told_apart(paths: Sequence[str | Path]) -> list[str]:
    """Return the shortest ends of paths, each of at least one name, that differ wherever the paths do."""
    parts = [Path(path).parts for path in paths]
    names: list[str] = [""] * len(parts)
    left = set(range(len(parts)))
    for length in range(1, max(map(len, parts), default=0) + 1):
        ends = Counter(own[-length:] for own in {parts[k] for k in left})
        for k in list(left):
            if ends[parts[k][-length:]] == 1 or length >= len(parts[k]):
                names[k] = str(Path(*parts[k][-length:]))
                left.remove(k)
    return names


@dataclass(frozen=True)
class Checked:
    """What was found of one file."""

    path: Path
    state: State


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def check(path: str | Path, hint: str | None = None, *, named: bool = False) -> Path:
    """Return `path` if its content is what was written, or if no checksum is known. A link out of its folder is refused, unless the user names the file (`named`)."""
    path = Path(path)
    if not named:
        kept_inside(path.parent, path)
    if state(path) == "damaged":
        problem = f"is damaged: its content is not what was written ({CHECKSUMS} lists another checksum)"
        raise InputError(problem, file=path, hint=hint or _RESTORE.format(path.parent))
    return path


def state(path: Path) -> State:
    """Compare a file with its line in the list."""
    while True:
        known = read_checksums(path.parent).get(path.name)
        if known is None:
            return "without checksum"
        try:
            # Reading a pipe, which a folder from elsewhere may hold, would never end.
            found = sha256(path) if path.is_file() else ABSENT
        except FileNotFoundError:
            found = ABSENT
        if found in known:
            return "whole"
        if read_checksums(path.parent).get(path.name) == known:  # otherwise it was replaced while it was read
            return "missing" if found == ABSENT else "damaged"


def read_checksums(folder: Path) -> Sums:
    """Return name -> accepted checksums of a folder, empty without a list; two while a file is written or deleted, or where that was interrupted."""
    path = folder / CHECKSUMS
    sums: Sums = {}
    try:
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").split("\n")
    except (FileNotFoundError, NotADirectoryError):
        return sums
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", file=path) from None
    for number, line in enumerate(lines[:-1], start=1):
        escaped = line.startswith("\\")
        match = _LINE.fullmatch(line[escaped:])
        if match is None:
            raise _damaged_list(path, number)
        name = match[2]
        if escaped:
            name = re.sub(r"\\(.)", lambda mark: {"n": "\n", "r": "\r"}.get(mark[1], mark[1]), name)
        sums[name] = (*sums.get(name, ()), match[1])
    if lines[-1] or not sums:
        raise _damaged_list(path, len(lines))
    return sums


def _damaged_list(path: Path, row: int) -> InputError:
    hint = "Restore it, or delete it: the files beside it are then read without a check."
    return InputError("is damaged: not a list of checksums", file=path, row=row, hint=hint)


@contextlib.contextmanager
def confirming() -> Iterator[None]:
    """Confirm at the end of the block that every file which this process wrote in it is still there, as it was written.

    Up to `MOST_READ` bytes are read again, the smallest files first. Another process, such as a second copy of the command, may have replaced
    a file by another whole one; it never changes a file in place.
    """
    global _written
    _written = {}
    try:
        yield
        for path in _written:
            if not path.is_file():
                raise WorkError(described(Checked(path, "missing")))
        left = MOST_READ
        for path in sorted(_written, key=lambda one: one.stat().st_size):
            digest, inode = _written[path]
            left -= path.stat().st_size
            if left > 0 and sha256(path) != digest and (path.stat().st_ino == inode or state(path) == "damaged"):
                raise WorkError(described(Checked(path, "damaged")))
    finally:
        _written = None


def record_written(path: Path, content: Path | None, digest: str = "") -> None:
    """Note the content that `path` has from now on; None: it, and what lies below it, is deleted on purpose."""
    if _written is None or path.name.startswith(".lock"):
        return
    path = path.absolute()
    if content is not None:
        _written[path] = digest or sha256(content), content.stat().st_ino
        return
    for one in [one for one in _written if one.is_relative_to(path)]:
        del _written[one]


def disposable(path: Path) -> None:
    """Note that anyone may delete a file at any time; `confirming` does not ask for it."""
    record_written(path, None)


def described(checked: Checked) -> str:
    """Return one line about a file that is not whole, with what to do."""
    what = "is damaged" if checked.state == "damaged" else "is missing"
    return printable(f"{checked.path}: {what}. {_RESTORE.format(checked.path.parent)}")


_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\ufff9-\ufffb]"
)

# A semicolon begins a cell, too, for a spreadsheet of a country with decimal commas. The last four are the wide forms.
FORMULA = "(^|;)('*[=+\\-@\t\r\uff1d\uff0b\uff0d\uff20])"
QUOTED = FORMULA.replace("('", "'('")
"""What `plain_cell` may quote and what it has quoted, also as regular expressions of Arrow; the groups of the latter are what stays."""
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,3})?")


def json_object(text: str | bytes) -> dict[str, Any]:
    """Return an untrusted JSON object, all of which can be written again."""
    try:
        content = json.loads(text, parse_int=_whole)
        json.dumps(content, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")
    return content


def _whole(digits: str) -> int:
    value = int(digits)
    if abs(value) >= 2**1023:
        raise ValueError("it holds a number that is too large")
    return value


def visible(text: str) -> str:
    r"""Return text with its control characters spelled out, such as `\x1b`; line ends and tabs stay.

    A terminal would execute them, and characters that reverse the order of letters would show another name.
    """
    return _HIDDEN.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


def plain_cell(text: str) -> str:
    """Return a cell of a CSV that a spreadsheet does not read as a formula: an apostrophe goes before ``=``, ``+``, ``-`` and ``@``.

    Numbers stay as they are. `unquoted` is the inverse for every text.

    Example:
        >>> plain_cell("=1+1"), plain_cell("a;=1+1"), plain_cell("-0.5"), plain_cell("plain")
        ("'=1+1", "a;'=1+1", '-0.5', 'plain')
    """
    return text if _NUMBER.fullmatch(text) else re.sub(FORMULA, r"\1'\2", text)


def unquoted(text: str) -> str:
    """Return the text that `plain_cell` wrote."""
    return re.sub(QUOTED, r"\1\2", text)


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as CSV, the header among them; text passes through `visible` and `plain_cell`, and other values stay as they are."""
    sink = io.StringIO(newline="")
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerows([plain_cell(visible(cell)) if isinstance(cell, str) else cell for cell in row] for row in rows)
    return sink.getvalue()


Advance = Callable[[int], None]


class Progress:
    """Where long work reports its progress; this one shows nothing."""

    @contextlib.contextmanager
    def track(self, what: str, total: int, unit: str = "") -> Iterator[Advance]:
        """Open a bar; the context yields ``advance(steps)``."""
        yield lambda steps: None

    def say(self, line: str) -> None:
        """Print one line."""


class Bars(Progress):
    """Bars on standard error, by rich: description, share, speed, time left."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)

    @contextlib.contextmanager
    def track(self, what: str, total: int, unit: str = "") -> Iterator[Advance]:
        """Open a bar that stays on the screen when done, and is removed where the work fails; yield its advance."""
        from rich import progress

        class Clock(progress.ProgressColumn):
            """`41/s, 0:12 left`, and when done `in 0:40`."""

            def render(self, task: progress.Task) -> str:
                if task.finished:
                    return f"in {_minutes(task.finished_time or 0)}"
                if task.time_remaining is None or not task.speed:
                    return ""
                return f"{task.speed:.3g}/s, {_minutes(task.time_remaining)} left"

        bar = progress.Progress(
            progress.TextColumn("{task.description:<32}", markup=False),
            progress.BarColumn(bar_width=12),
            progress.MofNCompleteColumn(),
            progress.TextColumn(unit),
            Clock(),
            console=self._console,
        )
        with bar:
            task = bar.add_task(visible(what), total=total)
            try:
                yield lambda steps: bar.advance(task, steps)
            except Exception:
                bar.live.transient = True
                raise

    def say(self, line: str) -> None:
        """Print one line to standard error."""
        self._console.print(visible(line), markup=False)


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


Quiet = Progress  # the name for classes that override some of it
QUIET = Progress()
