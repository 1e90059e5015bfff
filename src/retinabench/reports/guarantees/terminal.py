"""What `retinabench transfer` prints, with and without `--zones`: verdict, rule, plain choice, a table within 80 columns."""

from __future__ import annotations

import math

from rich.console import Group
from rich.text import Text

from retinabench.metrics.guarantees.transfer import Transfer
from retinabench.metrics.guarantees.triage import Triage
from retinabench.metrics.proportions import Interval
from retinabench.reports.guarantees.sets_table import (
    broken_lines,
    counted,
    goals_line,
    needed_lines,
    sets_table,
    with_interval,
)
from retinabench.reports.toolkit.number_format import THREE_DIGITS, percent
from retinabench.reports.toolkit.tables import Row

ALWAYS = ("sensitivity", "npv", "ppv", "severe_sensitivity")
SIGNS = {"negative": "<=", "positive": ">="}


def transfer_summary(found: Transfer) -> Group:
    """Return what the command prints; the first line says whether there is a threshold and whether it holds."""
    return Group(*map(Text, _verdict(found)), *([_table(found)] if found.sets else []))


def _verdict(found: Transfer) -> list[str]:
    certificate = found.certificate
    delta = None if certificate is None else certificate.delta
    claimed = certificate is not None and certificate.granted
    goals = goals_line(found.goals, found.per, delta, claimed=claimed)
    alone = [_alone(found.alone)] if found.alone.value < 0.5 else []
    if certificate is None:
        if found.threshold is None:
            return [*alone, f"No threshold: {found.choice.why}.", goals]
        frozen = f"Frozen on validation, not certified: {_rule(found.threshold)}."
        return [*broken_lines(found), *alone, frozen, goals]
    if certificate.threshold is None:
        why = certificate.why or ""
        refused = f"Refused: no threshold is certified. {why[:1].upper()}{why[1:]}."
        return [refused, *alone, *needed_lines(certificate), goals, _plain(found)]
    certified = f"Certified on validation: {_rule(certificate.threshold)}."
    return [*broken_lines(found), *alone, certified, goals, _plain(found)]


def _alone(sensitivity: Interval) -> str:
    value, low, high = sensitivity.value, sensitivity.low, sensitivity.high
    return f"Sensitivity of the model alone: {value:.2f} [{low:.2f}, {high:.2f}] on validation."


def _plain(found: Transfer) -> str:
    choice = found.choice
    if choice.threshold is None:
        return f"Plain choice, not certified: {choice.why}."
    values = ", ".join(
        f"{goal.spec.heading} {THREE_DIGITS(value)}"
        for goal, value in zip(choice.goals, choice.values, strict=True)
        if value is not None
    )
    rate = percent(choice.referral_rate or 0.0)
    return (
        f"Plain choice, not certified: {_rule(choice.threshold)}, {rate} of the images; estimated {values}."
    )


def _rule(threshold: float) -> str:
    if math.isinf(threshold):
        return "refer no image" if threshold > 0 else "refer every image"
    return f"refer above an uncertainty of {threshold:.4g}"


def _table(found: Transfer) -> Group:
    sets = found.sets.values()
    rows = [
        Row("called negative", [counted(one.called[0]) for one in sets]),
        Row("called positive", [counted(one.called[1]) for one in sets]),
        Row("referred", [counted(one.referred) for one in sets]),
    ]
    targets = ["referral_rate", "selective_risk", *(goal.target for goal in found.goals), *ALWAYS]
    return sets_table(found.sets, rows, targets, found.per, certified=found.certificate is not None)


def triage_summary(found: Triage) -> Group:
    """Return what the command prints; the first lines say what is broken, then which zone is refused."""
    return Group(*map(Text, _zone_verdict(found)), *([_zone_table(found)] if found.sets else []))


def _zone_verdict(found: Triage) -> list[str]:
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
    return lines if found.delta is None else [*lines, _plain_zones(found)]


def _plain_zones(found: Triage) -> str:
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


def _zone_table(found: Triage) -> Group:
    sets, shares = found.sets, found.shares
    rows = [
        Row("called negative", [with_interval(shares[name][0]) for name in sets]),
        Row("called positive", [with_interval(shares[name][1]) for name in sets]),
        Row("read by the expert", [with_interval(one.referral_rate) for one in sets.values()]),
    ]
    goals = [goal.target for zone in found.zones.values() for goal in zone.goals]
    targets = ["npv", "ppv", "sensitivity", "severe_sensitivity", "specificity", *goals]
    return sets_table(sets, rows, targets, found.per, certified=found.delta is not None)
