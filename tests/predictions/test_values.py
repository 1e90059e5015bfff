import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import retinabench as rb
from conftest import shared_path
from retinabench.core.errors import InputError
from retinabench.predictions.columns import Layout
from retinabench.predictions.values import Reading, arguments_of_arrow, combined, not_a_number, unfolded

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
    "grades that are no distribution": ({"grade_prob": [[0.5] * 5] * 3}, "row 1, column 'grade_prob': sums to 2.5 over the classes, not to 1"),
    "four grades": ({"grade_prob": [[0.25] * 4] * 3}, "column 'grade_prob': has shape (3, 4). Needed is (N, 5)"),
    "grades of another prediction": ({"grade_prob": [[0.6, 0.3, 0.1, 0, 0]] * 3}, "row 2, column 'grade_prob': sums to 0.1 from grade 2 on where P(referable) is 0.8 (2 such rows). Leave out one"),
    "grades from 1 on": ({"grade_prob": [[0.9, 0.1, 0, 0, 0], [0.2, 0.8, 0, 0, 0], [0.6, 0.4, 0, 0, 0]]}, "It is the sum from grade 1 on: say --referable-from 1."),
    "members": ({"metadata": {"members": 2}}, "1 samples cannot be shared by 2 members"),
    "members of no kind": ({"metadata": {"members": "two"}}, "cannot be shared by 'two' members"),
    "nan": ({"probs": [0.1, np.nan, 0.4]}, "row 2, column 'prob': is nan"),
    "infinity": ({"probs": [np.inf, 0.2, np.inf]}, "row 1, column 'prob': is inf (the first of 2 such rows)"),
    "too many axes": ({"probs": np.zeros((3, 1, 1))}, "column 'probs': has shape (3, 1, 1)"),
    "mixed sample counts": ({"probs": [[0.1], [0.2, 0.3], [0.4]]}, "row 2, column 'probs': holds 2 values where row 1 holds 1"),
    "complex": ({"probs": np.array([0.1j, 0, 0])}, "has type complex128, needed are numbers"),
    "dates": ({"probs": np.zeros(3, "datetime64[s]")}, "needed are numbers"),
    "words": ({"probs": ["a", "b", "c"]}, "holds values that are not numbers"),
    "none": ({"probs": [0.1, None, 0.4]}, "row 2, column 'prob': is nan"),
    "masked": ({"probs": np.ma.array([0.1, 0.2, 0.3], mask=[0, 0, 1])}, "row 3, column 'probs': is masked"),
    "label matrix": ({"label": [[0], [1], [1]]}, "column 'label': has shape (3, 1)"),
    "short labels": ({"label": [0, 1]}, "column 'label': has 2 rows where image_id has 3"),
    "one label for all": ({"label": 1}, "has a single value"),
    "duplicate": ({"image_id": ["a", "b", "a"]}, "row 3, column 'image_id': repeats 'a' of row 1"),
    "empty id": ({"image_id": ["a", "", "c"]}, "row 2, column 'image_id': is empty"),
    "id with a line break": ({"image_id": ["a", "b\nc", "c"]}, "row 2, column 'image_id': holds a line break"),
    "no rows": ({"image_id": [], "label": [], "probs": []}, "holds no rows"),
    "missing id": ({"image_id": np.array(["a", None, "c"], object)}, "row 2, column 'image_id': is empty"),
    "NaN id": ({"image_id": [1.0, 2.0, np.nan]}, "row 3, column 'image_id': is empty"),
    "long ids as floats": ({"patient_id": [1.0, np.nan, 10.0**17]}, "row 3, column 'patient_id': is the floating-point number 1e+17, which is not an exact id. Read the column as text"),
    "long ids among objects": ({"patient_id": np.array(["p", 2.0**53, None], object)}, "row 2, column 'patient_id': is the floating-point number 9007199254740992"),
    "ids in single precision": ({"image_id": np.array([1, 2, 2**24], np.float32)}, "row 3, column 'image_id': is the floating-point number 16777216"),
    "a fraction as id": ({"image_id": [1.0, 2.5, 3.0]}, "row 2, column 'image_id': is the floating-point number 2.5"),
    "an infinite id": ({"patient_id": [1.0, 2.0, np.inf]}, "row 3, column 'patient_id': is the floating-point number inf"),
    "a blank apart": ({"patient_id": ["p1", "p2", "p1 "]}, "row 3, column 'patient_id': is 'p1 ', which looks like 'p1' of row 1"),
    "an invisible character": ({"image_id": ["a", "b\u200b", "b"]}, "row 3, column 'image_id': is 'b', which looks like 'b\\u200b' of row 2"),
    "two forms of a letter": ({"patient_id": ["Ma\u0308x", "q", "M\xe4x"]}, "row 3, column 'patient_id': is 'M\\xe4x', which looks like 'Ma\\u0308x' of row 1"),
    "a zero byte": ({"patient_id": ["p", "q", "p\0"]}, "row 3, column 'patient_id': holds a zero byte"),
    "a zero byte in an object": ({"patient_id": np.array(["p", "q", "p\0"], object)}, "row 3, column 'patient_id': holds a zero byte"),
    "bytes": ({"patient_id": np.array([b"p", b"\xff", b"q"])}, "column 'patient_id': holds bytes that are not UTF-8"),
    "domain": ({"domain": ["in_domain", "ood", "shifted"]}, "row 2, column 'domain': is 'ood'. Valid: in_domain, shifted"),
    "split": ({"split": ["test", "test", "train"]}, "row 3, column 'split': is 'train'. Valid: validation, test"),
    "own score": ({"uncertainty": [0, np.inf, 1]}, "row 2, column 'uncertainty': is inf"),
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


