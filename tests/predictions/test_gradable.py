"""Rows without a probability: read where `gradable` says so and only then, by every format that has empty cells."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.predictions.gradable import gradable_rows
from retinabench.predictions.validation.check import Check

ROWS = ["a,0,0.1,1", "b,1,,0", "c,1,0.8,yes", "d,0,,no"]


def csv(tmp_path, rows, header="image_id,label,prob,gradable"):
    path = tmp_path / "predictions.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_a_csv_and_a_parquet_file(tmp_path):
    path = csv(tmp_path, ROWS)
    found = rb.read_predictions(path, ungradable=True)
    assert found.prob.tolist() == [0.1, 0.5, 0.8, 0.5]
    kept = rb.read_predictions(path)
    assert kept.prob.tolist() == [0.1, 0.8]
    assert "2 of 4 images cannot be graded" in kept.notes[-1]
    assert kept.notes == found.notes
    none = csv(tmp_path, ["a,0,0.1,0", "b,1,,0"])
    with pytest.raises(InputError, match="no image can be graded"):
        rb.read_predictions(none)
    path = csv(tmp_path, ROWS)
    table = pa.table({"image_id": list("ab"), "label": [0, 1], "prob": [0.2, None], "gradable": [1, 0]})
    pa.parquet.write_table(table, tmp_path / "p.parquet")
    assert rb.read_predictions(tmp_path / "p.parquet", ungradable=True).prob.tolist() == [0.2, 0.5]
    clinic = rb.clinic(found)["in_domain"]
    assert clinic.ungradable.images == 2
    assert (clinic.images.table.tp, clinic.images.table.tn) == (1, 1)


@pytest.mark.parametrize("header", ["Gradable", "gradeable", "is_gradable"])
def test_another_spelling_of_the_column_leaves_the_same_images_out_and_is_said(tmp_path, header):
    kept = rb.read_predictions(csv(tmp_path, ROWS, f"image_id,label,prob,{header}"))
    assert kept.prob.tolist() == [0.1, 0.8]
    assert kept.notes[0] == f"read '{header}' as gradable; --column NAME=COLUMN names another"
    assert "kept as subgroups" not in " ".join(kept.notes)
    with pytest.raises(InputError, match=f"column '{header} \\(gradable\\)': is 'maybe', not 0 or 1"):
        rb.read_predictions(csv(tmp_path, ["a,0,0.1,maybe"], f"image_id,label,prob,{header}"))


def objects(n=80):
    """The same predictions with images that cannot be graded among them, and without these."""
    rng = np.random.default_rng(3)
    label = np.arange(n) % 2
    prob = np.clip(0.25 + 0.5 * label + rng.normal(0, 0.3, n), 0.01, 0.99)
    split = np.where(np.arange(n) < n // 2, "validation", "test")
    good = np.arange(n) % 5 != 1
    columns = {"split": split, "subgroups": {"gradable": good.astype(int)}}
    whole = rb.Predictions(np.arange(n).astype(str), label, np.where(good, prob, 0.5), **columns)
    return whole, whole.take(np.flatnonzero(good))


def test_every_score_of_an_object_leaves_them_out():
    whole, part = objects()
    assert "16 of 80 images cannot be graded" in whole.notes[0]
    assert len(whole.select()) == len(part) == 64
    assert len(whole.select(split="test")) == 32
    verbs = {
        "score": lambda one: rb.score(one, bootstrap=20, threshold="youden").to_dict(),
        "compare": lambda one: rb.compare(one, one, bootstrap=20).to_dict(),
        "transfer": lambda one: rb.transfer(one, goal=0.4, bootstrap=20).to_dict(),
    }
    for verb, answer in verbs.items():
        assert answer(whole) == answer(part), verb
    assert rb.clinic(whole)["in_domain"].ungradable.images == 8
    assert rb.clinic(part)["in_domain"].ungradable is None
    assert rb.clinic(whole)["in_domain"].images.table == rb.clinic(part)["in_domain"].images.table


def test_an_object_without_a_gradable_image_is_refused():
    with pytest.raises(InputError, match="no image can be graded"):
        rb.Predictions(["a", "b"], [0, 1], [0.1, 0.9], subgroups={"gradable": ["no", "no"]})


def test_a_data_frame_is_read_as_a_file_is():
    frame = pa.table(
        {"image_id": list("abc"), "label": [0, 1, 1], "prob": [0.2, None, 0.9], "gradable": [1, 0, 1]}
    )
    assert rb.Predictions.from_dataframe(frame).prob.tolist() == [0.2, 0.9]
    assert rb.Predictions.from_dataframe(frame, ungradable=True).prob.tolist() == [0.2, 0.5, 0.9]


def test_samples_and_uncertainty_may_be_empty_too(tmp_path):
    rows = ["a,0,0.1,0.3,0.2,1", "b,1,,,,0", "c,1,0.8,0.7,0.4,1"]
    path = csv(tmp_path, rows, "image_id,label,prob_0,prob_1,uncertainty,gradable")
    found = rb.read_predictions(path, ungradable=True)
    assert found.probs[1].tolist() == [0.5, 0.5]
    assert found.uncertainty.tolist() == [0.2, 0, 0.4]


def test_a_gradable_image_needs_a_probability(tmp_path):
    for rows in (["a,0,0.1,1", "b,1,,1"], ["a,0,0.1,0", "b,1,,1"]):
        with pytest.raises(InputError, match="gradable"):
            rb.read_predictions(csv(tmp_path, rows), ungradable=True)
    with pytest.raises(InputError, match="gradable"):
        rb.read_predictions(csv(tmp_path, ["a,0,0.1", "b,1,"], "image_id,label,prob"), ungradable=True)


def test_words_for_yes_and_no():
    check = Check(None)
    assert gradable_rows(check, np.array(["Yes", "no", "TRUE", "0"]), 4).tolist() == [
        True,
        False,
        True,
        False,
    ]
    assert gradable_rows(check, None, 2).all()
    with pytest.raises(InputError, match="perhaps"):
        gradable_rows(check, np.array(["yes", "perhaps"]), 2)
    with pytest.raises(InputError, match="empty"):
        gradable_rows(check, np.array([1.0, np.nan]), 2)


@pytest.mark.parametrize("ungradable", [True, False])
def test_columns_that_are_empty_in_every_row_are_named(tmp_path, ungradable):
    path = csv(tmp_path, ["a,0,,", "b,1,,"], header="image_id,label,prob_0,prob_1")
    with pytest.raises(InputError, match="'prob': is empty in every row"):
        rb.read_predictions(path, ungradable=ungradable)
