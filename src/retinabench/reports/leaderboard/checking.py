"""What a predictions file must be to stand on the board: every test image with its own label, nothing of the training split.

A file is compared with the truth that comes with the definition. Whether settings were chosen on the test images cannot be seen in
probabilities; what a file says of it in its metadata can, and is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.data.frozen.definition import BenchmarkTruth, FrozenBenchmark, truth_of
from retinabench.predictions.io import read_predictions
from retinabench.predictions.table import Predictions

MOST_BYTES = 64 * 2**20
CHOICES = re.compile(
    r"tun|fit|calibrat|select|chos|choice|threshold|temperature|criteri|stopp|optimi[sz]", re.IGNORECASE
)
ON_TEST = re.compile(r"(?<![a-z])test(?![a-z])", re.IGNORECASE)


def read_checked(file: Path, benchmark: FrozenBenchmark) -> Predictions:
    """Read a predictions file and check it against a benchmark.

    Args:
        file: The file, in any format of `read_predictions`.
        benchmark: The benchmark.

    Returns:
        Its test images in the order of the truth, then its validation images; with the mean over posterior samples, and the truth's
        grades and patients.

    Raises:
        InputError: The file is too large, not valid, not complete, or not of this benchmark.
    """
    check_size(file)
    return checked(read_predictions(file), benchmark)


def check_size(file: Path) -> None:
    """Raise `InputError` where a file is larger than any submission needs."""
    if file.is_file() and (size := file.stat().st_size) > MOST_BYTES:
        raise InputError(
            f"has {size / 2**20:,.0f} MB; a submission's file may have {MOST_BYTES / 2**20:.0f}",
            file=file,
            hint="Store the mean over the posterior samples.",
        )


def checked(predictions: Predictions, benchmark: FrozenBenchmark) -> Predictions:
    """Return predictions as `read_checked`, or raise `InputError`."""
    truth = truth_of(benchmark.name)
    rows = _rows_of(predictions, truth, benchmark)
    for column in ("label", "domain"):
        ours, theirs = getattr(truth, column)[rows], getattr(predictions, column)
        if (differ := np.flatnonzero(ours != theirs)).size:
            row = int(differ[0])
            raise _refused(
                predictions,
                f"is '{theirs[row]}' for image '{predictions.image_id[row]}', which is '{ours[row]}' in "
                f"{benchmark.name} ({len(differ):,} images differ)",
                row,
                column,
                "Every row states label, domain and split as `retinabench prepare` wrote them.",
            )
    _check_splits(predictions, truth, rows, benchmark)
    _check_tuning(predictions)
    if np.array_equal(predictions.prob, predictions.label):
        raise _refused(
            predictions, "every probability is the image's label", hint="Store what the model predicts."
        )
    return _canonical(predictions, truth, rows)


def _rows_of(predictions: Predictions, truth: BenchmarkTruth, benchmark: FrozenBenchmark) -> NDArray[np.intp]:
    """Return the row of the truth of each image."""
    order = np.minimum(np.searchsorted(truth.image_id, predictions.image_id), len(truth.image_id) - 1)
    if (strange := np.flatnonzero(truth.image_id[order] != predictions.image_id)).size:
        row = int(strange[0])
        raise _refused(
            predictions,
            f"'{predictions.image_id[row][:80]}' is no image of {benchmark.name} ({len(strange):,} are not)",
            row,
            "image_id",
            "Use the ids of `retinabench prepare`.",
        )
    return order


def _check_splits(
    predictions: Predictions, truth: BenchmarkTruth, rows: NDArray[np.intp], benchmark: FrozenBenchmark
) -> None:
    of_test = truth.split[rows] == "test"
    wrongly = of_test != (predictions.split == "test")
    if (truth.split == "validation").any():  # elsewhere each task takes its own part of the training images
        wrongly |= truth.split[rows] == "train"
    if (wrong := np.flatnonzero(wrongly)).size:
        row = int(wrong[0])
        raise _refused(
            predictions,
            f"is '{predictions.split[row]}' for image '{predictions.image_id[row]}' of the "
            f"{truth.split[rows[row]]} split of {benchmark.name} ({len(wrong):,} rows are wrong)",
            row,
            "split",
            "Predict the test images, and the validation images if you like; no training images.",
        )
    lacking = np.setdiff1d(truth.test, rows[of_test])
    if lacking.size:
        raise _refused(
            predictions,
            f"lacks {len(lacking):,} of the {len(truth.test):,} test images of {benchmark.name}, such as "
            f"'{truth.image_id[lacking[0]]}'",
            hint="Every test image of every set must be predicted.",
        )


def _check_tuning(predictions: Predictions) -> None:
    for key, value in _leaves(predictions.metadata):
        if CHOICES.search(key) and ON_TEST.search(value):
            raise _refused(
                predictions,
                f"says in its metadata that {key[:80]} is {value[:80]!r}: a setting was chosen on the test images",
                hint="Choose it on the validation images.",
            )


def _leaves(tree: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every value of nested metadata as text, with the keys that lead to it."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _leaves(value, f"{path}.{key}".strip("."))
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            yield from _leaves(value, path)
    else:
        yield path, tree if isinstance(tree, str) else json.dumps(tree, default=str)


def _canonical(predictions: Predictions, truth: BenchmarkTruth, rows: NDArray[np.intp]) -> Predictions:
    test = truth.split[rows] == "test"
    order = np.lexsort((rows, ~test))
    taken, own = rows[order], predictions.uncertainty
    about = predictions.metadata
    return Predictions(
        image_id=truth.image_id[taken],
        label=truth.label[taken],
        probs=predictions.prob[order],
        grade=truth.grade[taken],
        patient_id=truth.patient_id[taken],
        domain=truth.domain[taken],
        split=predictions.split[order],
        uncertainty=None if own is None else own[order],
        metadata={key: about[key] for key in ("method", "title", "seed") if key in about},
        source=predictions.source,
    )


def as_seed(predictions: Predictions, title: str, seed: int) -> Predictions:
    """Return predictions under the title of their submission, as one of its seeds.

    Args:
        predictions: Checked predictions.
        title: The title of the card.
        seed: Number of the seed.
    """
    return replace(predictions, metadata={"method": title, "title": title, "seed": seed})


def _refused(
    predictions: Predictions,
    problem: str,
    row: int | None = None,
    column: str | None = None,
    hint: str | None = None,
) -> InputError:
    return InputError(
        problem,
        file=predictions.source,
        row=None if row is None else row + 1,
        column=column,
        hint=hint,
    )
