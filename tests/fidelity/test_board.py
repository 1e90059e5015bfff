import json

import numpy as np
import pytest

from fidelity.test_grading import ENERGY, FUNDUS, N, data_of, evaluator_of
from retinabench.core.errors import InputError
from retinabench.fidelity.leaderboard.board import board, find_submissions, gather, task_of
from retinabench.fidelity.leaderboard.board_page import board_markdown, write_board
from retinabench.fidelity.submissions.submission import Submission, write_submission
from support.fake_reference import classified, regressed, softmax

DATA = {chosen.name: data_of(chosen).sha256 for chosen in (FUNDUS, ENERGY)}


def meta(chosen, title, seed=0, **more):
    run = {"seed": seed, "method": title, **more}
    sha = DATA[chosen.name]
    return {
        "task": chosen.name, "target": chosen.fingerprint(sha), "data": sha, "method": title.lower(), "title": title,
        "seed": seed, "run": run, "budget": {"limit": 10, "used": 8.0, "over": False}, "seconds": 1.0,
    }  # fmt: skip


@pytest.fixture
def evaluators():
    return {
        "fundus": evaluator_of(FUNDUS, classified(N, 5)),
        "energy-gap": evaluator_of(ENERGY, regressed(N)),
    }


@pytest.fixture
def folder(tmp_path, evaluators):
    """Near, middling and far submissions for both tasks; the near one with three seeds."""
    near, reference = evaluators["fundus"].reference, evaluators["energy-gap"].reference.draws
    for title, noise, seeds in (("Near", 0.2, 3), ("Middling", 0.8, 1), ("Far", 3.0, 1)):
        for seed in range(seeds):
            random = np.random.default_rng(100 + seed)
            probs = softmax(np.log(near.probs) + noise * random.normal(size=near.probs.shape))
            shifted = reference[:, :1000] + noise * random.normal(size=(N, 1))
            for chosen, submission in (
                (FUNDUS, Submission(probs, probs[None], meta=meta(FUNDUS, title, seed))),
                (ENERGY, Submission(draws=shifted, meta=meta(ENERGY, title, seed))),
            ):
                write_submission(
                    tmp_path / "runs" / f"{title}-{chosen.name}-{seed}" / "submission.npz", submission
                )
    return tmp_path / "runs"


def test_nearer_answers_rank_first_and_seeds_are_one_entry(folder, evaluators):
    sheets = gather(find_submissions([folder]), evaluators)
    found = board(sheets)
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
    (line,) = [s for s in sheets[0].lines if s.title == "Near"]
    values = [grade["all"]["total_variation"].value for grade in line.grades]
    one = near["groups"]["all"]["total_variation"]
    assert one["value"] == pytest.approx(np.mean(values))
    assert one["error"] == pytest.approx(np.std(values, ddof=1) / np.sqrt(3))
    json.dumps(found, allow_nan=False)


def test_ranks_that_depend_on_the_points_have_wide_intervals(tmp_path, evaluators):
    # Two entries equally far from the reference: which is first is a matter of the points.
    probs = evaluators["fundus"].reference.probs
    for k, title in enumerate(("A", "B")):
        noisy = softmax(np.log(probs) + np.random.default_rng(100 + k).normal(size=probs.shape))
        write_submission(tmp_path / title / "submission.npz", Submission(noisy, meta=meta(FUNDUS, title)))
    found = board(gather(find_submissions([tmp_path]), evaluators))
    assert all(row["low"] == 1 and row["high"] == 2 for row in found["ranking"])


def test_baselines_stand_in_every_table_and_are_not_ranked(folder, evaluators):
    found = board(gather(find_submissions([folder]), evaluators))
    for task in found["tasks"]:
        trivial = [entry for entry in task["entries"] if entry["baseline"]]
        assert len(trivial) == (3 if task["task"] == "fundus" else 2)
        assert not any("rank" in entry for entry in trivial)
    titles = {entry["title"] for entry in found["tasks"][0]["entries"]}
    assert {"constant class", "uniform", "one-hot of the reference"} <= titles


def test_a_reference_that_failed_ranks_nobody_and_says_why(folder, evaluators):
    failed = classified(N, 5, passed=False, why=["R-hat below 1.05 for 60 % of outputs"])
    evaluators["fundus"] = evaluator_of(FUNDUS, failed)
    found = board(gather(find_submissions([folder]), evaluators))
    fundus = next(task for task in found["tasks"] if task["task"] == "fundus")
    assert not any("rank" in entry for entry in fundus["entries"])
    assert found["ranking"][0]["tasks"] == 1  # the other task alone
    text = board_markdown(found)
    assert (
        "No ranking: the reference fails its own diagnostics (R-hat below 1.05 for 60 % of outputs)" in text
    )


def test_an_entry_that_missed_a_task_is_not_in_the_final_ranking(folder, evaluators):
    (folder / "Far-energy-gap-0" / "submission.npz").unlink()
    found = board(gather(find_submissions([folder]), evaluators))
    assert [row["title"] for row in found["ranking"]] == ["Near", "Middling"]


def test_settings_of_one_title_are_told_apart(tmp_path, evaluators):
    probs = evaluators["fundus"].reference.probs
    for k, rate in enumerate((0.1, 0.2)):
        one = Submission(probs, meta=meta(FUNDUS, "MAP", lr=rate))
        write_submission(tmp_path / str(k) / "submission.npz", one)
    (sheet,) = gather(find_submissions([tmp_path]), evaluators)
    titles = [line.title for line in sheet.entries]
    assert len(set(titles)) == 2
    assert all(title.startswith("MAP (") for title in titles)
    (task,) = board([sheet])["tasks"]
    assert all(
        entry["rank"]["rank"] == 1.5 for entry in task["entries"] if not entry["baseline"]
    )  # they are equal


def test_the_page_and_tables_hold_everything_and_escape_it(folder, evaluators, tmp_path):
    nasty = "<script>alert(1)</script>|x"
    over = meta(FUNDUS, nasty) | {"budget": {"limit": 10, "used": 30.0, "over": True}}
    write_submission(
        folder / "n" / "submission.npz", Submission(evaluators["fundus"].reference.probs, meta=over)
    )
    _, page = write_board(gather(find_submissions([folder]), evaluators), tmp_path / "out")
    html = page.read_text()
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert html.count("<svg") > 8
    text = (tmp_path / "out" / "board.md").read_text()
    assert "<script" not in text
    assert "| 30 (over 10) |" in text
    assert "corrupted 5" in text
    header = next(line for line in text.splitlines() if line.startswith("| | rank"))
    row = next(line for line in text.splitlines() if line.startswith("| Near"))
    assert "÷ ceiling" in header
    assert row.count("|") > 3


def test_files_that_name_no_task_and_empty_folders_are_refused(tmp_path):
    np.savez(tmp_path / "submission.npz", probs=np.eye(5))
    with pytest.raises(InputError, match=r"does not say which task it is for.*--keep"):
        task_of(tmp_path / "submission.npz")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty: holds no submission\.npz"):
        find_submissions([tmp_path / "empty"])
