"""The figures of the evaluation page: which lines and limits, and the description of each for screen readers."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from retinabench.metrics.image_sets import SET_LABELS
from retinabench.reports.evaluation.evaluation import Evaluation
from retinabench.reports.evaluation.figures.drawing import (
    NHS,
    Control,
    Uncertainties,
    histogram_panel,
    referral_panel,
    reliability_panel,
    roc_panel,
)
from retinabench.reports.evaluation.figures.traces import (
    observed_points,
    predicted_by_bin,
    referral_points,
    roc_points,
)
from retinabench.reports.evaluation.set_statistics import GRID, Floats, referral
from retinabench.reports.toolkit.figures import Line, to_svg
from retinabench.reports.toolkit.number_format import percent, plain
from retinabench.reports.toolkit.style import BAD, GOOD, Panel

LABELS = {"accuracy": "accuracy", "auroc": "AUROC", "nll": "NLL (nats)"}
MOST_BANDS = 4


def _lines(evaluation: Evaluation, name: str, key: str) -> list[Line]:
    """Return a line per method; with many methods only the leading one has a band, to keep the figure readable."""
    lines = []
    for i, mark in enumerate(evaluation.marks):
        band = evaluation.curves.get((i, name, key))
        if band is None or not np.isfinite(band.y).any():
            continue
        shown = len(evaluation.methods) <= MOST_BANDS or i == evaluation.leader
        lines.append(Line(mark, band.x, band.y, *((band.low, band.high) if shown else (None, None))))
    return lines


def _spoken(evaluation: Evaluation, name: str, score: str) -> str:
    """Return the numbers of a panel for screen readers."""
    said = []
    for i, method in enumerate(evaluation.methods):
        estimate = evaluation.get(i, name, score)
        if (i, name) in evaluation.cases:
            said.append(f"{method.name} {plain(estimate.value, 3)}")
    return "; ".join(said)


def _at_share(evaluation: Evaluation, name: str, metric: str) -> str:
    """Return the values of the curves at the share referred, for screen readers."""
    at = round(evaluation.settings.referred * (len(GRID) - 1))
    found = [(e.name, evaluation.curves.get((i, name, metric))) for i, e in enumerate(evaluation.methods)]
    values = "; ".join(f"{who} {plain(float(band.y[at]), 3)}" for who, band in found if band is not None)
    return f"With {percent(evaluation.settings.referred)} referred: {values}."


def _composition(evaluation: Evaluation, name: str) -> str:
    """Return what the leading method retains, beside its accuracy: sensitivity, specificity and prevalence."""
    case = evaluation.first(evaluation.leader, name)
    if case is None:
        return ""

    def change(label: str, score: str) -> str:
        before, after = evaluation.lead_value(name, score), evaluation.lead_value(name, evaluation.at(score))
        return f"{label} {plain(before.value)} → {plain(after.value)}"

    share = evaluation.lead_value(name, evaluation.at("prevalence")).value
    parts = [change(score, score) for score in ("accuracy", "sensitivity", "specificity")]
    parts.append(f"referable {percent(float(case.label.mean()))} → {percent(share)}")
    return f"“{evaluation.leading}”, nothing referred → {percent(evaluation.settings.referred)} referred: {', '.join(parts)}."


def roc_panels(evaluation: Evaluation) -> list[Panel]:
    """Return the ROC curves of each set with the NHS standard."""
    out = []
    for name in evaluation.sets:
        lines = _lines(evaluation, name, "roc")
        if lines:
            said = f"Area under the curve: {_spoken(evaluation, name, 'auroc')}. The NHS standard lies at a false-positive rate of {NHS[0]} and a sensitivity of {NHS[1]}."
            title = f"ROC curves, {SET_LABELS[name].lower()}"
            figure = roc_panel(lines)
            svg = to_svg(figure, f"roc-{name}", title=title, description=said)
            out.append(Panel(SET_LABELS[name], svg, points=roc_points(figure, evaluation, name)))
        else:
            caption = "No ROC curve: this set has images of one class only."
            out.append(Panel(SET_LABELS[name], Markup(""), caption))
    return out


def referral_panels(evaluation: Evaluation) -> list[tuple[str, list[Panel]]]:
    """Return the referral curves by metric and set, with the controls of the leading method."""
    groups = []
    for metric, label in LABELS.items():
        lines = {name: _lines(evaluation, name, metric) for name in evaluation.sets}
        controls = {name: _controls(evaluation, name, metric) for name in evaluation.sets}
        limits = _limits(metric, lines, controls)
        panels = []
        for name in evaluation.sets:
            if not lines[name]:
                text = f"No {label} curve: fewer than ten images" + (
                    " of either class." if metric == "auroc" else "."
                )
                panels.append(Panel(SET_LABELS[name], Markup(""), text))
                continue
            figure = referral_panel(
                lines[name], controls[name], label=label, limits=limits, referred=evaluation.settings.referred
            )
            svg = to_svg(
                figure, f"referral-{metric}-{name}", title=f"{label} of the retained images against the share referred, {SET_LABELS[name].lower()}",
                description=_at_share(evaluation, name, metric),
            )  # fmt: skip
            caption = _composition(evaluation, name) if metric == "accuracy" else ""
            found = referral_points(figure, evaluation, name, metric)
            panels.append(Panel(SET_LABELS[name], svg, caption, found))
        groups.append(
            ({"accuracy": "Accuracy", "auroc": "AUROC", "nll": "NLL, lower is better"}[metric], panels)
        )
    return groups


def lead_panel(evaluation: Evaluation) -> Panel | None:
    """Return the figure beside the verdict: accuracy against referral on the shifted set, where there is one."""
    name = evaluation.domains[-1]
    lines, controls = _lines(evaluation, name, "accuracy"), _controls(evaluation, name, "accuracy")
    if not lines:
        return None
    limits = _limits("accuracy", {name: lines}, {name: controls})
    figure = referral_panel(
        lines,
        controls,
        label="accuracy of retained images",
        limits=limits,
        referred=evaluation.settings.referred,
    )
    svg = to_svg(
        figure, "lead",
        title=f"Accuracy of the retained images against the share referred, {SET_LABELS[name].lower()}",
        description=_at_share(evaluation, name, "accuracy"),
    )  # fmt: skip
    heading = {
        "in_domain": "Referral of the most uncertain images",
        "shifted": "Referral of the most uncertain shifted images",
    }
    found = referral_points(figure, evaluation, name, "accuracy")
    return Panel(heading[name], svg, _composition(evaluation, name), found)


def _controls(evaluation: Evaluation, name: str, metric: str) -> list[Control]:
    """Return random referral (its expectation) and oracle referral with the predictions of the leading method."""
    cases = evaluation.cases.get((evaluation.leader, name))
    if not cases:
        return []
    start = evaluation.get(evaluation.leader, name, metric).value
    oracle = np.mean([referral(case.oracle.weighted(), metric) for case in cases], axis=0)
    return [
        Control("random", GRID, np.where(GRID < 1, start, np.nan)),
        Control("oracle", GRID, oracle),
    ]


def _limits(
    metric: str, lines: dict[str, list[Line]], controls: dict[str, list[Control]]
) -> tuple[float, float]:
    """Return one range for all sets, so that they can be compared by eye; it holds the lines, not the bands."""
    seen = [line.y[: int(0.8 * len(GRID))] for group in lines.values() for line in group]
    seen += [control.y[:1] for group in controls.values() for control in group]
    values = np.concatenate(seen) if seen else np.empty(0)
    values = values[np.isfinite(values)]
    if not values.size:
        return (0.0, 1.0)
    if metric == "nll":
        return (0.0, float(values.max()) * 1.12)
    low = min(float(values.min()), 0.9)
    return (max(0.0, low - 0.12 * (1 - low) - 0.01), 1.004)


def histogram_panels(evaluation: Evaluation) -> list[Panel]:
    """Return the uncertainty by grade, split into correct and incorrect, one panel per method."""
    sets = evaluation.domains
    panels = []
    for i, method in enumerate(evaluation.methods):
        found = [(name, case) for name in sets if (case := evaluation.first(i, name)) is not None]
        if not found:
            continue
        columns = [
            Uncertainties(SET_LABELS[name], case.uncertainty, case.correct, case.grade)
            for name, case in found
        ]
        everything = np.concatenate([column.uncertainty for column in columns])
        kind = found[0][1].uncertainty_name
        label = {"own": "own uncertainty", "total": "entropy (nats)"}.get(kind, kind.replace("_", " "))
        limits = _uncertainty_limits(everything, kind in ("total", "aleatoric"))
        figure = histogram_panel(columns, limits=limits, label=label)
        errors = "; ".join(
            f"{SET_LABELS[n].lower()}: {int((~c.correct).sum())} of {len(c)} incorrect, their median uncertainty {_median(c.uncertainty[~c.correct])} against {_median(c.uncertainty[c.correct])} of the correct"
            for n, c in found
        )
        svg = to_svg(
            figure, f"histogram-{i}", title=f"Uncertainty of {method.name} by grade", description=errors
        )
        panels.append(Panel(method.name, svg))
    return panels


def _uncertainty_limits(values: Floats, entropy: bool) -> tuple[float, float]:
    if entropy:
        return 0.0, float(np.log(2))
    low, high = float(values.min()), float(values.max())
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def _median(values: Floats) -> str:
    return plain(float(np.median(values)), 2) if values.size else "none"


def reliability_panels(evaluation: Evaluation) -> list[Panel]:
    """Return the observed against the predicted share of referable images, one panel per method."""
    colors = {"in_domain": GOOD, "shifted": BAD}
    panels = []
    for i, method in enumerate(evaluation.methods):
        places, counts, said = [], [], []
        for name, color in colors.items():
            case, band = evaluation.first(i, name), evaluation.curves.get((i, name, "observed"))
            if case is None or band is None:
                continue
            x, filled = predicted_by_bin(case)
            places.append((color, x, band.y[filled], band.low[filled], band.high[filled]))
            counts.append(np.histogram(case.prob, np.linspace(0, 1, 21))[0].astype(float))
            said.append(
                f"{SET_LABELS[name].lower()}: predicted {case.prob.mean():.2f} on average, observed {case.label.mean():.2f}"
            )
        if places:
            figure = reliability_panel(places, counts)
            svg = to_svg(
                figure, f"reliability-{i}",
                title=f"Reliability of {method.name}, positive class", description="; ".join(said),
            )  # fmt: skip
            panels.append(Panel(method.name, svg, points=observed_points(figure, evaluation, i)))
    return panels
