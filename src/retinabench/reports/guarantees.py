"""The terminal lines and tables of `transfer`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.console import Group
from rich.text import Text

from retinabench.metrics.guarantees.certificate import Certificate
from retinabench.metrics.guarantees.goals import PER, TARGETS, Goal, Per
from retinabench.metrics.guarantees.threshold import FrozenOnSets, Realised
from retinabench.metrics.guarantees.transfer import Transfer
from retinabench.metrics.guarantees.triage import Triage
from retinabench.metrics.image_sets import SET_LABELS
from retinabench.metrics.proportions import Interval
from retinabench.reports.toolkit.number_format import COUNT, THREE_DIGITS, percent
from retinabench.reports.toolkit.tables import Cell, Column, Row, Table, to_terminal

LABELS = SET_LABELS | {"validation": "Validation"}

NOTE = (
    "All shares: {per}, with 95 % intervals over patients. Referred images count as read without error. "
    '"Differs" is a screen for covariate shift at level 5 %, not a test of the goals: it cannot see errors of '
    "which the model is sure, and gave no alarm in 94 to 96 % of the simulated studies in which such errors broke a goal."
)


def sets_table(
    sets: Mapping[str, Realised],
    first_rows: Sequence[Row],
    targets: Sequence[str],
    per: Per,
    *,
    certified: bool,
) -> Group:
    """Return the table for the terminal, one column per set."""
    severe = [one.missed_severe for one in sets.values() if one.missed_severe is not None]
    graded = len(severe) == len(sets)
    shown = [name for name in dict.fromkeys(targets) if graded or name != "severe_sensitivity"]
    rows = [
        Row("images", [counted(one.images) for one in sets.values()]),
        *first_rows,
        *(
            Row(TARGETS[name].heading, [with_interval(one.targets[name]) for one in sets.values()])
            for name in shown
        ),
        Row("referable images missed", [_of(*one.missed) for one in sets.values()]),
    ]
    if graded:
        rows.append(Row("grade 3-4 missed", [_of(*counts) for counts in severe]))
    rows.append(Row("differs from validation", [_differs(one) for one in sets.values()]))
    if certified:
        rows.append(Row("certificate", [Cell(one.guarantee or "") for one in sets.values()]))
    elif any(one.judged for one in sets.values()):
        rows.append(Row("goals, by the labels", [Cell(one.judged or "") for one in sets.values()]))
    columns = [Column(LABELS[name]) for name in sets]
    return to_terminal(Table.of("", columns, rows, note=NOTE.format(per=PER[per])))


def broken_lines(found: FrozenOnSets) -> list[str]:
    """Return the line that names the sets whose labels refute the certificate, or goals without one; none where there are none."""
    refuted, what = (found.broken, "the certificate") if found.broken else (found.unmet, "a goal")
    sets = " and ".join(LABELS[name] for name in refuted)
    return [f"Broken: the labels of {sets} refute {what}."] if refuted else []


def needed_lines(certificate: Certificate | None) -> list[str]:
    """Return the line that says how many patients a refused certificate would need; none where it is not known."""
    if certificate is None or certificate.needed is None:
        return []
    needed, there = certificate.needed, certificate.patients
    return [f"About {needed:,} validation patients would be needed; there are {there:,}."]


def goals_line(goals: Sequence[Goal], per: Per, delta: float | None, *, claimed: bool, each: str = "") -> str:
    """Return the line with the goals and, if they were to be certified, with the confidence."""
    sure = ""
    if delta is not None:
        sure = f"; with confidence {1 - delta:.6g} over the draw of the validation patients{each}"
    head = "Claim" if claimed else "Goal"
    return f"{head}, {PER[per]}: {'; '.join(goal.text for goal in goals)}{sure}."


def with_interval(one: Interval) -> Cell:
    """Return a value with its interval."""
    return Cell.number(one.value, one.low, one.high)


def counted(images: int) -> Cell:
    """Return a number of images."""
    return Cell.number(images, form=COUNT)


def _of(images: int, among: int) -> Cell:
    return Cell(f"{images:,} of {among:,}")


def _differs(one: Realised) -> Cell:
    return Cell("" if one.resemblance is None else "yes" if one.resemblance.alarm else "not found")


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
