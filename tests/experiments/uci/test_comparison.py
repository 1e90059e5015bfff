"""The command: resumable per set and method, tables beside the printed values, wrong folders named."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from retinabench.cli.main import run
from retinabench.experiments.uci import comparison, report
from retinabench.experiments.uci.comparison import compare_methods, results
from retinabench.experiments.uci.report import PUBLISHED, draw_figure
from retinabench.experiments.uci.training import OPTIMIZER, SETTINGS, TITLES, train_and_score
from support.uci_sets import write_set


def words(source, out):
    return ["uci", "--source", str(source), "--epochs", "1", "--out", str(out), "--workers", "1", "-q"]


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Two made sets under real names, one epoch, few samples."""
    base = tmp_path_factory.mktemp("uci")
    for name in ("yacht", "wine-quality-red"):
        write_set(base / "source" / name, seed=len(name))
    assert run(words(base / "source", base / "out")) == 0
    return base


def test_tables_say_what_the_results_hold(compared):
    found = results(compared / "out")
    assert list(found) == ["wine", "yacht"]
    rows = list(csv.DictReader((compared / "out" / "uci.csv").read_text().splitlines()))
    assert [(row["set"], row["method"]) for row in rows] == [
        (s, m) for s in ("wine", "yacht") for m in SETTINGS
    ]
    for row in rows:
        values = found[row["set"]][row["method"]].values("rmse")
        assert len(values) == 20
        assert float(row["rmse"]) == pytest.approx(np.mean(values), rel=1e-5)
        assert float(row["rmse_standard_error"]) == pytest.approx(np.std(values, ddof=1) / 20**0.5, rel=1e-5)
        assert float(row["published_rmse"]) == PUBLISHED[row["set"]][row["method"]].rmse
    text = (compared / "out" / "uci.md").read_text()
    line = next(line for line in text.splitlines() if line.startswith("| Yacht"))
    assert "| -1.55 ± 0.12 | -1.25 |" in line
    assert report.plus_minus(*report.mean_and_error(found["yacht"]["dropout"], "log_likelihood")) in line


def test_what_is_there_is_not_computed_again(compared, monkeypatch):
    out = compared / "out"
    before = {
        file.name: file.read_bytes()
        for file in out.rglob("*")
        if file.is_file() and file.name != "SHA256SUMS"
    }
    times = {file: file.stat().st_mtime_ns for file in (out / "results").glob("*.json")}
    (out / "results" / "yacht-ensemble.json").unlink()
    computed = []
    monkeypatch.setattr(
        comparison, "train_and_score", lambda job: computed.append(job) or train_and_score(job)
    )
    compare_methods(compared / "source", ["yacht"], out, epochs=1, seed=0)
    after = {
        file.name: file.read_bytes()
        for file in out.rglob("*")
        if file.is_file() and file.name != "SHA256SUMS"
    }
    seconds = "yacht-ensemble.json"
    fresh, old = (json.loads(content.pop(seconds)) for content in (after, before))
    assert {**fresh, "seconds": 0} == {**old, "seconds": 0}
    assert after == before
    assert {(job.data.name, job.method) for job in computed} == {("yacht", "ensemble")}
    assert [f for f in times if f.name != seconds and f.stat().st_mtime_ns != times[f]] == []


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--epochs", "2"], "another epochs: 1 there, 2 here"),
        (["--seed", "1"], "another seed: 0 there, 1 here"),
        (["--sets", "energy"], "holds no UCI set 'energy'"),
        (["--sets", "yatch"], "Did you mean 'yacht'"),
        (["--epochs", "0"], "--epochs"),
    ],
)
def test_wrong_options_are_one_line_and_change_nothing(compared, capsys, more, says):
    out = compared / "out"
    before = sorted((file, file.stat().st_mtime_ns) for file in out.rglob("[!.]*"))
    assert run([*words(compared / "source", out), *more]) == 2
    assert says in capsys.readouterr().err
    assert sorted((file, file.stat().st_mtime_ns) for file in out.rglob("[!.]*")) == before


def test_other_data_under_the_same_name_are_refused(compared, tmp_path, capsys):
    write_set(tmp_path / "yacht", seed=9)
    assert run(words(tmp_path, compared / "out")) == 2
    assert "other data or other splits" in capsys.readouterr().err


def test_a_training_that_diverges_is_named(compared, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(OPTIMIZER, "lr", 1e30)
    assert run([*words(compared / "source", tmp_path), "--epochs", "3"]) == 1
    assert "wine" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def test_the_figure_shows_every_set_and_method(compared):
    figure = draw_figure(results(compared / "out"))
    assert len(figure.axes) == 4
    assert [axes.get_title(loc="left") for axes in figure.axes[::2]] == ["Wine", "Yacht"]
    svg = (compared / "out" / "uci.svg").read_text()
    for title in TITLES.values():
        assert title in svg
    assert (compared / "out" / "uci.png").read_bytes().startswith(b"\x89PNG")
