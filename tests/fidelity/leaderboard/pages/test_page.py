"""The page of a board: complete, escaped, and fit for a phone."""

from retinabench.fidelity.leaderboard.board import make_board
from retinabench.fidelity.leaderboard.files import find_submissions, score_tasks
from retinabench.fidelity.leaderboard.pages.page import write_board
from retinabench.fidelity.submissions.submission import About, Submission, write_submission
from support.browsers import check_phone, faults
from support.evaluators import FUNDUS
from support.reading_pages import without_script
from support.submissions import submission_meta


def test_the_page_fits_a_phone_and_is_accessible(folder, evaluators, tmp_path, browser):
    found = write_board(make_board(score_tasks(find_submissions([folder]), evaluators)[0]), tmp_path)
    check_phone(browser, found)
    assert faults(browser, found, contrast=False) == []


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
    assert "| 30 (over 10, declared) |" in text.replace("\N{NO-BREAK SPACE}", " ")
    assert "corrupted 5" in text
    header = next(line for line in text.splitlines() if line.startswith("| entry | place | agreement"))
    row = next(line for line in text.splitlines() if line.startswith("| Near"))
    assert "exact draws" in header
    assert row.count("|") > 3
