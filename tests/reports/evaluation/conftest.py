"""One small report, made once for all tests that only read it."""

from __future__ import annotations

import pytest

from retinabench.reports.evaluation.page import write_report
from retinabench.reports.evaluation.study import Entry
from support.fake_predictions import METHODS, population, predictions
from support.reading_pages import Written, disc


@pytest.fixture(scope="session")
def written(tmp_path_factory) -> Written:
    """Three methods, one of them with three seeds, two sets, pictures."""
    people = population(240, 160)
    entries = [
        Entry.of(name, [predictions(name, seed, people) for seed in range(3 if name == "MC dropout" else 1)])
        for name in list(METHODS)[:3]
    ]
    out = tmp_path_factory.mktemp("report")
    return Written.read(write_report(entries, out, title="A test", images=disc, bootstrap=40))
