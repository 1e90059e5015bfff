"""What `transfer` says of a frozen rule: its lines and tables in the terminal, and the certificate that a board signs."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from rich.console import Group, RenderableType
from rich.text import Text

from retinabench.core.errors import sha256
from retinabench.core.files import write_bytes, write_json
from retinabench.core.results import IntervalRow, draw_intervals
from retinabench.core.version import __version__
from retinabench.metrics.guarantees.certificate import Certificate
from retinabench.metrics.guarantees.goals import PER, TARGETS, Goal, Per
from retinabench.metrics.guarantees.transfer import FrozenOnSets, Realised, Transfer
from retinabench.metrics.guarantees.triage import Triage, Within
from retinabench.metrics.image_sets import SET_LABELS
from retinabench.reports.toolkit import pages
from retinabench.reports.toolkit.figures import WIDTH, Panel, canvas, drawing, save
from retinabench.reports.toolkit.pages import Fact
from retinabench.reports.toolkit.tables import THREE_DIGITS, Block, Cell, Column, Row, Table, capitalise, percent

LABELS = SET_LABELS | {"validation": "Validation"}
ALWAYS = ("sensitivity", "npv", "ppv", "severe_sensitivity")
"""Targets that the table of `transfer` shows beside those of the goals."""
ALONE = "Sensitivity of the model alone"
NOTE = (
    "All shares: {per}, with 95 % intervals over patients. The expert counts as reading without error. "
    '"Differs" is a screen for covariate shift at level 5 %, not a test of the goals: it cannot see errors of '
    "which the model is sure, and gave no alarm in 94 to 96 % of the simulated studies in which such errors broke a goal."
)
Rule = Transfer | Triage


@dataclass(frozen=True)
class Part:
    """A frozen rule of all images, or of one group: what is said of it, and what it does to every set."""

    name: str
    rule: Rule
    lines: Sequence[str]
    table: Table | None


def parts_of(found: Rule | Within) -> list[Part]:
    if isinstance(found, Within):
        return [replace(parts_of(one)[0], name=f"{found.column}: {value}") for value, one in found.groups.items()]
    sets = found.sets
    if isinstance(found, Transfer):
        lines, certified = _verdict(found), found.certificate is not None
        rows = [
            Row("called negative", [Cell.count(one.called[0]) for one in sets.values()]),
            Row("called positive", [Cell.count(one.called[1]) for one in sets.values()]),
            Row("read by the expert", [Cell.count(one.referred) for one in sets.values()]),
        ]
        targets = ["referral_rate", "selective_risk", *(goal.target for goal in found.goals), *ALWAYS]
    else:
        lines, certified = _zone_verdict(found), found.delta is not None
        rows = [
            Row("called negative", [Cell.of(found.shares[name][0]) for name in sets]),
            Row("called positive", [Cell.of(found.shares[name][1]) for name in sets]),
            Row("read by the expert", [Cell.of(one.referral_rate) for one in sets.values()]),
        ]
        targets = ["npv", "ppv", "sensitivity", "severe_sensitivity", "specificity"]
        targets += [goal.target for goal in found.goals]
    table = sets_table(sets, rows, targets, found.per, certified=certified) if sets else None
    return [Part("", found, lines, table)]


def headline(found: Rule | Within) -> str:
    if not isinstance(found, Within):
        lines = parts_of(found)[0].lines
        return next((line for line in lines if not line.startswith(ALONE)), lines[0])
    kept: list[str] = []
    refused = [f"{value} ({why})" for value, why in found.left_out.items()]
    for value, one in found.groups.items():
        granted = one.threshold is not None if isinstance(one, Transfer) else one.thresholds != (None, None)
        (kept if granted and not one.broken else refused).append(value if granted else f"{value} (see below)")
    what = "Frozen, not certified," if found.delta is None else "Certified"
    sure = "" if found.delta is None else f", all together with confidence {1 - found.delta:.6g}"
    head = f"{what} for {len(kept)} of {len(kept) + len(refused)} groups of {found.column}{sure}: {', '.join(kept) or 'none'}."
    return head + (f" Not for {', '.join(refused)}: the expert reads all their images." if refused else "")


def summary(found: Rule | Within) -> Group:
    shown: list[RenderableType] = [Text(headline(found), style="bold")] if isinstance(found, Within) else []
    for part in parts_of(found):
        shown += [Text(f"\n{part.name}", style="bold")] if part.name else []
        shown += [*map(Text, part.lines), *([part.table] if part.table else [])]
    return Group(*shown)


def sets_table(
    sets: Mapping[str, Realised], first_rows: Sequence[Row], targets: Sequence[str], per: Per, *, certified: bool
) -> Table:
    columns = sets.values()
    severe = [one.missed_severe for one in columns if one.missed_severe is not None]
    graded = len(severe) == len(sets)
    shown = [name for name in dict.fromkeys(targets) if graded or name != "severe_sensitivity"]
    rows = [
        Row(_unit(per), [Cell.count(one.images) for one in columns]),
        *first_rows,
        *(Row(TARGETS[name].heading, [Cell.of(one.targets[name]) for one in columns]) for name in shown),
    ]
    missed = {
        f"referable {_unit(per)} missed": [one.missed for one in columns],
        "grade 3-4 missed": severe if graded else [],
    }
    rows += [Row(name, [Cell(f"{a:,} of {b:,}") for a, b in counts]) for name, counts in missed.items() if counts]
    alarms = [None if one.resemblance is None else one.resemblance.alarm for one in columns]
    words = {None: "", True: "yes", False: "not found"}
    rows.append(Row("differs from validation", [Cell(words[alarm]) for alarm in alarms]))
    if certified:
        rows.append(Row("certificate", [Cell(one.guarantee or "") for one in columns]))
    elif any(one.judged for one in columns):
        rows.append(Row("goals, by the labels", [Cell(one.judged or "") for one in columns]))
    blocks = [Block([Column(LABELS[name]) for name in sets], rows)]
    return Table("", blocks, row_header="Measure", note=NOTE.format(per=PER[per]), fixed=True)


def _unit(per: Per) -> str:
    return "patients" if per == "patient" else "images"


def _warnings(result: FrozenOnSets) -> list[str]:
    refuted, what = (result.broken, "the certificate") if result.broken else (result.unmet, "a goal")
    sets = " and ".join(LABELS[name] for name in refuted)
    lines = [f"Broken: the labels of {sets} refute {what}."] if refuted else []
    found = [
        f"“{one.name}” of the {LABELS[name].lower()} images ({one.goal}: {THREE_DIGITS(one.value.value)} "
        f"[{THREE_DIGITS(one.value.low)}, {THREE_DIGITS(one.value.high)}])"
        for name, part in result.sets.items()
        for one in part.failing
    ]
    if found:
        lines.append(
            f"Not for {'; '.join(found)}. What is chosen for all is about the average patient: do not rely on it there."
        )
    return lines


def needed_lines(certificate: Certificate | None) -> list[str]:
    if certificate is None or certificate.needed is None:
        return []
    need, there = certificate.needed, certificate.patients
    return [
        f"With about {need:,} validation patients like these, four of five studies are certified; there are {there:,}."
    ]


def goals_line(goals: Sequence[Goal], per: Per, delta: float | None, *, claimed: bool, each: str = "") -> str:
    sure = "" if delta is None else f"; with confidence {1 - delta:.6g} over the draw of the validation patients{each}"
    return f"{'Claim' if claimed else 'Goal'}, {PER[per]}: {'; '.join(goal.text for goal in goals)}{sure}."


def _verdict(result: Transfer) -> list[str]:
    certificate, choice = result.certificate, result.choice
    delta = None if certificate is None else certificate.delta
    claimed = certificate is not None and certificate.granted
    goals, model = goals_line(result.goals, result.per, delta, claimed=claimed), result.alone
    alone = (
        [f"{ALONE}: {model.value:.2f} [{model.low:.2f}, {model.high:.2f}] on validation."] if model.value < 0.5 else []
    )
    if certificate is None:
        if result.threshold is None:
            return [*alone, f"No threshold: {choice.why}.", goals]
        frozen = f"Frozen on validation, not certified: {_rule(result.threshold)}."
        return [*_warnings(result), *alone, frozen, goals]
    if choice.threshold is None:
        plain = f"Plain choice, not certified: {choice.why}."
    else:
        values = ", ".join(
            f"{goal.spec.heading} {THREE_DIGITS(value)}"
            for goal, value in zip(choice.goals, choice.values, strict=True)
            if value is not None
        )
        rate = percent(choice.referral_rate or 0.0)
        plain = f"Plain choice, not certified: {_rule(choice.threshold)}, {rate} of the {_unit(result.per)}; estimated {values}."
    if certificate.threshold is None:
        why = certificate.why or ""
        refused = f"Refused: no threshold is certified. {capitalise(why)}."
        return [refused, *alone, *needed_lines(certificate), goals, plain]
    read = f", {percent(result['validation'].referral_rate.value)} of the {_unit(result.per)}"
    certified = f"Certified on validation: {_rule(certificate.threshold)}{read if math.isfinite(certificate.threshold) else ''}."
    return [*_warnings(result), *alone, certified, goals, plain]


def _rule(threshold: float) -> str:
    if math.isinf(threshold):
        return f"the {'model decides' if threshold > 0 else 'expert reads'} every image"
    return f"the expert reads above an uncertainty of {threshold:.4g}"


def _zone_verdict(result: Triage) -> list[str]:
    lines = _warnings(result)
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
        read = f"{plain}; the expert reads {percent(result.plain_read)} of the {_unit(result.per)}"
        lines.append(f"Plain choice, not certified: {read if plain else 'none reaches a goal on validation'}.")
    return lines


def _ends(ends: Mapping[str, float | None]) -> str:
    signs = {"negative": "<=", "positive": ">="}
    return ", ".join(
        f"{side} where P(referable) {signs[side]} {end:.4g}" for side, end in ends.items() if end is not None
    )


SHEET = "certificate.pdf"
SIGNATURES = ("Clinical lead", "Data scientist", "For the governance board")
LOWEST = 0.42  # where the charts of the page to be signed end
A4 = (8.27, 11.69)
LEFT, POINTS = 0.08, 72 * A4[1]  # margin, and height of the paper in points


def write_certificate(found: Rule | Within, predictions: Path, out: Path) -> Path:
    """Write `transfer.json`, `index.html` and `certificate.pdf`, the last to be signed, into a folder."""
    certificate, parts = out / "transfer.json", parts_of(found)
    write_json(certificate, found.to_dict())
    facts = [
        Fact("Predictions", f"{PurePath(predictions).name}, SHA-256 {sha256(predictions)}"),
        Fact("Certificate", f"{certificate.name}, SHA-256 {sha256(certificate)}"),
        Fact("Made by", f"retinabench {__version__}"),
    ]
    write_bytes(out / "index.html", _page(found, parts, facts).encode())
    with drawing():
        save(_signed_page(found, parts, facts), out / Path(SHEET).stem, ("pdf",), font_size=9)
    return out / "index.html"


def assumptions(rule: Rule) -> list[str]:
    made = [rule.certificate] if isinstance(rule, Transfer) else [one.certificate for one in rule.zones.values()]
    most = max((one.most_images for one in made if one is not None), default=1)
    if not any(one is not None and one.granted for one in made):
        nothing = "Nothing is guaranteed: about every second threshold that is chosen in this way misses its goal on new patients."
        return [nothing]
    said = [
        "Patients are independent draws of one population, and new patients come from it.",
        "Model, decision threshold, uncertainty and goals were fixed without the labels of the validation images.",
        "The expert reads without error: a sensitivity is that of model and expert together.",
        "New images are like those of the validation patients. Apply and monitor say where they are not; errors of which the model is sure "
        "show in labels alone.",
    ]
    return said + ([f"No new patient has more than {most} images."] if most > 1 else [])


def _rows(parts: Sequence[Part]) -> dict[str, list[IntervalRow]]:
    return {
        f"{part.name}: {goal.text}" if part.name else goal.text: [
            IntervalRow(LABELS[name], one.value, one.low, one.high, goal.value)
            for name, realised in sorted(part.rule.sets.items(), key=lambda item: item[0] == "validation")
            if (one := realised.targets.get(goal.target))
        ]
        for part in parts
        for goal in part.rule.goals
        if part.rule.sets
    }


def _page(found: Rule | Within, parts: Sequence[Part], facts: Sequence[Fact]) -> str:
    panels = []
    with drawing():
        for k, (goal, rows) in enumerate(_rows(parts).items()):
            figure, [[axes]] = canvas(WIDTH, 50 + 30 * len(rows))
            draw_intervals(rows, axes)
            said = "Its value on every set, with the goal as an upright line."
            panels.append(Panel.of(figure, f"goal-{k}", capitalise(goal), said))
    context = {
        "title": headline(found).removesuffix("."), "headline": headline(found), "rules": parts, "panels": panels, "facts": facts,
        "assumed": assumptions(parts[0].rule), "signatures": SIGNATURES,
    }  # fmt: skip
    return pages.render("certificate.html.j2", context, package="retinabench.reports")


def _signed_page(found: Rule | Within, parts: Sequence[Part], facts: Sequence[Fact]) -> Figure:
    figure, top = Figure(figsize=A4), [0.95]

    def say(text: str, size: float = 9, weight: str = "normal", space: float = 0.4) -> None:
        for line in textwrap.wrap(text, int(500 / (0.56 * size))):
            figure.text(LEFT, top[0], line.replace("$", r"\$"), size=size, weight=weight, va="top")
            top[0] -= 1.35 * size / POINTS
        top[0] -= space * size / POINTS

    say("Certificate of a referral rule", 10, space=0.8)
    say(headline(found), 14, "bold")
    for part in parts:
        if top[0] < LOWEST:
            say("The other groups stand on the page, index.html.")
            break
        if part.name:
            say(part.name, weight="bold", space=0)
        for line in part.lines[:1] if part.name else part.lines:
            if line != headline(found):
                say(line, space=0.1)
        for name, one in part.rule.sets.items():
            unit, judged = _unit(part.rule.per), f"; the labels say: {one.judged}" if one.judged else ""
            head = (
                f"{LABELS[name]}: {one.images:,} {unit}, of which the expert reads {percent(one.referral_rate.value)}"
            )
            if judged or not part.name:
                say(f"{head}; {one.missed[0]:,} of {one.missed[1]:,} referable {unit} are missed{judged}.", space=0.1)
    for goal, rows in _rows(parts).items():
        height = (52 + 16 * len(rows)) / POINTS
        if top[0] - height < LOWEST:
            say("The goals that have no chart here stand on the page, index.html.")
            break
        axes = figure.add_axes((LEFT + 0.12, top[0] - height + 20 / POINTS, 0.6, height - 42 / POINTS))
        axes.set_title(capitalise(goal).replace("$", r"\$"), size=9, loc="left")
        draw_intervals(rows, axes)
        axes.tick_params(labelsize=8)
        top[0] -= height
    top[0] -= 10 / POINTS
    say("It rests on", weight="bold", space=0)
    for sentence in assumptions(parts[0].rule):
        say(f"– {sentence}", space=0.1)
    top[0] -= 8 / POINTS
    for fact in facts:
        say(f"{fact.term}: {fact.text}", 7, space=0.2)
    for k, role in enumerate(SIGNATURES):
        figure.text(LEFT, 0.15 - 0.045 * k, role, size=8)
        figure.text(0.35, 0.138 - 0.045 * k, "name, date, signature", size=6)
        figure.add_artist(Line2D([0.35, 0.92], [0.148 - 0.045 * k] * 2, color="black", linewidth=0.6))
    return figure
