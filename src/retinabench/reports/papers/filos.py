"""Filos et al. 2019: Table 1 with the printed numbers, Figures 4 to 6, and the CSV files of the leaderboard."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, LogNorm, to_rgb
from matplotlib.figure import Figure

from retinabench.metrics.image_sets import SET_LABELS, binary_entropy
from retinabench.metrics.paired import aggregate
from retinabench.metrics.weighted_images import Floats
from retinabench.reports.papers import figures as shared
from retinabench.reports.papers.figures import BANDS, PaperFigure
from retinabench.reports.papers.measurements import RATES, Collection, MethodRuns, TaskResults
from retinabench.reports.papers.retina_tables import PERCENT, method_rows, referral_columns
from retinabench.reports.toolkit.figures import BAD, GOOD, INK, MUTED, PAPER, Mark, percent_axis
from retinabench.reports.toolkit.printed import printed_tables
from retinabench.reports.toolkit.tables import Block, Cell, NumberFormat, Row, Table

_PERCENT = NumberFormat(1)
BENCHMARKS = {"in_domain": "diabetic_retinopathy_diagnosis", "shifted": "aptos2019"}
METRICS = {"accuracy": "accuracy", "auc": "auroc"}
RETAINED = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_FILOS_REFERRED = ((0.5, "50 % retained"), (0.3, "70 % retained"), (0.0, "100 % retained"))
_FILE_NAMES = {
    "Deterministic": "deterministic", "MC dropout": "mc_dropout", "MFVI": "mfvi",
    "ensemble Deterministic": "deep_ensemble", "ensemble MAP": "deep_ensemble", "ensemble MC dropout": "ensemble_mc_dropout",
}  # fmt: skip
_POINTS = ("Deterministic", "MAP")  # methods of one network without noise
_FILOS_BLOCK_TITLES = {"in_domain": "In-domain (Kaggle in the paper)", "shifted": "Shifted (APTOS 2019 in the paper)"}
_BINS = 48
_ROC_RETAINED = 0.6  # share retained where Figure 6 compares methods


def with_printed(rows: list[Row], files: list[str], set_name: str) -> list[Row]:
    printed = printed_tables()[f"filos-2019-{set_name.replace('_', '-')}"].rows
    found = []
    for row, file in zip(rows, files, strict=True):
        found.append(row)
        if file in printed:
            numbers = [map(float, text.split(" ± ")) for text in printed[file]]
            cells = [Cell.number(value, error=error, form=_PERCENT) for value, error in numbers]
            found.append(Row(f"{row.label}, printed in 2019", cells, control=True))
    return found


def filos_results(collection: Collection) -> list[TaskResults]:
    """Return the results that the 2019 paper could have had: all but the Severity Shift."""
    return [one for one in collection.results if one.methods and not one.task.startswith("severity_shift")]


def filos_table(results: TaskResults, collection: Collection) -> Table:
    blocks = []
    for name in ("in_domain", "shifted"):
        if not results.holds(name):
            continue
        columns = referral_columns(name, _FILOS_REFERRED)
        rows = method_rows(results.methods, columns, collection.rules, PERCENT)
        unreferred = rows[0].cells[-2:]  # AUROC and accuracy of the first method with all images retained
        random = [replace(unreferred[k % 2], emphasis="") for k in range(len(columns))]
        rows.append(Row(f"Random referral of {results.methods[0].name}", random, rule=True))
        if name in _printed_sets(results):
            names = [*map(_file_name, results.methods), "random"]
            rows = with_printed(rows, names, name)
        title = _FILOS_BLOCK_TITLES[name] if results.task == "country_shift" else SET_LABELS[name]
        blocks.append(Block(columns, rows, title))
    caption = "AUC and accuracy of the images that are retained, the certain ones. Random referral: its expected value."
    name, title = f"table-2019-1-{results.slug}", f"Referral, {results.title()}"
    return Table(caption, blocks, "Method", "", name, title, "1 of the 2019 paper", results.facts)


def _printed_sets(results: TaskResults) -> tuple[str, ...]:
    data = str(results.methods[0].tests[0].metadata.get("data", ""))
    if results.kind not in ("hold_out_2019", "country_shift") or not data.startswith("eyepacs"):
        return ()
    return ("in_domain", "shifted") if data == "eyepacs+aptos" else ("in_domain",)


def filos_leaderboard(results: TaskResults) -> dict[str, bytes]:
    """Return the leaderboard's files by path: mean and std (ddof 1, empty for one run) over runs, without shares at which a value is undefined."""
    files = {}
    for name, benchmark in BENCHMARKS.items():
        if not results.holds(name):
            continue
        for metric, score in METRICS.items():
            taken: set[str] = set()
            made = [(_file_name(method), method, RETAINED) for method in results.methods]
            for stem, method, retained in [*made, ("random", results.methods[0], (1.0,) * len(RETAINED))]:
                files[f"{benchmark}/{metric}/{_unused(stem, taken)}.csv"] = _csv(method, name, score, retained)
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
    return np.array([run.get((name, f"{score}_at_{round(100 * referred)}")) for run in method.runs])


