import json
from dataclasses import replace

import pytest

from cli.test_main import one_line
from data.test_archives import serve  # noqa: F401
from retinabench.cli.main import run
from retinabench.data.archives import Remote
from retinabench.data.registry import DATASETS
from retinabench.predictions.io import read_predictions
from support.helpers import TINY
from support.kaggle_layout import write_aptos, write_eyepacs


def prepare(name, source, out, *more):
    words = ["--source", str(source), "--out", str(out), "--size", "16", "--workers", "1", "-q", *more]
    return run(["prepare", name, *words])


@pytest.mark.slow
def test_country_shift_from_archives_to_predictions_and_report(tmp_path, capsys):
    assert prepare("eyepacs", write_eyepacs(tmp_path / "eye", "parts", share=0.005), tmp_path / "eyepacs") == 0
    assert prepare("aptos", write_aptos(tmp_path / "apt", "zip"), tmp_path / "aptos") == 0
    both = ["--data", str(tmp_path / "eyepacs"), "--shifted", str(tmp_path / "aptos")]
    assert run(["train", *both, "--out", str(tmp_path / "runs"), *TINY, "optimizer.select=nll"]) == 0
    said = capsys.readouterr()
    assert "the complete data set gives 35,126" in said.err.replace("\n", " ")
    file = said.out.splitlines()[-1]
    predictions = read_predictions(file)
    test = predictions.select(domain="shifted", split="test")
    assert len(test) == 2_929
    assert len(predictions.select(domain="shifted", split="validation")) == 733
    assert test.prob[test.label == 1].mean() > test.prob[test.label == 0].mean() + 0.3
    report = ["report", file, *both, "--out", str(tmp_path / "report"), "--bootstrap", "20", "-q"]
    assert run(report) == 0
    page = (tmp_path / "report" / "index.html").read_text()
    assert page.count("data:image/jpeg;base64,") >= 12


def test_download_fetches_the_test_labels_and_goes_on(tmp_path, monkeypatch, capsys, serve):  # noqa: F811
    source = write_eyepacs(tmp_path / "eye", "zip", share=0.001)
    labels = (source / "retinopathy_solution.csv").read_bytes()
    (source / "retinopathy_solution.csv").unlink()
    assert prepare("eyepacs", source, tmp_path / "out") == 2
    assert "Add --download" in one_line(capsys)
    remote = Remote(serve(body=labels, drops=[50]).url, "retinopathy_solution.csv")
    monkeypatch.setitem(DATASETS._loaded, "eyepacs", replace(DATASETS["eyepacs"], remote=lambda size: remote))
    assert prepare("eyepacs", source, tmp_path / "out", "--download") == 0
    assert (source / "retinopathy_solution.csv").read_bytes() == labels
    assert json.loads((tmp_path / "out" / "dataset.json").read_text())["images"] == 88
