"""What a monitor found, in sentences for the terminal and the page."""

from __future__ import annotations

from retinabench.metrics.guarantees.risks import TARGETS
from retinabench.metrics.monitoring.result import Monitoring
from retinabench.reports.toolkit import pages
from retinabench.reports.toolkit.number_format import percent
from retinabench.reports.toolkit.pages import Finding

PACKAGE = "retinabench.reports.monitoring"


def goal_text(goal: object) -> str:
    """Return a goal as a reader sees it: `error of the retained ≤ 0.05`."""
    target, *bound = str(goal).split()
    heading = TARGETS[target].heading if target in TARGETS else target
    return " ".join([heading, *bound]).replace("<=", "≤").replace(">=", "≥")


def headline(found: Monitoring) -> str:
    """Return the one sentence that matters most."""
    return _say("headline", found)


def findings(found: Monitoring) -> list[Finding]:
    """Return what labels and drift show."""
    labels = "bad" if found.combined.alarm is not None else ""
    drift = "bad" if found.drift.alarm is not None else ""
    return [
        Finding("Certified risks.", _say("risk", found), labels),
        Finding("Drift.", _say("drift", found), drift),
        Finding("What no alarm can see.", _say("blind", found)),
    ]


def windows_note(found: Monitoring) -> str:
    """Return how the windows of time are to be read."""
    return _say("windows", found)


def expected_note(found: Monitoring) -> str:
    """Return how estimates without labels are to be read."""
    return _say("expected", found)


def _say(name: str, found: Monitoring) -> str:
    macro = getattr(pages.macros("sentences.j2", package=PACKAGE), name)
    goals = found.broken or found.certified.goals
    return " ".join(str(macro(found, percent(found.level), " and ".join(map(goal_text, goals)))).split())
