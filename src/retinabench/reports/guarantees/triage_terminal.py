"""What `retinabench transfer --zones` prints: the verdict, the zones, the plain choice, and a table within 80 columns."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from retinabench.metrics.guarantees.risks import PER, TARGETS
from retinabench.metrics.guarantees.triage import Triage
from retinabench.reports.guarantees.transfer_terminal import (
    LABELS,
    counts_cell,
    differs_cell,
    interval_cell,
    note,
)
from retinabench.reports.toolkit.number_format import COUNT, percent
from retinabench.reports.toolkit.tables import Cell, Column, Row, Table
from retinabench.reports.toolkit.terminal import to_terminal

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
    lines = []
    if found.broken:
        sets = " and ".join(LABELS[name] for name in found.broken)
        lines.append(f"Broken: the labels of {sets} refute the certificate.")
    for side in found.refused:
        zone = found.zones[side]
        begin = "No" if found.delta is None else "Refused, no"
        lines.append(f"{begin} {side} zone{'' if found.delta is None else ' is certified'}: {zone.why}.")
        if zone.certificate is not None and zone.certificate.needed is not None:
            needed, there = zone.certificate.needed, zone.certificate.patients
            lines.append(f"About {needed:,} validation patients would be needed; there are {there:,}.")
    ends = _ends({side: zone.threshold for side, zone in found.zones.items()})
    if ends:
        head = "Frozen on validation, not certified" if found.delta is None else "Certified on validation"
        lines.append(f"{head}: {ends}; the expert reads the others.")
    goals = "; ".join(goal.words for zone in found.zones.values() for goal in zone.goals)
    if found.delta is None:
        return [*lines, f"Goal, {PER[found.per]}: {goals}."]
    split = ", half of the error for each zone" if len(found.zones) == 2 else ""
    sure = f"with confidence {1 - found.delta:.6g} over the draw of the validation patients{split}"
    return [*lines, f"Claim, {PER[found.per]}: {goals}; {sure}.", _plain(found)]


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
    severe = all(one.missed_severe is not None for one in sets.values())
    goals = [goal.target for zone in found.zones.values() for goal in zone.goals]
    names = ["npv", "ppv", "sensitivity", *(["severe_sensitivity"] if severe else []), "specificity", *goals]
    rows = [
        Row("images", [Cell.number(one.images, form=COUNT) for one in sets.values()]),
        Row("called negative", [interval_cell(shares[name][0]) for name in sets]),
        Row("called positive", [interval_cell(shares[name][1]) for name in sets]),
        Row("read by the expert", [interval_cell(one.referral_rate) for one in sets.values()]),
        *(
            Row(_heading(name), [interval_cell(one.targets[name]) for one in sets.values()])
            for name in dict.fromkeys(names)
        ),
        Row("referable images missed", [counts_cell(one.missed) for one in sets.values()]),
    ]
    if severe:
        rows.append(
            Row(
                "grade 3-4 missed",
                [counts_cell(one.missed_severe) for one in sets.values() if one.missed_severe],
            )
        )
    rows.append(Row("differs from validation", [differs_cell(one) for one in sets.values()]))
    if found.delta is not None:
        rows.append(Row("certificate", [Cell(one.guarantee or "") for one in sets.values()]))
    return to_terminal(Table.of("", [Column(LABELS[name]) for name in sets], rows, note=note(found.per)))


def _heading(target: str) -> str:
    return {"npv": "NPV", "ppv": "PPV"}.get(target, TARGETS[target].heading)