ROWS = ["a,0,0.1,1", "b,1,,0", "c,1,0.8,TRUE", "d,0,,no"]


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
    dark = rb.Predictions(["a", "b"], [0, 1], [0.1, 0.9], subgroups={"gradable": ["no", "no"]})
    for verb in (rb.score, rb.clinic):
        with pytest.raises(InputError, match="no gradable image of the test split"):
            verb(dark)
    with pytest.raises(InputError, match="no image can be graded"):
        rb.Predictions.from_dataframe(pa.table({"label": [0, 1], "prob": [None, None], "gradable": [0, 0]}))


def test_a_data_frame_is_read_as_a_file_is():
    frame = pa.table({"image_id": list("abc"), "label": [0, 1, 1], "prob": [0.2, None, 0.9], "gradable": [1, 0, 1]})
    assert rb.Predictions.from_dataframe(frame).prob.tolist() == [0.2, 0.9]
    assert rb.Predictions.from_dataframe(frame, ungradable=True).prob.tolist() == [0.2, 0.5, 0.9]


def test_samples_and_uncertainty_may_be_empty_too(tmp_path):
    rows = ["a,0,0.1,0.3,0.2,1", "b,1,,,,0", "c,1,0.8,0.7,0.4,1"]
    path = csv(tmp_path, rows, "image_id,label,prob_0,prob_1,uncertainty,gradable")
    found = rb.read_predictions(path, ungradable=True)
    assert found.probs[1].tolist() == [0.5, 0.5]
    assert found.uncertainty.tolist() == [0.2, 0, 0.4]
    five = csv(tmp_path, ["a,0,.6,.2,.2,0,0,1", "b,2,,,,,,0"], FIVE.partition("\n")[0] + ",gradable")
    found = rb.read_predictions(five, grades=True, ungradable=True)
    assert found.grade_prob[1].tolist() == [0.2] * 5
    rb.write_predictions(found, five)
    assert rb.read_predictions(five).grade_prob.tolist() == [[0.6, 0.2, 0.2, 0, 0]]


