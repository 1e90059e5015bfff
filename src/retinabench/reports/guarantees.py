"""The terminal lines and tables of `transfer`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from retinabench.metrics.guarantees.certificate import Certificate
from retinabench.metrics.guarantees.goals import PER, TARGETS, Goal, Per
from retinabench.metrics.guarantees.threshold import FrozenOnSets, Realised
from retinabench.metrics.guarantees.transfer import Transfer
from retinabench.metrics.guarantees.triage import Triage
from retinabench.metrics.guarantees.within import Within
from retinabench.metrics.image_sets import SET_LABELS
from retinabench.reports.toolkit.number_format import THREE_DIGITS, percent
from retinabench.reports.toolkit.tables import Cell, Column, Row, Table, to_terminal

LABELS = SET_LABELS | {"validation": "Validation"}
ALWAYS = ("sensitivity", "npv", "ppv", "severe_sensitivity")
"""Targets that the table of `transfer` shows beside those of the goals."""
SIGNS = {"negative": "<=", "positive": ">="}
NOTE = (
    "All shares: {per}, with 95 % intervals over patients. Referred images count as read without error. "
    '"Differs" is a screen for covariate shift at level 5 %, not a test of the goals: it cannot see errors of '
    "which the model is sure, and gave no alarm in 94 to 96 % of the simulated studies in which such errors broke a goal."
)


def transfer_summary(result: Transfer) -> Group:
    """Return what the command prints; the first line says whether there is a threshold and whether it holds."""
    sets = result.sets.values()
    rows = [
        Row("called negative", [Cell.count(one.called[0]) for one in sets]),
        Row("called positive", [Cell.count(one.called[1]) for one in sets]),
        Row("referred", [Cell.count(one.referred) for one in sets]),
    ]
    targets = ["referral_rate", "selective_risk", *(goal.target for goal in result.goals), *ALWAYS]
    certified = result.certificate is not None
    table = [sets_table(result.sets, rows, targets, result.per, certified=certified)] if sets else []
    return Group(*map(Text, _verdict(result)), *table)


def triage_summary(result: Triage) -> Group:
    """Return what the command prints; the first lines say what is broken, then which zone is refused."""
    sets, shares = result.sets, result.shares
    rows = [
        Row("called negative", [Cell.of(shares[name][0]) for name in sets]),
        Row("called positive", [Cell.of(shares[name][1]) for name in sets]),
        Row("read by the expert", [Cell.of(one.referral_rate) for one in sets.values()]),
    ]
    goals = [goal.target for zone in result.zones.values() for goal in zone.goals]
    targets = ["npv", "ppv", "sensitivity", "severe_sensitivity", "specificity", *goals]
    table = [sets_table(sets, rows, targets, result.per, certified=result.delta is not None)] if sets else []
    return Group(*map(Text, _zone_verdict(result)), *table)


def within_summary(result: Within) -> Group:
    """Return what the command prints of the rules of groups: which have one, then each by itself."""
    kept: list[str] = []
    refused = [f"{value} ({why})" for value, why in result.left_out.items()]
    for value, one in result.groups.items():
        granted = one.threshold is not None if isinstance(one, Transfer) else one.thresholds != (None, None)
        (kept if granted and not one.broken else refused).append(value if granted else f"{value} (see below)")
    what = "Frozen, not certified," if result.delta is None else "Certified"
    sure = "" if result.delta is None else f", all together with confidence {1 - result.delta:.6g}"
    head = f"{what} for {len(kept)} of {len(kept) + len(refused)} groups of {result.column}{sure}: {', '.join(kept) or 'none'}."
    if refused:
        head += f" Not for {', '.join(refused)}: the expert reads all their images."
    parts: list[RenderableType] = [Text(head, style="bold")]
    for value, one in result.groups.items():
        summary = transfer_summary(one) if isinstance(one, Transfer) else triage_summary(one)
        parts += [Text(f"\n{result.column}: {value}", style="bold"), summary]
    return Group(*parts)


def sets_table(
    sets: Mapping[str, Realised], first_rows: Sequence[Row], targets: Sequence[str], per: Per, *, certified: bool
) -> Group:
    """Return the table for the terminal, one column per set."""
    columns = sets.values()
    severe = [one.missed_severe for one in columns if one.missed_severe is not None]
    graded = len(severe) == len(sets)
    shown = [name for name in dict.fromkeys(targets) if graded or name != "severe_sensitivity"]
    rows = [
        Row("images", [Cell.count(one.images) for one in columns]),
        *first_rows,
        *(Row(TARGETS[name].heading, [Cell.of(one.targets[name]) for one in columns]) for name in shown),
        Row("referable images missed", [_share(*one.missed) for one in columns]),
    ]
    if graded:
        rows.append(Row("grade 3-4 missed", [_share(*counts) for counts in severe]))
    rows.append(Row("differs from validation", [_differs(one) for one in columns]))
    if certified:
        rows.append(Row("certificate", [Cell(one.guarantee or "") for one in columns]))
    elif any(one.judged for one in columns):
        rows.append(Row("goals, by the labels", [Cell(one.judged or "") for one in columns]))
    return to_terminal(Table.of("", [Column(LABELS[name]) for name in sets], rows, note=NOTE.format(per=PER[per])))


def _share(images: int, among: int) -> Cell:
    return Cell(f"{images:,} of {among:,}")


def _differs(one: Realised) -> Cell:
    return Cell("" if one.resemblance is None else "yes" if one.resemblance.alarm else "not found")


def broken_lines(result: FrozenOnSets) -> list[str]:
    """Return the line that names the sets whose labels refute the certificate, or goals without one."""
    refuted, what = (result.broken, "the certificate") if result.broken else (result.unmet, "a goal")
    sets = " and ".join(LABELS[name] for name in refuted)
    return [f"Broken: the labels of {sets} refute {what}."] if refuted else []


def failing_lines(result: FrozenOnSets) -> list[str]:
    """Return the line that names the groups which miss a goal."""
    found = [
        f"“{one.name}” of the {LABELS[name].lower()} images ({one.goal}: {THREE_DIGITS(one.value.value)} "
        f"[{THREE_DIGITS(one.value.low)}, {THREE_DIGITS(one.value.high)}])"
        for name, part in result.sets.items()
        for one in part.failing
    ]
    return (
        [f"Not for {'; '.join(found)}. What is chosen for all is about the average patient: do not rely on it there."]
        if found
        else []
    )


def needed_lines(certificate: Certificate | None) -> list[str]:
    """Return the line that says how many patients a refused certificate would need, where that is known."""
    if certificate is None or certificate.needed is None:
        return []
    needed, there = certificate.needed, certificate.patients
    return [
        f"With about {needed:,} validation patients like these, four of five studies are certified; there are {there:,}."
    ]


def goals_line(goals: Sequence[Goal], per: Per, delta: float | None, *, claimed: bool, each: str = "") -> str:
    """Return the line with the goals and, if they were to be certified, with the confidence."""
    sure = ""
    if delta is not None:
        sure = f"; with confidence {1 - delta:.6g} over the draw of the validation patients{each}"
    head = "Claim" if claimed else "Goal"
    return f"{head}, {PER[per]}: {'; '.join(goal.text for goal in goals)}{sure}."


def _verdict(result: Transfer) -> list[str]:
    certificate, choice = result.certificate, result.choice
    delta = None if certificate is None else certificate.delta
    claimed = certificate is not None and certificate.granted
    goals = goals_line(result.goals, result.per, delta, claimed=claimed)
    model = result.alone
    alone = []
    if model.value < 0.5:
        interval = f"[{model.low:.2f}, {model.high:.2f}]"
        alone = [f"Sensitivity of the model alone: {model.value:.2f} {interval} on validation."]
    if certificate is None:
        if result.threshold is None:
            return [*alone, f"No threshold: {choice.why}.", goals]
        frozen = f"Frozen on validation, not certified: {_rule(result.threshold)}."
        return [*broken_lines(result), *failing_lines(result), *alone, frozen, goals]
    if choice.threshold is None:
        plain = f"Plain choice, not certified: {choice.why}."
    else:
        values = ", ".join(
            f"{goal.spec.heading} {THREE_DIGITS(value)}"
            for goal, value in zip(choice.goals, choice.values, strict=True)
            if value is not None
        )
        rate = percent(choice.referral_rate or 0.0)
        plain = f"Plain choice, not certified: {_rule(choice.threshold)}, {rate} of the images; estimated {values}."
    if certificate.threshold is None:
        why = certificate.why or ""
        refused = f"Refused: no threshold is certified. {why[:1].upper()}{why[1:]}."
        return [refused, *alone, *needed_lines(certificate), goals, plain]
    certified = f"Certified on validation: {_rule(certificate.threshold)}."
    return [*broken_lines(result), *failing_lines(result), *alone, certified, goals, plain]


def _rule(threshold: float) -> str:
    if math.isinf(threshold):
        return "refer no image" if threshold > 0 else "refer every image"
    return f"refer above an uncertainty of {threshold:.4g}"


def _zone_verdict(result: Triage) -> list[str]:
    lines = [*broken_lines(result), *failing_lines(result)]
    for side in result.refused:
        zone = result.zones[side]
        begin, end = ("No", "") if result.delta is None else ("Refused, no", " is certified")
        lines += [f"{begin} {side} zone{end}: {zone.why}.", *needed_lines(zone.certificate)]
    ends = _ends({side: zone.threshold for side, zone in result.zones.items()})
    if ends:
        head = "Frozen on validation, not certified" if result.delta is None else "Certified on validation"
        lines.append(f"{head}: {ends}; the expert reads the others.")
    claimed = result.delta is not None and bool(ends)
    zones = [zone for zone in result.zones.values() if not claimed or zone.threshold is not None]
    goals = [goal for zone in zones for goal in zone.goals]
    each = ", half of the error for each zone" if len(result.zones) == 2 else ""
    lines.append(goals_line(goals, result.per, result.delta, claimed=claimed, each=each))
    if result.delta is not None:
        plain = _ends({side: zone.plain for side, zone in result.zones.items()})
        read = f"{plain}; the expert reads {percent(result.plain_read)} of the images"
        lines.append(f"Plain choice, not certified: {read if plain else 'none reaches a goal on validation'}.")
    return lines


def _ends(ends: Mapping[str, float | None]) -> str:
    """The zones that are not empty: `negative where P(referable) <= 0.03, positive where P(referable) >= 0.9`."""
    shown = [f"{side} where P(referable) {SIGNS[side]} {end:.4g}" for side, end in ends.items() if end is not None]
    return ", ".join(shown)
