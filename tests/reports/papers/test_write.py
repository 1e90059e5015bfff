"""Figures: their curves, their formats, and what they need."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from retinabench.cli.main import run as command
from retinabench.core.errors import InputError
from retinabench.core.progress import QUIET
from retinabench.metrics.classification import roc_curve
from retinabench.metrics.inference.over_seeds import average_roc
from retinabench.metrics.score import referral_curve
from retinabench.metrics.shift import grade_weight
from retinabench.metrics.uncertainty import referral_uncertainty
from retinabench.reports.papers import curve_figures, filos, histograms, preprocessing_images
from retinabench.reports.papers.collection import collect
from retinabench.reports.papers.curves import GRID, RATES
from retinabench.reports.papers.panels import method_marks
from retinabench.reports.papers.write import FORMATS, write, write_tables
from retinabench.reports.toolkit.figures import save
from support.fake_predictions import population
from support.written_papers import run, severity_people, write_runs

PEOPLE = population(240, 160)


def gathered(tmp_path, runs, rules="corrected"):
    return collect(write_runs(tmp_path, runs), None, rules, 0, 0, 1, QUIET)


def test_roc_curves_are_averaged_over_runs(tmp_path):
    runs = [run("MAP", seed, PEOPLE, task="country_shift") for seed in range(3)]
    (study,) = gathered(tmp_path, runs).results
    parts = [one.select(domain="shifted") for one in runs]
    _, mean, _ = average_roc([roc_curve(p.label, p.prob) for p in parts], RATES["corrected"])
    drawn = np.mean([r.curves.roc["shifted", 1.0] for r in study.methods[0].runs], axis=0)
    np.testing.assert_allclose(drawn, mean, atol=1e-12)


def test_referral_curves_are_read_on_a_grid_and_end_where_few_remain(tmp_path):
    one = run("MC dropout", 0, PEOPLE, task="country_shift")
    (study,) = gathered(tmp_path, [one]).results
    part = one.select(domain="in_domain")
    whole = referral_curve(part.label, part.prob, referral_uncertainty(part)[0], "accuracy")
    drawn = study.methods[0].runs[0].curves.referral["in_domain", "accuracy"]
    assert drawn[50] == pytest.approx(whole.at(0.5), abs=1e-12)
    kept = 240 * (1 - GRID)
    assert np.isnan(drawn[kept < 11.9]).all()  # fewer than a twentieth, 12
    assert np.isfinite(drawn[kept > 13]).all()


def test_the_class_balanced_set_has_the_grades_of_eyepacs(tmp_path):
    one = run("MAP", 0, PEOPLE, task="country_shift")
    (study,) = gathered(tmp_path, [one]).results
    part = one.select(domain="shifted")
    curve = roc_curve(part.label, part.prob, grade_weight(part.grade))
    _, expected, _ = average_roc([curve], RATES["corrected"])
    np.testing.assert_allclose(study.methods[0].runs[0].curves.roc["rebalanced", 1.0], expected, atol=1e-12)


def test_single_methods_are_solid_and_share_their_colour_with_their_ensembles(tmp_path):
    runs = [
        run(name, 0, PEOPLE)
        for name in ("MAP", "deep ensemble of 3", "MC dropout", "MC dropout ensemble of 3")
    ]
    (study,) = gathered(tmp_path, runs).results
    map_, pooled, dropout, dropouts = method_marks(study.methods)
    assert map_.hue == pooled.hue != dropout.hue == dropouts.hue
    assert map_.dashes == dropout.dashes == ()
    assert pooled.dashes == dropouts.dashes != ()


def test_which_figures_a_task_has(tmp_path):
    severity = severity_people(240, 60)
    runs = [
        run("MAP", 0, PEOPLE, task="country_shift"),
        run("MAP", 0, severity, task="severity_shift", blur=5),
    ]
    runs += [run("MAP", 0, severity, task="severity_shift", blur=30)]
    collection = gathered(tmp_path, runs)
    country, shifted = collection.results
    numbers = {
        study.task: [
            one.number
            for one in (
                *curve_figures.figures(study, collection)[0],
                *histograms.figures(study)[0],
            )
            if one.number
        ]
        for study in (country, shifted)
    }
    assert numbers == {
        "country_shift": ["5", "14", "16", "17", "10", "12"],
        "severity_shift": ["4", "19", "8"],
    }


def test_the_released_curves_are_drawn_in_three_formats(tmp_path):
    collection = gathered(tmp_path, [run("MAP", 0, PEOPLE, task="country_shift")], "published")
    (one, *_), _ = curve_figures.figures(collection.results[0], collection)
    assert [f.suffix for f in save(one.draw(), tmp_path / "figure", FORMATS)] == [
        f".{kind}" for kind in FORMATS
    ]


def test_everything_is_written_and_listed(tmp_path):
    runs = [run("MAP", seed, PEOPLE, task="country_shift") for seed in range(2)]
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
    assert "need --images" in index
    assert "several blur constants" in index
    pictures = [file for file in files if file.suffix == ".png"]
    assert len(pictures) == len({f.stem for f in files if f.suffix == ".pdf"}) > 8
    for file in pictures:
        with Image.open(file) as shown:
            assert min(shown.size) > 300


def test_a_figure_has_the_same_bytes_every_time(tmp_path):
    collection = gathered(tmp_path, [run("MAP", 0, PEOPLE, task="country_shift")])
    (one, *_) = filos.figures(collection.results[0], collection)
    first, second = (save(one.draw(), tmp_path / name / "figure", FORMATS) for name in ("a", "b"))
    for a, b in zip(first, second, strict=True):
        assert a.read_bytes() == b.read_bytes(), a.suffix


def test_preprocessing_is_shown_for_a_folder_of_photographs(tmp_path):
    y, x = np.mgrid[:120, :160]
    disc = np.where(np.hypot(y - 60, x - 80)[..., None] < 55, [200, 90, 40], [0, 0, 0]).astype(np.uint8)
    (tmp_path / "deep").mkdir()
    for k in range(6):
        Image.fromarray(disc).save(tmp_path / "deep" / f"{k}.png")
    for rules in ("corrected", "published"):
        found = preprocessing_images.figures(tmp_path, rules)
        assert [one.number for one in found] == ["6 and 7", "18"]
    assert len(found[0].draw().axes) == 8
    assert len(found[1].draw().axes) == 20
    with pytest.raises(InputError, match="not a folder"):
        preprocessing_images.figures(tmp_path / "none", "corrected")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no images"):
        preprocessing_images.figures(tmp_path / "empty", "corrected")


def test_a_broken_photograph_is_one_line(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"a\.jpg: is not a picture"):
        preprocessing_images.figures(tmp_path, "corrected")[0].draw()


@pytest.mark.parametrize("missing", ["shifted", "grades", "classes", "all but one"])
def test_what_is_missing_leaves_a_line_and_the_rest_stands(tmp_path, missing):
    one = run("MAP", 0, PEOPLE, task="country_shift")
    if missing == "shifted":
        one = one.select(domain="in_domain")
    elif missing == "grades":
        one = replace(one, grade=None)
    elif missing == "classes":
        one = one.take(np.flatnonzero(one.label == 0))
    else:
        one = one.take([0])
    collection = gathered(tmp_path, [one])
    study = collection.results[0]
    found = [curve_figures.figures(study, collection), histograms.figures(study)]
    made = [figure for figures, _ in found for figure in figures]
    lacking = [line for _, lines in found for line in lines]
    for drawing in (*made, *filos.figures(collection.results[0], collection)):
        drawing.draw().draw_without_rendering()
    says = {
        "shifted": "Class-balanced",
        "grades": "column 'grade'",
        "classes": "Class-balanced",
        "all but one": "ten images",
    }
    assert any(says[missing] in line for line in lacking)


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("retinabench.reports.papers.write.figures_of", lambda *_: ([], []))
    files = [
        str(file)
        for file in write_runs(tmp_path, [run("MAP", k, PEOPLE, task="country_shift") for k in range(2)])
    ]
    out = tmp_path / "report"
    assert command(["report", *files, "--tables", "--out", str(out), "--bootstrap", "5", "-q"]) == 0
    assert capsys.readouterr().out.strip() == str(out / "papers" / "index.md")
    assert (out / "papers" / "tables" / "table-01-referral-country-shift.tex").is_file()
    assert command(["report", *files, "--labels", "x.csv"]) == 2
    assert "belong to --tables" in capsys.readouterr().err
    assert command(["report", *files, "--tables", "--title", "x", "--out", str(out)]) == 2
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
