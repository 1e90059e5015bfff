"""Labels and image files that belong together, and what is left over on either side."""

from pathlib import Path

import pytest

from retinabench.cli.main import run
from retinabench.core.errors import InputError
from retinabench.data.datasets import eyepacs, folder
from retinabench.data.ingest.label_matching import Survey
from retinabench.data.prepared.folder import open_prepared
from retinabench.data.records import make_records
from support.kaggle_layout import drawn, write_eyepacs
from support.own_images import prepare_own, write_own

SHARE = 0.001  # of EyePACS's patients: 18 + 5 + 21


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


def test_one_value_stands_for_all_rows_of_a_column():
    records = make_records(["a", "b"], [0, 4], split="test")
    assert records.patient_id.tolist() == ["a", "b"]
    assert records.split.tolist() == ["test", "test"]
    assert records.domain.tolist() == ["in_domain", "in_domain"]
