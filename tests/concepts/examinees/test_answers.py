"""A table of answers: what is read, what is refused, and what ties a transcript to it."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.examinees.answers import Answers, read_answers
from retinabench.core.errors import InputError

TRUTH = np.array([[1, 0], [0, -1], [1, 1]], np.int8)
BANK = Bank(["x", "y", "z"], ("a", "b"), TRUTH)
PROBS = np.array([[0.9, 0.25], [0.125, np.nan], [0.5, 1.0]])


def written(path, ids=("x", "y", "z"), probs=PROBS, dtype=np.float64):
    columns = {name: probs[:, k].astype(dtype) for k, name in enumerate("ab")}
    pa.parquet.write_table(pa.table({"image_id": list(ids), **columns}), path)
    return path


def test_answers_are_those_of_the_table_and_may_lack_where_the_truth_is_unknown():
    found = Answers(BANK, PROBS)
    assert [found(k, "a") for k in range(3)] == [0.9, 0.125, 0.5]
    assert found(2, "b") == 1.0
    assert found.hash == hashlib.sha256(PROBS.tobytes()).hexdigest()


def test_single_precision_stays_and_is_the_same_examinee(tmp_path):
    exact = np.float32(PROBS).astype(np.float64)
    single, double = (
        read_answers(written(tmp_path / f"{dtype}.parquet", probs=exact, dtype=dtype), BANK)
        for dtype in ("float32", "float64")
    )
    assert single.hash == double.hash == Answers(BANK, exact).hash
    assert single(0, "a") == double(0, "a") == exact[0, 0]


def test_rows_are_found_by_their_ids_and_others_are_left_aside(tmp_path):
    more = np.vstack([PROBS[::-1], [[0.3, 0.3]]])
    found = read_answers(written(tmp_path / "t.parquet", ("z", "y", "x", "other"), more), BANK)
    assert found.hash == Answers(BANK, PROBS).hash


@pytest.mark.parametrize(
    ("probs", "message"),
    [
        (np.where(np.isnan(PROBS), 0, PROBS) * 100, "row 1, column 'a': is 90, outside [0, 1]. These look like percentages"),
        (PROBS - 1, "These look like logits"),
        (np.where(PROBS == 0.25, 1.5, PROBS), "row 1, column 'b': is 1.5, outside [0, 1]. A probability lies"),
        (np.where(PROBS == 1, np.nan, PROBS), "row 3, column 'b': has no answer for image 'z'"),
        (np.where(PROBS == 1, np.inf, PROBS), "row 3, column 'b': is infinite"),
    ],
)  # fmt: skip
def test_what_is_no_probability_is_refused(probs, message, tmp_path):
    with pytest.raises(InputError) as error:
        read_answers(written(tmp_path / "t.parquet", probs=probs), BANK)
    assert message in str(error.value)


def test_a_missing_image_and_another_shape_are_refused(tmp_path):
    with pytest.raises(InputError, match="has no row for 'z'"):
        read_answers(written(tmp_path / "t.parquet", ("x", "y", "w")), BANK)
    with pytest.raises(InputError, match="repeats 'x' of row 1"):
        read_answers(written(tmp_path / "t.parquet", ("x", "x", "z")), BANK)
    with pytest.raises(InputError, match="the answers have shape"):
        Answers(BANK, PROBS[:2])
