"""The predictions file, the interface between models (left of it) and scores (right of it), and several files of one command.

One row per image; `io.py` reads and writes Parquet, CSV and NPZ, `docs/inputs.md` lists the columns.

File metadata (Parquet and NPZ): schema version, method, task, model, seed, samples, members, config hash, package
version. With K members the S samples are stored member by member: member k holds samples k*S/K … (k+1)*S/K - 1.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError, printable, told_apart
from retinabench.core.results import BLUE, VERMILION, Row, Tabular, axes_or_new
from retinabench.predictions import columns as table_columns
from retinabench.predictions import values as column_values
from retinabench.predictions.check import Check, all_differ, copied, named_by_row, own_patients, tidied
from retinabench.predictions.columns import DOMAINS, GRADES, KNOWN, LABELLED, NAMED, OPTIONAL, SPLITS, check_columns
from retinabench.predictions.values import GRADABLE, REFERABLE_FROM, UNKNOWN_GRADE, checked_grade_prob, checked_grades

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_TITLE = 200  # characters of a method's name in tables and figures
MOST_COMPARED = 1_000_000  # Rows up to which copies are looked for: sorting more takes seconds.
Subsets = Sequence[tuple[Hashable, ...]]


class Constructors:
    """The constructors of `Predictions` from the outputs of other tools.

    All take the other columns of `Predictions` by name, and arrays or tensors of any framework, which are detached and
    copied from their device.
    """

    @classmethod
    def from_softmax(
        cls,
        probs: ArrayLike,
        image_id: ArrayLike | None = None,
        label: ArrayLike | None = None,
        *,
        grades: ArrayLike | bool | None = None,
        referable_from: int | None = None,
        **columns: Any,
    ) -> Self:
        """Return predictions from class probabilities: P(referable) is the sum of the referable classes.

        Five classes are the grades, whose probabilities are kept as `grade_prob`.
        Shapes: `probs` (N, C), `image_id` (N,), `label` (N,), `grades` (N,).

        Examples:
            >>> import retinabench as rb
            >>> five = [[0.7, 0.2, 0.1, 0, 0], [0.1, 0.1, 0.3, 0.3, 0.2]]
            >>> predictions = rb.Predictions.from_softmax(five, ["a", "b"], grades=[0, 3])
            >>> predictions.prob.round(3).tolist(), predictions.label.tolist()
            ([0.1, 0.8], [0, 1])
        """
        check = Check(columns.get("source"))
        values = check.array("probs", probs)
        classes = values.shape[-1] if values.ndim else 0
        if grades is True and classes != GRADES:
            raise check.fail("probs", None, f"has {classes} classes, and there are five grades")
        lowest = {2: 1, GRADES: REFERABLE_FROM}.get(classes) if referable_from is None else referable_from
        if lowest is None:
            problem = f"has {classes} classes, and it is not said which are referable"
            raise check.fail("probs", None, problem, "Pass referable_from.")
        mean = column_values.referable_probability(check, values, lowest)
        if classes == GRADES:
            columns.setdefault("grade_prob", checked_grade_prob(check, values))
        if grades is not None and not isinstance(grades, bool):
            columns["grade"] = grades
        return cls._of(mean, image_id, label, lowest if classes == GRADES else REFERABLE_FROM, columns)

    @classmethod
    def from_logits(
        cls, logits: ArrayLike, image_id: ArrayLike | None = None, label: ArrayLike | None = None, **columns: Any
    ) -> Self:
        """Return predictions from logits: the sigmoid of one output per image, or the softmax over classes.

        Shapes: `logits` (N,).

        Examples:
            >>> import retinabench as rb
            >>> rb.Predictions.from_logits([-2.0, 0.0], ["a", "b"], [0, 1]).prob.round(3).tolist()
            [0.119, 0.5]
        """
        probs = column_values.class_probabilities(Check(columns.get("source")), logits)
        return cls.from_softmax(probs, image_id, label, **columns)

    @classmethod
    def from_torch(
        cls,
        image_id: ArrayLike | None,
        label: ArrayLike | None,
        probs: Any = None,
        *,
        logits: Any = None,
        softmax: Any = None,
        **columns: Any,
    ) -> Self:
        """Return predictions from tensors, on any device, of any floating type, with or without a gradient.

        Exactly one of `probs`, `logits` and `softmax` is given. The other constructors take tensors as well.
        Shapes: `image_id` (N,), `label` (N,), `probs` (N,).
        """
        if (probs is not None) + (logits is not None) + (softmax is not None) != 1:
            raise InputError("from_torch needs exactly one of probs, logits and softmax")
        if logits is not None:
            return cls.from_logits(logits, image_id, label, **columns)
        if softmax is not None:
            return cls.from_softmax(softmax, image_id, label, **columns)
        return cls._of(Check(None).array("probs", probs), image_id, label, REFERABLE_FROM, columns)

    @classmethod
    def from_dataframe(
        cls,
        frame: Any,
        *,
        columns: Mapping[str, str] | None = None,
        softmax: bool = False,
        grades: bool = False,
        referable_from: int | Literal["label"] | None = None,
        method: str | None = None,
        seed: int | None = None,
        ungradable: bool = False,
    ) -> Self:
        """Return predictions from a table of pandas, polars, Arrow or another library that narwhals knows.

        Examples:
            >>> import pyarrow as pa
            >>> import retinabench as rb
            >>> frame = pa.table({"filename": ["a", "b"], "y_true": [0, 1], "y_score": [0.1, 0.8], "camera": ["A", "B"]})
            >>> predictions = rb.Predictions.from_dataframe(frame)
            >>> predictions.prob.tolist(), predictions.subgroups["camera"].tolist()
            ([0.1, 0.8], ['A', 'B'])
        """
        import narwhals  # only here: reading a file does without it

        if getattr(getattr(frame, "index", None), "name", None) is not None:
            frame = frame.reset_index()  # a named index of pandas is a column, such as image_id
        try:
            native = narwhals.from_native(frame)
            eager = native.collect() if isinstance(native, narwhals.LazyFrame) else native
            table = eager.to_arrow()
        except (TypeError, ValueError, pa.ArrowException) as error:
            problem = f"a {type(frame).__name__} cannot be read as a table: {str(error).partition(chr(10))[0]}"
            raise InputError(problem) from None
        reading = column_values.Reading(columns or {}, softmax, grades, referable_from, method, seed)
        layout = table_columns.recognise(table.column_names, reading.columns)
        check_columns(None, layout.names, table.column_names)
        with layout.own_names():
            found = cls(**column_values.arguments_of_arrow(None, table, layout, reading, {}))
        return found if ungradable else found.gradable  # type: ignore[attr-defined]

    @classmethod
    def _of(
        cls, probs: Any, image_id: ArrayLike | None, label: ArrayLike | None, lowest: int, columns: dict[str, Any]
    ) -> Self:
        check, notes = Check(columns.get("source")), list(columns.pop("notes", ()))
        if image_id is None:
            image_id, note = named_by_row(len(probs))
            notes.append(note)
        if label is None:
            if columns.get("grade") is None:
                raise check.fail("label", None, "is missing", "Pass label, or the grades of the images.")
            label = checked_grades(check, check.array("grade", columns["grade"])) >= lowest
        if lowest != REFERABLE_FROM:
            columns["metadata"] = {"referable_from": lowest, **columns.get("metadata", {})}
        return cls(image_id=image_id, label=label, probs=probs, notes=tuple(notes), **columns)  # type: ignore[call-arg]


def _owned(values: NDArray[Any], given: Any) -> NDArray[Any]:
    """Return the values as an array that nobody can write to, the caller who gave them least of all."""
    shared = np.may_share_memory(values, given) if isinstance(given, np.ndarray) else hasattr(given, "__array__")
    values = values.copy() if shared else values
    values = values.view()
    values.setflags(write=False)
    return values


@dataclass(frozen=True, eq=False, repr=False)
class Predictions(Constructors, Tabular):
    """Predictions of N images by S posterior samples, checked when made.

    Args:
        image_id: (N,) text, unique.
        label: (N,) 0 or 1.
        probs: (N,) or (N, S), P(referable) in [0, 1]; stored as (N, S) float64.
        grade: (N,) 0 to 4; None, NaN or -1 where it is not known, stored as -1. A selection without any has none.
        patient_id: (N,) text; an image without one is its own patient, which a note says.
        domain: (N,) of `DOMAINS`; None: all are `in_domain`.
        split: (N,) of `SPLITS`; None: all are `test`.
        uncertainty: (N,) finite numbers, the largest is referred first.
        subgroups: Further columns by name, each (N,): text with "", or float64 with NaN, where it is not known. Images whose
            `gradable` is 0 are left out by `select`, and so by every score; `clinic` counts them.
        metadata: What the file says of its origin: method, model, seed, members and so on; `referable_from`: the lowest
            referable grade where it is not 2, or "label" where a label may contradict the grade.
        source: The file it came from, for error messages.
        notes: What a reader of its scores must know.
        grade_prob: (N, 5) the probability of each grade; those of the referable grades sum to P(referable).
        fold: (N,) whole numbers from 0: the fold of a cross-validation that the image tested.
        uncertainties: Further uncertainties by name, each (N,) finite numbers: the columns `uncertainty_NAME`.

    Raises:
        InputError: A value is not valid; the message names the first offending row and column.

    Examples:
        >>> import retinabench as rb
        >>> predictions = rb.Predictions(["a", "b"], [0, 1], [[0.1, 0.3], [0.8, 0.6]], patient_id=["p", "q"])
        >>> predictions.samples, predictions.prob.tolist()
        (2, [0.2, 0.7])
    """

    image_id: NDArray[np.str_]
    label: NDArray[np.int8]
    probs: NDArray[np.float64]
    grade: NDArray[np.int8] | None = None
    patient_id: NDArray[np.str_] | None = None
    domain: NDArray[np.str_] = None  # type: ignore[assignment]  # filled below, never None afterwards
    split: NDArray[np.str_] = None  # type: ignore[assignment]
    uncertainty: NDArray[np.float64] | None = None
    subgroups: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    source: str | None = None
    notes: tuple[str, ...] = ()
    grade_prob: NDArray[np.float64] | None = None
    fold: NDArray[np.int64] | None = None
    uncertainties: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    # (N,) rows of the file from 0 that `take` kept; None where it kept all in their order.
    _rows: NDArray[np.int32] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        check = Check(self.source)
        ids = check.text("image_id", self.image_id)
        if ids.size == 0:
            raise InputError("holds no rows", file=self.source, hint="Write one row per image.")
        check.unique("image_id", ids)
        ids, changed = check.identified("image_id", ids)
        n, notes = len(ids), [*self.notes, *changed]
        columns: dict[str, Any] = {
            "image_id": ids,
            "label": column_values.checked_labels(check, check.length("label", self.label, n)),
            "probs": column_values.checked_probabilities(check, check.length("probs", self.probs, n)),
            "domain": check.one_of("domain", self.domain, DOMAINS, "in_domain", n),
            "split": check.one_of("split", self.split, SPLITS, "test", n),
        }
        lowest = self._lowest_grade()
        if self.grade is not None:
            grade = checked_grades(check, check.length("grade", self.grade, n))
            if lowest is not None:
                column_values.check_agreement(check, columns["label"], grade, lowest)
            columns["grade"] = grade if (grade != UNKNOWN_GRADE).any() else None
            if unknown := np.count_nonzero(grade == UNKNOWN_GRADE):
                notes.append(f"the grade of {unknown} of {n} images is not known")
        if self.patient_id is not None:
            patients = check.text("patient_id", check.length("patient_id", self.patient_id, n), missing=True)
            patients, made = own_patients(patients, ids)
            columns["patient_id"], changed = check.identified("patient_id", patients)
            notes += changed
            if made:
                notes.append(f"{made} of {n} images have no patient_id: each is its own patient")
        if self.uncertainty is not None:
            columns["uncertainty"] = check.finite("uncertainty", check.length("uncertainty", self.uncertainty, n))
        if self.fold is not None:
            columns["fold"] = column_values.checked_folds(check, check.length("fold", self.fold, n))
        taken = [
            *KNOWN,
            "metadata",
            *(name for name in self.subgroups if table_columns.sample_number(name) is not None),
        ]
        columns["subgroups"], changed = tidied(table_columns.check_subgroups(check, self.subgroups, n, taken))
        notes += changed
        gradable = column_values.gradable_rows(check, columns["subgroups"].get(GRADABLE), n)
        if left := np.count_nonzero(~gradable):
            notes.append(
                f"{left:,} of {n:,} images cannot be graded ({GRADABLE} = 0): `clinic` counts them, `apply` gives them to the expert, scores leave them out"
            )
        if self.grade_prob is not None:
            columns["grade_prob"] = checked_grade_prob(check, check.length("grade_prob", self.grade_prob, n))
            if lowest is not None:
                prob = np.where(gradable, columns["probs"].mean(axis=1), columns["grade_prob"][:, lowest:].sum(axis=1))
                column_values.check_grade_prob(check, prob, columns["grade_prob"], lowest)
        members = self.metadata.get("members", 1)
        whole = isinstance(members, (int, np.integer)) and members >= 1
        if not whole or columns["probs"].shape[1] % members:
            problem = f"{columns['probs'].shape[1]} samples cannot be shared by {members!r} members"
            raise InputError(problem, file=self.source, hint="Store the samples member by member, equally many each.")
        if not self.metadata.get("samples") and self.metadata.get("members", 1) == 1:  # else they are posterior samples
            column_values.refuse_classes(check, columns["probs"])
        if n <= MOST_COMPARED and copied(columns["probs"][:, 0], columns["label"], columns.get("patient_id", ids)):
            notes.append(
                "every probability comes twice with its label: are the images copied under other ids? Intervals are then too narrow"
            )
        if "patient_id" in columns and n <= MOST_COMPARED and 20 * (own := len(np.unique(columns["patient_id"]))) < n:
            notes.append(
                f"{n:,} images have {own:,} values of 'patient_id': is it the patient, and not a site or a camera?"
            )
        columns["notes"] = tuple(dict.fromkeys(notes))
        columns["subgroups"] = {
            name: _owned(values, self.subgroups[name]) for name, values in columns["subgroups"].items()
        }
        columns["uncertainties"] = {
            name: _owned(check.finite(f"{NAMED}{name}", check.length(f"{NAMED}{name}", values, n)), values)
            for name, values in self.uncertainties.items()
        }
        for name, values in columns.items():
            owned = _owned(values, getattr(self, name)) if isinstance(values, np.ndarray) else values
            object.__setattr__(self, name, owned)
        object.__setattr__(self, "metadata", deepcopy(dict(self.metadata)))

    def _lowest_grade(self) -> int | None:
        """The lowest referable grade; None where labels and probabilities may count other findings as well."""
        # A run states its task, which says from which grade on an image is referable.
        default: Any = "label" if "task" in self.metadata else REFERABLE_FROM
        lowest = self.metadata.get("referable_from", default)
        if lowest == "label":
            return None
        if self.grade is None and self.grade_prob is None:
            return REFERABLE_FROM
        if lowest not in range(1, 5):
            problem = f"says in its metadata that images are referable from grade {lowest!r:.40}"
            raise InputError(problem, file=self.source, hint="Valid: 1, 2, 3, 4, label.")
        return int(lowest)

    def __len__(self) -> int:
        return len(self.image_id)

    def __repr__(self) -> str:
        return f"Predictions({self.source or 'arrays'}, {len(self)} images, {self.samples} samples)"

    def records(self) -> list[Row]:
        """Return one dictionary per image, with the mean of its samples as `prob`."""
        columns: dict[str, list[Any]] = {"image_id": self.image_id.tolist(), "label": self.label.tolist()}
        columns["prob"] = self.prob.tolist()
        for name in ("grade", "patient_id", "domain", "split", "fold", "uncertainty"):
            if (values := getattr(self, name)) is not None:
                columns[name] = values.tolist()
        if self.grade_prob is not None:
            columns |= {f"grade_prob_{grade}": values.tolist() for grade, values in enumerate(self.grade_prob.T)}
        columns |= {name: values.tolist() for name, values in {**self.named_uncertainties, **self.subgroups}.items()}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the distribution of P(referable) by label."""
        axes = axes_or_new(axes)
        edges = np.linspace(0, 1, 26).tolist()
        for label, color, name in ((0, BLUE, "not referable"), (1, VERMILION, "referable")):
            axes.hist(self.prob[self.label == label], edges, color=color, alpha=0.6, label=name)
        axes.set(xlabel="P(referable)", ylabel="images")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        return axes

    @property
    def named_uncertainties(self) -> dict[str, NDArray[np.float64]]:
        return {f"{NAMED}{name}": values for name, values in self.uncertainties.items()}

    @property
    def prob(self) -> NDArray[np.float64]:
        """(N,) predictive mean over the samples, P(referable)."""
        return np.asarray(self.probs.mean(axis=1))

    @property
    def patients(self) -> NDArray[np.str_]:
        """(N,) the patient of each image; where none are known, each image is its own."""
        return self.image_id if self.patient_id is None else self.patient_id

    @property
    def samples(self) -> int:
        """S, posterior samples per image over all members."""
        return int(self.probs.shape[1])

    def file_row(self, place: int | np.intp) -> int:
        """Return the row of its file, from 1, of the image at a place from 0, for messages about a selection."""
        return int(place if self._rows is None else self._rows[place]) + 1

    @property
    def gradable(self) -> Predictions:
        """The images that can be graded, labelled or not; raises `InputError` where there are none."""
        found = self.select(unlabelled=True)
        if found is None:
            raise Check(self.source).fail(GRADABLE, None, "is 0 in every row: no image can be graded")
        return found

    def select(
        self, *, domain: str | None = None, split: str | None = None, unlabelled: bool = False
    ) -> Predictions | None:
        """Return the gradable images of one domain and one split, or None where there are none.

        Args:
            domain: One of `DOMAINS`; None for both.
            split: One of `SPLITS`; None for both.
            unlabelled: Whether they may lack labels, as in a file that was read with `unlabelled`.

        Returns:
            Their predictions, without the images whose column `gradable` is 0.

        Raises:
            InputError: The label of an image is not known, and its 0 is a placeholder.
        """
        keep = column_values.gradable_rows(Check(self.source), self.subgroups.get(GRADABLE), len(self))
        if domain is not None:
            keep &= self.domain == domain
        if split is not None:
            keep &= self.split == split
        known = self.subgroups.get(LABELLED)
        if not unlabelled and known is not None and (gone := np.flatnonzero(keep & (known == "no"))).size:
            problem, row = (
                f"is not known for {len(gone):,} of {np.count_nonzero(keep):,} images",
                self.file_row(gone[0]),
            )
            raise Check(self.source).fail("label", row - 1, problem, "Leave out the images without a label.")
        if keep.all():
            return self
        return self.take(np.flatnonzero(keep)) if keep.any() else None

    def take(self, rows: NDArray[np.intp] | Sequence[int]) -> Predictions:
        """Return the given rows, each at most once, in the given order."""
        if len(self) == len(rows) and np.array_equal(rows, np.arange(len(self))):
            return self
        chosen = np.arange(len(self))[np.asarray(rows)]
        if len(chosen) == 0 or len(np.unique(chosen)) < len(chosen):
            raise InputError("a selection needs one row or more, each once", file=self.source)
        # Not `replace`: the rows are valid, and checking them again would take longer than reading them.
        part = object.__new__(type(self))
        for name, values in vars(self).items():
            if isinstance(values, np.ndarray):
                one = values.strides == (0,)  # the same in all rows
                values = np.broadcast_to(values[0], len(chosen)) if one else values[chosen]
            object.__setattr__(part, name, values)
        for mapping in ("subgroups", "uncertainties"):
            columns = {name: values[chosen] for name, values in getattr(self, mapping).items()}
            object.__setattr__(part, mapping, columns)
        if self._rows is None:  # else the loop has taken the rows of the file like any column
            object.__setattr__(part, "_rows", chosen.astype(np.int32))
        if part.grade is not None and (part.grade == UNKNOWN_GRADE).all():
            object.__setattr__(part, "grade", None)
        return part


