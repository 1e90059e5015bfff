"""What is refused of predictions, and what is said aloud: identities, duplicates, ranges."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError

NOT_KNOWN = ("", "nan", "na", "n/a", "<na>", "nat", "none", "null")
"""Cells that mean "no patient", in any case: empty cells, and what tools write for them."""

OWN = "image "  # Before the image's id, the patient of an image without one.
BLOCK = 1 << 16  # Rows of a block.
MOST_WORDS = 4  # Texts of more than eight times as many bytes are sorted as text.
Text = NDArray[np.str_]
Rows = NDArray[np.bool_]
_UNMISTAKABLE = re.compile(r"[!-~]+").fullmatch  # only visible ASCII characters
_EYE = re.compile(r"(.*?)[ _.-]?(left|right|od|os|l|r)(?:\.\w+)?", re.IGNORECASE).fullmatch
_FLOAT_OF_WHOLE = re.compile(r"([0-9]+)\.0+").fullmatch
SHAPES = {
    (1,): "Needed is (N,): one number per image.",
    (1, 2): "Needed is (N,) or (N, S): images by samples; for classes see Predictions.from_softmax.",
    (2, 3): "Needed is (N, C) or (N, S, C): images by samples by classes.",
    (1, 2, 3): "Needed is (N,), (N, C) or (N, S, C): images by samples by classes.",
}


def is_missing(value: Any) -> bool:
    return value is None or str(value) == "<NA>" or bool(value != value)


def named_by_row(n: int) -> tuple[NDArray[np.str_], str]:
    """Return ids for n images that have none, the numbers of their rows from 1, and the note that says so."""
    ids = np.arange(1, n + 1).astype(np.str_)
    return ids, "no image_id: images are named by their row, in this order in every file that is compared"


def plain(text: str) -> str:
    """Return text in composed form, without invisible characters and outer blanks, inner blanks single."""
    if not text.isascii() or not text.isprintable():
        text = unicodedata.normalize("NFC", text)
        text = "".join(c for c in text if c.isspace() or unicodedata.category(c) not in ("Cc", "Cf"))
    return " ".join(text.split())


def plain_id(text: str) -> str:
    """Return the one form of an id: `plain`, and a whole number without the point that a float gave it."""
    form = plain(text)
    whole = _FLOAT_OF_WHOLE(form)
    return whole[1] if whole else form


def indistinct(values: Iterable[str]) -> tuple[str, str] | None:
    """Return two different ids of one form, such as `p1` and `p1 `, or `1` and `1.0`; None without such a pair."""
    words = set(values)
    seen: dict[str, str] = {}
    for word in sorted(word for word in words if not _UNMISTAKABLE(word) or _FLOAT_OF_WHOLE(word)):
        form = plain_id(word)
        if form != word:
            other = form if form in words else seen.setdefault(form, word)
            if other != word:
                return other, word
    return None


def eyes_of_one(image_id: Iterable[str]) -> tuple[str, str] | None:
    """Return the ids of two images that look like the eyes of one patient, where most images do: `12_left` and `12_right`."""
    sides: dict[str, dict[str, str]] = {}
    names = list(image_id)
    for name in names:
        if match := _EYE(name):
            side = match[2].lower()
            sides.setdefault(match[1], {})[{"od": "r", "os": "l"}.get(side, side[0])] = name
    pairs = [(found["l"], found["r"]) for found in sides.values() if len(found) == 2]
    return pairs[0] if 2 * len(pairs) > 0.8 * len(names) else None


def without_patients(image_id: Iterable[str]) -> str:
    note = "no patient_id: every image is its own cluster, intervals may be too narrow"
    eyes = eyes_of_one(image_id)
    return note if eyes is None else f"{note}; '{eyes[0]}' and '{eyes[1]}' look like the eyes of one patient"


def copied(prob: NDArray[Any], label: NDArray[Any], patient: NDArray[Any]) -> bool:
    """Whether each pair of a probability and a label belongs to an even number of patients, as if every image were there twice."""
    pairs = prob + 2.0 * label
    _, counts = np.unique(pairs, return_counts=True)
    if len(counts) < 50 or (counts % 2).any():
        return False
    of_patients = set(zip(patient.tolist(), pairs.tolist(), strict=True))
    return all(count % 2 == 0 for count in Counter(pair for _, pair in of_patients).values())


def alike(groups: Iterable[Iterable[str]]) -> tuple[str, str] | None:
    """Return two ids of different files that differ by case, width or leading zeros alone; None without such, or where one file tells its ids apart by these."""
    known: dict[str, str] = {}
    pairs = []
    for words in map(set, groups):
        own = {_folded(word): word for word in words}
        if len(own) < len(words):
            return None
        pairs += [(known[key], word) for key, word in own.items() if known.setdefault(key, word) != word]
    return min(pairs, default=None)


def _folded(word: str) -> str:
    folded = unicodedata.normalize("NFKC", word).casefold()
    return folded.lstrip("0") or "0" if folded.isdecimal() else folded


def refuse_alike(groups: Iterable[Iterable[str]], column: str, file: str | None = None) -> None:
    """Refuse ids of several files or splits that are one but for case, width or leading zeros: a join would miss them."""
    if (pair := alike(groups)) is not None:
        first, second = (f"{one[:60]!a}" for one in pair)
        hint = "Write one id in one way; ids of different patients differ by more than case or leading zeros."
        raise Check(file).fail(column, None, f"is {second} in one place, which looks like {first} in another", hint)


def tidied(columns: Mapping[str, Text], *, ids: bool = False) -> tuple[dict[str, Any], list[str]]:
    """Write equal names of columns (N,) alike: `Zeiss ` with a blank is the camera `Zeiss`, and ` 1.0` is the patient `1`."""
    found, notes = dict(columns), []
    for name, values in columns.items():
        if values.dtype.kind != "U" or not (odd := np.flatnonzero(~_tidy(values, ids=ids))).size:
            continue
        words = values[odd].tolist()
        forms = {word: plain_id(word) if ids else plain(word) for word in dict.fromkeys(words)}
        changed = [
            f"{word[:40]!a} as {form[:40]!a}" if form else f"{word[:40]!a} as empty"
            for word, form in forms.items()
            if word != form
        ]
        if changed:
            mended = np.asarray([forms[word] for word in words], np.str_)
            found[name] = values.astype(np.result_type(values.dtype, mended.dtype))
            found[name][odd] = mended
            more = f" and {len(changed) - 3:,} more" if len(changed) > 3 else ""
            why = "blanks, invisible characters or '.0'" if ids else "blanks or invisible characters"
            notes.append(f"{name}: read {', '.join(changed[:3])}{more}: they differ by {why}")
    return found, notes


def _tidy(text: Text, *, ids: bool) -> Rows:
    """(N,) whether a text is visible ASCII with single blanks inside, as most are; an id of digits and points alone needs a closer look."""
    tidy = np.empty(len(text), bool)
    for start, points in code_points(text):
        blank, end = points == ord(" "), points == 0
        good = ((points - np.uint32(ord(" ")) <= ord("~") - ord(" ")) | end).all(axis=1)
        # A blank is followed by a letter: neither by a blank nor by the end, and it does not come first.
        after = np.append((blank | end)[:, 1:], np.ones((len(points), 1), bool), axis=1)
        good &= ~(blank & after).any(axis=1) & ~blank[:, :1].any(axis=1)
        good &= ~(end[:, :-1] & ~end[:, 1:]).any(axis=1)  # a zero byte inside
        if ids and (dotted := np.flatnonzero((points == ord(".")).any(axis=1))).size:
            good[dotted[((points[dotted] <= ord("9")) | end[dotted]).all(axis=1)]] = False
        tidy[start : start + len(points)] = good
    return tidy


def own_patients(patient: NDArray[np.str_], image: NDArray[np.str_]) -> tuple[NDArray[np.str_], int]:
    """Make every image without a patient a patient of its own, all (N,)."""
    words = np.char.strip(patient)
    gone = np.char.str_len(words) <= max(map(len, NOT_KNOWN))
    gone[gone] = np.isin(np.char.lower(words[gone]), NOT_KNOWN)
    if not gone.any():
        return patient, 0
    prefix, ids = OWN, set(patient[np.char.startswith(patient, OWN.strip())].tolist())
    while any(f"{prefix}{one}" in ids for one in image[gone].tolist()):
        prefix += "_"
    wide = patient.astype(np.result_type(patient.dtype, np.char.add(prefix, image[gone]).dtype))
    wide[gone] = np.char.add(prefix, image[gone])
    return wide, int(gone.sum())


def is_own(patient: Text, image: Text) -> Rows:
    """(N,) whether an image has no patient but the one that `own_patients` made."""
    return np.asarray(np.char.startswith(patient, OWN) & np.char.endswith(patient, image))


def refuse_partly(patient: Text, image: Text, where: str, file: str | None = None) -> None:
    """Refuse images of which only some have a patient: fellow images would count as independent, and no guarantee holds."""
    if 0 < (count := int(is_own(patient, image).sum())) < len(patient):
        problem = f"is empty for {count:,} of {len(patient):,} {where}: no guarantee holds, as images of one patient fail together"
        raise Check(file).fail("patient_id", None, problem, "Fill it for every image, or leave the column out.")


def code_points(text: Text) -> Iterator[tuple[int, NDArray[np.uint32]]]:
    """Yield the first row of each block of texts (N,) and its (B, L) code points, 0 after the end of a text."""
    length = text.dtype.itemsize // 4
    for start in range(0, len(text), BLOCK):
        part = np.ascontiguousarray(text[start : start + BLOCK], f"=U{length}")
        yield start, part.view(np.uint32).reshape(len(part), length)


def first_row_with(text: Text, characters: str) -> int | None:
    wanted = [ord(character) for character in characters]
    for start, points in code_points(text):
        found = points == wanted[0]
        for one in wanted[1:]:
            found |= points == one
        if found.any():
            return start + int(np.flatnonzero(found.any(axis=1))[0])
    return None


def first_empty(text: Text) -> int | None:
    for start, points in code_points(text):
        if not points.shape[1]:
            return start
        if len(empty := np.flatnonzero(points[:, 0] == 0)):
            return start + int(empty[0])
    return None


def all_differ(text: Text) -> bool:
    """Tell whether all texts differ; those with the same hash of 64 bits are compared themselves."""
    hashes = _hashes(text)
    hashes.sort()
    twice = hashes[1:][hashes[1:] == hashes[:-1]]
    if not len(twice):
        return True
    alike = text[np.isin(_hashes(text), twice)].tolist()
    return len(set(alike)) == len(alike)


def _hashes(text: Text) -> NDArray[np.uint64]:
    hashes = np.empty(len(text), np.uint64)
    factors = np.random.default_rng(0).integers(1, 2**63, text.dtype.itemsize // 4, dtype=np.uint64) * 2 + 1
    for start, points in code_points(text):
        mixed = np.zeros(len(points), np.uint64)
        for column, factor in zip(points.T, factors, strict=True):
            mixed = (mixed + column) * factor
            mixed ^= mixed >> np.uint64(29)
        hashes[start : start + len(mixed)] = mixed
    return hashes


def numbered(text: Text) -> tuple[NDArray[np.intp], int]:
    words = _words(text) if len(text) > BLOCK else None
    if words is None:
        values, codes = np.unique(text, return_inverse=True)
        return np.asarray(codes, np.intp).reshape(-1), len(values)
    order = np.lexsort(words)  # the last is the first to tell texts apart
    new = np.zeros(len(text), bool)
    for word in words:
        ranked = word[order]
        new[1:] |= ranked[1:] != ranked[:-1]
    del words, ranked
    codes = np.empty(len(text), np.intp)
    codes[order] = np.cumsum(new, dtype=np.intp)
    return codes, int(np.count_nonzero(new)) + 1


def _words(text: Text) -> list[NDArray[np.uint64]] | None:
    """Eight characters of every text as one number each, the last ones first; None unless all are ASCII."""
    length = text.dtype.itemsize // 4
    count = -(-length // 8)
    if not 0 < count <= MOST_WORDS:
        return None
    words = [np.empty(len(text), np.uint64) for _ in range(count)]
    for start, points in code_points(text):
        if points.max() > 127:
            return None
        padded = np.zeros((len(points), 8 * count), np.uint8)
        padded[:, :length] = points
        numbers = padded.view(">u8")
        for place, word in enumerate(reversed(words)):
            word[start : start + len(points)] = numbers[:, place]
    return words


class Check:
    """Checks of columns; each raises `InputError` at the first bad row."""

    def __init__(self, source: str | Path | None) -> None:
        self.source = source

    def fail(self, column: str, row: int | np.intp | None, problem: str, hint: str | None = None) -> InputError:
        number = None if row is None else int(row) + 1
        return InputError(problem, file=self.source, row=number, column=column, hint=hint)

    def array(self, column: str, values: ArrayLike) -> NDArray[Any]:
        """`values` as an array, tensors included; lists of several lengths and masked rows are refused."""
        if isinstance(values, np.ma.MaskedArray) and (hidden := np.argwhere(np.ma.getmaskarray(values))).size:
            raise self.fail(column, hidden[0][0], "is masked", "Fill it, or drop the row.")
        try:
            array = as_array(values)
        except (TypeError, ValueError):
            rows: Any = values
            lengths = [len(cell) if hasattr(cell, "__len__") else 1 for cell in rows]  # a single value counts as one
            odd = next((row for row, length in enumerate(lengths) if length != lengths[0]), None)
            if odd is None:
                raise self.fail(column, None, "cannot be made an array") from None
            problem = f"holds {lengths[odd]} values where row 1 holds {lengths[0]}"
            raise self.fail(column, odd, problem, "Give every image equally many.") from None
        if array.ndim == 1 and (array.dtype.kind == "O" or (array.dtype.kind == "U" and array is not values)):
            # NumPy drops zero bytes at the end of text, which would make two ids one.
            zero = next((row for row, one in enumerate(values) if "\0" in str(one)), None)  # type: ignore[arg-type]
            if zero is not None:
                raise self.fail(column, zero, "holds a zero byte", "Remove it.")
        return array

    def length(self, column: str, values: ArrayLike, n: int) -> NDArray[Any]:
        array = self.array(column, values)
        if array.ndim == 0 or len(array) != n:
            found = "a single value" if array.ndim == 0 else f"{len(array)} rows"
            raise self.fail(column, None, f"has {found} where image_id has {n}")
        return array

    def text(self, column: str, values: ArrayLike, *, missing: bool = False) -> NDArray[np.str_]:
        array = self.array(column, values)
        if array.ndim != 1:
            raise self.fail(column, None, f"has shape {array.shape}, needed is (N,)")
        if array.dtype.kind in "fO":
            self._whole(column, array)
            array = np.asarray([_word(value) for value in array.tolist()], np.str_)
        try:
            if array.dtype.kind == "S":
                array = np.char.decode(array, "utf-8")
            # Only what its owner could change is copied: ids of millions of images are most of what a file holds.
            array = array.astype(np.str_, copy=array.flags.writeable)
        except UnicodeDecodeError:
            raise self.fail(column, None, "holds bytes that are not UTF-8 text") from None
        if (broken := first_row_with(array, "\n\r")) is not None:
            raise self.fail(column, broken, "holds a line break", "Is a quotation mark missing?")
        if not missing and (empty := first_empty(array)) is not None:
            raise self.fail(column, empty, "is empty", "Give every row a value or leave the column out.")
        return array

    def _whole(self, column: str, array: NDArray[Any]) -> None:
        """Refuse floats that are no exact whole numbers: of long ids, several may have become the same one."""
        digits = np.finfo(array.dtype).nmant if array.dtype.kind == "f" else np.finfo(np.float64).nmant
        most = 2 ** (digits + 1)  # from here on, not every whole number has a float of its own
        for row, value in enumerate(array.tolist()):
            if isinstance(value, float) and value == value and not (value.is_integer() and abs(value) < most):
                problem = f"is the floating-point number {value:.17g}, which is not an exact id"
                raise self.fail(column, row, problem, "Read the column as text, such as dtype=str in pandas.")

    def identified(self, column: str, values: Text) -> tuple[Text, list[str]]:
        """Return ids (N,) in one form (`plain_id`) and what was changed; refuse two that differ by nothing else."""
        found, notes = tidied({column: values}, ids=True)
        if not notes:
            return values, notes
        if (pair := indistinct(values.tolist())) is not None:
            first, second = (int(np.flatnonzero(values == one)[0]) for one in pair)
            if first > second:
                first, second = second, first
            one, other = (f"{str(values[row])[:60]!a}" for row in (second, first))
            hint = "They differ only by blanks, invisible characters or Unicode form: write one id in one way."
            raise self.fail(column, second, f"is {one}, which looks like {other} of row {first + 1}", hint)
        if (empty := first_empty(found[column])) is not None:
            raise self.fail(column, empty, "is empty", "Give every row a value or leave the column out.")
        return found[column], notes

    def unique(self, column: str, values: NDArray[np.str_]) -> None:
        if all_differ(values):
            return
        order = np.argsort(values, kind="stable")
        twice = np.flatnonzero(values[order][1:] == values[order][:-1])
        if twice.size:
            first, second = sorted((int(order[twice[0]]), int(order[twice[0] + 1])))
            hint = "Every image may occur once; average its predictions or name its views apart."
            raise self.fail(column, second, f"repeats '{values[first][:60]}' of row {first + 1}", hint)

    def finite(self, column: str, values: NDArray[Any], dimensions: tuple[int, ...] = (1,)) -> NDArray[np.float64]:
        if values.ndim not in dimensions:
            raise self.fail(column, None, f"has shape {values.shape}", SHAPES[dimensions])
        if values.dtype.kind not in "biufOUS":
            raise self.fail(column, None, f"has type {values.dtype}, needed are numbers")
        try:
            numbers = values.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            raise self.fail(column, None, "holds values that are not numbers") from None
        bad = np.argwhere(~np.isfinite(numbers))
        if bad.size:
            rows = len(np.unique(bad[:, 0]))
            more = f" (the first of {rows} such rows)" if rows > 1 else ""
            named, problem = sample_column(column, numbers, bad[0]), f"is {numbers[tuple(bad[0])]}{more}"
            raise self.fail(named, bad[0][0], problem, "Every value must be a finite number.")
        return numbers

    def one_of(
        self, column: str, values: ArrayLike | None, allowed: tuple[str, ...], default: str, n: int
    ) -> NDArray[np.str_]:
        if values is None:
            return np.broadcast_to(np.asarray(default), n)  # one text for all rows
        text = self.text(column, self.length(column, values, n))
        bad = np.flatnonzero(~np.isin(text, allowed))
        if bad.size:
            hint = f"Valid: {', '.join(allowed)}."
            if text[bad[0]].strip().lower() in ("train", "training"):
                hint += " Leave the images out that the model was trained on."
            elif column == "domain":
                hint += " A column of cameras or sites needs another name, such as camera: it then makes groups."
            raise self.fail(column, bad[0], f"is '{text[bad[0]][:60]}'", hint)
        return text


def as_array(values: Any) -> NDArray[Any]:
    """Return an array, a list, a tensor or a list of tensors as an array; tensors are detached and copied from their device."""
    if isinstance(values, list | tuple) and values and hasattr(values[0], "detach"):
        return np.asarray([as_array(one) for one in values])
    if hasattr(values, "detach") and hasattr(values, "cpu"):
        values = values.detach().cpu()
        values = (values.double() if values.is_floating_point() else values).numpy()
    return np.asarray(values)


def _word(value: Any) -> str:
    """One cell of an id as text; whole numbers that a missing cell made floats keep no point."""
    if is_missing(value):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def sample_column(column: str, values: NDArray[np.float64], place: NDArray[np.intp]) -> str:
    """Name the column as a file would: `prob` for one value a row, `prob_j` for sample j of several."""
    if column != "probs":
        return column
    return "prob" if values.ndim == 1 or values.shape[1] == 1 else f"prob_{place[1]}"
