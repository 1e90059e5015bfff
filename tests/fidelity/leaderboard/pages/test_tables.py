"""Tables and page of the board: complete, escaped, and with the reason where nothing is ranked."""

from retinabench.fidelity.leaderboard.board import make_board, score_task
from retinabench.fidelity.leaderboard.files import find_submissions, score_tasks
from retinabench.fidelity.leaderboard.pages.page import markdown
from retinabench.fidelity.leaderboard.pages.tables import strength_table, task_table
from retinabench.fidelity.submissions.submission import About, Submission
from support.evaluators import FUNDUS, N, evaluator_of
from support.fake_reference import classified
from support.submissions import submission_meta


def unescaped(text):
    """Markdown without its escapes."""
    return text.replace("\\", "")


def test_a_reference_that_failed_gives_no_ranking_and_says_why(folder, evaluators):
    failed = classified(N, 5, passed=False, why=["R-hat below 1.05 for 60 % of outputs"])
    evaluators["fundus"] = evaluator_of(FUNDUS, failed)
    board = make_board(score_tasks(find_submissions([folder]), evaluators)[0])
    found = board.to_dict()
    fundus = next(task for task in found["tasks"] if task["task"] == "fundus")
    assert not any("rank" in entry for entry in fundus["entries"])
    assert found["ranking"][0]["tasks"] == 1  # the other task alone
    text = unescaped(markdown(board))
    assert (
        "No ranking: the reference fails its own diagnostics (R-hat below 1.05 for 60 % of outputs)" in text
    )


def test_ranked_entries_come_first_then_the_controls_then_the_baselines(folder, evaluators):
    task, _ = score_tasks(find_submissions([folder]), evaluators)[0]
    (block,) = task_table(task).blocks
    labels = [row.label for row in block.rows]
    assert labels[:5] == ["Near", "Middling", "Far", "one chain of the reference", "noise floor"]
    assert [row.control for row in block.rows] == [False] * 3 + [True] * 5
    assert [row.label for row in strength_table(task, "agreement").blocks[0].rows] == [
        *labels[:4],
        *labels[5:],
    ]


def test_budgets_that_no_run_vouches_for_are_marked(evaluators):
    probs = evaluators["fundus"].reference.probs[:, ::-1]
    signed = {"evidence": {"manifest": "0" * 64}, "content": "0" * 64}
    over = {"budget": {"limit": 10, "used": 12.0, "over": True}}
    entries = [
        Submission(probs, about=About(**(submission_meta(FUNDUS, title) | more)))
        for title, more in (("Counted", signed), ("Declared", {}), ("Both", over))
    ]
    table = task_table(score_task(evaluators["fundus"], entries))
    place = [column.label for column in table.blocks[0].columns].index("budget")
    said = {row.label: row.cells[place].below for row in table.blocks[0].rows}
    assert (said["Counted"], said["Declared"], said["Both"]) == ("", "declared", "over 10, declared")
    assert "A budget that is declared" in table.note
    counted = task_table(score_task(evaluators["fundus"], entries[:1]))
    assert "declared" not in counted.note


def test_places_of_single_seeds_are_said_to_hold_for_these_runs(evaluators):
    probs = evaluators["fundus"].reference.probs
    near, far = (
        Submission(share * probs + (1 - share) / 5, about=About(**submission_meta(FUNDUS, title)))
        for title, share in (("Near", 0.9), ("Far", 0.3))
    )
    again = Submission(0.8 * probs + 0.04, about=About(**submission_meta(FUNDUS, "Near", 1)))
    for submissions, said in (([near, far], True), ([near, again, far], False)):
        note = task_table(score_task(evaluators["fundus"], submissions)).note
        assert ("places hold for these runs alone" in note) == said
