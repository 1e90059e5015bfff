"""From a study to the figures of its page: which lines, which limits, and what a screen reader says of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from retinabench.metrics.sets import SET_LABELS
from retinabench.reports.evaluation.evidence import GRID, Floats, referral
from retinabench.reports.evaluation.figures import (
    NHS,
    Control,
    Line,
    Spread,
    histogram_panel,
    referral_panel,
    reliability_panel,
    roc_panel,
)
from retinabench.reports.evaluation.study import Study
from retinabench.reports.toolkit.figures import to_svg
from retinabench.reports.toolkit.number_format import plain
from retinabench.reports.toolkit.style import BAD, GOOD

LABELS = {"accuracy": "accuracy", "auroc": "AUROC", "nll": "NLL (nats)"}
MOST_BANDS = 4


@dataclass(frozen=True)
class Panel:
    """A figure of the page: its heading, the drawing and a caption."""

    heading: str
    svg: Markup
    caption: str = ""


def _lines(study: Study, name: str, key: str) -> list[Line]:
    """One line per method; with many methods only the leading one keeps its band, or nothing could be read."""
    lines = []
    for i, mark in enumerate(study.marks):
        band = study.curves.get((i, name, key))
        if band is None or not np.isfinite(band.y).any():
            continue
        shown = len(study.entries) <= MOST_BANDS or i == study.leader
        lines.append(Line(mark, band.x, band.y, *((band.low, band.high) if shown else (None, None))))
    return lines


def _spoken(study: Study, name: str, score: str) -> str:
    """Name the numbers of a panel for those who do not see it."""
    said = []
    for i, entry in enumerate(study.entries):
        estimate = study.get(i, name, score)
        if (i, name) in study.cases:
            said.append(f"{entry.name} {plain(estimate.value, 3)}")
    return "; ".join(said)


def _at_half(study: Study, name: str, metric: str) -> str:
    half = len(GRID) // 2
    found = [(e.name, study.curves.get((i, name, metric))) for i, e in enumerate(study.entries)]
    return "; ".join(f"{who} {plain(float(band.y[half]), 3)}" for who, band in found if band is not None)


def roc_panels(study: Study) -> list[Panel]:
    """ROC per set with the NHS standard."""
    out = []
    for name in study.sets:
        lines = _lines(study, name, "roc")
        if lines:
            said = f"Area under the curve: {_spoken(study, name, 'auroc')}. The NHS standard lies at a false-positive rate of {NHS[0]} and a sensitivity of {NHS[1]}."
            title = f"ROC curves, {SET_LABELS[name].lower()}"
            svg = to_svg(roc_panel(lines), f"roc-{name}", title=title, description=said)
            out.append(Panel(SET_LABELS[name], svg))
        else:
            out.append(
                Panel(
                    SET_LABELS[name],
                    Markup(""),
                    "No ROC curve: this set has pictures of one class only.",
                )
            )
    return out


def referral_panels(study: Study) -> list[tuple[str, list[Panel]]]:
    """Referral curves by metric and set, with the controls of the leading method."""
    groups = []
    for metric, label in LABELS.items():
        lines = {name: _lines(study, name, metric) for name in study.sets}
        controls = {name: _controls(study, name, metric) for name in study.sets}
        limits = _limits(metric, lines, controls)
        panels = []
        for name in study.sets:
            if not lines[name]:
                text = f"No {label} curve: fewer than ten pictures" + (
                    " of either class." if metric == "auroc" else "."
                )
                panels.append(Panel(SET_LABELS[name], Markup(""), text))
                continue
            figure = referral_panel(lines[name], controls[name], label=label, limits=limits)
            svg = to_svg(
                figure, f"referral-{metric}-{name}", title=f"{label} of the kept pictures against the share referred, {SET_LABELS[name].lower()}",
                description=f"With half referred: {_at_half(study, name, metric)}.",
            )  # fmt: skip
            panels.append(Panel(SET_LABELS[name], svg))
        groups.append(
            ({"accuracy": "Accuracy", "auroc": "AUROC", "nll": "NLL, lower is better"}[metric], panels)
        )
    return groups


def lead_panel(study: Study) -> Panel | None:
    """Return the one figure beside the verdict: accuracy against referral where it is hardest."""
    name = [key for key in study.sets if key != "joint"][-1]
    lines, controls = _lines(study, name, "accuracy"), _controls(study, name, "accuracy")
    if not lines:
        return None
    limits = _limits("accuracy", {name: lines}, {name: controls})
    svg = to_svg(
        referral_panel(lines, controls, label="accuracy of what is kept", limits=limits), "lead",
        title=f"Accuracy of the kept pictures against the share referred, {SET_LABELS[name].lower()}",
        description=f"With half referred: {_at_half(study, name, 'accuracy')}.",
    )  # fmt: skip
    heading = {
        "in_domain": "Referring the least certain",
        "shifted": "Referring the least certain, shifted pictures",
    }
    return Panel(heading[name], svg, "")


def _controls(study: Study, name: str, metric: str) -> list[Control]:
    """Random referral (its expectation) and the oracle, both with the answers of the leading method."""
    cases = study.cases.get((study.leader, name))
    if not cases:
        return []
    start = study.get(study.leader, name, metric).value
    oracle = np.mean([referral(case.perfect.weighted(), metric) for case in cases], axis=0)
    return [
        Control("random", GRID, np.where(GRID < 1, start, np.nan)),
        Control("oracle", GRID, oracle),
    ]


def _limits(
    metric: str, lines: dict[str, list[Line]], controls: dict[str, list[Control]]
) -> tuple[float, float]:
    """One range for all sets, so that they can be compared by eye; bands may leave it, lines may not."""
    seen = [line.y[: int(0.8 * len(GRID))] for group in lines.values() for line in group]
    seen += [control.y[:1] for group in controls.values() for control in group]
    values = np.concatenate(seen) if seen else np.empty(0)
    values = values[np.isfinite(values)]
    if not values.size:
        return (0.0, 1.0)
    if metric == "nll":
        return (0.0, float(values.max()) * 1.12)
    low = float(values.min())
    return (max(0.0, low - 0.12 * (1 - low) - 0.01), 1.004)


def histogram_panels(study: Study) -> list[Panel]:
    """Uncertainty by grade, split into correct and incorrect, one panel per method."""
    sets = [name for name in study.sets if name != "joint"]
    panels = []
    for i, entry in enumerate(study.entries):
        found = [(name, case) for name in sets if (case := study.first(i, name)) is not None]
        if not found:
            continue
        spreads = [
            Spread(SET_LABELS[name], case.uncertainty, case.correct, case.grade) for name, case in found
        ]
        everything = np.concatenate([spread.uncertainty for spread in spreads])
        own = found[0][1].uncertainty_name == "own"
        label = "own uncertainty" if own else "entropy (nats)"
        figure = histogram_panel(spreads, reach=_reach(everything, own), label=label)
        errors = "; ".join(
            f"{SET_LABELS[n].lower()}: {int((~c.correct).sum())} of {len(c)} incorrect, their median uncertainty {_median(c.uncertainty[~c.correct])} against {_median(c.uncertainty[c.correct])} of the correct"
            for n, c in found
        )
        svg = to_svg(
            figure, f"histogram-{i}", title=f"Uncertainty of {entry.name} by grade", description=errors
        )
        panels.append(Panel(entry.name, svg))
    return panels


def _reach(values: Floats, own: bool) -> tuple[float, float]:
    if not own:
        return 0.0, float(np.log(2))
    low, high = float(values.min()), float(values.max())
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def _median(values: Floats) -> str:
    return plain(float(np.median(values)), 2) if values.size else "none"


def reliability_panels(study: Study) -> list[Panel]:
    """Observed against predicted share of referable pictures, one panel per method."""
    colors = {"in_domain": GOOD, "shifted": BAD}
    panels = []
    for i, entry in enumerate(study.entries):
        points, counts, said = [], [], []
        for name, color in colors.items():
            case, band = study.first(i, name), study.curves.get((i, name, "observed"))
            if case is None or band is None:
                continue
            total = np.bincount(case.bins, minlength=len(band.y))
            sums = np.bincount(case.bins, case.prob, len(band.y))
            filled = total > 0
            x = sums[filled] / total[filled]
            points.append((color, x, band.y[filled], band.low[filled], band.high[filled]))
            counts.append(np.histogram(case.prob, np.linspace(0, 1, 21))[0].astype(float))
            said.append(
                f"{SET_LABELS[name].lower()}: predicted {case.prob.mean():.2f} on average, observed {case.label.mean():.2f}"
            )
        if points:
            svg = to_svg(
                reliability_panel(points, counts), f"reliability-{i}",
                title=f"Reliability of {entry.name}, positive class", description="; ".join(said),
            )  # fmt: skip
            panels.append(Panel(entry.name, svg))
    return panels
