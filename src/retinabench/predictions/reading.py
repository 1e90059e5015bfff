"""From the columns of any table to predictions: what the user says of them, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.predictions.check import Check
from retinabench.predictions.columns import DOMAINS, LABELLED, SPLITS
from retinabench.predictions.identities import named_by_row
from retinabench.predictions.layouts import Layout
from retinabench.predictions.subgroups import from_arrow, keep_further
from retinabench.predictions.values import (
    GRADABLE,
    REFERABLE_FROM,
    UNKNOWN_GRADE,
    checked_grades,
    fill_ungradable,
    referable_probability,
)

_SPLIT_WORDS = {"val": "validation", "valid": "validation", "dev": "validation", "testing": "test"}
_TRAINING = ("train", "training")


@dataclass(frozen=True)
class Reading:
    """What the user says of a table.

    Attributes:
        columns: Name in `Predictions` -> the table's column.
        softmax: Whether the columns `prob_0 …` are the probabilities of classes, not posterior samples.
        grades: Whether these classes are the grades 0 to 4.
        referable_from: The lowest referable grade, or "label" where the label stands whatever the grade; None for 2.
        method: Name of the method; files of one name are its seeds.
        seed: Seed of the model.
        unlabelled: Whether labels may be empty, as those of new images are: they become 0, and the subgroup `LABELLED` is "no".
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    softmax: bool = False
    grades: bool = False
    referable_from: int | Literal["label"] | None = None
    method: str | None = None
    seed: int | None = None
    unlabelled: bool = False

    def __post_init__(self) -> None:
        lowest = self.referable_from
        if lowest not in (None, "label") and lowest not in range(1, 5):
            raise InputError(f"referable from grade {lowest!r}", hint="Give 1, 2, 3, 4 or label.")

    @property
    def lowest(self) -> int:
        """The lowest referable grade."""
        return self.referable_from if isinstance(self.referable_from, int) else REFERABLE_FROM


@dataclass(frozen=True, eq=False)
class FileColumns:
    """The columns of a file. known: those of `Predictions`, as arrays; further: the others, as NumPy or Arrow arrays."""

    known: Mapping[str, NDArray[Any]]
    further: Mapping[str, pa.Array | NDArray[Any]]
    layout: Layout
    metadata: Mapping[str, object] = field(default_factory=dict)
    source: str | None = None
    untyped: bool = False


def arguments_of(table: FileColumns, reading: Reading) -> dict[str, Any]:
    """Return the arguments of `Predictions` for a table."""
    check = Check(table.source)
    known, further, notes = dict(table.known), dict(table.further), []
    if "probs" not in known:
        raise check.fail("prob", None, "is empty in every row", "Write P(referable) of each image.")
    if known["probs"].ndim == 0:
        raise check.fail("probs", None, "is a single value", "Write P(referable) of each image.")
    n = len(known["probs"])
    fill_ungradable(check, known, _gradable(check, further.get(GRADABLE), untyped=table.untyped))
    probs = known["probs"]
    if "image_id" not in known:
        known["image_id"], note = named_by_row(n)
        notes.append(note)
    if reading.softmax or reading.grades:
        known["probs"] = referable_probability(check, probs, _lowest_class(check, probs, reading))
        notes.append(_said_of_classes(probs.shape[1], reading))
    elif "prob" in table.layout.usual:
        _refuse_decisions(check, probs)
    layout = table.layout
    if (name := _no_split(known, layout)) is not None:
        further[name] = known.pop("split")
        layout = layout.without("split")
    notes += _set_words(known)
    if reading.unlabelled:
        further[LABELLED] = _set_some_labels(check, known, reading)
    else:
        notes += _set_label(check, known, reading)
    metadata = _origin(table.metadata, further, n, reading, notes)
    subgroups, left = keep_further(further, n, untyped=table.untyped)
    said = layout.said()
    others = [name for name in subgroups if name != GRADABLE]
    if layout.usual and others:
        said.append(f"kept as subgroups: {', '.join(others[:12])}{', …' if len(others) > 12 else ''}")
    return known | {
        "subgroups": subgroups,
        "metadata": metadata,
        "source": table.source,
        "notes": (*said, *layout.notes, *notes, *left),
    }


def _gradable(check: Check, cells: pa.Array | NDArray[Any] | None, *, untyped: bool) -> NDArray[Any] | None:
    if not isinstance(cells, pa.Array):
        return cells
    try:
        return from_arrow(cells, untyped=untyped)
    except (ValueError, pa.ArrowException):
        raise check.fail(GRADABLE, None, f"has type {cells.type}, needed are 0 and 1") from None


def _lowest_class(check: Check, probs: NDArray[np.float64], reading: Reading) -> int:
    classes = 1 if probs.ndim == 1 else probs.shape[1]
    if classes < 2:
        raise check.fail(
            "prob", None, "is a single column", "--softmax and --grades need one column per class."
        )
    if reading.grades and classes != 5:
        raise check.fail("probs", None, f"has {classes} columns, and there are five grades", "Use --softmax.")
    if classes == 2:
        return 1
    if reading.grades or isinstance(reading.referable_from, int):
        return reading.lowest
    hint = "Are they the grades 0 to 4? Add --grades." if classes == 5 else "Add --referable-from CLASS."
    raise check.fail("probs", None, f"has {classes} classes, and it is not said which are referable", hint)


