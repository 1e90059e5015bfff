"""Figures 4, 5 and 6 of Filos et al. 2019."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from retinabench.metrics.sets import SET_LABELS
from retinabench.metrics.uncertainty import binary_entropy
from retinabench.reports.papers import drawing
from retinabench.reports.papers.collect import Collection, Group, Study
from retinabench.reports.papers.curve_figures import BANDS
from retinabench.reports.papers.curves import RATES
from retinabench.reports.papers.drawing import Drawing, canvas_of, heading, legend, line, marks
from retinabench.reports.papers.filos import RETAINED, at_share
from retinabench.reports.papers.panels import nhs_point, roc_panel, roc_there
from retinabench.reports.papers.retina import has
from retinabench.reports.papers.words import in_words, slug
from retinabench.reports.toolkit.style import BAD, GOOD, INK, MUTED, PAPER, Mark

Floats = NDArray[np.float64]
BINS = 48
AFTER = 0.6  # retained, where Figure 6 compares methods


def drawings(study: Study, collection: Collection) -> list[Drawing]:
    """Return the figures of a study."""
    one = _sampled(study.groups)
    sure = next((g for g in study.groups if g.base == "MAP" and not g.ensemble and g is not one), None)
    across = f"the probability of {sure.name}" if sure else "its own probability"
    made = [
        Drawing(
            f"figure-2019-4-{slug(study)}", "4 of the 2019 paper", f"Uncertainty and probability, {in_words(study)}",
            f"Entropy of {one.name} against {across}, in-domain, first run; dark: more images (logarithmic). Grey: the entropy of "
            "that probability.",
            partial(_draw_entropy, one, sure or one),
        ),
        Drawing(
            f"figure-2019-5-{slug(study)}", "5 of the 2019 paper", f"AUC and accuracy over what is retained, {in_words(study)}",
            BANDS + "Grey: random referral of the first method, in expectation.", partial(_draw_retained, study, collection),
        ),
    ]  # fmt: skip
    if roc_there(study.groups, "in_domain"):
        caption = f"(a) {one.name} at 100, 90 and 60 % retained. (b) All methods at 60 % retained. In-domain. {BANDS}"
        draw = partial(_draw_roc, study, collection, one)
        made.append(
            Drawing(
                f"figure-2019-6-{slug(study)}",
                "6 of the 2019 paper",
                f"ROC after referral, {in_words(study)}",
                caption,
                draw,
            )
        )
    return made


def _sampled(groups: Sequence[Group]) -> Group:
    """MC dropout, or else the first method that is not MAP, or else the first."""
    single = [group for group in groups if not group.ensemble] or list(groups)
    dropout = [group for group in single if "dropout" in group.name.lower()]
    return (dropout or [group for group in single if group.base != "MAP"] or single)[0]


def _draw_entropy(one: Group, sure: Group) -> Figure:
    test, other = one.tests[0], sure.tests[0]
    rows = test.domain == "in_domain" if (test.domain == "in_domain").any() else np.ones(len(test), bool)
    entropy, prob = binary_entropy(test.prob[rows]), other.prob[rows]
    right = ((test.prob > 0.5) == (test.label == 1))[rows]
    edges = np.linspace(0, 1, BINS + 1), np.linspace(0, np.log(2), BINS + 1)
    counts = [np.histogram2d(prob[part], entropy[part], edges)[0].T for part in (right, ~right)]
    figure, [places] = canvas_of(1, 2)
    for k, (axes, count, name, color) in enumerate(
        zip(places, counts, ("right", "wrong"), (GOOD, BAD), strict=True)
    ):
        shade = LinearSegmentedColormap.from_list(
            name, [_mixed(color, PAPER, 0.7), to_rgb(color), _mixed(color, INK, 0.6)]
        )
        if count.any():
            norm = LogNorm(1, max(count.max(), 2))
            axes.pcolormesh(
                *edges, np.ma.masked_equal(count, 0), cmap=shade, norm=norm, linewidth=0, rasterized=True
            )
        x = np.linspace(0, 1, 201)
        axes.plot(x, binary_entropy(x), color=MUTED, linewidth=0.7, linestyle=(0, (2, 3)))
        axes.set(
            xlim=(0, 1), ylim=(0, 0.72), xlabel="p(referable | image)", ylabel="predictive entropy (nats)"
        )
        drawing.small(axes)
        heading(axes, "ab"[k], f"{name} answers ({int(count.sum()):,})")
    return figure


def _mixed(color: str, other: str, share: float) -> tuple[float, float, float]:
    """A colour with this share of another one."""
    ours, theirs = to_rgb(color), to_rgb(other)
    red, green, blue = ((1 - share) * a + share * b for a, b in zip(ours, theirs, strict=True))
    return red, green, blue


def _draw_retained(study: Study, collection: Collection) -> Figure:
    sets = [name for name in ("in_domain", "shifted") if has(study.groups, name)]
    panels = [(metric, name) for name in sets for metric in ("auroc", "accuracy")]
    figure, grid = canvas_of(len(sets), 2)
    looks = marks(study.groups)
    x = np.array(RETAINED)
    for k, ((metric, name), axes) in enumerate(zip(panels, [a for row in grid for a in row], strict=True)):
        for group, mark in zip(study.groups, looks, strict=True):
            values = np.stack(
                [at_share(group, name, metric, round(1 - share, 1)) for share in RETAINED], axis=1
            )
            if np.isfinite(values).any():
                line(axes, mark, x, list(values), marker="os^Dv*"[mark.hue], markersize=3.5)
        start = float(at_share(study.groups[0], name, metric, 0.0).mean())
        _retained_axes(axes, "AUC" if metric == "auroc" else "accuracy")
        if np.isfinite(start):
            drawing.control(axes, x, np.full(len(x), start), "random")
        heading(axes, "abcd"[k], SET_LABELS[name])
    legend(figure, [group.name for group in study.groups], looks)
    return figure


def _retained_axes(axes: Axes, label: str) -> None:
    axes.set(xlim=(0.485, 1.015), xlabel="retained", ylabel=label)
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
    drawing.small(axes)


def _draw_roc(study: Study, collection: Collection, one: Group) -> Figure:
    figure, [[left, right]] = canvas_of(1, 2)
    x = RATES[collection.rules]
    for k, share in enumerate((1.0, 0.9, AFTER)):
        values = [
            run.curves.roc["in_domain", share] for run in one.runs if ("in_domain", share) in run.curves.roc
        ]
        if values:
            line(left, Mark(k + 3, k), x, values, label=f"{100 * share:.0f} % retained")
    left.legend(loc="center", fontsize=8, frameon=False)
    nhs_point(left)
    left.plot([0, 1], [0, 1], color=MUTED, linewidth=0.7, linestyle=(0, (2, 3)), zorder=1)
    left.set(xlim=(-0.03, 0.93), ylim=(0.45, 1.02), xlabel="1 − specificity", ylabel="sensitivity")
    drawing.small(left)
    looks = marks(study.groups)
    roc_panel(right, study.groups, looks, "in_domain", collection, AFTER)
    heading(left, "a", f"{one.name}, by share retained")
    heading(right, "b", f"{100 * AFTER:.0f} % retained")
    legend(figure, [group.name for group in study.groups], looks)
    return figure
