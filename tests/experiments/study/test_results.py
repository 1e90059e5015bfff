"""The numbers of a study against the ranking of the same files, and against made methods."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.core.random_streams import derive
from retinabench.experiments.study.prediction_files import ResultRow
from retinabench.experiments.study.results import MeanScore, in_order, score_entries
from retinabench.metrics.comparison import rank
from retinabench.predictions.io import write_predictions
from retinabench.predictions.table import Predictions
from support.studies import study


def predictions(skill: float, seed: int, images: int = 200) -> Predictions:
    """Made up: log odds are `skill` times the truth, plus noise of the model; the same truth for all."""
    truth = np.random.default_rng(0)
    label = (truth.random(images) < 0.4).astype(np.int8)
    hard = truth.normal(size=images)
    logit = skill * (2 * label - 1.0) + hard + 0.3 * np.random.default_rng([1, seed]).normal(size=images)
    return Predictions(
        np.array([f"i{k}" for k in range(images)]),
        label,
        1 / (1 + np.exp(-logit)),
        patient_id=np.array([f"p{k // 2}" for k in range(images)]),
        domain=np.where(np.arange(images) < 120, "in_domain", "shifted"),
    )


def entries(tmp_path, skills, seeds=1):
    found = []
    for name, skill in skills.items():
        files = []
        for seed in range(seeds):
            files.append(tmp_path / f"{name}-{seed}.parquet")
            write_predictions(predictions(skill, hash_of(name, seed)), files[-1])
        subsets = tuple((seed,) for seed in range(seeds))
        found.append(ResultRow("t", "c", name, name, 1, subsets, tuple(files), (), ()))
    return found


def hash_of(name, seed):
    return derive(seed, name) % 1000


def test_with_one_run_each_the_ranks_are_those_of_the_leaderboard(tmp_path):
    definition = study(tmp_path, tmp_path, bootstrap=40)
    rows = entries(tmp_path, {"good": 1.4, "fair": 1.3, "bad": 0.6})
    found = score_entries(definition, rows)
    models = {
        row.name: predictions({"good": 1.4, "fair": 1.3, "bad": 0.6}[row.name], hash_of(row.name, 0)) for row in rows
    }
    board = rank(models, 40, derive(definition.seed, "benchmark"))
    for row, numbers in zip(rows, found, strict=True):
        for name in ("in_domain", "shifted", "balanced"):
            expected = board[name]["referral_accuracy_area"].models[row.name]
            ours = numbers[name, "referral_accuracy_area"]
            assert ours.mean == pytest.approx(expected.value)
            assert (ours.rank_low, ours.rank_high) == (expected.best, expected.worst)
            assert ours.first == pytest.approx(expected.first)


def test_seeds_that_differ_widen_the_interval_of_a_rank(tmp_path):
    """Two methods of equal skill on average; the seeds of one differ widely. Patients alone would separate some."""
    definition = study(tmp_path, tmp_path, bootstrap=100, seeds=3)
    rows = entries(tmp_path, {"steady": 1.0, "moody": 1.0}, seeds=3)
    for seed, skill in enumerate((0.2, 1.0, 2.4)):
        write_predictions(predictions(skill, seed), rows[1].files[seed])
    found = score_entries(definition, rows)
    area = [row["in_domain", "auroc"] for row in found]
    assert area[0].error < 0.2 * area[1].error
    assert all((row.rank_low, row.rank_high) == (1, 2) for row in area)
    assert 0.05 < area[0].first < 0.95


def test_order_puts_what_has_no_rank_last():
    rows = [
        {},
        {("in_domain", "referral_accuracy_area"): MeanScore(rank=2.0)},
        {("in_domain", "referral_accuracy_area"): MeanScore(rank=1.0)},
    ]
    assert in_order(rows) == (("in_domain", "referral_accuracy_area"), [2, 1, 0])
    assert in_order([{}, {}]) == (None, [0, 1])
