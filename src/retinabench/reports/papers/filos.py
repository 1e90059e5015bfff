"""The table, the leaderboard and Figures 4 to 6 of Filos et al. 2019 (bdl-benchmarks): AUC and accuracy by share *retained*.

The leaderboard's files are `leaderboard/<benchmark>/<metric>/<method>.csv` with the header `retained_data,mean,std`,
shares 0.5 to 1.0 and values in percent, as in OATML/bdl-benchmarks at cf3c71e. `random` refers the predictions of the
first method at random; its expected value is the value without referral.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from retinabench.metrics.image_sets import SET_LABELS
from retinabench.metrics.over_seeds import aggregate
from retinabench.metrics.uncertainty import binary_entropy
from retinabench.reports.papers.curves import RATES
from retinabench.reports.papers.figures import panels, parts
from retinabench.reports.papers.figures.panels import BANDS
from retinabench.reports.papers.figures.parts import PaperFigure
from retinabench.reports.papers.filos_printed import with_printed
from retinabench.reports.papers.results import Collection, MethodRuns, TaskResults
from retinabench.reports.papers.retina_tables import PERCENT, method_rows, referral_columns
from retinabench.reports.toolkit.style import BAD, GOOD, INK, MUTED, PAPER, Mark
from retinabench.reports.toolkit.tables import Block, Row, Table

Floats = NDArray[np.float64]
BENCHMARKS = {"in_domain": "diabetic_retinopathy_diagnosis", "shifted": "aptos2019"}
METRICS = {"accuracy": "accuracy", "auc": "auroc"}
RETAINED = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_REFERRED = ((0.5, "50 % retained"), (0.3, "70 % retained"), (0.0, "100 % retained"))
_FILE_NAMES = {
    "Deterministic": "deterministic", "MC dropout": "mc_dropout", "MFVI": "mfvi",
    "ensemble Deterministic": "deep_ensemble", "ensemble MAP": "deep_ensemble", "ensemble MC dropout": "ensemble_mc_dropout",
}  # fmt: skip
_POINTS = ("Deterministic", "MAP")  # methods of one network without noise
_BLOCK_TITLES = {
    "in_domain": "In-domain (Kaggle in the paper)",
    "shifted": "Shifted (APTOS 2019 in the paper)",
}
_BINS = 48
_ROC_RETAINED = 0.6  # share retained where Figure 6 compares methods


def results_of(collection: Collection) -> list[TaskResults]:
    """Return the results that the 2019 paper could have had: all but the Severity Shift."""
    return [one for one in collection.results if one.methods and not one.task.startswith("severity_shift")]


def table(results: TaskResults, collection: Collection) -> Table:
    """Return Table 1 of the 2019 paper, with random referral as its last row; on its data, with the printed values."""
    blocks = []
    for name in ("in_domain", "shifted"):
        if not results.holds(name):
            continue
        columns = referral_columns(name, _REFERRED)
        rows = method_rows(results.methods, columns, collection.rules, PERCENT)
        unreferred = rows[0].cells[-2:]  # AUROC and accuracy of the first method with all images retained
        random = [replace(unreferred[k % 2], emphasis="") for k in range(len(columns))]
        rows.append(Row(f"Random referral of {results.methods[0].name}", random, rule=True))
        if name in _printed_sets(results):
            names = [*map(_file_name, results.methods), "random"]
            rows = with_printed(rows, names, name)
        title = _BLOCK_TITLES[name] if results.task == "country_shift" else SET_LABELS[name]
        blocks.append(Block(columns, rows, title))
    return Table(
        "AUC and accuracy of the images that are retained, the certain ones. Random referral: its expected value.",
        blocks,
        "Method",
        name=f"table-2019-1-{results.slug}",
        title=f"Referral, {results.title()}",
        number="1 of the 2019 paper",
        facts={"task": results.task, "dataset": results.dataset, "criterion": results.criterion},
    )


def _printed_sets(results: TaskResults) -> tuple[str, ...]:
    """Return the sets of the paper's Table 1 that the results were measured on: EyePACS, and APTOS as the shifted one."""
    data = str(results.methods[0].tests[0].metadata.get("data", ""))
    if results.kind not in ("hold_out_2019", "country_shift") or not data.startswith("eyepacs"):
        return ()
    return ("in_domain", "shifted") if data == "eyepacs+aptos" else ("in_domain",)


