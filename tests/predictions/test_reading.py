"""Files of other tools, read as their user says."""

from __future__ import annotations

import numpy as np
import pytest

import retinabench as rb
from conftest import shared_path
from retinabench.core.errors import InputError


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
    assert found.label.tolist() == [0, 1]
    np.testing.assert_allclose(read(tmp_path, FIVE, grades=True, referable_from=3).prob, [0.2, 0.6])
    assert "Add --grades" in refused(tmp_path, FIVE, softmax=True)
    assert "there are five grades" in refused(tmp_path, TWO, grades=True)
    assert "need one column per class" in refused(tmp_path, "image_id,label,prob\na,0,0.5\n", softmax=True)
    assert "row 2, column 'probs': sums to 0.8" in refused(tmp_path, TWO.replace("0.7", "0.5"), softmax=True)


@pytest.mark.parametrize(
    ("name", "options"), [("two_classes", {"softmax": True}), ("five_grades", {"grades": True})]
)
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
    assert "column 'label': is 0 where the grade is 2" in refused(
        tmp_path, "image_id,label,grade,prob\na,0,2,0.1\nb,0,0,.3\n"
    )
    with pytest.raises(InputError, match="referable from grade 7"):
        read(tmp_path, text, referable_from=7)
    assert "--referable-from needs the grades" in refused(
        tmp_path, "id,label,prob\na,0,.1\n", referable_from=3
    )


def test_a_shifted_set_without_grades_keeps_the_others(tmp_path):
    text = "image_id,label,grade,prob,domain\na,0,0,.1,in_domain\nb,1,3,.6,in_domain\nc,1,,.7,shifted\nd,0,,.2,shifted\n"
    found = read(tmp_path, text)
    assert found.select(domain="in_domain").grade.tolist() == [0, 3]
    assert found.select(domain="shifted").grade is None
    assert "the grade of 2 of 4 images is not known" in found.notes
    for ending in ("csv", "npz", "parquet"):
        rb.write_predictions(found, tmp_path / f"p.{ending}")
        assert rb.read_predictions(tmp_path / f"p.{ending}").grade.tolist() == [0, 3, -1, -1]
    assert "An image needs a label or a grade" in refused(tmp_path, "image_id,grade,prob\na,0,.1\nb,,.3\n")


def test_an_empty_patient_is_told(tmp_path):
    found = read(tmp_path, "image_id,label,prob,patient\na,0,.1,p\nb,1,.6,\nc,1,.7,\n")
    assert found.patient_id.tolist() == ["p", "image b", "image c"]
    assert "2 of 3 images have no patient_id: each is its own patient" in found.notes


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
    text = "id,label,prob,split,domain\na,0,.1,val,In-Domain\nb,1,.6,Test,in_domain\nc,1,.6,TRAIN,Shifted\nd,1,.6,dev,x\n"
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
    made = rb.Predictions(
        ["a", "b"], [0, 1], [0.1, 0.8], metadata={"title": "MAP", "setting": "x", "seed": 3}
    )
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


def test_labels_may_be_written_as_words(tmp_path):
    text = "image_id,label,prob\na,True,.1\nb,false,.6\n"
    assert read(tmp_path, text).label.tolist() == [1, 0]
    assert "is 'yes', not a number" in refused(tmp_path, text.replace("True", "yes"))


def test_the_labels_of_eyepacs_need_to_be_named(tmp_path):
    text = "image,level,prob\n10_left,0,.1\n10_right,3,.6\n"
    assert "grades 0 to 4 with --column grade=NAME; the file has: image, level" in refused(tmp_path, text)
    assert read(tmp_path, text, columns={"grade": "level"}).label.tolist() == [0, 1]


def test_an_empty_label_follows_from_the_grade(tmp_path):
    text = "image_id,label,grade,prob\na,,0,.1\nb,,3,.8\n"
    assert read(tmp_path, text).label.tolist() == [0, 1]
    assert "column 'label': is empty in every row" in refused(
        tmp_path, text.replace(",0,", ",,").replace(",3,", ",,")
    )


def test_odd_tables(tmp_path):
    twice = read(tmp_path, "image_id,label,prob,x,x\na,0,.1,1,2\nb,1,.8,3,4\n")
    assert twice.notes == ("the column 'x' is left out: it stands twice",)
    seeds = read(tmp_path, "image_id,label,prob,seed,method\na,0,.1,x,\nb,1,.8,x,\n")
    assert seeds.subgroups["seed"].tolist() == ["x", "x"]
    assert read(tmp_path, "image_id,label,grade,prob\na,0,NA,.1\nb,1,3,.8\n").grade.tolist() == [-1, 3]
    assert "the file has: y_true" in refused(tmp_path, "y_true\n0\n")
