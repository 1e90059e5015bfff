"""Prediction of raw image files, or of the rows of a table, by an exported model: no prepared folder, labelled or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from retinabench.core.errors import QUIET, InputError, Progress, csv_text, nearest, printable
from retinabench.core.files import atomic_write, write_bytes
from retinabench.core.results import JsonObject
from retinabench.core.version import __version__
from retinabench.data.archives import Files, open_files
from retinabench.data.dataset import referable
from retinabench.data.datasets import folder as labelled_folder
from retinabench.data.labels import ENDINGS, Survey
from retinabench.data.preprocessing.preprocess import preprocess_bytes
from retinabench.data.tables import encoded, is_missing, read_columns
from retinabench.experiments.exporting.model import ExportedModel
from retinabench.experiments.run import PREDICT_BATCH
from retinabench.metrics.actions import called, listed
from retinabench.metrics.image_sets import ABOVE_HALF, referral_uncertainty
from retinabench.predictions.check import Check, indistinct, named_by_row
from retinabench.predictions.io import to_table, write_predictions
from retinabench.predictions.table import Predictions

Predicted = tuple[list[int], list[str], list[str], NDArray[np.float64], NDArray[np.float64] | None]
REFERRAL_LIST = "-referral-list.csv"  # after the name of the predictions: several may stand in one folder


@dataclass(frozen=True)
class PredictedImages:
    """What was predicted."""

    images: int
    refused: tuple[str, ...]
    predictions: Path
    referral_list: Path
    notes: tuple[str, ...] = ()


def predict_images(
    model: ExportedModel,
    source: Path,
    out: Path,
    *,
    labels: str | None = None,
    columns: Mapping[str, str] | None = None,
    progress: Progress = QUIET,
) -> PredictedImages:
    """Predict all images below a folder, or those that a table names; of a model of tables, the rows of a file.

    Without labels the column `label` is empty: `retinabench monitor` reads such a file, and none can be scored. Files that are no images are left out and named.
    """
    if out.suffix not in (".parquet", ".csv"):
        raise InputError(f"cannot write '{out.suffix}'", file=out, hint="Valid: .parquet, .csv.")
    if model.features:
        if labels is not None or set(columns or ()) - {"image"}:
            raise InputError("a table has no --labels, and no --column but image", hint="Leave them out.")
        return _predict_rows(model, source, out, (columns or {}).get("image"))
    files = open_files(source)
    labelled = labels is not None or bool(columns)
    survey = Survey()
    records = labelled_folder.records(source, labels=labels, columns=columns, survey=survey) if labelled else None
    names = _names(files, source) if records is None else records.source.tolist()
    kept, refused, uniform, probs, own = _predicted(model, files, names, progress)
    if not kept:
        raise InputError(f"none of {len(names)} files is an image; the first: {refused[0]}", file=source)
    grade = None if records is None else records.grade[kept]
    validates = np.zeros(len(kept), np.bool_) if records is None else records.split[kept] == "validation"
    predictions = Predictions(
        image_id=np.array(names)[kept] if records is None else records.image_id[kept],
        label=np.zeros(len(kept), np.int8) if grade is None else referable(grade, model.referable_from),
        probs=probs,
        grade=grade if records is not None and not (columns and "label" in columns) else None,
        patient_id=None if records is None else records.patient_id[kept],
        split=np.where(validates, "validation", "test"),
        uncertainty=own,
        metadata=_about(model, probs),
    )
    notes = [*model.notes, *replace(survey, notes=[]).lines()]
    if refused:
        notes.append(f"{len(refused):,} of {len(names):,} files are not images and are left out")
    if uniform:
        one = f"have one colour and show no retina; the first is {printable(uniform[0])}"
        notes.append(f"{len(uniform):,} of {len(kept):,} images {one}")
    return PredictedImages(len(kept), tuple(refused), out, _write(model, predictions, out, labelled), tuple(notes))


def _predict_rows(model: ExportedModel, source: Path, out: Path, image: str | None = None) -> PredictedImages:
    """Predict the rows of a CSV or Parquet file; `image` is the column that names them. The column `label` is empty."""
    columns, check = read_columns(source), Check(source)
    for one in model.features:
        values = columns.get(one.column)
        if values is None:
            hint = nearest(one.column, list(columns)[:20])
            raise check.fail(one.column, None, "is missing, and the model reads it", hint)
        words = isinstance(one.fill, str)
        if (values.dtype.kind == "U") != words:
            if not is_missing(values).all():
                was, now = ("words", "numbers") if words else ("numbers", "words")
                problem = f"holds {now}, and the model was trained on {was}"
                raise check.fail(one.column, None, problem, "Correct its cells.")
            columns[one.column] = np.full(len(values), "" if words else np.nan)
    inputs = encoded(columns, model.features)
    if image is not None and image not in columns:
        raise check.fail(image, None, "is missing", nearest(image, list(columns)[:20]))
    ids = named_by_row(len(inputs))[0] if image is None else check.text(image, columns[image])
    check.unique(image or "", ids)
    probs, own = model.predict_both(inputs)
    predictions = Predictions(
        image_id=ids, label=np.zeros(len(ids), np.int8), probs=probs, split=np.full(len(ids), "test"), uncertainty=own,
        metadata=_about(model, probs),
    )  # fmt: skip
    return PredictedImages(len(ids), (), out, _write(model, predictions, out, labelled=False), model.notes)


def _write(model: ExportedModel, predictions: Predictions, out: Path, labelled: bool) -> Path:
    """Write predictions, labels that are not known as empty cells, and beside them the referral list, whose path is returned."""
    if labelled:
        write_predictions(predictions, out)
    else:
        table = to_table(predictions)
        place = table.column_names.index("label")
        table = table.set_column(place, "label", pa.nulls(len(predictions), pa.int8()))
        if out.suffix == ".csv" and predictions.samples > 1:
            table = table.drop_columns(["probs"])
            for number, values in enumerate(predictions.probs.T):
                table = table.append_column(f"prob_{number}", pa.array(values))
        with atomic_write(out) as handle:
            if out.suffix == ".parquet":
                pa.parquet.write_table(table, handle)
            else:
                handle.write(csv_text([table.column_names, *zip(*table.to_pydict().values(), strict=True)]).encode())
    if model.rule is None:
        call = called(predictions.prob, ABOVE_HALF)
        ordered = listed(predictions, referral_uncertainty(predictions, exact=True)[0], call, None)
    else:
        ordered = model.rule.rule.apply(predictions)
    referral_list = out.with_name(out.stem + REFERRAL_LIST)
    write_bytes(referral_list, ordered.to_csv())
    return referral_list


def _names(files: Files, source: Path) -> list[str]:
    names = [name for name in files.names() if name.lower().endswith(ENDINGS)]
    if not names:
        raise InputError("holds no images", file=source, hint=f"Images end in {', '.join(ENDINGS)}.")
    if (pair := indistinct(names)) is not None:
        hint = "Rename one: it is the image's id."
        raise InputError(f"the files {pair[0]!a} and {pair[1]!a} have names that look the same", file=source, hint=hint)
    return names


def _predicted(model: ExportedModel, files: Files, names: Sequence[str], progress: Progress) -> Predicted:
    """Return which images are predicted, why others are not, which have one colour, P(referable) (n, S), and own uncertainty (n,)."""
    kept, refused, uniform = list[int](), list[str](), list[str]()
    images, found = list[NDArray[np.uint8]](), list[tuple[NDArray[np.float64], NDArray[np.float64] | None]]()
    with progress.track("Predicting", len(names), unit="images") as advance:
        for number, name in enumerate(names):
            try:
                _check_name(name, files.where(name))
                image = preprocess_bytes(files.read(name), model.recipe, files.where(name))
                images.append(image)
                kept.append(number)
                if not np.ptp(image, axis=(0, 1)).any():
                    uniform.append(name)
            except InputError as error:
                refused.append(str(error))
            if len(images) == PREDICT_BATCH or (images and number + 1 == len(names)):
                found.append(model.predict_both(np.stack(images)))
                images.clear()
            advance(1)
    samples = np.concatenate([one for one, _ in found]) if found else np.empty((0, 1))
    own = [one for _, one in found if one is not None]
    return kept, refused, uniform, samples, np.concatenate(own) if own else None


def _check_name(name: str, where: str) -> None:
    """Refuse a name that cannot be an image's id in a table."""
    unreadable = any("\ud800" <= letter <= "\udfff" for letter in name)  # bytes that are not UTF-8
    if unreadable or "\n" in name or "\r" in name:
        problem = "is not UTF-8 text" if unreadable else "has a line break"
        raise InputError(f"the name of the file {problem}", file=printable(where), hint="Rename it.")


def _about(model: ExportedModel, probs: NDArray[np.float64]) -> JsonObject:
    run = model.run
    return {
        "method": run.method.name, "title": run.method.describe(), "task": run.task, "model": run.model.name,
        "seed": run.seed, "members": len(model.members), "trained_on": run.data, "version": __version__,
        "config_hash": model.config_hash, "weights": model.weights, "samples": probs.shape[1],
    }  # fmt: skip