def leaderboard(results: TaskResults) -> dict[str, bytes]:
    """Return the leaderboard's files by their path below its folder.

    Mean and std are over runs, the std with ddof 1; it is empty for a single run. A share at which the value is undefined
    has no row.
    """
    files = {}
    for name, benchmark in BENCHMARKS.items():
        if not results.holds(name):
            continue
        for metric, score in METRICS.items():
            taken: set[str] = set()
            for method in results.methods:
                stem = _unused(_file_name(method), taken)
                files[f"{benchmark}/{metric}/{stem}.csv"] = _csv(method, name, score, RETAINED)
            all_retained = (1.0,) * len(RETAINED)
            stem = _unused("random", taken)
            files[f"{benchmark}/{metric}/{stem}.csv"] = _csv(results.methods[0], name, score, all_retained)
    return files


def _csv(method: MethodRuns, name: str, score: str, retained: Sequence[float]) -> bytes:
    lines = ["retained_data,mean,std"]
    for share, read_at in zip(RETAINED, retained, strict=True):
        values = _at_share(method, name, score, round(1 - read_at, 1))
        if np.isfinite(values).all():
            found = aggregate(100 * values)
            std = f"{found.std:.1f}" if np.isfinite(found.std) else ""
            lines.append(f"{share:.1f},{found.mean:.1f},{std}")
    return ("\n".join(lines) + "\n").encode()


def _at_share(method: MethodRuns, name: str, score: str, referred: float) -> Floats:
    """Return the (runs,) values of a score where this share is referred."""
    return np.array([run.get((name, f"{score}_at_{round(100 * referred)}")) for run in method.runs])


def _file_name(method: MethodRuns) -> str:
    base = re.sub(r" \([0-9a-f]+\)$", "", method.base)
    known = _FILE_NAMES.get(f"ensemble {base}" if method.ensemble else base)
    return known or re.sub(r"[^a-z0-9]+", "_", method.name.lower()).strip("_") or "method"


def _unused(stem: str, taken: set[str]) -> str:
    """Return the stem, numbered if it is taken, and take it."""
    k, unused = 1, stem
    while unused in taken:
        k += 1
        unused = f"{stem}_{k}"
    taken.add(unused)
    return unused


def figures(results: TaskResults, collection: Collection) -> list[PaperFigure]:
    """Return Figures 4, 5 and, where there is an ROC curve, 6."""
    sampled = _sampled(results.methods)
    others = (
        one for one in results.methods if one.base in _POINTS and not one.ensemble and one is not sampled
    )
    map_ = next(others, None)
    across = f"the probability of {map_.name}" if map_ else "its own probability"
    entropy = (
        f"Entropy of {sampled.name} against {across}, in-domain, first run; dark: more images (logarithmic). Grey: the "
        "entropy of that probability."
    )
    retained = f"{BANDS}Grey: random referral of the first method, expected value."
    roc = f"(a) {sampled.name} at 100, 90 and 60 % retained. (b) All methods at 60 % retained. In-domain. {BANDS}"
    made = [
        ("4", "Uncertainty and probability", entropy, partial(_draw_entropy, sampled, map_ or sampled)),
        ("5", "AUC and accuracy by share retained", retained, partial(_draw_retained, results)),
    ]
    if panels.has_roc_curve(results.methods, "in_domain"):
        made.append(("6", "ROC after referral", roc, partial(_draw_roc, results, collection, sampled)))
    return [
        PaperFigure(
            f"figure-2019-{number}-{results.slug}",
            f"{number} of the 2019 paper",
            f"{title}, {results.title()}",
            caption,
            draw,
        )
        for number, title, caption, draw in made
    ]


def _sampled(methods: Sequence[MethodRuns]) -> MethodRuns:
    """Return MC dropout, else the first method that is not MAP, else the first."""
    single = [method for method in methods if not method.ensemble] or list(methods)
    dropout = [method for method in single if "dropout" in method.name.lower()]
    return (dropout or [method for method in single if method.base not in _POINTS] or single)[0]


