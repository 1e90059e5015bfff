"""Which seeds form an ensemble, and how their predictions are pooled."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from retinabench.experiments.study.benchmark import benchmark
from retinabench.experiments.study.prediction_files import label_predictions, pool, subsets
from retinabench.experiments.study.results import MAIN
from retinabench.experiments.study.study import compute
from retinabench.experiments.study.summary import summarise
from retinabench.metrics.scoring import score
from retinabench.predictions.io import read_predictions
from retinabench.predictions.table import Predictions
from support.helpers import make_prepared
from support.studies import Serial, study


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


def test_a_pool_is_the_mean_of_its_members():
    random = np.random.default_rng(0)
    about = {"method": "dropout", "title": "MC dropout", "seed": 0, "members": 1, "config_hash": "a", "setting": "s"}
    members = [
        Predictions(np.array(["a", "b"]), np.array([0, 1]), random.random((2, 4)), metadata={**about, "seed": k})
        for k in range(3)
    ]
    pooled = pool(members, (0, 1, 2), 7)
    np.testing.assert_allclose(pooled.prob, np.mean([m.prob for m in members], axis=0), rtol=1e-12)
    assert pooled.samples == 12
    assert pooled.metadata["members"] == 3
    assert pooled.metadata["title"] == "ensemble of 3 MC dropout"
    assert pooled.metadata["seed"] == 7
    assert pooled.metadata["setting"] == "s"


def again(root, definition, out=None):
    """Compute a study once more; return what was computed and the summary."""
    engine, out = Serial(), out or root / "out"
    chosen = compute(definition, out, engine)
    entries = label_predictions(definition, out, chosen)
    return engine.computed, summarise(definition, out, chosen, entries).to_dict()


def test_the_numbers_are_means_of_what_score_says_of_the_labelled_files(finished):
    root, _, _, summary = finished
    checked = 0
    for table in summary["tables"]:
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
    assert checked == 2 * 4 * 14


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


def test_published_rules_score_as_released_without_intervals(finished, tmp_path):
    root, *_ = finished
    definition = study(root, root / "data", rules="published")
    computed, summary = again(root, definition)
    entry = summary["tables"][0]["entries"][0]
    files = [read_predictions(root / "out" / file) for file in entry["files"]]
    values = [score(one, "published", 0).value("auroc") for one in files]
    found = entry["scores"]["in_domain"]["auroc"]
    assert found["mean"] == pytest.approx(np.mean(values))
    assert found["error"] == pytest.approx(np.std(values) / np.sqrt(len(values)))
    assert "rank_low" not in found
    assert all(job.run.seed == 1 for job in computed)  # another choice at most, never another trial
    again(root, study(root, root / "data"))  # leave the files as the other tests know them


@pytest.mark.slow
def test_two_data_sets_under_one_kind_of_task_have_tables_of_their_own(tmp_path):
    data = [make_prepared(tmp_path / name, seed=seed) for seed, name in enumerate(("one", "two"))]
    definition = study(
        tmp_path,
        data[0],
        tasks={p.name: {"task": "country_shift", "data": str(p)} for p in data},
        methods={"map": {}},
        criteria=[],
        trials=0,
        seeds=1,
        ensemble=0,
    )
    benchmark(definition, tmp_path / "out", Serial())
    index = (tmp_path / "out" / "tables" / "index.md").read_text()
    tables = {file.stem for file in (tmp_path / "out" / "tables").rglob("*.md")}
    for name in ("one", "two"):
        assert name in index
        assert any(name in table for table in tables), tables
        assert (tmp_path / "out" / "report" / name).is_dir()
