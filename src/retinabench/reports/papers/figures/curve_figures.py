"""Figures of curves: ROC and referral, averaged over runs (paper: Figures 4, 5, 14 to 17, 19 and 20)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from matplotlib.figure import Figure

from retinabench.metrics.image_sets import SET_LABELS
from retinabench.reports.papers.figures.panels import (
    BANDS,
    METRIC_LABELS,
    has_referral_curve,
    has_roc_curve,
    method_marks,
    referral_line,
    referral_panel,
    roc_panel,
    value_range,
)
from retinabench.reports.papers.figures.parts import (
    PaperFigure,
    file_name,
    method_legend,
    panel_grid,
    panel_title,
    referral_axes,
)
from retinabench.reports.papers.origins import JOINT_CRITERION, STANDARD_BLUR
from retinabench.reports.papers.results import Collection, MethodRuns, TaskResults
from retinabench.reports.toolkit.style import HUES, Mark

_CONTROLS = "Grey: the predictions of the best method referred at random and in the order of their true loss (oracle)."
_TITLES = {**SET_LABELS, "rebalanced": "Shifted, grades as in EyePACS"}
_ROC = "roc"
Panel = tuple[str, str]
"""What a panel shows (ROC curves, or a metric over referral), and the set."""


def figures(results: TaskResults, collection: Collection) -> tuple[list[PaperFigure], list[str]]:
    """Return the figures of curves of some results, and a line for each that cannot be drawn."""
    made, missing = [], []
    if results.methods:
        if any(has_referral_curve(results.methods, name, "accuracy") for name in SET_LABELS):
            made.append(_main(results, collection))
        else:
            missing.append(results.missing("curves", "at least ten images"))
        made += _by_metric(results, collection)
        if has_roc_curve(results.methods, "rebalanced"):
            made += _rebalanced(results, collection)
        elif results.task.startswith("country_shift") or not results.task:
            needed = "shifted images of both classes, all with a grade"
            missing.append(results.missing("class-balanced shifted set", needed))
    if results.blur_variants:
        made.append(_blurs(results, collection))
    return made, missing


def _main(results: TaskResults, collection: Collection) -> PaperFigure:
    """Figures 4, 5 and 15: ROC and referral, in-domain and shifted; accuracy where the shifted set has one class."""
    second = "shifted" if has_roc_curve(results.methods, "shifted") else "joint"
    metric = "auroc" if second == "shifted" else "accuracy"
    panels = [(_ROC, "in_domain"), (_ROC, second), (metric, "in_domain"), (metric, "shifted")]
    panels = _possible(results.methods, panels)
    number = {"country_shift": "5", "severity_shift": "4"}.get(results.kind, "")
    number = "15" if number and results.criterion == JOINT_CRITERION else number
    note = ""
    if (_ROC, "joint") in panels:
        note = "The shifted set has one class and therefore no ROC curve; the joint set is shown instead. "
    caption = f"{note}{BANDS}Green: the NHS standard, sensitivity 85 % at specificity 80 %. {_CONTROLS}"
    return _figure("results", number, "ROC and referral", caption, results, collection, panels)


def _by_metric(results: TaskResults, collection: Collection) -> list[PaperFigure]:
    """Each metric over referral on every set: Figure 14 (accuracy, Country Shift) and its counterparts."""
    made = []
    for metric, label in METRIC_LABELS.items():
        panels = _possible(results.methods, [(metric, name) for name in SET_LABELS])
        if panels:
            numbered = (
                results.task == "country_shift"
                and results.criterion != JOINT_CRITERION
                and metric == "accuracy"
            )
            title = f"{label.partition(' of')[0]} over referral"
            title = title[0].upper() + title[1:]
            number = "14" if numbered else ""
            made.append(
                _figure(f"referral-{metric}", number, title, BANDS + _CONTROLS, results, collection, panels)
            )
    return made


def _rebalanced(results: TaskResults, collection: Collection) -> list[PaperFigure]:
    """Figures 16 and 17: the shifted set with the grade frequencies of the EyePACS test set."""
    how = "drawn at random" if collection.rules == "published" else "by exact weights"
    caption = (
        f"The shifted set as it is, and with the grade frequencies of the EyePACS test set ({how}). {BANDS}"
    )
    sets = ("shifted", "rebalanced")
    curves = _possible(results.methods, [(metric, name) for metric in ("auroc", "accuracy") for name in sets])
    roc, referral = ("16", "17") if results.task == "country_shift" else ("", "")
    title = "class-balanced shifted set"
    return [
        _figure(
            "balanced-roc",
            roc,
            f"ROC, {title}",
            caption,
            results,
            collection,
            [(_ROC, name) for name in sets],
        ),
        _figure("balanced-referral", referral, f"Referral, {title}", caption, results, collection, curves),
    ]


def _blurs(results: TaskResults, collection: Collection) -> PaperFigure:
    """Figures 19 and 20: a row of panels per method, a line per blur constant."""
    number = {"severity_shift": "19", "country_shift": "20"}.get(results.kind, "")
    number = "" if results.criterion == JOINT_CRITERION else number
    return PaperFigure(
        file_name("blur", number, results),
        number,
        f"Referral by blur constant, {results.title()}",
        f"One line per blur constant of the preprocessing. {BANDS}",
        partial(_draw_blurs, results, collection),
    )


def _draw_blurs(results: TaskResults, collection: Collection) -> Figure:
    variants = results.blur_variants
    names = list(dict.fromkeys(method.name for method in variants))
    blurs = sorted({method.blur or STANDARD_BLUR for method in variants})
    marks = {blur: Mark(k % len(HUES), (0, 1, 2, 3)[k % 4]) for k, blur in enumerate(blurs)}
    metric = "auroc" if has_referral_curve(variants, "shifted", "auroc") else "accuracy"
    sets = [name for name in ("in_domain", "shifted") if has_referral_curve(variants, name, metric)]
    figure, grid = panel_grid(len(names), len(sets))
    limits = [value_range(variants, metric, name) for name in sets]
    for row, title in enumerate(names):
        for column, name in enumerate(sets):
            axes = grid[row][column]
            for method in variants:
                if method.name == title:
                    referral_line(axes, method, marks[method.blur or STANDARD_BLUR], metric, name, collection)
            referral_axes(axes, METRIC_LABELS[metric])
            axes.set_ylim(*limits[column])
            panel_title(axes, "", f"{title}, {SET_LABELS[name].lower()}")
    method_legend(figure, [f"blur {blur}" for blur in blurs], list(marks.values()))
    return figure


def _figure(
    kind: str,
    number: str,
    title: str,
    caption: str,
    results: TaskResults,
    collection: Collection,
    panels: Sequence[Panel],
) -> PaperFigure:
    draw = partial(_draw, results, collection, panels)
    return PaperFigure(file_name(kind, number, results), number, f"{title}, {results.title()}", caption, draw)


def _possible(methods: Sequence[MethodRuns], panels: Sequence[Panel]) -> list[Panel]:
    return [
        (kind, name)
        for kind, name in panels
        if (has_roc_curve(methods, name) if kind == _ROC else has_referral_curve(methods, name, kind))
    ]


def _draw(results: TaskResults, collection: Collection, panels: Sequence[Panel]) -> Figure:
    columns = min(2, len(panels))
    figure, grid = panel_grid(-(-len(panels) // columns), columns)
    places = [axes for row in grid for axes in row]
    for axes in places[len(panels) :]:
        axes.set_axis_off()
    marks = method_marks(results.methods)
    for k, ((kind, name), axes) in enumerate(zip(panels, places, strict=False)):
        if kind == _ROC:
            roc_panel(axes, results.methods, marks, name, collection)
        else:
            referral_panel(axes, results.methods, marks, kind, name, collection)
        panel_title(axes, "abcdefgh"[k], _TITLES[name])
    method_legend(figure, [method.name for method in results.methods], marks)
    return figure
