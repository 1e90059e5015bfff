import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from retinabench.cli.main import run as command
from retinabench.core.errors import QUIET
from retinabench.reports.papers import figures
from retinabench.reports.papers import write as papers
from retinabench.reports.papers.write import write, write_tables
from retinabench.reports.toolkit.figures import save
from support.fake_predictions import population
from support.written_papers import gathered, run, write_runs

pytestmark = pytest.mark.usefixtures("legible")

PEOPLE = population(80, 60)


def drawn_once(figure, stem, formats, **style):
    """A drawing that is copied takes a third of the time of three formats."""
    [png] = save(figure, stem, ("png",), **style | {"dpi": figure.dpi})
    return [png, *(Path(shutil.copy(png, png.with_suffix(f".{kind}"))) for kind in formats if kind != "png")]


def test_everything_is_written_and_listed(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "METRIC_LABELS", {"accuracy": "accuracy", "auroc": "AUROC"})  # drawing is slow
    monkeypatch.setattr(papers, "save", drawn_once)
    runs = [run("MAP", seed, population(120, 80), task="country_shift") for seed in range(2)]
    runs = [replace(one, metadata={**one.metadata, "title": "MAP <b>|$x_1"}) for one in runs]
    collection = gathered(tmp_path, runs)
    files = write(collection, tmp_path / "out", None, QUIET)
    assert all(file.stat().st_size for file in files)
    index = files[0].read_text()
    for file in files[1:]:
        if "leaderboard" not in file.parts:
            assert f"({file.relative_to(tmp_path / 'out').as_posix()})" in index, file
    links = re.findall(r"\]\(([^)]+)\)", index)
    assert links
    assert all((tmp_path / "out" / link).exists() for link in links)
    assert "<b>" not in index
    assert "need --source" in index
    assert "several blur constants" in index
    pictures = [file for file in files if file.suffix == ".png"]
    assert len(pictures) > 6
    for file in pictures:
        with Image.open(file) as shown:
            assert min(shown.size) > 150


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("retinabench.reports.papers.write.figures_of", lambda *_: ([], []))
    runs = [run("MAP", k, PEOPLE, task="country_shift") for k in range(2)]
    files = [str(file) for file in write_runs(tmp_path, runs)]
    out = tmp_path / "report"
    assert command(["report", *files, "--tables", "--out", str(out), "--bootstrap", "5", "-q"]) == 0
    assert capsys.readouterr().out.strip() == str(out / "papers" / "index.md")
    assert (out / "papers" / "tables" / "table-01-referral-country-shift.tex").is_file()
    assert command(["report", *files, "--labels", "x.csv"]) == 2
    assert "belong to --tables" in capsys.readouterr().err
    assert command(["report", *files, "--tables", "--referral", "0.2", "--out", str(out)]) == 2
    assert "belong to the page" in capsys.readouterr().err


def test_processes_give_the_same_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr("retinabench.reports.papers.write.figures_of", lambda *_: ([], []))
    files = write_runs(tmp_path, [run("MAP", seed, PEOPLE, task="country_shift") for seed in range(2)])
    texts = []
    for workers in (1, 2):
        out = tmp_path / str(workers)
        write_tables(files, out, rules="corrected", bootstrap=0, seed=0, workers=workers)
        texts.append((out / "index.md").read_text())
    assert texts[0] == texts[1]
