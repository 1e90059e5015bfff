from dataclasses import replace

import numpy as np
import pytest

from retinabench.fidelity.leaderboard import page
from retinabench.fidelity.leaderboard.board import make_board, score_task
from retinabench.fidelity.leaderboard.files import find_submissions, score_tasks
from retinabench.fidelity.leaderboard.page import markdown, write_board
from retinabench.fidelity.leaderboard.tables import corruption_table, strength_table, task_table, usefulness_table
from retinabench.fidelity.submissions.submission import About, Submission, write_submission
from retinabench.reports.toolkit.tables import UNDEFINED
from support.browsers import check_page
from support.evaluators import ENERGY, FUNDUS, GROUP, N, evaluator_of, submission_meta
from support.fake_reference import classified, regressed
from support.reading_pages import without_script

pytestmark = pytest.mark.usefixtures("legible")


def test_a_reference_that_failed_gives_no_ranking_and_says_why(written, evaluators):
    failed = classified(N, 5, passed=False, why=["R-hat below 1.05 for 60 % of outputs"])
    evaluators["fundus"] = evaluator_of(FUNDUS, failed)
    files = [one for one in find_submissions([written]) if "Near" not in str(one)]
    board = make_board(score_tasks(files, evaluators)[0])
    found = board.to_dict()
    fundus = next(task for task in found["tasks"] if task["task"] == "fundus")
    assert not any("rank" in entry for entry in fundus["entries"])
    assert found["ranking"][0]["tasks"] == 1  # the other task alone
    text = markdown(board).replace("\\", "")  # without escapes
    assert "No ranking: the reference fails its own diagnostics (R-hat below 1.05 for 60 % of outputs)" in text


def test_ranked_entries_come_first_then_the_controls_then_the_baselines(boards):
    task = boards[0]
    (block,) = task_table(task).blocks
    labels = [row.label for row in block.rows]
    assert labels[:5] == ["Near", "Middling", "Far", "one chain of the reference", "noise floor"]
    assert [row.control for row in block.rows] == [False] * 3 + [True] * 5
    assert [row.label for row in strength_table(task, "agreement").blocks[0].rows] == [*labels[:4], *labels[5:]]


def test_the_posterior_is_compared_with_map_and_with_nothing():
    evaluator = evaluator_of(FUNDUS, classified(N, 5))
    certain = np.full((N, 5), 0.05 / 4)
    certain[np.arange(N), evaluator.truth] = 0.95
    about = About(**submission_meta(FUNDUS, "MAP"))
    table = usefulness_table([score_task(evaluator, [Submission(certain, about=about)])])
    (block,) = table.blocks
    assert [row.label for row in block.rows][:2] == ["fundus: all test points", "fundus: in-domain"]
    posterior, known, uniform, over_map, over_uniform = (cell.content for cell in block.rows[0].cells)
    nll = -np.log(evaluator.reference.probs[np.arange(N), evaluator.truth]).mean()
    assert posterior.value == pytest.approx(nll)
    assert known.value == pytest.approx(-np.log(0.95))
    assert uniform.value == pytest.approx(np.log(5))
    assert over_map.value == pytest.approx(nll + np.log(0.95))
    assert over_uniform.low < nll - np.log(5) < over_uniform.high


def test_a_task_without_map_and_a_regression_have_what_is_known():
    evaluator = evaluator_of(ENERGY, regressed(N))
    draws = Submission(draws=evaluator.reference.draws[:, :1000], about=About(title="other"))
    table = usefulness_table([score_task(evaluator, [draws])])
    (block,) = table.blocks
    cells = block.rows[0].cells
    assert cells[0].content.defined
    assert cells[1] == cells[3] == UNDEFINED
    assert cells[4].content.defined


def test_kinds_and_strengths_have_a_mean_and_a_std():
    evaluator = evaluator_of(FUNDUS, classified(N, 5))
    random = np.random.default_rng(1)
    probs = random.dirichlet(np.ones(5), N)
    task = score_task(evaluator, [Submission(probs, about=About(title="one"))])
    (block,) = corruption_table(task).blocks
    distance = 0.5 * np.abs(probs - evaluator.reference.probs).sum(axis=1)
    cells = [distance[f"corrupted-noise-{k}" == GROUP].mean() for k in range(1, 6)]
    found = block.rows[0].cells[1].content
    assert found.value == pytest.approx(np.mean(cells))
    assert found.error == pytest.approx(np.std(cells, ddof=1))
    assert corruption_table(replace(task, evaluator=evaluator_of(ENERGY, regressed(N)))) is None


def test_the_page_and_tables_hold_everything_escape_it_and_fit_a_phone(folder, evaluators, tmp_path, browser):
    nasty = "<script>alert(1)</script>|x"
    over = submission_meta(FUNDUS, nasty) | {"budget": {"limit": 10, "used": 30.0, "over": True}}
    made = Submission(evaluators["fundus"].reference.probs, about=About(**over))
    write_submission(folder / "n" / "submission.npz", made)
    page = write_board(make_board(score_tasks(find_submissions([folder]), evaluators)[0]), tmp_path / "out")
    check_page(browser, page)
    html = page.read_text()
    assert "<script" not in without_script(html)
    assert "&lt;script&gt;" in html
    assert html.count("<svg") > 8
    assert "entries may be the nearest on 2 tasks (stated posterior, up to 100 gradients per example): Near; " in html
    text = (tmp_path / "out" / "board.md").read_text()
    assert "<script" not in text
    assert "| 30 / 10 (over, declared) |" in text.replace("\N{NO-BREAK SPACE}", " ")
    assert "corrupted 5" in text
    header = next(line for line in text.splitlines() if line.startswith("| entry | place | place by std | agreement"))
    row = next(line for line in text.splitlines() if line.startswith("| Near"))
    assert "exact draws" in header
    assert row.count("|") > 3


def test_distance_over_gradients_has_a_line_for_an_entry_at_several_tiers(boards):
    (axes,) = page.budget_figure([boards[0], boards[0]]).axes
    lines = {line.get_label(): line for line in axes.lines}
    assert set(lines) >= {"Near", "Middling", "Far"}
    assert lines["Near"].get_xdata() == pytest.approx([8, 8])
    assert axes.get_xscale() == "log"
