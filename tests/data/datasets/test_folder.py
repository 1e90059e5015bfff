import pytest

from retinabench.cli.main import run
from retinabench.core.errors import InputError
from retinabench.data.datasets import folder
from retinabench.data.labels import Survey
from retinabench.data.prepared import open_prepared
from support.own_images import prepare_own, write_own


def test_own_images_with_mapped_columns(tmp_path):
    lines = [
        "file;icdr;mrn;side;set", "a/1.jpg;0;p1;OD;train", "a/2;1;p1;OS;train", "b/1.jpg;2;p2;L;test", "3;4;p3;;test",
    ]  # fmt: skip
    columns = {"image": "file", "grade": "icdr", "patient": "mrn", "eye": "side", "split": "set"}
    survey = Survey()
    records = folder.records(write_own(tmp_path, lines), columns=columns, survey=survey)
    assert records.source.tolist() == ["a/1.jpg", "a/2.jpg", "b/1.jpg", "b/3.png"]
    assert records.grade.tolist() == [0, 1, 2, 4]
    assert records.eye.tolist() == ["right", "left", "left", ""]
    assert records.patient_id.tolist() == ["p1", "p1", "p2", "p3"]
    assert records.split.tolist() == ["train", "train", "test", "test"]
    assert survey == Survey()


def test_columns_that_cannot_be_read_are_mapped_or_not_used_and_a_note_says_so(tmp_path):
    lines = ["image,grade,eye,split,domain", "a/1,0,Ojo izquierdo,Training,Lima", "a/2,1,1,val,Quito",
             "b/1,2,D,test,Lima", "3,4,Œil droit,train,Lima"]  # fmt: skip
    survey = Survey()
    records = folder.records(write_own(tmp_path, lines), survey=survey)
    assert records.eye.tolist() == ["left", "", "right", "right"]
    assert records.split.tolist() == ["train", "validation", "test", "train"]
    assert records.domain.tolist() == ["in_domain"] * 4
    assert survey.lines() == [
        "no column 'patient', so every image counts as a patient of its own",
        "column 'eye': '1' names no eye, which is unknown there",
        "column 'split': 'Training', 'val' is read as train, validation",
        "column 'domain' is not used: 'Lima', 'Quito' is none of in_domain, shifted",
    ]
    wrong = [*lines[:2], "a/2,1,1,fold 2,Quito"]
    with pytest.raises(InputError, match="row 2, column 'split': is 'fold 2'"):
        folder.records(write_own(tmp_path, wrong))
    assert folder.records(write_own(tmp_path, wrong), split="test").split.tolist() == ["test"] * 2


def test_own_images_with_labels_know_no_grade(tmp_path):
    lines = ["image,referable", "a/1.jpg,0", "a/2.jpg,1", "b/1.jpg,1", "b/3.png,0"]
    source = write_own(tmp_path / "in", lines)
    assert run([*prepare_own(source, tmp_path / "out"), "--column", "label=referable"]) == 0
    data = open_prepared(tmp_path / "out")
    assert data.label.tolist() == [0, 1, 1, 0]
    assert not data.graded


def test_labels_may_lie_outside_a_folder_that_cannot_be_written_to(tmp_path):
    source = write_own(tmp_path / "in", ["image,grade", "a/1.jpg,0", "a/2.jpg,3"])
    inside = folder.records(source)
    (source / "ours.csv").rename(tmp_path / "theirs.csv")
    assert folder.records(source, labels=str(tmp_path / "theirs.csv")).grade.tolist() == inside.grade.tolist() == [0, 3]
    assert run([*prepare_own(source, tmp_path / "out"), "--labels", str(tmp_path / "theirs.csv")]) == 0
    assert str(tmp_path) not in (tmp_path / "out" / "dataset.json").read_text()


@pytest.mark.parametrize(
    ("lines", "options", "says"),
    [
        (["image,grade", "1.jpg,0"], {}, "'1.jpg' names 2 files: a/1.jpg, b/1.jpg"),
        (["image,grade", "a/1,0", "a/1.jpg,0"], {}, "a/1.jpg: is named by two rows"),
        (["image,grade", "c/1.jpg,0"], {}, "none of the 1 labelled images has a file"),
        (["image,grde", "a/1.jpg,0"], {}, "column 'grade': is missing. Did you mean 'grde'.*--column label=NAME"),
        (["image,grade", "a/1.jpg,0"], {"columns": {"grade": "icdr"}}, "column 'icdr': is missing"),
        (["image,grade", "a/1.jpg,0"], {"columns": {"grad": "x"}}, "unknown role 'grad'.*Did you mean 'grade'"),
        (["image,grade,label", "a/1.jpg,0,0"], {"columns": {"grade": "grade", "label": "label"}}, "both grade and"),
        (["image,label", "a/1.jpg,2"], {"columns": {"label": "label"}}, "row 1, column 'label': is '2'"),
        (["image,grade,split", "a/1.jpg,0,tset"], {}, "column 'split': is 'tset'. Did you mean 'test'"),
        (["image,grade,domain", "a/1.jpg,0,Lima"], {"columns": {"domain": "domain"}}, "column 'domain': is 'Lima'"),
        (["image,grade,patient", "a/1.jpg,0,p", "a/2.jpg,1,"], {}, "row 2, column 'patient': is empty"),
        (["image,grade", "a/1.jpg,0"], {"split": "tset"}, "unknown split 'tset'. Did you mean 'test'"),
        (["image,grade", "a/1.jpg,0"], {"labels": "their.csv"}, "holds no their.csv"),
    ],
)
def test_mistakes_in_own_tables_are_named(tmp_path, lines, options, says):
    with pytest.raises(InputError, match=says):
        folder.records(write_own(tmp_path, lines), **options)


def test_a_column_spelt_like_split_is_refused_unless_split_is_given(tmp_path):
    write_own(tmp_path, ["image,grade,Split", "a/1.jpg,0,theirs"])
    with pytest.raises(InputError, match="column 'Split': is spelt almost like 'split'"):
        folder.records(tmp_path)
    assert folder.records(tmp_path, split="test").split.tolist() == ["test"]


@pytest.mark.parametrize(
    ("eye", "cells"),
    [
        (
            "left",
            ["left", "L", "OS", "o.s.", "OI", "izquierdo", "Ojo izquierdo", "IZQ", "gauche", "G", "œil gauche", "OG"],
        ),
        ("right", ["Right", "R", "OD", "Derecho", "D", "droit", "Œil droit", "destra", "rechts"]),
        ("", ["", "  ", "n/a", "?"]),
        (None, ["1", "2", "both", "OU", "ojo"]),
    ],
)
def test_eyes_are_read_in_several_languages(eye, cells):
    assert {folder.eye_of(cell) for cell in cells} == {eye}
