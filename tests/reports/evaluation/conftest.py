"""One small report, made once for all tests that only read it."""

from __future__ import annotations

import pytest

from retinabench.reports.evaluation.evaluation import EvaluationSettings
from retinabench.reports.evaluation.write import write_report
from support.fake_predictions import METHODS, population, predictions
from support.reading_pages import Written, round_image


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
