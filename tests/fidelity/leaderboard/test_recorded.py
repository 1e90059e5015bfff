"""A lone entry stands among the recorded ones."""

from __future__ import annotations

import pytest

from retinabench.fidelity.leaderboard.recorded import recorded
from retinabench.fidelity.scoring.measures import MEASURES, RANKED
from retinabench.fidelity.targets.registry import TARGETS


@pytest.mark.parametrize("task", ["fundus", "idrid", "energy-gap"])
def test_recorded_entries_have_the_measures_that_rank_their_task(task: str) -> None:
    known = recorded(task, 1000)
    assert known is not None
    assert known.seeds
    assert len(known.entries) >= 18
    for values in known.entries.values():
        assert set(values) == set(RANKED[TARGETS.find(task).likelihood]) <= set(MEASURES)
    assert recorded(task, None) is None
    assert recorded("fundus-small", 1000) is None