def test_a_gradable_image_needs_a_probability(tmp_path):
    for rows in (["a,0,0.1,1", "b,1,,1"], ["a,0,0.1,0", "b,1,,1"]):
        with pytest.raises(InputError, match="gradable"):
            rb.read_predictions(csv(tmp_path, rows), ungradable=True)
    with pytest.raises(InputError, match="gradable"):
        rb.read_predictions(csv(tmp_path, ["a,0,0.1", "b,1,"], "image_id,label,prob"), ungradable=True)


@pytest.mark.parametrize("ungradable", [True, False])
def test_columns_that_are_empty_in_every_row_are_named(tmp_path, ungradable):
    path = csv(tmp_path, ["a,0,,", "b,1,,"], header="image_id,label,prob_0,prob_1")
    with pytest.raises(InputError, match="'prob': is empty in every row"):
        rb.read_predictions(path, ungradable=ungradable)


def read(tmp_path, text, **options):
    path = tmp_path / "table.csv"
    path.write_text(text)
    return rb.read_predictions(path, **options)


def refused(tmp_path, text, **options):
    with pytest.raises(InputError) as caught:
        read(tmp_path, text, **options)
    assert str(caught.value).startswith(str(tmp_path / "table.csv"))
    return str(caught.value)


TWO = "image_id,label,prob_0,prob_1\na,0,0.9,0.1\nb,1,0.3,0.7\nc,0,0.8,0.2\n"
FIVE = "image_id,grade,prob_0,prob_1,prob_2,prob_3,prob_4\na,0,.5,.2,.1,.1,.1\nb,3,.1,.1,.2,.3,.3\n"


def test_class_probabilities_need_to_be_said(tmp_path):
    assert "Read them with --softmax" in refused(tmp_path, TWO)
    assert "(five grades: --grades)" in refused(tmp_path, FIVE)
    assert read(tmp_path, TWO, softmax=True).prob.tolist() == [0.1, 0.7, 0.2]
    found = read(tmp_path, FIVE, grades=True)
    np.testing.assert_allclose(found.prob, [0.3, 0.8])
    np.testing.assert_allclose(found.grade_prob, [[0.5, 0.2, 0.1, 0.1, 0.1], [0.1, 0.1, 0.2, 0.3, 0.3]])
    assert found.label.tolist() == [0, 1]
    np.testing.assert_allclose(read(tmp_path, FIVE, grades=True, referable_from=3).prob, [0.2, 0.6])
    assert "Add --grades" in refused(tmp_path, FIVE, softmax=True)
    assert "there are five grades" in refused(tmp_path, TWO, grades=True)
    assert "need one column per class" in refused(tmp_path, "image_id,label,prob\na,0,0.5\n", softmax=True)
    assert "row 2, column 'probs': sums to 0.8" in refused(tmp_path, TWO.replace("0.7", "0.5"), softmax=True)


@pytest.mark.parametrize(("name", "options"), [("two_classes", {"softmax": True}), ("five_grades", {"grades": True})])
def test_the_softmax_files_that_were_misread(name, options):
    path = shared_path("cases", f"softmax_{name}.csv")
    with pytest.raises(InputError, match="class probabilities"):
        rb.read_predictions(path)
    scores = rb.score(rb.read_predictions(path, **options), bootstrap=0)
    assert scores["in_domain"].auroc.value > 0.9


def test_the_file_with_other_names():
    found = rb.read_predictions(shared_path("cases", "other_names.csv"))
    assert list(found.subgroups) == ["camera", "age"]
    assert len(np.unique(found.patient_id)) < len(found)
    assert rb.score(found, bootstrap=0)["in_domain"].auroc.value > 0.9


def test_a_file_of_labels_and_scores_alone(tmp_path):
    found = read(tmp_path, "y_true,y_score\n0,0.1\n1,0.8\n")
    assert found.image_id.tolist() == ["1", "2"]
    assert "images are named by their row" in " ".join(found.notes)
    assert "column 'image_id': is missing" in refused(tmp_path, "y_true,camera\n0,A\n")


