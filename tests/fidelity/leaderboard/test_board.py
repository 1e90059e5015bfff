import json
from dataclasses import replace

import numpy as np
import pytest

from retinabench.fidelity.leaderboard.board import baselines, make_board, score_task
from retinabench.fidelity.scoring.resolution import Contest, places_of_ranks, resolve
from retinabench.fidelity.submissions.submission import About, Submission
from support.evaluators import ENERGY, FUNDUS, submission_meta
from support.fake_reference import softmax


def test_nearer_submissions_rank_first_and_seeds_are_one_entry(boards):
    found = make_board(boards).to_dict()
    assert [row["title"] for row in found["ranking"]] == ["Near", "Middling", "Far"]
    assert [row["rank"] for row in found["ranking"]] == [1, 2, 3]
    assert found["ranking"][0]["by_measure"] == {"agreement": 1, "total_variation": 1, "wasserstein": 1}
    (task,) = [task for task in found["tasks"] if task["task"] == "fundus"]
    (near,) = [e for e in task["entries"] if e["title"] == "Near"]
    assert near["seeds"] == [0, 1, 2]
    values = [grade["all"]["total_variation"].value for grade in boards[0].entries["Near"].estimates]
    one = near["groups"]["all"]["total_variation"]
    assert one["value"] == pytest.approx(np.mean(values))
    assert one["error"] == pytest.approx(np.std(values, ddof=1) / np.sqrt(3))
    json.dumps(found, allow_nan=False)


def noisy(evaluators, seed):
    probs = evaluators["fundus"].reference.probs
    return softmax(np.log(probs) + np.random.default_rng(seed).normal(size=probs.shape))


def test_ranks_that_depend_on_the_points_have_wide_intervals(scored, evaluators):
    # Two entries equally far from the reference: which is first is a matter of the points.
    made = [([noisy(evaluators, 100 + k)], submission_meta(FUNDUS, title)) for k, title in enumerate("AB")]
    found = make_board(scored(*made)[0]).to_dict()
    assert all(row["low"] == 1 and row["high"] == 2 for row in found["ranking"])


def test_baselines_are_scored_and_not_ranked(boards):
    found = make_board(boards).to_dict()
    for task in found["tasks"]:
        trivial = [entry for entry in task["entries"] if entry["baseline"]]
        assert len(trivial) == (3 if task["task"] == "fundus" else 2)
        assert not any("rank" in entry for entry in trivial)
    titles = {entry["title"] for entry in found["tasks"][0]["entries"]}
    assert {"constant class", "uniform", "one-hot of the reference"} <= titles


def test_an_entry_that_missed_a_task_is_not_in_the_final_ranking(boards):
    energy = {title: entry for title, entry in boards[1].entries.items() if title != "Far"}
    found = make_board([boards[0], replace(boards[1], entries=energy)]).to_dict()
    assert [row["title"] for row in found["ranking"]] == ["Near", "Middling"]


def test_settings_of_one_title_are_told_apart(scored, evaluators):
    probs = 0.8 * evaluators["fundus"].reference.probs + 0.2 / 5
    ((found,), _) = scored(*(([probs], submission_meta(FUNDUS, "MAP", lr=rate)) for rate in (0.1, 0.2)))
    titles = [line.title for line in found.competitors]
    assert len(set(titles)) == 2
    assert all(title.startswith("MAP (") for title in titles)
    assert all(entry.rank.rank == 1.5 for entry in found.competitors)  # they are equal


def test_of_seeds_with_and_without_samples_are_the_measures_that_both_have(scored, evaluators):
    probs = noisy(evaluators, 0)
    seeds = [([probs, np.stack([probs, probs])], 0), ([noisy(evaluators, 1)], 1)]
    ((task,), _) = scored(*((values, submission_meta(FUNDUS, "Half", seed=seed)) for values, seed in seeds))
    (entry,) = task.competitors
    assert np.isfinite(task.value(entry.title, "all", "total_variation").value)
    assert np.isnan(task.value(entry.title, "all", "epistemic_correlation").value)


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


def test_undefined_scores_have_a_reason_and_no_interval(evaluators):
    probs = evaluators["fundus"].reference.probs
    bare = Submission(np.eye(5)[probs.argmax(axis=1)], about=About(title="x"))
    task = score_task(evaluators["fundus"], [bare])
    record = next(entry for entry in task.to_dict()["entries"] if entry["title"] == "x")["groups"]["all"]
    assert record["epistemic_error"] == {"value": None, "why": "needs posterior samples"}
    assert record["nll"]["why"] == "a class that occurs got probability 0, or less than is stored"
    assert set(record["agreement"]) == {"value", "low", "high"}