def _file_name(method: MethodRuns) -> str:
    base = re.sub(r" \([0-9a-f]+\)$", "", method.base)
    known = _FILE_NAMES.get(f"ensemble {base}" if method.ensemble else base)
    return known or re.sub(r"[^a-z0-9]+", "_", method.name.lower()).strip("_") or "method"


def _unused(stem: str, taken: set[str]) -> str:
    k, unused = 1, stem
    while unused in taken:
        k += 1
        unused = f"{stem}_{k}"
    taken.add(unused)
    return unused


def filos_figures(results: TaskResults, collection: Collection) -> list[PaperFigure]:
    sampled = _sampled(results.methods)
    others = (one for one in results.methods if one.base in _POINTS and not one.ensemble and one is not sampled)
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
    if shared.has_roc_curve(results.methods, "in_domain"):
        made.append(("6", "ROC after referral", roc, partial(_draw_roc, results, collection, sampled)))
    figures = []
    for number, title, caption, draw in made:
        name, own = f"figure-2019-{number}-{results.slug}", f"{title}, {results.title()}"
        figures.append(PaperFigure(name, f"{number} of the 2019 paper", own, caption, draw))
    return figures


def _sampled(methods: Sequence[MethodRuns]) -> MethodRuns:
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
    figure, [places] = shared.panel_grid(1, 2)
    for k, (axes, count, name, color) in enumerate(zip(places, counts, ("right", "wrong"), (GOOD, BAD), strict=True)):
        shade = LinearSegmentedColormap.from_list(
            name, np.stack([_mixed(color, PAPER, 0.7), np.array(to_rgb(color)), _mixed(color, INK, 0.6)])
        )
        if count.any():
            norm = LogNorm(1, max(count.max(), 2))
            axes.pcolormesh(*edges, np.ma.masked_equal(count, 0), cmap=shade, norm=norm, linewidth=0, rasterized=True)
        x = np.linspace(0, 1, 201)
        axes.plot(x, binary_entropy(x), color=MUTED, linewidth=0.7, linestyle=(0, (2, 3)))
        axes.set(xlim=(0, 1), ylim=(0, 0.72), xlabel="p(referable | image)", ylabel="predictive entropy (nats)")
        shared.style_axes(axes)
        shared.panel_title(axes, "ab"[k], f"{name} predictions ({int(count.sum()):,})")
    return figure


def _mixed(color: str, other: str, share: float) -> Floats:
    return (1 - share) * np.array(to_rgb(color)) + share * np.array(to_rgb(other))


def _draw_retained(results: TaskResults) -> Figure:
    sets = [name for name in ("in_domain", "shifted") if results.holds(name)]
    shown = [(metric, name) for name in sets for metric in ("auroc", "accuracy")]
    figure, grid = shared.panel_grid(len(sets), 2)
    marks = shared.method_marks(results.methods)
    x = np.array(RETAINED)
    for k, ((metric, name), axes) in enumerate(zip(shown, [a for row in grid for a in row], strict=True)):
        for method, mark in zip(results.methods, marks, strict=True):
            values = np.stack([_at_share(method, name, metric, round(1 - share, 1)) for share in RETAINED], axis=1)
            if np.isfinite(values).any():
                shared.draw_runs(axes, mark, x, list(values), marker="os^Dv*"[mark.hue], markersize=3.5)
        start = float(_at_share(results.methods[0], name, metric, 0.0).mean())
        axes.set(xlim=(0.485, 1.015), xlabel="retained", ylabel="AUC" if metric == "auroc" else "accuracy")
        percent_axis(axes.xaxis)
        shared.style_axes(axes)
        if np.isfinite(start):
            shared.control_line(axes, x, np.full(len(x), start), "random")
        shared.panel_title(axes, "abcd"[k], SET_LABELS[name])
    shared.method_legend(figure, [method.name for method in results.methods], marks)
    return figure


def _draw_roc(results: TaskResults, collection: Collection, one: MethodRuns) -> Figure:
    figure, [[left, right]] = shared.panel_grid(1, 2)
    x = RATES[collection.rules]
    for k, share in enumerate((1.0, 0.9, _ROC_RETAINED)):
        values = [run.roc["in_domain", share] for run in one.runs if ("in_domain", share) in run.roc]
        if values:
            shared.draw_runs(left, Mark(k + 3, k), x, values, label=f"{100 * share:.0f} % retained")
    left.legend(loc="center", fontsize=8, frameon=False)
    shared.roc_axes(left)
    marks = shared.method_marks(results.methods)
    shared.roc_panel(right, results.methods, marks, "in_domain", collection.rules, _ROC_RETAINED)
    shared.panel_title(left, "a", f"{one.name}, by share retained")
    shared.panel_title(right, "b", f"{100 * _ROC_RETAINED:.0f} % retained")
    shared.method_legend(figure, [method.name for method in results.methods], marks)
    return figure