def test_decisions_are_no_probabilities(tmp_path):
    text = "filename,target,pred\na,0,0\nb,1,1\n"
    assert "column 'pred (prob)': holds only 0 and 1: decisions" in refused(tmp_path, text)
    assert read(tmp_path, text, columns={"prob": "pred"}).prob.tolist() == [0, 1]


def test_a_label_that_contradicts_the_grade(tmp_path):
    text = "image_id,label,grade,prob\na,0,0,0.1\nb,1,1,0.4\nc,1,4,0.9\n"
    message = refused(tmp_path, text)
    assert "row 2, column 'label': is 1 where the grade is 1 (1 such rows)" in message
    assert "say --referable-from 1 if that is meant" in message
    assert read(tmp_path, text, referable_from=1).metadata["referable_from"] == 1
    odd = text.replace("a,0,0", "a,1,0")
    assert "say --referable-from label" in refused(tmp_path, odd)
    assert read(tmp_path, odd, referable_from="label").label.tolist() == [1, 1, 1]
    low = "image_id,label,grade,prob\na,0,2,0.1\nb,0,0,.3\n"
    assert "column 'label': is 0 where the grade is 2" in refused(tmp_path, low)
    with pytest.raises(InputError, match="referable from grade 7"):
        read(tmp_path, text, referable_from=7)
    assert "--referable-from needs the grades" in refused(tmp_path, "id,label,prob\na,0,.1\n", referable_from=3)


def test_a_shifted_set_without_grades_keeps_the_others(tmp_path):
    text = "id,label,grade,prob,domain\na,0,0,.1,in_domain\nb,1,3,.6,in_domain\nc,1,,.7,shifted\nd,0,,.2,shifted\n"
    found = read(tmp_path, text)
    assert found.select(domain="in_domain").grade.tolist() == [0, 3]
    assert found.select(domain="shifted").grade is None
    assert "the grade of 2 of 4 images is not known" in found.notes
    for ending in ("csv", "npz", "parquet"):
        rb.write_predictions(found, tmp_path / f"p.{ending}")
        assert rb.read_predictions(tmp_path / f"p.{ending}").grade.tolist() == [0, 3, -1, -1]
    assert "An image needs a label or a grade" in refused(tmp_path, "image_id,grade,prob\na,0,.1\nb,,.3\n")


def test_usual_words_of_splits(tmp_path):
    text = "id,y,p,set,Domain\na,0,.1,val,In-Domain\nb,1,.6,Test,in_domain\n"
    found = read(tmp_path, text)
    assert found.split.tolist() == ["validation", "test"]
    assert "split: read 'Test' as test, 'val' as validation" in found.notes
    assert "column 'set (split)': is 'train'" in refused(tmp_path, text.replace("val", "train"))
    training = text.replace("val", "training").replace("Test", "train")
    assert "column 'set (split)': is 'training'" in refused(tmp_path, training)
    other = read(tmp_path, text.replace("val", "north").replace("Test", "south"))
    assert other.split.tolist() == ["test", "test"]
    assert other.subgroups["set"].tolist() == ["north", "south"]


def test_the_word_of_a_split_or_domain_that_is_not_known_is_named(tmp_path):
    text = "id,label,prob,split,domain\na,0,.1,val,In-Domain\nb,1,.6,Test,in_domain\nc,1,.6,TRAIN,Shifted\nd,1,.6,dev,x"
    message = refused(tmp_path, text.replace("TRAIN", "Test"))
    assert "row 4, column 'domain': is 'x'. Valid: in_domain, shifted." in message
    message = refused(tmp_path, text.replace(",x", ",shifted"))
    assert "row 3, column 'split': is 'TRAIN'. Valid: validation, test. Leave the images out that" in message