def contest(centres, seeds=3, spread=0.02, points=0.01, seed=0):
    random = np.random.default_rng(seed)
    values = [centre + spread * random.normal(size=seeds) for centre in centres]
    shared = points * random.normal(size=500)  # the same points for all
    return independent(values, [each.mean() + shared + 0.001 * random.normal(size=500) for each in values])


def independent(values, replicates):
    """Entries whose seeds have nothing in common."""
    return Contest.of(False, values, replicates, [[None] * len(each) for each in values])


def test_far_entries_have_places_of_their_own_and_near_ones_share():
    found = resolve([contest([0.1, 0.103, 0.5, 0.9], spread=0.005)])
    assert found.places == ((1, 2), (1, 2), (3, 3), (4, 4))
    assert (found.resolved, found.pairs) == (5, 6)
    assert 0.005 < found.detectable[0] < 0.1


def test_seeds_that_vary_resolve_nothing():
    # One third of the entries' own noise lies between them, as on `energy-gap`.
    found = resolve([contest([0.30, 0.32, 0.34, 0.36], spread=0.06)])
    assert found.places == ((1, 4),) * 4
    assert found.resolved == 0


def test_equal_entries_are_rarely_told_apart():
    """Of 300 tasks with two entries of ten seeds 15 resolve them, of 60 with five, by Holm's correction, 3 a pair, at most; and three
    standard deviations of 3.8 and 1.7 more. The seeds are the numbers of the tasks."""
    two, five = ((300, [0.3] * 2, 10), (60, [0.3] * 5, 3))
    wrong = [sum(resolve([contest(of, n, seed=k)]).resolved > 0 for k in range(tasks)) for tasks, of, n in (two, five)]
    assert wrong[0] <= 15 + 3 * 3.8
    assert wrong[1] <= 3 + 3 * 1.7


def test_the_stated_power_is_reached():
    found = resolve([contest([0.3] * 4, seeds=20, spread=0.02)])
    size = found.detectable[0]
    contests = [contest([0.3, 0.3 + size, 0.3, 0.3], seeds=20, seed=k) for k in range(60)]
    hits = sum((1, 2) not in resolve([one]).places[1:2] for one in contests)
    assert hits >= 40  # .8 for one pair; this entry has three


def test_a_single_seed_has_the_variance_of_the_others():
    several = contest([0.3, 0.32, 0.31], spread=0.05)
    values, replicates = ([getattr(one, name) for one in several.sides] for name in ("values", "draws"))
    one = independent([values[0][:1], *values[1:]], replicates)
    assert resolve([one]).resolved == 0
    alone = independent([each[:1] for each in values], replicates)
    assert resolve([alone]).resolved == 3  # nothing is known of the seeds: the ranks are those of these runs


def test_measures_that_contradict_each_other_resolve_nothing():
    first, second = contest([0.1, 0.9], spread=0.001), contest([0.9, 0.1], spread=0.001)
    assert resolve([first, second]).places == ((1, 2), (1, 2))


def test_places_by_mean_ranks():
    random = np.random.default_rng(0)
    ranks = np.array([1.2, 1.3, 3.0]) + 0.3 * random.normal(size=(500, 3))
    assert places_of_ranks(ranks) == ((1, 2), (1, 2), (3, 3))
    assert places_of_ranks(np.empty((0, 2))) == ((1, 2), (1, 2))


def test_a_method_with_too_narrow_a_posterior_is_behind_by_its_std_alone(evaluators, scored):
    """Half the deviation of each posterior sample from the mean, with the same mean: a quarter of the variance."""
    reference = evaluators["fundus"].reference
    mean = reference.samples.mean(axis=0)
    random = np.random.default_rng(3)
    probs = 0.97 * mean + 0.03 * random.dirichlet(np.ones(5), len(mean))
    wide = probs + (reference.samples - mean)
    entries = {"narrow": probs + 0.5 * (reference.samples - mean), "wide": wide}
    boards, _ = scored(*(((probs, some), submission_meta(FUNDUS, title, 0)) for title, some in entries.items()))
    values = {title: boards[0].scores(title, "all") for title in entries}
    assert values["narrow"]["total_variation"].value == values["wide"]["total_variation"].value
    assert values["narrow"]["variance_ratio"].value == pytest.approx(0.25, abs=0.01)
    assert values["wide"]["variance_ratio"].value == pytest.approx(1, abs=0.01)
    found = {title: boards[0].entries[title].rank_by_std for title in entries}
    assert found["wide"].rank == 1
    assert found["narrow"].rank == 2
