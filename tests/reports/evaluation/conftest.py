"""One small report, made once for all tests that only read it."""

from __future__ import annotations

import pytest
from markupsafe import Markup

from retinabench.reports.evaluation import figures
from retinabench.reports.evaluation.evaluation import EvaluationSettings
from retinabench.reports.evaluation.write import write_report
from support.fake_predictions import METHODS, population, predictions
from support.reading_pages import Written, round_image


@pytest.fixture
def undrawn(monkeypatch):
    """Pages with the titles and descriptions of their figures, without drawings: these take half of the time."""

    def to_svg(_figure, name, *, title, description):
        text = '<svg id="{0}-figure"><title id="{0}-title">{1}</title><desc id="{0}-desc">{2}</desc></svg>'
        return Markup(text).format(name, title, description)

    monkeypatch.setattr(figures, "to_svg", to_svg)


@pytest.fixture(scope="session")
def written(tmp_path_factory) -> Written:
    """Three methods, one of them with three seeds, two sets, images."""
    people = population(240, 160)
    methods = {
        name: [predictions(name, seed, people) for seed in range(3 if name == "MC dropout" else 1)]
        for name in list(METHODS)[:3]
    }
    out = tmp_path_factory.mktemp("report")
    return Written.read(
        write_report(methods, out, EvaluationSettings(bootstrap=40), title="A test", images=round_image)
    )