def test_method_and_seed_come_from_options_or_columns(tmp_path):
    text = "id,y,p,Method,seed\na,0,.1,Ours,3\nb,1,.6,Ours,3\n"
    found = read(tmp_path, text)
    assert (found.metadata["title"], found.metadata["seed"]) == ("Ours", 3)
    assert not found.subgroups
    told = read(tmp_path, text, method="Theirs", seed=5)
    assert (told.metadata["title"], told.metadata["method"], told.metadata["seed"]) == ("Theirs", "Theirs", 5)
    several = read(tmp_path, text.replace("b,1,.6,Ours,3", "b,1,.6,Other,4"))
    assert several.subgroups["method"].tolist() == ["Ours", "Other"]
    assert "title" not in several.metadata


def test_a_method_that_is_named_replaces_that_of_the_file_with_its_setting(tmp_path):
    made = rb.Predictions(["a", "b"], [0, 1], [0.1, 0.8], metadata={"title": "MAP", "setting": "x", "seed": 3})
    rb.write_predictions(made, tmp_path / "p.parquet")
    found = rb.read_predictions(tmp_path / "p.parquet", method="Ours").metadata
    assert (found["method"], found["title"], found["seed"]) == ("Ours", "Ours", 3)
    assert "setting" not in found


def test_the_task_of_a_run_says_which_grades_are_referable():
    columns = {"label": [0, 1], "probs": [0.1, 0.8], "grade": [0, 1]}
    with pytest.raises(InputError, match="is 1 where the grade is 1"):
        rb.Predictions(["a", "b"], **columns)
    assert len(rb.Predictions(["a", "b"], **columns, metadata={"task": "severity_shift_mild"})) == 2


def test_other_formats_are_recognised_as_well(tmp_path):
    np.savez(tmp_path / "p.npz", y_true=[0, 1], y_prob=[0.2, 0.7], site=["x", "y"], big=np.zeros((2, 3)))
    found = rb.read_predictions(tmp_path / "p.npz")
    assert found.prob.tolist() == [0.2, 0.7]
    assert found.subgroups["site"].tolist() == ["x", "y"]
    assert any("'big' is left out: has shape (2, 3)" in note for note in found.notes)
    np.savez(tmp_path / "p.npz", y_true=[0, 1, 1], probs=[[0.2, 0.8], [0.7, 0.3], [0.1, 0.9]])
    assert rb.read_predictions(tmp_path / "p.npz", softmax=True).prob.tolist() == [0.8, 0.3, 0.9]


def test_the_labels_of_eyepacs_need_to_be_named(tmp_path):
    text = "image,level,prob\n10_left,0,.1\n10_right,3,.6\n"
    assert "grades 0 to 4 with --column grade=NAME; the file has: image, level" in refused(tmp_path, text)
    assert read(tmp_path, text, columns={"grade": "level"}).label.tolist() == [0, 1]


def test_an_empty_label_follows_from_the_grade(tmp_path):
    text = "image_id,label,grade,prob\na,,0,.1\nb,,3,.8\n"
    assert read(tmp_path, text).label.tolist() == [0, 1]
    assert "column 'label': is empty in every row" in refused(tmp_path, text.replace(",0,", ",,").replace(",3,", ",,"))


def test_odd_tables(tmp_path):
    twice = read(tmp_path, "image_id,label,prob,x,x\na,0,.1,1,2\nb,1,.8,3,4\n")
    assert twice.notes == ("the column 'x' is left out: it appears twice",)
    seeds = read(tmp_path, "image_id,label,prob,seed,method\na,0,.1,x,\nb,1,.8,x,\n")
    assert seeds.subgroups["seed"].tolist() == ["x", "x"]
    assert read(tmp_path, "image_id,label,grade,prob\na,0,NA,.1\nb,1,3,.8\n").grade.tolist() == [-1, 3]
    assert "the file has: y_true" in refused(tmp_path, "y_true\n0\n")


ARROW_COLUMNS_GOOD = {"image_id": ["a", "b"], "label": [0, 1], "prob": [0.25, 0.5]}


