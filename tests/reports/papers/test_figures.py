"""What the figures of the papers share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from retinabench.core.errors import InputError
from retinabench.metrics.uncertainty import binary_entropy
from retinabench.reports.papers import figures as histograms
from retinabench.reports.papers import tables
from retinabench.reports.papers.figures import (
    EDGES,
    MOST,
    _densities,
    control_line,
    figures,
    file_name,
    method_legend,
    method_marks,
    panel_grid,
)
from retinabench.reports.papers.measurements import TaskResults
from retinabench.reports.papers.write import FORMATS
from retinabench.reports.toolkit.figures import mark, save
from support.fake_predictions import population
from support.written_papers import gathered, run, severity_people


def test_files_are_named_by_figure_and_task():
    results = TaskResults("country_shift", "", "", [], [])
    assert file_name("results", "5", results) == f"figure-05-results-{results.slug}"


def test_panels_have_named_controls_and_one_legend():
    figure, axes = panel_grid(2, 3)
    assert [len(row) for row in axes] == [3, 3]
    control_line(axes[0][0], np.array([0.0, 1.0]), np.array([0.5, 0.5]), "random")
    control_line(axes[0][1], np.array([0.0, 1.0]), np.full(2, np.nan), "random")
    assert [len(panel.texts) for panel in axes[0]] == [1, 0, 0]
    method_legend(figure, ["MAP", "a $ b"], [mark(0), mark(1)])
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["MAP", r"a \$ b"]


PEOPLE = population(240, 160)


def test_densities_pool_the_runs_and_tell_right_from_wrong(tmp_path):
    runs = [run("MAP", seed, PEOPLE, task="country_shift") for seed in range(2)]
    (results,) = gathered(tmp_path, runs).results
    right, wrong, rights, wrongs = _densities(results.methods[0], "in_domain", 0)
    rows = (PEOPLE["domain"] == "in_domain") & (PEOPLE["grade"] == 0)
    prob = np.concatenate([one.prob[rows] for one in runs])
    assert rights + wrongs == len(prob)
    assert wrongs == (prob > 0.5).sum()  # grade 0 is not referable
    expected, _ = np.histogram(binary_entropy(prob[prob <= 0.5]), EDGES)
    assert right == pytest.approx(expected / rights / np.diff(EDGES))
    assert (wrong * np.diff(EDGES)).sum() == pytest.approx(1)


def test_many_methods_are_spread_over_several_figures(tmp_path):
    runs = [run("MAP", 0, PEOPLE, task="country_shift") for _ in range(MOST + 1)]
    for k, one in enumerate(runs):
        one.metadata.update(title=f"method {k}", seed=k)
    (results,) = gathered(tmp_path, runs).results
    names = [figure.name for figure in figures(results)[0]]
    assert names[:2] == [
        "figure-10-uncertainty-in-domain-single-country-shift",
        "figure-10-uncertainty-in-domain-single-country-shift-2",
    ]


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
                *histograms.figures_of_curve_figures(study, collection)[0],
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
    (one, *_), _ = histograms.figures_of_curve_figures(collection.results[0], collection)
    assert [f.suffix for f in save(one.draw(), tmp_path / "figure", FORMATS)] == [
        f".{kind}" for kind in FORMATS
    ]


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
    found = [histograms.figures_of_curve_figures(study, collection), histograms.figures(study)]
    made = [figure for figures, _ in found for figure in figures]
    lacking = [line for _, lines in found for line in lines]
    for drawing in (*made, *tables.figures(collection.results[0], collection)):
        drawing.draw().draw_without_rendering()
    says = {
        "shifted": "Class-balanced",
        "grades": "column 'grade'",
        "classes": "Class-balanced",
        "all but one": "ten images",
    }
    assert any(says[missing] in line for line in lacking)


def test_preprocessing_is_shown_for_a_folder_of_images(tmp_path):
    y, x = np.mgrid[:120, :160]
    disc = np.where(np.hypot(y - 60, x - 80)[..., None] < 55, [200, 90, 40], [0, 0, 0]).astype(np.uint8)
    (tmp_path / "deep").mkdir()
    for k in range(6):
        Image.fromarray(disc).save(tmp_path / "deep" / f"{k}.png")
    for rules in ("corrected", "published"):
        found = histograms.figures_of_preprocessing_images(tmp_path, rules)
        assert [one.number for one in found] == ["6 and 7", "18"]
    assert len(found[0].draw().axes) == 8
    assert len(found[1].draw().axes) == 20
    with pytest.raises(InputError, match="not a folder"):
        histograms.figures_of_preprocessing_images(tmp_path / "none", "corrected")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no images"):
        histograms.figures_of_preprocessing_images(tmp_path / "empty", "corrected")


def test_a_broken_image_is_one_line(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"not an image")
    with pytest.raises(InputError, match=r"a\.jpg: is not an image"):
        histograms.figures_of_preprocessing_images(tmp_path, "corrected")[0].draw()


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