def _said_of_classes(classes: int, reading: Reading) -> str:
    if classes == 2:
        return "softmax over two classes: P(referable) is the second column"
    return f"softmax over {classes} {'grades' if reading.grades else 'classes'}: P(referable) is the sum from {reading.lowest} on"


def _refuse_decisions(check: Check, probs: NDArray[np.float64]) -> None:
    if np.isin(probs, (0, 1)).all():
        raise check.fail(
            "prob",
            None,
            "holds only 0 and 1: decisions, not probabilities",
            "Export the probabilities; if these are meant, say so: --column prob=NAME.",
        )


def _no_split(known: Mapping[str, NDArray[Any]], layout: Layout) -> str | None:
    """The file's name of a column `set` or the like that holds no split; None where `split` is one, or absent."""
    if "split" not in known or "split" not in layout.usual or known["split"].dtype.kind != "U":
        return None
    words = {_split_word(word) for word in np.unique(known["split"]).tolist()}
    return None if words & {*SPLITS, *_TRAINING} else layout.original["split"]


def _split_word(word: str) -> str:
    word = word.strip().lower()
    return _SPLIT_WORDS.get(word, word)


def _domain_word(word: str) -> str:
    return word.strip().lower().replace("-", "_").replace(" ", "_")


def _set_words(known: dict[str, NDArray[Any]]) -> list[str]:
    """Write the values of `split` and `domain` in their usual form, and say so."""
    notes = []
    for column, allowed, usual in (("split", SPLITS, _split_word), ("domain", DOMAINS, _domain_word)):
        if column not in known or known[column].dtype.kind != "U":
            continue
        levels, place = np.unique(known[column], return_inverse=True)
        # A word that is not known stays as the file has it, and is refused later, where the others are valid.
        words = [usual(word) if usual(word) in allowed else word for word in levels.tolist()]
        changed = [f"'{a}' as {b}" for a, b in zip(levels.tolist(), words, strict=True) if a != b]
        if changed:
            known[column] = np.asarray(words)[place]
            notes.append(f"{column}: read {', '.join(changed)}")
    return notes


def _set_label(check: Check, known: dict[str, NDArray[Any]], reading: Reading) -> list[str]:
    """Derive a missing label from the grade."""
    if "grade" not in known:
        if isinstance(reading.referable_from, int) and not reading.softmax:
            raise check.fail("grade", None, "is missing", "--referable-from needs the grades 0 to 4.")
        if "label" not in known:
            raise check.fail("label", None, "is empty in every row", "An image needs a label or a grade.")
        return []
    if "label" in known:
        return []
    grade = checked_grades(check, known["grade"])
    if (gone := np.flatnonzero(grade == UNKNOWN_GRADE)).size:
        raise check.fail("grade", gone[0], "is empty", "An image needs a label or a grade.")
    known["label"] = (grade >= reading.lowest).astype(np.int8)
    return [f"no label: it is 1 where grade >= {reading.lowest}"]


def _set_some_labels(check: Check, known: dict[str, NDArray[Any]], reading: Reading) -> NDArray[np.str_]:
    """Derive empty labels from the grade, where there is one; the others become 0. (N,) whether the label is known."""
    label = np.asarray(known.get("label", np.full(len(known["probs"]), np.nan)), np.float64)
    if "grade" in known:
        grade = checked_grades(check, known["grade"])
        label = np.where(np.isnan(label) & (grade != UNKNOWN_GRADE), grade >= reading.lowest, label)
    known["label"] = np.nan_to_num(label)
    return np.where(np.isnan(label), "no", "yes")


def _origin(
    metadata: Mapping[str, object], further: dict[str, Any], n: int, reading: Reading, notes: list[str]
) -> dict[str, Any]:
    """The metadata with method, seed and `referable_from`, from what the user says, else from columns that hold one value."""
    stated: dict[str, Any] = {"method": reading.method, "seed": reading.seed}
    for name in stated:
        values = further.get(name)
        if values is None:
            continue
        try:
            cells = from_arrow(values, untyped=True) if isinstance(values, pa.Array) else np.asarray(values)
        except (ValueError, pa.ArrowException):
            continue  # no text: left out with the further columns, which says why
        if cells.ndim != 1 or len(levels := np.unique(cells)) != 1:
            continue
        if name == "seed" and not (cells.dtype.kind in "iuf" and float(levels[0]).is_integer()):
            continue
        del further[name]
        if stated[name] is None:
            stated[name] = int(levels[0]) if name == "seed" else str(levels[0])
            notes.append(f"{name} {stated[name]}, as the column '{name}' says")
    found = dict(metadata)
    if stated["method"] is not None:
        found |= {"method": stated["method"], "title": stated["method"]}
        found.pop("setting", None)
    if stated["seed"] is not None:
        found["seed"] = stated["seed"]
    if reading.referable_from is not None:
        found["referable_from"] = reading.referable_from
    return found
