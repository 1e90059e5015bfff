"""The baselines that come with the package give the scores that the board shows."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.data.frozen.definition import benchmark_names, frozen_benchmark, truth_of
from retinabench.metrics.score import score
from retinabench.reports.leaderboard import baselines
from retinabench.reports.leaderboard.baselines import BaselineSeed, baselines_of, write_baselines

SHIPPED = [name for name in benchmark_names() if baselines_of(name)]


@pytest.mark.parametrize("name", SHIPPED)
def test_every_baseline_holds_the_test_images_of_its_benchmark(name: str) -> None:
    truth, names = truth_of(name), set()
    for entry in baselines_of(name):
        names.add(entry.card.name)
        for one in entry.predictions[name]:
            test = one.select(split="test")
            assert test is not None
            assert np.array_equal(np.sort(test.image_id), truth.image_id[truth.test])
            assert np.array_equal(one.prob, one.prob.astype(np.float32))
    assert {"map", "dropout"} <= names


def test_the_board_shows_the_score_of_the_shipped_file(board) -> None:
    (key, entry) = next((key, entry) for key, entry in board.entries.items() if entry.kind == "baseline")
    values = [
        score(one, bootstrap=0)["in_domain"].auroc.value for one in entry.predictions[board.benchmark.name]
    ]
    assert board.sets["in_domain"]["auroc"].methods[key].value == pytest.approx(np.mean(values), abs=1e-12)


def test_written_baselines_are_read_back(tmp_path, monkeypatch) -> None:
    name = SHIPPED[0]
    monkeypatch.setattr(baselines, "HERE", tmp_path)
    first = baselines_of(name)[0]
    given = [
        BaselineSeed(first.card, seed, one.take(np.arange(len(one))[::-1]))
        for seed, one in enumerate(first.predictions[name])
    ]
    file = write_baselines(frozen_benchmark(name), given)
    once = file.read_bytes()
    assert write_baselines(frozen_benchmark(name), given).read_bytes() == once
    (entry,) = baselines_of.__wrapped__(name)
    for ours, theirs in zip(entry.predictions[name], first.predictions[name], strict=True):
        assert np.array_equal(ours.image_id, theirs.image_id)
        assert np.array_equal(ours.prob, theirs.prob)
