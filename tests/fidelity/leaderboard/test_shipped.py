"""Submissions that come with the package: their compact form, and a lone entry among them."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.fidelity.distances import total_variation, wasserstein
from retinabench.fidelity.leaderboard import files, shipped
from retinabench.fidelity.leaderboard.board import make_board
from retinabench.fidelity.leaderboard.files import find_submissions, score_tasks
from retinabench.fidelity.leaderboard.pages.page import markdown
from retinabench.fidelity.leaderboard.pages.tables import ranking_tables, task_table
from retinabench.fidelity.leaderboard.recorded import recorded_table
from retinabench.fidelity.leaderboard.shipped import LOSS, beside, pack, shipped_submissions
from retinabench.fidelity.submissions.submission import About, Budget, Submission, read_submission
from support.evaluators import ENERGY, FUNDUS, N
from support.submissions import DATA


@pytest.fixture
def packed(folder, tmp_path, monkeypatch):
    """The submissions of the folder as the package would ship them."""
    out = tmp_path / "shipped"
    for target in (FUNDUS, ENERGY):
        data = DATA[target.name]
        found = [
            read_submission(one, target, N, data)
            for one in find_submissions([folder])
            if target.name in str(one)
        ]
        pack(target, data, found, out)
    monkeypatch.setattr(shipped, "FOLDER", out)
    monkeypatch.setattr(files, "shipped_submissions", partial(shipped_submissions, folder=out))
    return out


def test_the_compact_form_is_as_precise_as_stated(packed, folder):
    for target, distance, name in ((FUNDUS, total_variation, "probs"), (ENERGY, wasserstein, "draws")):
        found = shipped_submissions(target, DATA[target.name], packed)
        assert [(one.title, one.about.seed) for one in found] == [
            ("Far", 0), ("Middling", 0), ("Near", 0), ("Near", 1), ("Near", 2),
        ]  # fmt: skip
        for one in found:
            file = folder / f"{one.title}-{target.name}-{one.about.seed}" / "submission.npz"
            original = read_submission(file, target, N, DATA[target.name])
            assert distance(getattr(one, name), getattr(original, name)).mean() < LOSS[target.likelihood]
            assert one.about == original.about
    assert shipped_submissions(FUNDUS, "0" * 64, packed) == []  # of other data


def test_small_probabilities_keep_their_logarithm(tmp_path):
    """A square root of p is stored to half a unit, so that log p errs by at most 1 / (65,535 √p)."""
    smallest = np.logspace(-8, -1, N)
    probs = np.column_stack([smallest, *np.tile((1 - smallest) / 4, (4, 1))])
    pack(FUNDUS, DATA["fundus"], [Submission(probs, about=About(title="Sure"))], tmp_path)
    (found,) = shipped_submissions(FUNDUS, DATA["fundus"], tmp_path)
    error = np.abs(np.log(found.probs) - np.log(probs))
    assert (error < 1.1 / (shipped.UNIT * np.sqrt(probs)) + 1e-4).all()  # 1e-4: of the row's sum


def test_a_lone_entry_is_ranked_among_those_that_are_shipped(packed, folder, evaluators):
    """One's own copy of a shipped submission replaces it."""
    own = [folder / "Middling-fundus-0" / "submission.npz"]
    (board,), refused = score_tasks(own, {"fundus": evaluators["fundus"]}, shipped=True)
    assert not refused
    assert [(one.title, one.shipped, len(one.submissions)) for one in board.ordered if not one.baseline] == [
        ("Near", True, 3), ("Middling", False, 1), ("Far", True, 1),
    ]  # fmt: skip
    assert recorded_table(board) is None
    table = task_table(board)
    assert [row.label for row in table.blocks[0].rows][:3] == ["Near", "Middling (here)", "Far"]
    assert "come with the package" in table.note
    whole = make_board([board])
    (ranking,) = ranking_tables(whole)
    assert [row.label for row in ranking.blocks[0].rows] == ["Near", "Middling (here)", "Far"]
    assert "Middling (here)" in markdown(whole)
    assert [one["shipped"] for one in board.to_dict()["entries"]][:3] == [False, True, True]
    alone, _ = score_tasks(own, {"fundus": evaluators["fundus"]})
    assert [one.title for one in alone[0].competitors] == ["Middling"]


def test_other_seeds_and_settings_stay_beside_the_shipped_ones(packed):
    found = shipped_submissions(FUNDUS, DATA["fundus"], packed)
    own = [one for one in found if one.title == "Near" and one.about.seed == 1]
    assert {(one.title, one.about.seed) for one in beside(own, found)} == {
        ("Far", 0), ("Middling", 0), ("Near", 0), ("Near", 2),
    }  # fmt: skip
    # What is not trained has the same settings at every tier.
    tier = Budget(limit=100.0)
    (another,) = (replace(one, about=one.about.model_copy(update={"budget": tier})) for one in own)
    assert len(beside([another], found)) == len(found)


def test_what_the_compact_form_cannot_hold_is_refused(folder, tmp_path):
    one = read_submission(folder / "Near-energy-gap-0" / "submission.npz", ENERGY, N, DATA["energy-gap"])
    wide = type(one)(draws=np.asarray(one.draws) * 1000, about=one.about, source=one.source)
    with pytest.raises(InputError, match="compact form"):
        pack(ENERGY, DATA["energy-gap"], [wide], tmp_path)
