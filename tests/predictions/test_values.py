"""Labels, grades and probabilities that cannot be are refused with row, column and hint."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.predictions.check import Check
from retinabench.predictions.values import (
    class_probabilities,
    gradable_rows,
    referable_probability,
)

GOOD = {"image_id": ["a", "b", "c"], "label": [0, 1, 1], "probs": [0.1, 0.8, 0.4]}

BAD = {
    "logits": ({"probs": [-2.0, 3.0, 0.4]}, "row 1, column 'prob': is -2, outside [0, 1]. These look like logits"),
    "percent": ({"probs": [10, 80, 40]}, "These look like percentages: divide by 100"),
    "a little too large": ({"probs": [0.1, 1.2, 0.4]}, "A probability lies between 0 and 1"),
    "rounding": ({"probs": [0.1, 1 + 1e-7, 0.4]}, "is 1.0000001, outside [0, 1]. This looks like rounding"),
    "rounding below": ({"probs": [0.1, -1e-9, 0.4]}, "is -1e-09, outside [0, 1]. This looks like rounding"),
    "a bad sample": ({"probs": [[0.1, 0.2], [0.3, 2.0], [0.4, 0.5]]}, "row 2, column 'prob_1': is 2"),
    "no samples": ({"probs": np.empty((3, 0))}, "column 'probs': has shape (3, 0)"),
    "grades": ({"label": [0, 4, 2]}, "row 2, column 'label': is 4, not 0 or 1. These look like severity grades"),
    "other labels": ({"label": [0, -1, 1]}, "A label is 0 (not referable) or 1 (referable). Leave out the images whose label is -1"),
    "labels of a margin classifier": ({"label": [1, -1, 1]}, "row 2, column 'label': is -1, not 0 or 1. A label is 0 (not referable) or 1 (referable). Write 0 for -1."),
    "grade 5": ({"grade": [0, 5, 2]}, "row 2, column 'grade': is 5, not one of 0, 1, 2, 3, 4"),
    "softmax": ({"probs": [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]]}, "column 'probs': has 2 values per image that sum to 1: class prob"),
    "label against grade": ({"grade": [0, 1, 2]}, "row 2, column 'label': is 1 where the grade is 1 (1 such rows), and images are referable from grade 2 on. Every label is 1 where grade >= 1: say --referable-from 1"),
    "label against every grade": ({"grade": [0, 1, 0]}, "say --referable-from label"),
    "an unbounded score": ({"probs": [0.1, 2.37, 0.4]}, "is 2.37, outside [0, 1]. A probability lies between 0 and 1"),
    "an uncertain label": ({"probs": [0, -1, 1]}, "-1 marks a finding that is not certain"),
    "members": ({"metadata": {"members": 2}}, "1 samples cannot be shared by 2 members"),
    "members of no kind": ({"metadata": {"members": "two"}}, "cannot be shared by 'two' members"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_values_name_row_column_and_hint(name):
    changed, message = BAD[name]
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        rb.Predictions(**{**GOOD, **changed})
    assert "\n" not in str(caught.value)


def test_a_grade_may_be_missing():
    found = rb.Predictions(**GOOD, grade=[0, None, 3], domain=["in_domain", "shifted", "in_domain"])
    assert found.grade.tolist() == [0, -1, 3]
    assert found.notes == ("the grade of 1 of 3 images is not known",)
    assert found.select(domain="in_domain").grade.tolist() == [0, 3]
    assert found.select(domain="shifted").grade is None
    assert rb.Predictions(**GOOD, grade=[np.nan] * 3).grade is None


def softmax(n, classes, decimals=None, seed=0):
    logits = np.random.default_rng(seed).normal(0, 2, (n, classes))
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return probs if decimals is None else probs.round(decimals)


def table(probs, **more):
    return rb.Predictions([f"i{k}" for k in range(len(probs))], np.arange(len(probs)) % 2, probs, **more)


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize(
    ("n", "decimals"), [(1, None), (1, 3), (4, None), (4, 2), (300, None), (300, 6), (300, 3), (300, 2)]
)
def test_class_probabilities_are_never_read_as_samples(n, decimals, classes):
    with pytest.raises(InputError, match="class probabilities"):
        table(softmax(n, classes, decimals))
    table(softmax(n, classes, decimals), metadata={"samples": classes})  # said to be samples
    with pytest.raises(InputError, match="class probabilities"):
        table(softmax(n, classes).astype(np.float32))


def test_a_few_broken_rows_make_no_samples_of_the_others():
    probs = softmax(300, 2)
    probs[:9] *= 0.8
    with pytest.raises(InputError, match="class probabilities"):
        table(probs)
    half = np.full((300, 2), 0.5)  # nearly all answers are ties
    half[:3] = [[0.1, 0.3], [0.8, 0.7], [0.3, 0.7]]
    assert table(half).samples == 2


@pytest.mark.parametrize("samples", [2, 3, 5])
@pytest.mark.parametrize("n", [1, 2, 5, 300])
def test_samples_about_a_constant_are_not_taken_for_classes(n, samples):
    rng = np.random.default_rng(1)
    table(np.full((n, samples), 1 / samples))
    for scale in (1e-4, 1e-2, 0.1):  # a model that says about 1/S of every image
        table(1 / samples + rng.normal(0, scale, (n, samples)).clip(-0.15, 0.15))


def test_any_selection_of_samples_stays_samples():
    probs = np.random.default_rng(2).random((50, 2)) * 0.5
    probs[7] = [0.3, 0.7]
    assert table(probs).take([7]).samples == 2


CHECK = Check("t.csv")


def test_the_referable_classes_are_summed_and_printed_digits_divided_by_their_sum():
    probs = np.array([[0.5, 0.2, 0.3], [0.33, 0.33, 0.33]])
    np.testing.assert_allclose(referable_probability(CHECK, probs, 1), [0.5, 2 / 3])
    np.testing.assert_allclose(referable_probability(CHECK, probs[:, None], 2), [[0.3], [1 / 3]])


@pytest.mark.parametrize(
    ("probs", "lowest", "message"),
    [
        ([[0.5, 0.5], [1.0, 3.0]], 1, "row 2, column 'probs': sums to 4 over the classes.*from_logits"),
        ([[0.5, 0.5], [0.5, 0.6]], 1, "row 2, column 'probs': sums to 1.1.*no class probabilities"),
        ([[0.5, 0.5], [0.2, 0.8]], 2, "has 2 classes: none is below, or none from, class 2 on"),
        ([[0.5, 0.5], [0.2, 0.8]], 0, "none is below"),
    ],
)
def test_what_is_no_distribution_is_refused(probs, lowest, message):
    with pytest.raises(InputError, match=message):
        referable_probability(CHECK, probs, lowest)


def test_softmax_and_the_sigmoid_of_a_single_logit():
    np.testing.assert_allclose(
        class_probabilities(CHECK, [[0.0, np.log(3)], [1e4, 0]]), [[0.25, 0.75], [1, 0]]
    )
    two = [[0.25, 0.75], [0.5, 0.5]]
    np.testing.assert_allclose(class_probabilities(CHECK, [np.log(3), 0]), two)
    np.testing.assert_allclose(class_probabilities(CHECK, [[np.log(3)], [0]]), two)
    assert class_probabilities(CHECK, np.zeros((2, 5, 1))).shape == (2, 5, 2)


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