def arguments(**columns):
    table = pa.table({**ARROW_COLUMNS_GOOD, **columns})
    layout = Layout(tuple(table.column_names))
    return arguments_of_arrow("t.parquet", table, layout, Reading(), {})


@pytest.mark.parametrize(
    ("name", "cells", "values"),
    [
        ("label", ["True", "FALSE"], [1, 0]), ("label", ["1", "0"], [1, 0]), ("label", [True, False], [1, 0]),
        ("label", [1, 0], [1, 0]), ("grade", ["2", "n/a"], [2, np.nan]), ("grade", [2, 0], [2, 0]),
        ("prob", ["0.5", "1e-3"], [0.5, 0.001]), ("prob", [0.25, 0.5], [0.25, 0.5]),
        ("uncertainty", ["0.5", "1e-3"], [0.5, 0.001]), ("patient_id", [7.0, 8.0], [7.0, 8.0]),
        ("patient_id", [7, 8], ["7", "8"]),
    ],
)  # fmt: skip
def test_a_column_is_read_alike_in_every_form_that_arrow_has_for_it(name, cells, values):
    plain = pa.array(cells)
    forms = [plain, plain.dictionary_encode()]
    if isinstance(cells[0], str):
        large = plain.cast(pa.large_string())
        forms += [large, plain.cast(pa.string_view()), large.dictionary_encode()]
    for form in forms:
        found = arguments(**{name: form} | ({"label": [1, 0]} if name == "grade" else {}))
        np.testing.assert_array_equal(found["probs" if name == "prob" else name], values)


def test_a_type_that_arrow_cannot_convert_is_refused_in_one_line_or_left_out():
    views = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["p", "q"], pa.string_view()))
    with pytest.raises(InputError, match=r"column 'patient_id': has type dictionary.*Store it as plain text"):
        arguments(patient_id=views)
    found = arguments(method=pa.array([b"x", b"x"]))
    assert "the column 'method' is left out: has type binary" in found["notes"]


@pytest.mark.parametrize("cells", [["True", None], [True, None]])
def test_words_beside_empty_labels_are_read_where_these_are_allowed(cells):
    table = pa.table({**ARROW_COLUMNS_GOOD, "label": cells})
    found = arguments_of_arrow(None, table, Layout(tuple(table.column_names)), Reading(unlabelled=True), {})
    assert found["label"].tolist() == [1, 0]
    assert found["subgroups"]["labelled"].tolist() == ["yes", "no"]
    with pytest.raises(InputError, match="row 2, column 'label': is empty"):
        arguments(label=cells)


def test_dictionaries_of_several_pieces_become_one_column():
    pieces = [pa.array(words).dictionary_encode() for words in (["a", "b"], ["b", "c"])]
    column = pa.chunked_array(pieces)
    assert combined(unfolded(column, "image_id", None)).to_pylist() == ["a", "b", "b", "c"]
    assert combined(column).to_pylist() == ["a", "b", "b", "c"]


@pytest.mark.parametrize(
    ("name", "cell", "hint"),
    [
        ("prob", "6.9%", "Write 0.069 for it."),
        ("prob_3", " 6,9 %", "Write 0.069 for it."),
        ("prob", "NA", "Write the number, drop the row, or leave the cell empty and write 0 in the column 'gradable'"),
        ("uncertainty", "n/a", "Write the number, drop the row"),
        ("uncertainty", "high", "Write a number with a decimal point, such as 0.25."),
        ("prob_0", "high", "Write a number from 0 to 1 with a decimal point, such as 0.25."),
        ("prob", "0,5", "Write decimals with a point, or separate the columns by semicolons."),
        ("label", "yes", "Labels are 0 (not referable) or 1 (referable)."),
        ("grade", "mild", "Grades are 0 (none), 1 (mild)"),
    ],
)  # fmt: skip
def test_what_to_write_instead_of_a_text(name, cell, hint):
    error = not_a_number(None, name, pa.array(["0.5", cell]))
    assert f"row 2, column '{name}': is '{cell}', not a number. {hint}" in str(error)
