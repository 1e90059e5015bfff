"""What `retinabench transfer` prints: the verdict, the rule, the plain choice, and a table within 80 columns."""

from __future__ import annotations

import math

from rich.console import Group, RenderableType
from rich.text import Text

from retinabench.metrics.guarantees.transfer import Transfer
from retinabench.metrics.inference.interval import Interval
from retinabench.reports.guarantees.sets_table import (
    broken_lines,
    counted,
    goals_line,
    needed_lines,
    sets_table,
)
from retinabench.reports.toolkit.number_format import THREE_DIGITS, percent
from retinabench.reports.toolkit.tables import Row

ALWAYS = ("sensitivity", "npv", "ppv", "severe_sensitivity")


def transfer_summary(found: Transfer) -> Group:
    """Return what the command prints; the first line says whether there is a threshold and whether it holds.

    Args:
        found: The threshold and what it does on every set.

    Returns:
        Lines and a table for `rich.console.Console.print`.
    """
    lines: list[RenderableType] = [Text(line) for line in _verdict(found)]
    return Group(*lines, _table(found)) if found.sets else Group(*lines)


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
