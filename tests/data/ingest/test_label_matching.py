"""The images of every data set, in each form in which they are shipped, and what is left over on either side."""

import io
import shutil
import zipfile
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from retinabench.cli.main import run
from retinabench.core.errors import InputError
from retinabench.data.datasets import aptos, eyepacs, folder, messidor
from retinabench.data.ingest.label_matching import Survey, make_records
from retinabench.data.prepared import open_prepared
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.data.registry import DATASETS
from support.kaggle_layout import drawn, write_aptos, write_eyepacs

SHARE = 0.001  # of EyePACS's patients: 18 + 5 + 21


def same(one, two):
    return all(
        np.array_equal(getattr(one, c.name), getattr(two, c.name))
        for c in fields(one)
        if c.name != "p_referable"
    )


@pytest.mark.parametrize("form", ["zip", "parts"])
def test_eyepacs_reads_alike_from_folders_and_archives(tmp_path, form):
    loose = eyepacs.records(write_eyepacs(tmp_path / "loose", "folder", share=SHARE))
    packed = eyepacs.records(write_eyepacs(tmp_path / "packed", form, share=SHARE))
    assert len(loose) == 2 * (18 + 5 + 21)
    assert same(loose, packed)
    read = DATASETS.find("eyepacs").image
    for source in loose.source[::9].tolist():
        pictures = [read(source, tmp_path / where, Recipe(24)) for where in ("loose", "packed")]
        assert np.array_equal(*pictures)


def test_eyepacs_at_full_size_from_zips_in_parts(tmp_path):
    survey = Survey()
    records = eyepacs.records(write_eyepacs(tmp_path, "parts"), survey=survey)
    assert len(records) == 88_702
    assert survey == Survey()
    row = int(np.flatnonzero(records.image_id == "44351_right")[0])
    assert (records.patient_id[row], records.eye[row]) == ("44351", "right")
    assert str(records.source[row]).endswith("/44351_right.jpeg")


def test_the_sample_folder_of_kaggle_is_not_taken_for_training_images(tmp_path):
    write_eyepacs(tmp_path, "folder", share=SHARE)
    shutil.copytree(tmp_path / "train", tmp_path / "a_sample")
    survey = Survey()
    records = eyepacs.records(tmp_path, survey=survey)
    assert {source.split("/")[0] for source in records.source.tolist()} == {"train", "test"}
    assert not survey.no_label


def test_aptos_from_one_zip(tmp_path):
    survey = Survey()
    records = aptos.records(write_aptos(tmp_path, "zip"), survey=survey)
    assert len(records) == 3_662
    assert sorted(survey.no_label) == ["test_images/x.png", "test_images/y.png"]
    assert survey.lines() == ["2 files without a label, left out (test_images/x.png, test_images/y.png)"]


def test_a_label_without_its_file_stops_the_preparation_and_is_listed(tmp_path, capsys):
    source = write_eyepacs(tmp_path / "source", "folder", share=SHARE)
    gone = sorted((source / "train").iterdir())[:7]
    for path in gone:
        path.unlink()
    (source / "train" / "stranger.jpeg").write_bytes(drawn("x.jpeg", 0))
    names = ", ".join(path.stem for path in gone)
    with pytest.raises(InputError, match=r"7 labelled images have no file: .*, …"):
        eyepacs.records(source)
    arguments = [
        "prepare",
        "eyepacs",
        "--source",
        str(source),
        "--out",
        str(tmp_path / "out"),
        "--size",
        "16",
        "-q",
    ]
    assert run(arguments) == 2
    assert f"All are listed in {tmp_path / 'out.left_out.csv'}" in capsys.readouterr().err
    rows = (tmp_path / "out.left_out.csv").read_text().splitlines()
    assert rows[0] == "name,reason"
    assert {row.split(",")[0] for row in rows[1:]} == {*names.split(", "), "train/stranger.jpeg"}
    assert not (tmp_path / "out").exists()
    survey = Survey()
    assert len(eyepacs.records(source, survey=survey)) == 88 - 7
    survey.check(tmp_path / "out", "skip")
    assert survey.lines()[0].startswith("7 labels without a file, left out (")
    assert survey.lines()[1] == "1 file without a label, left out (train/stranger.jpeg)"
    for path in gone:
        path.write_bytes(drawn("x.jpeg", 0))
    assert run([*arguments, "--workers", "1"]) == 0
    assert not (tmp_path / "out.left_out.csv").exists()
    assert (
        tmp_path / "out" / "left_out.csv"
    ).read_text() == "name,reason\ntrain/stranger.jpeg,file without a label\n"


