"""Which figures a task has, and what is said of those that cannot be drawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from retinabench.reports.papers import filos
from retinabench.reports.papers.figures import curve_figures, histograms
from retinabench.reports.papers.write import FORMATS
from retinabench.reports.toolkit.figures import save
from support.fake_predictions import population
from support.written_papers import gathered, run, severity_people

PEOPLE = population(240, 160)


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
