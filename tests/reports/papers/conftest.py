"""One small set of runs, tabulated once under each rules for all tests that only read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinabench.core.progress import QUIET
from retinabench.predictions.table import Predictions
from retinabench.reports.papers.collection import collect
from retinabench.reports.papers.write import table_files, tables_of
from support.fake_predictions import population
from support.written_papers import Written, run, severity_people, write_runs

SINGLE = "variational"  # has one run


@pytest.fixture(scope="session")
def runs() -> list[Predictions]:
    """The predictions behind `corrected` and `published`."""
    country, severity = population(120, 80), severity_people(120, 40)
    runs = []
    for method in ("MAP", "deep ensemble of 3", "MC dropout"):
        for seed in range(3):
            runs.append(run(method, seed, country, task="country_shift", criterion="in_domain_auroc"))
    runs.append(run(SINGLE, 0, country, task="country_shift", criterion="in_domain_auroc"))
    for blur in (5, 30):
        for seed in range(2):
            runs.append(run("MAP", seed, severity, task="severity_shift", blur=blur))
    jointly = "balanced_joint_accuracy_area"
    runs += [run("MAP", seed + 7, country, task="country_shift", criterion=jointly) for seed in range(2)]
    return runs


@pytest.fixture(scope="session")
def corrected(runs, tmp_path_factory) -> Written:
    """Tables and figures by the corrected rules."""
    return _written(runs, tmp_path_factory.mktemp("corrected"), "corrected")


@pytest.fixture(scope="session")
def published(runs, tmp_path_factory) -> Written:
    """Tables and figures by the published rules."""
    return _written(runs, tmp_path_factory.mktemp("published"), "published")


def _written(runs: list[Predictions], folder: Path, rules: str) -> Written:
    """The tables alone: figures take ten times as long."""
    collection = collect(write_runs(folder, runs), None, rules, 30, 0, 1, QUIET)
    tables, lacking = tables_of(collection)
    return Written(folder, table_files(tables, folder), lacking)