def test_the_list_lies_beside_the_folder_wherever_that_is(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(
        InputError, match=r"1 labelled image has no file: x\. All are listed in .*here\.left_out\.csv"
    ):
        Survey(no_file=["x"]).check(Path(), "fail")
    assert (tmp_path / "here.left_out.csv").is_file()


def test_labels_of_another_data_set_are_seen_at_once(tmp_path):
    write_eyepacs(tmp_path, share=SHARE)
    with pytest.raises(InputError, match="none of the 88 labelled images has a file"):
        eyepacs.records(tmp_path, survey=Survey())


MESSIDOR = """image_id,adjudicated_dr_grade,adjudicated_dme,adjudicated_gradable
20051020_1_PP.png,0,0,1
20051020_2_PP.png,3,1,1
IM0001.jpg,2,0,1
IM0002.jpg,,,0
"""


def write_messidor(root, pairs=True):
    root.mkdir(exist_ok=True)
    (root / "messidor_data.csv").write_text(MESSIDOR)
    if pairs:
        lines = ["left;right", "20051020_1_PP.png;20051020_2_PP.png", "IM0001.JPG;IM0002.JPG"]
        (root / "messidor-2.csv").write_text("\r\n".join(lines))
    with zipfile.ZipFile(root / "IMAGES.zip", "w") as archive:
        for name in ("20051020_1_PP.png", "20051020_2_PP.png", "IM0001.JPG", "IM0002.JPG"):
            archive.writestr(f"IMAGES/{name}", drawn(name.lower(), 0))
    return root


def test_messidor_leaves_out_the_ungradable_and_pairs_the_eyes(tmp_path):
    survey = Survey()
    records = messidor.records(write_messidor(tmp_path), survey=survey)
    assert records.grade.tolist() == [0, 3, 2]
    assert records.eye.tolist() == ["left", "right", "left"]
    assert records.patient_id[0] == records.patient_id[1] != records.patient_id[2]
    assert set(records.split) == {"test"}
    assert records.source[2] == "IMAGES/IM0001.JPG"  # the list says .jpg
    assert survey.lines() == ["1 labelled image left out: ungradable (IM0002.jpg)"]


def test_messidor_without_pairs_says_what_that_means(tmp_path):
    survey = Survey()
    records = messidor.records(write_messidor(tmp_path, pairs=False), survey=survey)
    assert len(np.unique(records.patient_id)) == 3
    assert "the two eyes of a patient count as two patients" in survey.notes[0]
    text = (tmp_path / "messidor_data.csv").read_text()
    (tmp_path / "messidor_data.csv").write_text(text.replace("20051020_2_PP.png,3", "20051020_2_PP.png,"))
    with pytest.raises(InputError, match="row 2, column 'adjudicated_dr_grade': is ''"):
        messidor.records(tmp_path)


def write_own(root, lines, names=("a/1.jpg", "a/2.jpg", "b/1.jpg", "b/3.png")):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(drawn(name, 3))
    (root / "ours.csv").write_text("\n".join(lines))
    return root


def prepare_own(source, out):
    options = ["--source", str(source), "--out", str(out), "--size", "16", "--workers", "1", "-q"]
    return ["prepare", "folder", *options]


def test_own_images_with_mapped_columns(tmp_path):
    lines = [
        "file;icdr;mrn;side;set",
        "a/1.jpg;0;p1;OD;train",
        "a/2;1;p1;OS;train",
        "b/1.jpg;2;p2;L;test",
        "3;4;p3;;test",
    ]
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


def test_labelled_files_of_another_kind_are_counted(tmp_path):
    source = write_own(tmp_path / "in", ["image,grade", "a/1.jpg,0", "x.dcm,1", "y,2"])
    for name in ("x.dcm", "y.heic"):
        (source / name).write_bytes(b"?")
    assert run(prepare_own(source, tmp_path / "out")) == 2
    survey = Survey(skips=True)
    assert len(folder.records(source, survey=survey)) == 1
    assert (
        survey.lines()[-1] == "2 of them may be .dcm, .heic files, which are not read: convert them to PNG."
    )


def test_half_of_the_files_are_no_images(tmp_path, capsys):
    names = [f"a/{k}.jpg" for k in range(8)]
    lines = ["image,grade", *(f"{name},{k % 5}" for k, name in enumerate(names))]
    source = write_own(tmp_path / "in", lines, names=names)
    for name in names[::2]:
        (source / name).write_text("no image")
    command = prepare_own(source, tmp_path / "out")
    assert run(command) == 2
    assert "4 of 8 files are bad" in capsys.readouterr().err
    assert run([*command, "--on-bad", "skip"]) == 0
    assert "4 images at 16 px" in capsys.readouterr().out
    bad = (tmp_path / "out" / "bad.csv").read_text().splitlines()[1:]
    assert [line.split(",")[1] for line in bad] == names[::2]
    assert open_prepared(tmp_path / "out").records.source.tolist() == names[1::2]


def test_own_images_with_labels_know_no_grade(tmp_path):
    lines = ["image,referable", "a/1.jpg,0", "a/2.jpg,1", "b/1.jpg,1", "b/3.png,0"]
    source = write_own(tmp_path / "in", lines)
    assert run([*prepare_own(source, tmp_path / "out"), "--column", "label=referable"]) == 0
    data = open_prepared(tmp_path / "out")
    assert data.label.tolist() == [0, 1, 1, 0]
    assert not data.graded


@pytest.mark.parametrize(
    ("lines", "options", "says"),
    [
        (["image,grade", "1.jpg,0"], {}, "'1.jpg' names 2 files: a/1.jpg, b/1.jpg"),
        (["image,grade", "a/1,0", "a/1.jpg,0"], {}, "a/1.jpg: is named by two rows"),
        (["image,grade", "c/1.jpg,0"], {}, "none of the 1 labelled images has a file"),
        (
            ["image,grde", "a/1.jpg,0"],
            {},
            "column 'grade': is missing. Did you mean 'grde'.*--column label=NAME",
        ),
        (["image,grade", "a/1.jpg,0"], {"columns": {"grade": "icdr"}}, "column 'icdr': is missing"),
        (
            ["image,grade", "a/1.jpg,0"],
            {"columns": {"grad": "x"}},
            "unknown role 'grad'.*Did you mean 'grade'",
        ),
        (
            ["image,grade,label", "a/1.jpg,0,0"],
            {"columns": {"grade": "grade", "label": "label"}},
            "both grade and",
        ),
        (["image,label", "a/1.jpg,2"], {"columns": {"label": "label"}}, "row 1, column 'label': is '2'"),
        (["image,grade,split", "a/1.jpg,0,tset"], {}, "column 'split': is 'tset'. Did you mean 'test'"),
        (
            ["image,grade,domain", "a/1.jpg,0,Lima"],
            {"columns": {"domain": "domain"}},
            "column 'domain': is 'Lima'",
        ),
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


def test_two_tables_ask_which(tmp_path):
    write_own(tmp_path, ["image,grade", "a/1.jpg,0"])
    (tmp_path / "more.csv").write_text("x\n")
    with pytest.raises(InputError, match=r"holds 2 CSV files\. Name the one with the labels: --labels"):
        folder.records(tmp_path)
    survey = Survey()
    assert len(folder.records(tmp_path, labels="ours.csv", split="test", survey=survey)) == 1
    assert sorted(survey.no_label) == ["a/2.jpg", "b/3.png"]


def test_a_corrupt_image_in_an_archive_is_named(tmp_path):
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("x.jpg", b"\xff\xd8 broken")
    (tmp_path / "images.zip").write_bytes(sink.getvalue())
    with pytest.raises(InputError, match=r"images\.zip: x\.jpg"):
        DATASETS.find("folder").image("x.jpg", tmp_path, Recipe(16))


def test_one_value_stands_for_all_rows_of_a_column():
    records = make_records(["a", "b"], [0, 4], split="test")
    assert records.patient_id.tolist() == ["a", "b"]
    assert records.split.tolist() == ["test", "test"]
    assert records.domain.tolist() == ["in_domain", "in_domain"]
