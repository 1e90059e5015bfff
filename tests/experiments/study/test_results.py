from itertools import combinations

import numpy as np
import pytest

from retinabench.core.random_streams import derive
from retinabench.experiments.study.prediction_files import ResultRow, subsets
from retinabench.experiments.study.summary import MAIN, score_entries
from retinabench.metrics.comparison import rank
from retinabench.metrics.scoring import score
from retinabench.predictions.io import read_predictions, write_predictions
from retinabench.predictions.table import Predictions
from support.studies import study


def predictions(skill: float, seed: int, images: int = 200) -> Predictions:
    """Made up: log odds are `skill` times the truth, plus noise of the model; the same truth for all."""
    truth = np.random.default_rng(0)
    label = (truth.random(images) < 0.4).astype(np.int8)
    hard = truth.normal(size=images)
    logit = skill * (2 * label - 1.0) + hard + 0.3 * np.random.default_rng([1, seed]).normal(size=images)
    return Predictions(
        np.array([f"i{k}" for k in range(images)]), label, 1 / (1 + np.exp(-logit)),
        patient_id=np.array([f"p{k // 2}" for k in range(images)]),
        domain=np.where(np.arange(images) < 120, "in_domain", "shifted"),
    )  # fmt: skip


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
    skill = {"good": 1.4, "fair": 1.3, "bad": 0.6}
    models = {row.name: predictions(skill[row.name], hash_of(row.name, 0)) for row in rows}
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


def test_the_numbers_are_means_of_what_score_says_of_the_labelled_files(finished):
    root, _, _, summary = finished
    checked = 0
    for table in summary["tables"][1:]:
        for entry in table["entries"]:
            scored = [score(read_predictions(root / "out" / file), bootstrap=0) for file in entry["files"]]
            for name, kinds in MAIN.items():
                for kind in kinds:
                    values = [s.value(kind, name) for s in scored]
                    found = entry["scores"][name][kind]
                    checked += 1
                    if np.isnan(np.mean(values)):  # an area of AUROC where a class is missing among the retained
                        assert found["mean"] is None
                        continue
                    assert found["mean"] == pytest.approx(np.mean(values), rel=1e-9)
                    if entry["members"] == 1:
                        assert found["error"] == pytest.approx(np.std(values, ddof=1) / np.sqrt(2), abs=1e-12)
                    else:
                        assert found["error"] is None
    assert checked == 4 * 14


def test_ranks_are_those_of_the_means_and_lie_in_their_intervals(finished):
    *_, summary = finished
    for table in summary["tables"]:
        for kind, sign in (("referral_accuracy_area", -1), ("nll", 1)):
            name = "in_domain"
            rows = [entry["scores"][name][kind] for entry in table["entries"]]
            means = np.array([sign * row["mean"] for row in rows])
            expected = [(means < m).sum() + ((means == m).sum() + 1) / 2 for m in means]
            assert [row["rank"] for row in rows] == expected
            assert all(1 <= row["rank_low"] <= row["rank_high"] <= len(rows) for row in rows)
            assert sum(row["first"] for row in rows) == pytest.approx(1)
        lead = [entry["scores"]["balanced"]["referral_accuracy_area"]["rank"] for entry in table["entries"]]
        assert lead == sorted(lead)


def test_ensembles_are_all_subsets_or_the_six_released_draws():
    seeds = (42, 43, 44, 45, 46, 47)
    assert subsets(seeds, 3, "corrected") == list(combinations(seeds, 3))
    assert len(subsets(seeds, 3, "corrected")) == 20
    drawn = subsets(seeds, 3, "published")
    draw = np.random.RandomState(0)
    assert drawn == [tuple(sorted(draw.choice(seeds, 3, replace=False))) for _ in range(6)]
    assert subsets((0, 1, 2), 3, "published") == subsets((0, 1, 2), 3, "corrected") == [(0, 1, 2)]
    assert subsets(seeds, 0, "corrected") == []
    # 84 of three out of nine would be 9 GB for MC dropout: they are cut into three that share no seed.
    assert subsets(tuple(range(9)), 3, "corrected") == [(0, 1, 2), (3, 4, 5), (6, 7, 8)]
