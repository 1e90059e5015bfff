"""`prepare` and `train` with data sets as a user has them: one command each, one clear line where that is not enough."""

import json
from dataclasses import replace

import pytest

from data.test_archives import Server
from retinabench.cli.main import run
from retinabench.data.archives import Remote
from retinabench.data.registry import DATASETS
from retinabench.predictions.io import read_predictions
from support.helpers import TINY
from support.kaggle_layout import write_aptos, write_eyepacs


def one_line(capsys):
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("note:")]
    assert len(lines) == 1, lines
    return lines[0]


def prepare(name, source, out, *more):
    return run(
        [
            "prepare", name, "--source", str(source), "--out", str(out), "--size", "16", "--workers", "1",
            "-q", *more,
        ]
    )  # fmt: skip


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """EyePACS (some of its patients) and APTOS, prepared from archives."""
    root = tmp_path_factory.mktemp("kaggle")
    assert prepare("eyepacs", write_eyepacs(root / "eye", "parts", share=0.005), root / "eyepacs") == 0
    assert prepare("aptos", write_aptos(root / "apt", "zip"), root / "aptos") == 0
    return root


def test_country_shift_from_archives_to_predictions_and_report(prepared, tmp_path, capsys):
    both = ["--data", str(prepared / "eyepacs"), "--shifted", str(prepared / "aptos")]
    assert run(["train", *both, "--out", str(tmp_path / "runs"), *TINY, "optimizer.select=nll"]) == 0
    said = capsys.readouterr()
    assert "the complete data set gives 35,126" in said.err.replace("\n", " ")
    file = said.out.splitlines()[-1]
    predictions = read_predictions(file)
    test = predictions.select(domain="shifted", split="test")
    assert len(test) == 2_929
    assert len(predictions.select(domain="shifted", split="validation")) == 733
    # The bright spot is the label in both: whoever learnt it here finds it there.
    assert test.prob[test.label == 1].mean() > test.prob[test.label == 0].mean() + 0.3
    report = ["report", file, *both, "--out", str(tmp_path / "report"), "--bootstrap", "20", "-q"]
    assert run(report) == 0
    page = (tmp_path / "report" / "index.html").read_text()
    assert page.count("data:image/jpeg;base64,") >= 12


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["verify", "empty"], "empty: holds no file to check"),
        (["prepare", "synthetic", "--images", "40", "--size", "16", "--out", "file"], "file: is a file where a folder is needed to write into"),
    ],
)  # fmt: skip
def test_a_folder_of_no_use_is_one_line_and_exit_2(tmp_path, monkeypatch, capsys, arguments, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    assert run(arguments) == 2
    assert says in one_line(capsys)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["prepare", "aptos", "--download", "--source", "x", "--out", "y"], "(1) Accept the rules at https://"),
        (["prepare", "eyepacs", "--out", "y"], "Name them with --source. (1) Accept"),
        (
            ["prepare", "aptos", "--source", ".", "--labels", "x.csv", "--out", "y"],
            "--labels is not an option of the data set 'aptos'",
        ),
        (["prepare", "aptos", "--source", ".", "--column", "grade=x", "--out", "y"], "--column is not an option"),
        (["prepare", "folder", "--source", ".", "--column", "grade", "--out", "y"], "not ROLE=NAME"),
        (["prepare", "synthetic", "--split", "test", "--out", "y"], "--split is not an option of the data set"),
        (["prepare", "retinamnist", "--source", ".", "--out", "y"], "Add --download"),
        (["train", "--data", ".", "--task", "severty_shift"], "Did you mean 'severity_shift'"),
        (["report", ".", "--shifted", "y"], "--shifted needs --data"),
    ],
)
def test_wrong_options_are_one_line_and_exit_2(tmp_path, monkeypatch, capsys, arguments, says):
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    assert says in one_line(capsys)
    assert list(tmp_path.iterdir()) == []


def test_download_fetches_the_test_labels_and_goes_on(tmp_path, monkeypatch, capsys):
    source = write_eyepacs(tmp_path / "eye", "zip", share=0.001)
    labels = (source / "retinopathy_solution.csv").read_bytes()
    (source / "retinopathy_solution.csv").unlink()
    assert prepare("eyepacs", source, tmp_path / "out") == 2
    assert "Add --download" in one_line(capsys)
    server = Server(body=labels, drops=[50])
    server.running.start()
    remote = Remote(server.url, "retinopathy_solution.csv")
    monkeypatch.setitem(DATASETS._loaded, "eyepacs", replace(DATASETS["eyepacs"], remote=lambda size: remote))
    try:
        assert prepare("eyepacs", source, tmp_path / "out", "--download") == 0
    finally:
        server.shutdown()
        server.running.join()
        server.server_close()
    assert (source / "retinopathy_solution.csv").read_bytes() == labels
    assert json.loads((tmp_path / "out" / "dataset.json").read_text())["images"] == 88
