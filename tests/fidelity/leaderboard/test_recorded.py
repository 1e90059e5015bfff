"""A lone entry stands among the recorded ones."""

from __future__ import annotations

import pytest

from retinabench.fidelity.leaderboard.recorded import recorded
from retinabench.fidelity.scoring.measures import MEASURES, RANKED
from retinabench.fidelity.targets.registry import TARGETS


@pytest.mark.parametrize("task", ["fundus", "idrid", "energy-gap"])
def test_recorded_entries_have_the_measures_that_rank_their_task(task: str) -> None:
    known = recorded(task)
    assert len(known) >= 18
    for values in known.values():
        assert set(values) == set(RANKED[TARGETS.find(task).likelihood]) <= set(MEASURES)
    assert not recorded("fundus-small")
