"""Printed values are shown as they are printed, and summaries as unverified rows."""

from __future__ import annotations

import pytest

from retinabench.core.errors import InputError
from retinabench.reports.leaderboard.printed import printed_tables, read_summaries, table_2019
from retinabench.reports.toolkit.renderers import to_markdown

CSV = "retained_data,mean,std\n0.5,88.0,1.0\n0.7,85.15,\n1.0,82.2,0.4\n"


@pytest.fixture
def summaries(tmp_path):
    for metric in ("auc", "accuracy"):
        folder = tmp_path / "diabetic_retinopathy_diagnosis" / metric
        folder.mkdir(parents=True)
        (folder / "my_net.csv").write_text(CSV)
    return tmp_path


def test_the_competition_s_table_has_its_printed_digits() -> None:
    text = "\n".join(to_markdown(table) for table in printed_tables()).replace("\N{NO-BREAK SPACE}", " ")
    assert "| HMC | 94.01 ± 0.25 | 0.074 ± 0.003 | 89.64 ± 0.25 |" in text
    assert "SGHMC-CLR-Prec" in text
    assert "| Best of any team, evaluation | 91.6 | 78.7 |" in text


def test_table_1_of_2019_has_printed_unverified_and_our_rows(summaries, board) -> None:
    table = table_2019("in_domain", [board], read_summaries(summaries))
    rows = {row.label: row for row in table.blocks[0].rows}
    assert rows["MC dropout, printed"].cells[0].content == "87.8 ± 1.1"
    assert [cell.content for cell in rows["my net, unverified"].cells[:4]] == [
        "88.0 ± 1.0",
        "88.0 ± 1.0",
        "85.2",
        "85.2",
    ] or [cell.content for cell in rows["my net, unverified"].cells[2:4]] == ["85.1", "85.1"]
    ours = [label for label in rows if label.endswith(board.benchmark.name)]
    assert len(ours) == 2, "of the baselines alone"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("retained_data,mean,std\n0.5,x,1\n", "row 1, column 'mean': is no number"),
        ("retained_data,mean,std\n0.5,880,1\n", "a mean in percent"),
        ("retained_data,mean,std\n", "holds no rows"),
        ("a\n\xff", "row 1"),
    ],
)
def test_a_bad_summary_is_named(summaries, text: str, problem: str) -> None:
    (summaries / "diabetic_retinopathy_diagnosis" / "auc" / "my_net.csv").write_text(text, encoding="latin-1")
    with pytest.raises(InputError) as error:
        read_summaries(summaries)
    assert problem in str(error.value) or "cannot be read" in str(error.value)


def test_a_folder_of_something_else_is_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="holds 0 files"):
        read_summaries(tmp_path)
    (tmp_path / "other" / "auc").mkdir(parents=True)
    (tmp_path / "other" / "auc" / "a.csv").write_text(CSV)
    with pytest.raises(InputError, match="no summary that is known"):
        read_summaries(tmp_path)
