"""The status of a study, read from its folder."""

from __future__ import annotations

import pytest

from retinabench.experiments.study import console
from retinabench.experiments.study.status import read_status
from support.studies import study


def test_status_before_during_and_after(finished, tmp_path):
    root, definition, *_ = finished
    before = read_status(definition, tmp_path / "nothing")
    assert [(dict(line.trials), dict(line.runs)) for line in before.lines] == [({"left": 2}, {"left": 2})] * 2
    assert "no process is at work: 8 runs left" in "\n".join(console.status_lines(before))

    after = read_status(definition, root / "out")
    assert all(line.left == 0 and line.trials["done"] == 2 for line in after.lines)
    assert "finished" in "\n".join(console.status_lines(after))
    assert after.finished

    longer = read_status(study(root, root / "data", trials=4, seeds=3), root / "out")
    for line in longer.lines:
        assert line.trials == {"done": 2, "left": 2}
        assert line.seconds_left == pytest.approx(line.left * line.seconds)
