"""What `retinabench transfer` prints: the verdict, the rule, the plain choice, and a table within 80 columns."""

from __future__ import annotations

import math

from rich.console import Group, RenderableType
from rich.text import Text

from retinabench.metrics.guarantees.risks import PER, TARGETS, Per
from retinabench.metrics.guarantees.threshold import Realised
from retinabench.metrics.guarantees.transfer import Transfer
from retinabench.metrics.inference.interval import Interval
from retinabench.metrics.sets import SET_LABELS
from retinabench.reports.toolkit.number_format import COUNT, THREE_DIGITS, percent
from retinabench.reports.toolkit.tables import Cell, Column, Row, Table
from retinabench.reports.toolkit.terminal import to_terminal

ALWAYS = ("sensitivity", "npv", "ppv")
LABELS = SET_LABELS | {"validation": "Validation"}


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
    goals = "; ".join(goal.words for goal in found.goals)
    certificate = found.certificate
    lines = [_alone(found.alone)] if found.alone.value < 0.5 else []
    if certificate is None:
        if found.threshold is None:
            lines.append(f"No threshold: {found.choice.why}.")
        else:
            lines.append(f"Frozen on validation, not certified: {_rule(found.threshold)}.")
        return [*lines, f"Goal, {PER[found.per]}: {goals}."]
    if certificate.threshold is None:
        why = certificate.why or ""
        lines.insert(0, f"Refused: no threshold is certified. {why[:1].upper()}{why[1:]}.")
        if certificate.needed is not None:
            lines.append(
                f"About {certificate.needed:,} validation patients would be needed; there are {certificate.patients:,}."
            )
    else:
        if found.broken:
            sets = " and ".join(LABELS[name] for name in found.broken)
            lines.insert(0, f"Broken: the labels of {sets} refute the certificate.")
        lines.append(f"Certified on validation: {_rule(certificate.threshold)}.")
    sure = f"with confidence {1 - certificate.delta:.6g} over the draw of the validation patients"
    said = "Goal" if found.refused else "Claim"
    return [*lines, f"{said}, {PER[found.per]}: {goals}; {sure}.", _plain(found)]


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
    sets = found.sets
    asked = [goal.target for goal in found.goals]
    severe = all(one.missed_severe is not None for one in sets.values())
    extra = [*ALWAYS, *(["severe_sensitivity"] if severe else [])]
    names = ["referral_rate", "selective_risk", *asked, *extra]
    rows = [
        Row("images", [Cell.number(one.images, form=COUNT) for one in sets.values()]),
        Row("called negative", [Cell.number(one.called[0], form=COUNT) for one in sets.values()]),
        Row("called positive", [Cell.number(one.called[1], form=COUNT) for one in sets.values()]),
        Row("referred", [Cell.number(one.referred, form=COUNT) for one in sets.values()]),
        *(
            Row(TARGETS[name].heading, [interval_cell(one.targets[name]) for one in sets.values()])
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
    if found.certificate is not None:
        rows.append(Row("certificate", [Cell(one.guarantee or "") for one in sets.values()]))
    return to_terminal(Table.of("", [Column(LABELS[name]) for name in sets], rows, note=note(found.per)))


def note(per: Per) -> str:
    """Return the note under a table of sets."""
    return (
        f"All shares: {PER[per]}, with 95 % intervals over patients. Referred images count as read without error. "
        '"Differs" is a screen for covariate shift at level 5 %, not a test of the goals: it cannot see errors of '
        "which the model is sure, and gave no alarm in 94 to 96 % of the simulated studies in which such errors broke a goal."
    )


def differs_cell(one: Realised) -> Cell:
    """Return what the screen for shift says of a set."""
    return Cell("" if one.resemblance is None else "yes" if one.resemblance.alarm else "not found")


def counts_cell(counts: tuple[int, int]) -> Cell:
    """Return `3 of 12`."""
    return Cell(f"{counts[0]:,} of {counts[1]:,}")


def interval_cell(one: Interval) -> Cell:
    """Return a value with its interval."""
    return Cell.number(one.value, one.low, one.high)