def concatenate(parts: Sequence[Predictions]) -> Predictions:
    """Return the rows of several predictions of different images, which have the same columns and samples."""
    first = parts[0]
    columns: dict[str, Any] = {}
    for name in ("image_id", "label", "probs", *OPTIONAL):
        values = [getattr(part, name) for part in parts]
        known = [value for value in values if value is not None]
        if known and (len(known) < len(parts) or len({value.shape[1:] for value in known}) > 1):
            raise InputError(f"{name} differs between predictions that are to be joined", file=first.source)
        columns[name] = np.concatenate(known) if known else None
    shared = [name for name in first.uncertainties if all(name in part.uncertainties for part in parts)]
    uncertainties = {name: np.concatenate([part.uncertainties[name] for part in parts]) for name in shared}
    return replace(first, **columns, uncertainties=uncertainties, subgroups={}, source=None)


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


def align(models: Sequence[Predictions]) -> list[Predictions]:
    """Return the test splits of the models, with their rows in the order of the first; refuse other images or another truth."""
    tests = []
    for model in models:
        test = model.select(split="test")
        if test is None:
            raise InputError("holds no image of the test split", file=model.source)
        tests.append(test)
    first = tests[0]
    aligned = [first]
    for number, other in enumerate(tests[1:], start=2):
        aligned.append(other.take(_matching_rows(first, other, number)))
    return aligned


