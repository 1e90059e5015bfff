"""Figures of curves: ROC and referral, averaged over runs (paper: Figures 4, 5, 14 to 17, 19 and 20)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from retinabench.papers import drawing
from retinabench.papers.collect import STANDARD_BLUR, Collection, Group, Study
from retinabench.papers.curves import GRID, RATES
from retinabench.papers.drawing import Drawing, averaged, canvas_of, heading, legend, line, marks
from retinabench.papers.retina import JOINTLY
from retinabench.papers.words import SETS, in_words, needs, slug
from retinabench.report.figures import NHS
from retinabench.report.style import HUES, MUTED, PASS, Mark

Floats = NDArray[np.float64]
LABELS = {
    "accuracy": "accuracy of the kept",
    "auroc": "AUROC of the kept",
    "nll": "NLL of the kept (nats)",
    "auprc": "AUPRC of the kept",
}
NAMES = {**SETS, "rebalanced": "Shifted, grades as in EyePACS"}
BANDS = "Lines: means over runs; bands: ± one standard error over runs (none for a single run). "
CONTROLS = "Grey: the best method's answers referred at random and in the order of their true loss (oracle)."
Spec = tuple[str, str]  # what is drawn ("roc" or a metric), and the set


def drawings(study: Study, collection: Collection) -> tuple[list[Drawing], list[str]]:
    """Return the figures of curves of a study, and a line for each that cannot be drawn."""
    made, lacking = [], []
    if study.groups:
        made.append(_main(study, collection))
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


def referral_there(groups: Sequence[Group], name: str, metric: str) -> bool:
    """Whether some method has a curve to draw."""
    return any(
        np.isfinite(run.curves.referral.get((name, metric), np.array(np.nan))).any()
        for group in groups
        for run in group.runs
    )


def roc_there(groups: Sequence[Group], name: str) -> bool:
    """Whether some method has an ROC curve on a set."""
    return any((name, 1.0) in run.curves.roc for group in groups for run in group.runs)


def _main(study: Study, collection: Collection) -> Drawing:
    """Figures 4 and 5: ROC and referral, in-domain and shifted; accuracy where the shifted set has one class."""
    far = "shifted" if roc_there(study.groups, "shifted") else "joint"
    metric = "auroc" if far == "shifted" and study.task != "severity_shift" else "accuracy"
    specs: list[Spec] = [("roc", "in_domain"), ("roc", far), (metric, "in_domain"), (metric, "shifted")]
    specs = [spec for spec in specs if _possible(study.groups, spec)]
    number = {
        ("country_shift", False): "5",
        ("severity_shift", False): "4",
        ("country_shift", True): "15",
        ("severity_shift", True): "15",
    }
    paper = number.get((study.task.removesuffix("_published"), study.criterion == JOINTLY), "")
    note = (
        "The shifted set has one class and no ROC curve: the joint set stands for it. "
        if far == "joint" and ("roc", "joint") in specs
        else ""
    )
    caption = f"{note}{BANDS}Green: the NHS standard, sensitivity 85 % at specificity 80 %. {CONTROLS}"
    return _drawing("results", paper, "ROC and referral", caption, study, collection, specs)


def _by_metric(study: Study, collection: Collection) -> list[Drawing]:
    """Each metric over referral on every set: Figure 14 (accuracy, Country Shift), and its siblings."""
    found = []
    for metric in LABELS:
        specs: list[Spec] = [(metric, name) for name in SETS]
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
    limits = [_limits(study.variants, metric, name) for name in sets]
    for row, method in enumerate(names):
        for place, name in enumerate(sets):
            axes = grid[row][place]
            for group in study.variants:
                if group.name == method:
                    _referral_line(axes, group, looks[group.blur or STANDARD_BLUR], metric, name, collection)
            drawing.referral_axes(axes, LABELS[metric])
            axes.set_ylim(*limits[place])
            heading(axes, "", f"{method}, {SETS[name].lower()}")
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
            _referral_panel(axes, study.groups, looks, kind, name, collection)
        heading(axes, "abcdefgh"[k], f"{NAMES[name]}")
    legend(figure, [group.name for group in study.groups], looks)
    return figure


def roc_panel(
    axes: Axes,
    groups: Sequence[Group],
    looks: Sequence[Mark],
    name: str,
    collection: Collection,
    share: float = 1.0,
) -> None:
    """Draw averaged ROC curves with the NHS point; share: what is retained of the images."""
    x = RATES[collection.rules]
    for group, mark in zip(groups, looks, strict=True):
        values = [run.curves.roc[name, share] for run in group.runs if (name, share) in run.curves.roc]
        if values:
            line(axes, mark, x, values)
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.7, linestyle=(0, (2, 3)), zorder=1)
    nhs_point(axes)
    axes.set(xlim=(-0.03, 0.93), ylim=(0.45, 1.02), xlabel="1 − specificity", ylabel="sensitivity")
    drawing.small(axes)


def nhs_point(axes: Axes) -> None:
    """Mark sensitivity 85 % at specificity 80 %, and all that is better."""
    axes.fill_between([0, NHS[0]], NHS[1], 1, color=PASS, alpha=0.13, linewidth=0)
    axes.plot(*[[value] for value in NHS], marker="o", markersize=5, color=PASS, linestyle="none", zorder=5)
    drawing.halo(
        axes.annotate(
            "NHS", NHS, (5, -4), textcoords="offset points", fontsize=8, color=PASS, va="top", zorder=6
        )
    )


def _referral_panel(
    axes: Axes, groups: Sequence[Group], looks: Sequence[Mark], metric: str, name: str, collection: Collection
) -> None:
    best: tuple[float, Group | None] = (-np.inf, None)
    for group, mark in zip(groups, looks, strict=True):
        mean = _referral_line(axes, group, mark, metric, name, collection)
        worth = float(np.nanmean(mean)) if mean is not None and np.isfinite(mean).any() else -np.inf
        best = max(best, ((-worth if metric == "nll" else worth), group), key=lambda pair: pair[0])
    drawing.referral_axes(axes, LABELS[metric])
    axes.set_ylim(*_limits(groups, metric, name))
    if best[1] is not None:
        _controls(axes, best[1], metric, name)


def _referral_line(
    axes: Axes, group: Group, mark: Mark, metric: str, name: str, collection: Collection
) -> Floats | None:
    values = [found for run in group.runs if (found := run.curves.referral.get((name, metric))) is not None]
    if not values:
        return None
    return line(axes, mark, GRID, values, ddof=0 if collection.rules == "published" else 1)


def _controls(axes: Axes, group: Group, metric: str, name: str) -> None:
    start, _ = averaged([run.curves.referral[name, metric][:1] for run in group.runs], 1)
    drawing.control(axes, GRID, np.full(len(GRID), start[0]), "random")
    oracles = [run.curves.oracle[name, metric] for run in group.runs if (name, metric) in run.curves.oracle]
    if oracles:
        drawing.control(axes, GRID, averaged(oracles, 1)[0], "oracle")


def _limits(groups: Sequence[Group], metric: str, name: str) -> tuple[float, float]:
    """A range that holds every line up to four fifths referred; bands and what is left of few images may leave it."""
    seen = [
        averaged([run.curves.referral[name, metric] for run in group.runs], 1)[0][: int(0.8 * len(GRID))]
        for group in groups
        if (name, metric) in group.runs[0].curves.referral
    ]
    values = np.concatenate(seen)
    values = values[np.isfinite(values)]
    if not values.size:
        return 0.0, 1.0
    if metric == "nll":
        return 0.0, float(values.max()) * 1.15
    low = float(values.min())
    return max(0.0, low - 0.12 * (1 - low) - 0.01), 1.0 + 0.03 * (1 - low) + 0.002
