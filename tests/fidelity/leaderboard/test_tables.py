"""Tables and page of the board: complete, escaped, and with the reason where nothing is ranked."""

from retinabench.fidelity.leaderboard.board import make_board
from retinabench.fidelity.leaderboard.files import find_submissions, score_tasks
from retinabench.fidelity.leaderboard.tables import markdown, strength_table, task_table, write_board
from retinabench.fidelity.submissions.submission import About, Submission, write_submission
from support.browsers import check_phone
from support.evaluators import FUNDUS, N, evaluator_of
from support.fake_reference import classified
from support.reading_pages import without_script
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


def test_the_page_fits_a_phone(folder, evaluators, tmp_path, browser):
    check_phone(
        browser, write_board(make_board(score_tasks(find_submissions([folder]), evaluators)[0]), tmp_path)
    )


def test_the_page_and_tables_hold_everything_and_escape_it(folder, evaluators, tmp_path):
    nasty = "<script>alert(1)</script>|x"
    over = submission_meta(FUNDUS, nasty) | {"budget": {"limit": 10, "used": 30.0, "over": True}}
    write_submission(
        folder / "n" / "submission.npz", Submission(evaluators["fundus"].reference.probs, about=About(**over))
    )
    page = write_board(make_board(score_tasks(find_submissions([folder]), evaluators)[0]), tmp_path / "out")
    html = page.read_text()
    assert "<script" not in without_script(html)
    assert "&lt;script&gt;" in html
    assert html.count("<svg") > 8
    assert (
        "entries may be the nearest on 2 tasks (stated posterior, up to 100 gradients per example): Near, "
        in html
    )
    text = (tmp_path / "out" / "board.md").read_text()
    assert "<script" not in text
    assert "| 30 (over 10) |" in text.replace("\N{NO-BREAK SPACE}", " ")
    assert "corrupted 5" in text
    header = next(line for line in text.splitlines() if line.startswith("| entry | place | agreement"))
    row = next(line for line in text.splitlines() if line.startswith("| Near"))
    assert "exact draws" in header
    assert row.count("|") > 3


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