def check_seeds(names: Sequence[str], models: Sequence[Predictions]) -> None:
    """Refuse predictions of one name that cannot be seeds of one method: of other test images, or copies of each other."""
    of_name: dict[str, list[Predictions]] = {}
    for name, model in zip(names, models, strict=True):
        of_name.setdefault(name, []).append(model)
    for name, runs in of_name.items():
        if len(runs) > 1:
            try:
                aligned = align(runs)
            except InputError as error:
                hint = f"Both are named '{name}', and seeds of a method predict the same images: use --method for names of their own."
                raise error.again(hint=hint) from None
            _refuse_copies(aligned)


def _refuse_copies(runs: Sequence[Predictions]) -> None:
    """Refuse aligned runs of one method that predict the same; a deterministic method may, with seeds that differ."""
    known: dict[bytes, list[Predictions]] = {}
    for number, run in enumerate(runs, start=1):
        own = b"" if run.uncertainty is None else run.uncertainty.tobytes()
        alike = known.setdefault(hashlib.sha256(run.probs.tobytes() + own).digest(), [])
        for earlier in alike:
            seeds = [one.metadata.get("seed") for one in (earlier, run)]
            if None in seeds or seeds[0] == seeds[1]:
                problem = f"predicts the same as {earlier.source or 'an earlier model'}: a copy is not another seed"
                hint = "Leave it out, or state the seed of each file by --model-seed."
                raise InputError(problem, file=run.source or f"model {number}", hint=hint)
        alike.append(run)


