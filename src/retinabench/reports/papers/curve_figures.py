"""Figures of curves: ROC and referral, averaged over runs (paper: Figures 4, 5, 14 to 17, 19 and 20)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from retinabench.metrics.sets import SET_LABELS
from retinabench.reports.papers import drawing
from retinabench.reports.papers.collect import STANDARD_BLUR, Collection, Group, Study
from retinabench.reports.papers.drawing import Drawing, canvas_of, heading, legend, marks
from retinabench.reports.papers.panels import (
    LABELS,
    limits_of,
    referral_line,
    referral_panel,
    referral_there,
    roc_panel,
    roc_there,
)
from retinabench.reports.papers.retina import JOINTLY
from retinabench.reports.papers.words import in_words, needs, slug
from retinabench.reports.toolkit.style import HUES, Mark

Floats = NDArray[np.float64]
NAMES = {**SET_LABELS, "rebalanced": "Shifted, grades as in EyePACS"}
BANDS = "Lines: means over runs; bands: ± one standard error over runs (none for a single run). "
CONTROLS = "Grey: the best method's answers referred at random and in the order of their true loss (oracle)."
Spec = tuple[str, str]  # what is drawn ("roc" or a metric), and the set


def drawings(study: Study, collection: Collection) -> tuple[list[Drawing], list[str]]:
    """Return the figures of curves of a study, and a line for each that cannot be drawn."""
    made, lacking = [], []
    if study.groups:
        if any(referral_there(study.groups, name, "accuracy") for name in SET_LABELS):
            made.append(_main(study, collection))
        else:
            lacking.append(needs("curves", study, "at least ten images"))
        made += _by_metric(study, collection)
        if roc_there(study.groups, "rebalanced"):
            made += _rebalanced(study, collection)
        elif study.task.startswith("country_shift") or not study.task:
            lacking.append(
                needs("class-balanced shifted set", study, "shifted images of both classes, all with a grade")
            )
    if study.variants:
        made.append(_blurs(study, collection))
    return made, lacking


def _main(study: Study, collection: Collection) -> Drawing:
    """Figures 4 and 5: ROC and referral, in-domain and shifted; accuracy where the shifted set has one class."""
    far = "shifted" if roc_there(study.groups, "shifted") else "joint"
    metric = "auroc" if far == "shifted" else "accuracy"
    specs: list[Spec] = [("roc", "in_domain"), ("roc", far), (metric, "in_domain"), (metric, "shifted")]
    specs = [spec for spec in specs if _possible(study.groups, spec)]
    single = {"country_shift": "5", "severity_shift": "4"}.get(study.task.removesuffix("_published"), "")
    paper = "15" if single and study.criterion == JOINTLY else single
    note = ""
    if ("roc", "joint") in specs:
        note = "The shifted set has one class and no ROC curve: the joint set stands for it. "
    caption = f"{note}{BANDS}Green: the NHS standard, sensitivity 85 % at specificity 80 %. {CONTROLS}"
    return _drawing("results", paper, "ROC and referral", caption, study, collection, specs)


def _by_metric(study: Study, collection: Collection) -> list[Drawing]:
    """Each metric over referral on every set: Figure 14 (accuracy, Country Shift), and its siblings."""
    found = []
    for metric in LABELS:
        specs: list[Spec] = [(metric, name) for name in SET_LABELS]
        specs = [spec for spec in specs if _possible(study.groups, spec)]
        if specs:
            first = study.task == "country_shift" and study.criterion != JOINTLY and metric == "accuracy"
            title = f"{LABELS[metric].partition(' of')[0]} over referral"
            title = title[0].upper() + title[1:]
            found.append(
                _drawing(
                    f"referral-{metric}",
                    "14" if first else "",
                    title,
                    BANDS + CONTROLS,
                    study,
                    collection,
                    specs,
                )
            )
    return found


def _rebalanced(study: Study, collection: Collection) -> list[Drawing]:
    """Figures 16 and 17: the shifted set with the grades of the EyePACS test set."""
    how = "drawn at random" if collection.rules == "published" else "by exact weights"
    caption = f"The shifted set as it is, and with its grades as frequent as in the EyePACS test set ({how}). {BANDS}"
    rocs: list[Spec] = [("roc", "shifted"), ("roc", "rebalanced")]
    curves: list[Spec] = [(m, name) for m in ("auroc", "accuracy") for name in ("shifted", "rebalanced")]
    curves = [spec for spec in curves if _possible(study.groups, spec)]
    numbered = study.task == "country_shift"
    return [
        _drawing(
            "balanced-roc",
            "16" if numbered else "",
            "ROC, class-balanced shifted set",
            caption,
            study,
            collection,
            rocs,
        ),
        _drawing(
            "balanced-referral",
            "17" if numbered else "",
            "Referral, class-balanced shifted set",
            caption,
            study,
            collection,
            curves,
        ),
    ]


def _blurs(study: Study, collection: Collection) -> Drawing:
    """Figures 19 and 20: a row of panels per method, a line per blur constant."""
    number = {"severity_shift": "19", "country_shift": "20"}.get(study.task.removesuffix("_published"), "")
    number = "" if study.criterion == JOINTLY else number
    caption = f"One line per blur constant of the preprocessing. {BANDS}"
    name = _name("blur", number, study)
    return Drawing(
        name,
        number,
        f"Referral by blur constant, {in_words(study)}",
        caption,
        partial(_draw_blurs, study, collection),
    )


def _draw_blurs(study: Study, collection: Collection) -> Figure:
    names = list(dict.fromkeys(group.name for group in study.variants))
    blurs = sorted({group.blur or STANDARD_BLUR for group in study.variants})
    looks = {blur: Mark(k % len(HUES), (0, 1, 2, 3)[k % 4]) for k, blur in enumerate(blurs)}
    metric = "auroc" if referral_there(study.variants, "shifted", "auroc") else "accuracy"
    sets = [name for name in ("in_domain", "shifted") if referral_there(study.variants, name, metric)]
    figure, grid = canvas_of(len(names), len(sets))
    limits = [limits_of(study.variants, metric, name) for name in sets]
    for row, method in enumerate(names):
        for place, name in enumerate(sets):
            axes = grid[row][place]
            for group in study.variants:
                if group.name == method:
                    referral_line(axes, group, looks[group.blur or STANDARD_BLUR], metric, name, collection)
            drawing.referral_axes(axes, LABELS[metric])
            axes.set_ylim(*limits[place])
            heading(axes, "", f"{method}, {SET_LABELS[name].lower()}")
    legend(figure, [f"blur {blur}" for blur in blurs], list(looks.values()))
    return figure


def _name(kind: str, number: str, study: Study) -> str:
    return "-".join(
        part for part in (f"figure-{int(number):02d}" if number else "figure", kind, slug(study)) if part
    )


def _drawing(
    kind: str,
    number: str,
    title: str,
    caption: str,
    study: Study,
    collection: Collection,
    specs: Sequence[Spec],
) -> Drawing:
    draw = partial(_draw, study, collection, specs)
    return Drawing(_name(kind, number, study), number, f"{title}, {in_words(study)}", caption, draw)


def _possible(groups: Sequence[Group], spec: Spec) -> bool:
    kind, name = spec
    return roc_there(groups, name) if kind == "roc" else referral_there(groups, name, kind)


def _draw(study: Study, collection: Collection, specs: Sequence[Spec]) -> Figure:
    columns = min(2, len(specs))
    figure, grid = canvas_of(-(-len(specs) // columns), columns)
    places = [axes for row in grid for axes in row]
    for axes in places[len(specs) :]:
        axes.set_axis_off()
    looks = marks(study.groups)
    for k, ((kind, name), axes) in enumerate(zip(specs, places, strict=False)):
        if kind == "roc":
            roc_panel(axes, study.groups, looks, name, collection)
        else:
            referral_panel(axes, study.groups, looks, kind, name, collection)
        heading(axes, "abcdefgh"[k], f"{NAMES[name]}")
    legend(figure, [group.name for group in study.groups], looks)
    return figure
