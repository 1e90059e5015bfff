"""Predictions from what other tools hold: class probabilities, logits, tensors and data frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

import pyarrow as pa
from numpy.typing import ArrayLike

from retinabench.core.errors import InputError
from retinabench.predictions.arrow_columns import arguments_of_arrow
from retinabench.predictions.check import Check, named_by_row
from retinabench.predictions.columns import check_columns, recognise
from retinabench.predictions.values import (
    REFERABLE_FROM,
    Reading,
    checked_grades,
    class_probabilities,
    referable_probability,
)

GRADES = 5


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
            raise check.fail(
                "probs",
                None,
                f"has {classes} classes, and it is not said which are referable",
                "Pass referable_from.",
            )
        mean = referable_probability(check, values, lowest)
        if grades is not None and not isinstance(grades, bool):
            columns["grade"] = grades
        return cls._of(mean, image_id, label, lowest if classes == GRADES else REFERABLE_FROM, columns)

    @classmethod
    def from_logits(
        cls,
        logits: ArrayLike,
        image_id: ArrayLike | None = None,
        label: ArrayLike | None = None,
        **columns: Any,
    ) -> Self:
        """Return predictions from logits: the sigmoid of one output per image, or the softmax over classes.

        Shapes: `logits` (N,).

        Examples:
            >>> import retinabench as rb
            >>> rb.Predictions.from_logits([-2.0, 0.0], ["a", "b"], [0, 1]).prob.round(3).tolist()
            [0.119, 0.5]
        """
        probs = class_probabilities(Check(columns.get("source")), logits)
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
            raise InputError(
                f"a {type(frame).__name__} cannot be read as a table: {str(error).partition(chr(10))[0]}"
            ) from None
        reading = Reading(columns or {}, softmax, grades, referable_from, method, seed)
        layout = recognise(table.column_names, reading.columns)
        check_columns(None, layout.names, table.column_names)
        with layout.own_names():
            found = cls(**arguments_of_arrow(None, table, layout, reading, {}))
        return found if ungradable else found.select(unlabelled=True) or found  # type: ignore[attr-defined]

    @classmethod
    def _of(
        cls,
        probs: Any,
        image_id: ArrayLike | None,
        label: ArrayLike | None,
        lowest: int,
        columns: dict[str, Any],
    ) -> Self:
        """Name the images and derive the label where these are missing."""
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