def have_same_images(models: Sequence[Predictions]) -> bool:
    if len(models) < 2:  # ids of millions of images take long to sort
        return True
    for domain in DOMAINS:
        of_models = [np.sort(one.image_id[(one.split == "test") & (one.domain == domain)]) for one in models]
        some = [ids for ids in of_models if len(ids)]
        if any(not np.array_equal(some[0], ids) for ids in some[1:]):
            return False
    return True


def _matching_rows(first: Predictions, other: Predictions, number: int) -> NDArray[np.intp]:
    where = other.source or f"model {number}"
    order = np.argsort(other.image_id, kind="stable")
    place = np.minimum(np.searchsorted(other.image_id[order], first.image_id), len(order) - 1)
    rows = order[place]
    absent = other.image_id[rows] != first.image_id
    if absent.any():
        image = first.image_id[np.flatnonzero(absent)[0]][:60]
        raise InputError(
            f"lacks {int(absent.sum())} of the {len(first)} images of {first.source or 'model 1'}, such as '{image}'",
            file=where,
            hint="Paired comparison needs predictions of the same images.",
        )
    if len(other) != len(first):
        extra = other.image_id[~np.isin(other.image_id, first.image_id)][0][:60]
        problem = f"holds {len(other) - len(first)} images that {first.source or 'model 1'} lacks, such as '{extra}'"
        raise InputError(problem, file=where, hint="Paired comparison needs predictions of the same images.")
    for column in ("label", "domain", "patient_id", "grade"):
        ours, theirs = getattr(first, column), getattr(other, column)
        if ours is None or theirs is None:
            continue
        theirs = theirs[rows]
        known = (ours >= 0) & (theirs >= 0) if column == "grade" else True
        if (differ := np.flatnonzero((ours != theirs) & known)).size:
            row = int(differ[0])
            problem = (
                f"is '{theirs[row]}' for image '{first.image_id[row][:60]}' where {first.source or 'model 1'} has "
                f"'{ours[row]}'"
            )
            hint = "Both files must hold the same truth."
            raise InputError(problem, file=where, row=other.file_row(rows[row]), column=column, hint=hint)
    return rows


def seeds_of(name: str, files: Sequence[Predictions]) -> Subsets:
    """Return the seeds behind each file as the files state them; of files that do not, labels that no other model has."""
    stated = [one.metadata.get("member_seeds") or one.metadata.get("seed") for one in files]
    subsets = [tuple(seeds) if isinstance(seeds, list) else (seeds,) for seeds in stated]
    if None in stated or len(set(subsets)) < len(subsets):
        return [((name, k),) for k in range(len(files))]
    return subsets
