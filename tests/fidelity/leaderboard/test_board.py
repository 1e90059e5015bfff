"""Entries are ranked by their closeness to the reference, over measures and tasks."""

import json

import numpy as np
import pytest

from retinabench.fidelity.leaderboard.board import baselines, make_board
from retinabench.fidelity.leaderboard.files import find_submissions, score_tasks
from retinabench.fidelity.submissions.submission import About, Submission, write_submission
from support.evaluators import ENERGY, FUNDUS
from support.fake_reference import softmax
from support.submissions import submission_meta


def test_nearer_submissions_rank_first_and_seeds_are_one_entry(folder, evaluators):
    tasks = score_tasks(find_submissions([folder]), evaluators)[0]
    found = make_board(tasks).to_dict()
    assert [row["title"] for row in found["ranking"]] == ["Near", "Middling", "Far"]
    assert [row["rank"] for row in found["ranking"]] == [1, 2, 3]
    assert found["ranking"][0]["by_measure"] == {"agreement": 1, "total_variation": 1, "wasserstein": 1}
    (near,) = [
        e
        for task in found["tasks"]
        for e in task["entries"]
        if e["title"] == "Near" and task["task"] == "fundus"
    ]
    assert near["seeds"] == [0, 1, 2]
    (line,) = [one for one in tasks[0].entries if one.title == "Near"]
    values = [grade["all"]["total_variation"].value for grade in line.estimates]
    one = near["groups"]["all"]["total_variation"]
    assert one["value"] == pytest.approx(np.mean(values))
    assert one["error"] == pytest.approx(np.std(values, ddof=1) / np.sqrt(3))
    json.dumps(found, allow_nan=False)


def test_ranks_that_depend_on_the_points_have_wide_intervals(tmp_path, evaluators):
    # Two entries equally far from the reference: which is first is a matter of the points.
    probs = evaluators["fundus"].reference.probs
    for k, title in enumerate(("A", "B")):
        noisy = softmax(np.log(probs) + np.random.default_rng(100 + k).normal(size=probs.shape))
        write_submission(
            tmp_path / title / "submission.npz",
            Submission(noisy, about=About(**submission_meta(FUNDUS, title))),
        )
    found = make_board(score_tasks(find_submissions([tmp_path]), evaluators)[0]).to_dict()
    assert all(row["low"] == 1 and row["high"] == 2 for row in found["ranking"])


def test_baselines_are_scored_and_not_ranked(folder, evaluators):
    found = make_board(score_tasks(find_submissions([folder]), evaluators)[0]).to_dict()
    for task in found["tasks"]:
        trivial = [entry for entry in task["entries"] if entry["baseline"]]
        assert len(trivial) == (3 if task["task"] == "fundus" else 2)
        assert not any("rank" in entry for entry in trivial)
    titles = {entry["title"] for entry in found["tasks"][0]["entries"]}
    assert {"constant class", "uniform", "one-hot of the reference"} <= titles


def test_an_entry_that_missed_a_task_is_not_in_the_final_ranking(folder, evaluators):
    (folder / "Far-energy-gap-0" / "submission.npz").unlink()
    found = make_board(score_tasks(find_submissions([folder]), evaluators)[0]).to_dict()
    assert [row["title"] for row in found["ranking"]] == ["Near", "Middling"]


def test_a_lone_entry_on_all_tasks_has_no_ranking_over_them(folder, evaluators):
    for title in ("Middling", "Far"):
        (folder / f"{title}-energy-gap-0" / "submission.npz").unlink()
    board = make_board(score_tasks(find_submissions([folder]), evaluators)[0])
    assert [len(task.ranked) for task in board.tasks] == [3, 1]
    assert not board.ranking


def test_settings_of_one_title_are_told_apart(tmp_path, evaluators):
    probs = 0.8 * evaluators["fundus"].reference.probs + 0.2 / 5
    for k, rate in enumerate((0.1, 0.2)):
        one = Submission(probs, about=About(**submission_meta(FUNDUS, "MAP", lr=rate)))
        write_submission(tmp_path / str(k) / "submission.npz", one)
    (scored,) = score_tasks(find_submissions([tmp_path]), evaluators)[0]
    titles = [line.title for line in scored.competitors]
    assert len(set(titles)) == 2
    assert all(title.startswith("MAP (") for title in titles)
    (task,) = make_board([scored]).to_dict()["tasks"]
    assert all(
        entry["rank"]["rank"] == 1.5 for entry in task["entries"] if not entry["baseline"]
    )  # they are equal


def test_of_seeds_with_and_without_samples_are_the_measures_that_both_have(tmp_path, evaluators):
    probs = evaluators["fundus"].reference.probs
    rng = np.random.default_rng(0)
    for seed, samples in ((0, np.stack([probs, probs[::-1]])), (1, None)):
        meta = submission_meta(FUNDUS, "Half", seed=seed)
        noisy = softmax(np.log(probs) + rng.normal(size=probs.shape))
        write_submission(
            tmp_path / str(seed) / "submission.npz", Submission(noisy, samples, about=About(**meta))
        )
    (task,) = score_tasks(find_submissions([tmp_path]), evaluators)[0]
    (entry,) = task.competitors
    assert entry.scores["all"]["total_variation"].quantity.defined
    assert not entry.scores["all"]["epistemic_correlation"].quantity.defined


def test_trivial_submissions():
    probs = np.array([[0.6, 0.4, 0], [0.5, 0.3, 0.2], [0.1, 0.8, 0.1]])
    chosen = FUNDUS.model_copy(update={"outputs": 3})
    constant, uniform, one_hot = (one.probs for one in baselines(chosen, probs))
    assert (constant == [1, 0, 0]).all()
    assert uniform == pytest.approx(1 / 3)
    assert (one_hot.argmax(axis=1) == [0, 0, 1]).all()
    marginal, point = (one.draws for one in baselines(ENERGY, np.array([[1.0, 3.0], [5.0, 5.0]])))
    assert (point[:, 0] == [2, 5]).all()
    assert marginal.shape == point.shape == (2, 1000)


def test_no_entry_replaces_one_of_its_title(tmp_path, evaluators):
    base = evaluators["fundus"].reference.probs
    titles = ["uniform", "MAP", "MAP", "MAP (2/submission.npz)"]
    for k, title in enumerate(titles):
        probs = 0.8 * base + 0.2 * np.random.default_rng(k).dirichlet(np.ones(5), len(base))
        meta = {"task": "fundus", "title": title, "baseline": False}
        write_submission(tmp_path / str(k) / "submission.npz", Submission(probs, about=About(**meta)))
    (scored,) = score_tasks(find_submissions([tmp_path]), evaluators)[0]
    assert len(scored.competitors) == len({entry.title for entry in scored.entries}) - 3 == 4
    assert "uniform" in {entry.title for entry in scored.entries if entry.baseline}
