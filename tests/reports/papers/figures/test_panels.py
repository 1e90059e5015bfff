"""Methods and their ensembles share a colour and differ in their line pattern."""

from __future__ import annotations

from retinabench.reports.papers.figures.panels import method_marks
from support.fake_predictions import population
from support.written_papers import gathered, run

PEOPLE = population(240, 160)


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
