"""Printed numbers stand beside computed ones, marked as printed."""

from types import SimpleNamespace

from retinabench.fidelity.leaderboard.printed import final_ranking, printed_rows
from retinabench.fidelity.targets.registry import TARGETS


def evaluator(name, groups=("all", "clean")):
    return SimpleNamespace(
        target=TARGETS[name],
        reference=SimpleNamespace(about=SimpleNamespace(published_ceiling=None)),
        resampling=SimpleNamespace(groups=dict.fromkeys(groups)),
    )


def test_the_rows_of_a_task_are_marked_and_have_their_values():
    rows = printed_rows(evaluator("kit-cifar10"))
    assert len(rows) == 12
    assert all("(printed)" in row.title or "(reported)" in row.title for row in rows)
    clr = next(row for row in rows if row.title.startswith("SGHMC-CLR ("))
    quantity = clr.scores["total_variation"].quantity
    assert (quantity.value, quantity.error) == (0.099, 0.006)
    assert printed_rows(evaluator("fundus")) == []
    shifted = evaluator("kit-cifar10-shifted", ("all", "clean", "corrupted"))
    assert [row.scores["agreement"].quantity.value for row in printed_rows(shifted, "clean")] == [0.916]
    assert [row.scores["agreement"].quantity.value for row in printed_rows(shifted)] == [0.787]


def test_the_final_ranking_is_shown_beside_tasks_of_the_competition():
    table = final_ranking([SimpleNamespace(target=TARGETS["kit-uci"])])
    assert [row.label.partition(":")[0] for row in table.blocks[0].rows] == [
        "moellenh", "nkotelevskii and achille.thin", "adelaunoy",
    ]  # fmt: skip
    assert final_ranking([SimpleNamespace(target=TARGETS["fundus"])]) is None
