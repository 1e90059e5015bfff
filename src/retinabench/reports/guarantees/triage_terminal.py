"""What `retinabench transfer --zones` prints: the verdict, the zones, the plain choice, and a table within 80 columns."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from retinabench.metrics.guarantees.triage import Triage
from retinabench.reports.guarantees.sets_table import (
    broken_lines,
    goals_line,
    needed_lines,
    sets_table,
    with_interval,
)
from retinabench.reports.toolkit.number_format import percent
from retinabench.reports.toolkit.tables import Row

SIGNS = {"negative": "<=", "positive": ">="}


def triage_summary(found: Triage) -> Group:
    """Return what the command prints; the first lines say what is broken, then which zone is refused.

    Args:
        found: The zones and what they do on every set.

    Returns:
        Lines and a table for `rich.console.Console.print`.
    """
    lines: list[RenderableType] = [Text(line) for line in _verdict(found)]
    return Group(*lines, _table(found)) if found.sets else Group(*lines)


def _verdict(found: Triage) -> list[str]:
    lines = broken_lines(found)
    for side in found.refused:
        zone = found.zones[side]
        begin = "No" if found.delta is None else "Refused, no"
        lines.append(f"{begin} {side} zone{'' if found.delta is None else ' is certified'}: {zone.why}.")
        lines += needed_lines(zone.certificate)
    ends = _ends({side: zone.threshold for side, zone in found.zones.items()})
    if ends:
        head = "Frozen on validation, not certified" if found.delta is None else "Certified on validation"
        lines.append(f"{head}: {ends}; the expert reads the others.")
    claimed = found.delta is not None and bool(ends)
    zones = [zone for zone in found.zones.values() if not claimed or zone.threshold is not None]
    goals = [goal for zone in zones for goal in zone.goals]
    each = ", half of the error for each zone" if len(found.zones) == 2 else ""
    lines.append(goals_line(goals, found.per, found.delta, claimed=claimed, each=each))
    return lines if found.delta is None else [*lines, _plain(found)]


def _plain(found: Triage) -> str:
    ends = _ends({side: zone.plain for side, zone in found.zones.items()})
    if not ends:
        return "Plain choice, not certified: none reaches a goal on validation."
    return f"Plain choice, not certified: {ends}; the expert reads {percent(found.plain_read)} of the images."


def _ends(ends: dict[str, float | None]) -> str:
    """The zones that are not empty: `negative where P(referable) <= 0.03, positive where >= 0.9`."""
    shown = [
        f"{side} where P(referable) {SIGNS[side]} {end:.4g}" for side, end in ends.items() if end is not None
    ]
    return ", ".join(shown)


def _table(found: Triage) -> Group:
    sets, shares = found.sets, found.shares
    rows = [
        Row("called negative", [with_interval(shares[name][0]) for name in sets]),
        Row("called positive", [with_interval(shares[name][1]) for name in sets]),
        Row("read by the expert", [with_interval(one.referral_rate) for one in sets.values()]),
    ]
    goals = [goal.target for zone in found.zones.values() for goal in zone.goals]
    targets = ["npv", "ppv", "sensitivity", "severe_sensitivity", "specificity", *goals]
    return sets_table(sets, rows, targets, found.per, certified=found.delta is not None)