def _draw_entropy(one: MethodRuns, sure: MethodRuns) -> Figure:
    test, other = one.tests[0], sure.tests[0]
    rows = test.domain == "in_domain" if (test.domain == "in_domain").any() else np.ones(len(test), bool)
    entropy, prob = binary_entropy(test.prob[rows]), other.prob[rows]
    right = ((test.prob > 0.5) == (test.label == 1))[rows]
    edges = np.linspace(0, 1, _BINS + 1), np.linspace(0, np.log(2), _BINS + 1)
    counts = [np.histogram2d(prob[part], entropy[part], edges)[0].T for part in (right, ~right)]
    figure, [places] = parts.panel_grid(1, 2)
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
        parts.style_axes(axes)
        parts.panel_title(axes, "ab"[k], f"{name} predictions ({int(count.sum()):,})")
    return figure


def _mixed(color: str, other: str, share: float) -> tuple[float, float, float]:
    """Return a colour mixed with this share of another one."""
    ours, theirs = to_rgb(color), to_rgb(other)
    red, green, blue = ((1 - share) * a + share * b for a, b in zip(ours, theirs, strict=True))
    return red, green, blue


def _draw_retained(results: TaskResults) -> Figure:
    sets = [name for name in ("in_domain", "shifted") if results.holds(name)]
    shown = [(metric, name) for name in sets for metric in ("auroc", "accuracy")]
    figure, grid = parts.panel_grid(len(sets), 2)
    marks = panels.method_marks(results.methods)
    x = np.array(RETAINED)
    for k, ((metric, name), axes) in enumerate(zip(shown, [a for row in grid for a in row], strict=True)):
        for method, mark in zip(results.methods, marks, strict=True):
            values = np.stack(
                [_at_share(method, name, metric, round(1 - share, 1)) for share in RETAINED], axis=1
            )
            if np.isfinite(values).any():
                panels.draw_runs(axes, mark, x, list(values), marker="os^Dv*"[mark.hue], markersize=3.5)
        start = float(_at_share(results.methods[0], name, metric, 0.0).mean())
        _retained_axes(axes, "AUC" if metric == "auroc" else "accuracy")
        if np.isfinite(start):
            parts.control_line(axes, x, np.full(len(x), start), "random")
        parts.panel_title(axes, "abcd"[k], SET_LABELS[name])
    parts.method_legend(figure, [method.name for method in results.methods], marks)
    return figure


def _retained_axes(axes: Axes, label: str) -> None:
    axes.set(xlim=(0.485, 1.015), xlabel="retained", ylabel=label)
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
    parts.style_axes(axes)


def _draw_roc(results: TaskResults, collection: Collection, one: MethodRuns) -> Figure:
    figure, [[left, right]] = parts.panel_grid(1, 2)
    x = RATES[collection.rules]
    for k, share in enumerate((1.0, 0.9, _ROC_RETAINED)):
        values = [
            run.curves.roc["in_domain", share] for run in one.runs if ("in_domain", share) in run.curves.roc
        ]
        if values:
            panels.draw_runs(left, Mark(k + 3, k), x, values, label=f"{100 * share:.0f} % retained")
    left.legend(loc="center", fontsize=8, frameon=False)
    panels.nhs_point(left)
    left.plot([0, 1], [0, 1], color=MUTED, linewidth=0.7, linestyle=(0, (2, 3)), zorder=1)
    left.set(xlim=(-0.03, 0.93), ylim=(0.45, 1.02), xlabel="1 − specificity", ylabel="sensitivity")
    parts.style_axes(left)
    marks = panels.method_marks(results.methods)
    panels.roc_panel(right, results.methods, marks, "in_domain", collection, _ROC_RETAINED)
    parts.panel_title(left, "a", f"{one.name}, by share retained")
    parts.panel_title(right, "b", f"{100 * _ROC_RETAINED:.0f} % retained")
    parts.method_legend(figure, [method.name for method in results.methods], marks)
    return figure
