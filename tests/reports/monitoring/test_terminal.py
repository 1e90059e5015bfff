"""What `monitor` prints: the headline first, only the latest windows, and every finding."""

from __future__ import annotations

import io

import numpy as np
from rich.console import Console

from retinabench.metrics.guarantees.goals import Goal
from retinabench.metrics.monitoring.certified import Certified
from retinabench.metrics.monitoring.monitor import monitor
from retinabench.reports.monitoring.terminal import LATEST, monitor_tables
from support.follow_ups import follow_up

GOALS = Certified(0.2, 0.5, "max_probability", (Goal("selective_risk", 0.08),), "image", 2)


def test_headline_tables_and_findings_stand_in_this_order():
    found = monitor(follow_up(np.random.default_rng(0), 200), GOALS)
    out = io.StringIO()
    Console(file=out, width=80).print(monitor_tables(found))
    text = out.getvalue()
    places = [
        text.index(part)
        for part in ("No alarm", "Evidence so far", f"By {found.unit}", "Certified risks.", "Drift.")
    ]
    assert places == sorted(places)
    assert "What no alarm can see." in text
    shown = [one.start for one in found.windows if one.start in text]
    assert len(shown) == min(LATEST, len(found.windows))
    assert shown[-1] == found.windows[-1].start
