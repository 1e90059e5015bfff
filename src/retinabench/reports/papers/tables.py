"""The tables of the Retina Benchmark and of Filos et al. 2019, with the printed numbers."""

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
from retinabench.metrics.registry import SCORES
from retinabench.metrics.uncertainty import binary_entropy
from retinabench.reports.papers import figures as parts
from retinabench.reports.papers.comparison import column_cells
from retinabench.reports.papers.figures import BANDS, PaperFigure
from retinabench.reports.papers.measurements import (
    JOINT_CRITERION,
    RATES,
    STANDARD_BLUR,
    Collection,
    MethodRuns,
    TaskResults,
    criterion_title,
    has_set,
)
from retinabench.reports.toolkit.figures import BAD, GOOD, INK, MUTED, PAPER, Mark
from retinabench.reports.toolkit.number_format import NumberFormat
from retinabench.reports.toolkit.tables import Block, Cell, Column, Row, Table

_PERCENT = NumberFormat(1)
PRINTED = {
    "in_domain": {
        "mc_dropout": "87.8 1.1  91.3 0.7  85.2 0.9  87.1 0.9  82.1 0.9  84.5 0.9",
        "mfvi": "86.6 1.1  88.1 1.1  84.0 1.0  85.0 1.0  82.1 1.2  84.3 0.7",
        "deep_ensemble": "87.2 0.9  89.9 0.9  84.9 0.8  86.1 1.0  81.8 1.1  84.6 0.7",
        "deterministic": "84.9 1.1  86.1 0.6  82.3 1.2  84.9 0.5  82.0 1.0  84.2 0.6",
        "ensemble_mc_dropout": "88.1 1.2  92.4 0.9  85.4 1.0  88.1 1.0  82.5 1.1  85.3 1.0",
        "random": "81.8 1.2  84.8 0.9  82.0 1.3  84.3 0.7  82.0 0.9  84.2 0.5",
    },
    "shifted": {
        "mc_dropout": "79.9 0.3  84.1 1.5  76.8 0.2  79.9 1.7  74.0 0.4  78.6 1.7",
        "mfvi": "77.8 0.1  81.1 0.3  75.5 0.0  78.6 0.2  74.5 0.3  77.2 0.1",
        "deep_ensemble": "80.8 0.7  84.3 0.7  78.5 0.6  80.4 0.8  76.2 0.9  78.8 0.5",
        "deterministic": "76.3 0.5  77.5 1.2  73.5 0.6  77.7 1.1  73.8 0.4  76.5 1.2",
        "ensemble_mc_dropout": "82.3 1.2  87.1 1.3  79.8 1.0  82.8 1.4  77.2 1.1  79.4 1.4",
        "random": "74.1 1.2  76.9 1.3  74.3 1.3  76.4 1.0  74.4 0.9  76.9 0.0",
    },
}
"""Set -> name of the method's file -> AUC ±, accuracy ± at 50, 70 and 100 % retained."""


def with_printed(rows: list[Row], files: list[str], set_name: str) -> list[Row]:
    """Put the printed values below the row of each method that the paper has."""
    found = []
    for row, file in zip(rows, files, strict=True):
        found.append(row)
        if (printed := PRINTED[set_name].get(file)) is not None:
            numbers = [float(word) for word in printed.split()]
            cells = [
                Cell.number(value, error=error, form=_PERCENT)
                for value, error in zip(numbers[::2], numbers[1::2], strict=True)
            ]
            found.append(Row(f"{row.label}, printed in 2019", cells, control=True))
    return found


NUMBERS = {  # (kind, task, tuned on the joint validation set)
    ("referral", "country_shift", False): 1, ("referral", "severity_shift", False): 2,
    ("prediction", "country_shift", False): 4, ("prediction", "severity_shift", False): 5,
    ("areas", "country_shift", False): 6, ("areas", "severity_shift", False): 7,
    ("prediction", "country_shift", True): 8, ("prediction", "severity_shift", True): 9,
    ("areas", "country_shift", True): 10, ("areas", "severity_shift", True): 11,
    ("blur", "severity_shift", False): 12, ("blur", "country_shift", False): 13,
}  # fmt: skip
DETECTION = 3
PERCENT = NumberFormat(1, scale=100)
_DIGITS = NumberFormat(3)
_PREDICTION = (("nll", "accuracy", "auprc"), ("auroc", "ece_top_label"))
_AREAS = (
    ("referral_auroc_area", "referral_accuracy_area"),
    ("referral_nll_area", "referral_auprc_area"),
)
_IN_PERCENT = ("accuracy", "auprc", "auroc", "ood_auroc", "ood_auprc")
_REFERRED = ((0.0, "No referral"), (0.5, "50 % referred"), (0.7, "70 % referred"))
_BLOCK_TITLES = {
    ("country_shift", "in_domain"): "In-domain (EyePACS in the paper)",
    ("country_shift", "shifted"): "Population shift (APTOS 2019 in the paper)",
    ("severity_shift", "in_domain"): "In-domain (no, mild or moderate: grades 0 to 2)",
    ("severity_shift", "shifted"): "Severity shift (severe or proliferative: grades 3 and 4)",
}


def tables(collection: Collection) -> tuple[list[Table], list[str]]:
    """Return all tables that the files allow, and a line for each that they do not."""
    made: list[Table] = []
    missing: list[str] = []
    built = [
        build(results, collection.rules)
        for build in (_referral, _prediction, _areas, _blur)
        for results in collection.results
    ]
    for found in (*built, _detection(collection)):
        if isinstance(found, Table):
            made.append(found)
        elif found:
            missing.append(found)
    made.sort(key=lambda table: (int(table.number) if table.number else 99, table.name))
    return made, missing


def score_column(set_name: str, score: str, group: str, label: str, **facts: str) -> Column:
    """Return a column of a score of a set."""
    return Column(label, group, SCORES[score].direction, facts={"set": set_name, "score": score, **facts})


def method_rows(
    methods: Sequence[MethodRuns],
    columns: Sequence[Column],
    rules: str,
    form: dict[str, NumberFormat] | NumberFormat,
) -> list[Row]:
    """Return one row per method."""
    cells = []
    for column in columns:
        key = column.facts["set"], column.facts["score"]
        one = form if isinstance(form, NumberFormat) else form[key[1]]
        cells.append(column_cells(methods, key, rules, one))
    return [Row(method.name, [of_column[k] for of_column in cells]) for k, method in enumerate(methods)]


def referral_columns(set_name: str, shares: Sequence[tuple[float, str]]) -> list[Column]:
    """Return AUROC and accuracy of a set at some shares referred, each share with its header."""
    return [
        score_column(set_name, f"{metric}_at_{round(100 * share)}", header, _label(metric))
        for share, header in shares
        for metric in ("auroc", "accuracy")
    ]


def _label(score: str) -> str:
    return f"{SCORES[score].label} (%)" if score in _IN_PERCENT else SCORES[score].label


def _table(kind: str, results: TaskResults, title: str, caption: str, blocks: Sequence[Block]) -> Table:
    number = ""
    if results.criterion in ("", "in_domain_auroc", JOINT_CRITERION):
        number = str(NUMBERS.get((kind, results.kind, results.criterion == JOINT_CRITERION), ""))
    name = "-".join(part for part in ("table", number.zfill(2) * bool(number), kind, results.slug) if part)
    facts = {"task": results.task, "dataset": results.dataset, "criterion": results.criterion}
    return Table(
        caption,
        blocks,
        "Method",
        name=name,
        title=f"{title}, {results.title()}",
        number=number,
        facts=facts,
    )


def _standard_blur_missing(kind: str, results: TaskResults) -> str:
    return results.missing(kind, f"a file at the standard blur {STANDARD_BLUR}")


def _referral_blocks(methods: Sequence[MethodRuns], results: TaskResults, rules: str) -> list[Block]:
    blocks = []
    for name in ("in_domain", "shifted"):
        if has_set(methods, name):
            columns = referral_columns(name, _REFERRED)
            title = _BLOCK_TITLES.get((results.kind, name), SET_LABELS[name])
            blocks.append(Block(columns, method_rows(methods, columns, rules, PERCENT), title))
    return blocks


def _referral(results: TaskResults, rules: str) -> Table | str:
    if not results.methods:
        return _standard_blur_missing("referral", results)
    caption = "AUROC and accuracy of the images that are retained when the most uncertain are referred to an expert."
    return _table(
        "referral", results, "Expert referral", caption, _referral_blocks(results.methods, results, rules)
    )


def _score_blocks(
    results: TaskResults, parts: Sequence[Sequence[str]], sets: Sequence[str], rules: str
) -> list[Block]:
    """Return one block per part: its scores on all sets that the results hold."""
    blocks = []
    for scores in parts:
        columns = [
            score_column(name, score, _label(score), SET_LABELS[name])
            for score in scores
            for name in sets
            if results.holds(name)
        ]
        form = {score: PERCENT if score in _IN_PERCENT else _DIGITS for score in scores}
        blocks.append(Block(columns, method_rows(results.methods, columns, rules, form)))
    return blocks


def _prediction(results: TaskResults, rules: str) -> Table | str:
    if not results.methods:
        return _standard_blur_missing("prediction", results)
    blocks = _score_blocks(results, _PREDICTION, ("in_domain", "shifted", "joint"), rules)
    caption = "Predictive performance and calibration of all images, none referred. NLL in nats; ECE of the top label, 15 bins."
    return _table("prediction", results, "Prediction and calibration", caption, blocks)


def _areas(results: TaskResults, rules: str) -> Table | str:
    if not results.methods:
        return _standard_blur_missing("areas", results)
    blocks = _score_blocks(results, _AREAS, tuple(SET_LABELS), rules)
    caption = (
        "Areas under the selective prediction curves: each metric of the retained images, averaged over the share "
        "referred. Balanced: both domains have the same total weight."
    )
    return _table("areas", results, "Selective prediction", caption, blocks)


def _detection(collection: Collection) -> Table | str:
    """Return Table 3: the detection of shifted images by the uncertainty, all tasks side by side."""
    found = [results for results in collection.results if results.holds("joint")]
    primary = [results for results in found if results.criterion != JOINT_CRITERION] or found
    if not primary:
        return "Table 3 (detection of shifted images) needs a file with images of both domains."
    one_criterion = len({results.criterion for results in primary}) == 1
    names = list(dict.fromkeys(method.name for results in primary for method in results.methods))
    columns: list[Column] = []
    cells: dict[str, list[Cell]] = {name: [] for name in names}
    for results in primary:
        facts = {"task": results.task, "dataset": results.dataset, "criterion": results.criterion}
        for score in ("ood_auroc", "ood_auprc"):
            column = score_column("joint", score, results.title(not one_criterion), _label(score), **facts)
            of_methods = column_cells(results.methods, ("joint", score), collection.rules, PERCENT)
            by_name = dict(zip((method.name for method in results.methods), of_methods, strict=True))
            columns.append(column)
            for name in names:
                absent = Cell.number(None, form=PERCENT, why="there is no such file", runs=0)
                cells[name].append(by_name.get(name, absent))
    block = Block(columns, [Row(name, cells[name]) for name in names])
    caption = "How well the uncertainty that orders the referral tells shifted images from those of the training domain."
    tuned = criterion_title(primary[0].criterion) if one_criterion else ""
    title = f"Detection of shifted images, {tuned}" if tuned else "Detection of shifted images"
    facts = {"task": "", "dataset": "", "criterion": ""}
    return Table(
        caption,
        [block],
        "Method",
        name=f"table-{DETECTION:02d}-detection",
        title=title,
        number=str(DETECTION),
        facts=facts,
    )


def _blur(results: TaskResults, rules: str) -> Table | str:
    if not results.blur_variants:
        if results.criterion == JOINT_CRITERION:
            return ""
        return results.missing("blur", "files of several blur constants (metadata or label `blur`)")
    bases = [method.base for method in results.blur_variants]
    methods = sorted(
        results.blur_variants,
        key=lambda one: (bases.index(one.base), one.ensemble, one.blur or STANDARD_BLUR),
    )
    named = [replace(one, name=f"{one.name}, blur {one.blur or STANDARD_BLUR}") for one in methods]
    first = [k > 0 and methods[k].name != methods[k - 1].name for k in range(len(methods))]
    blocks = [
        replace(block, rows=[replace(row, rule=rule) for row, rule in zip(block.rows, first, strict=True)])
        for block in _referral_blocks(named, results, rules)
    ]
    caption = (
        "Referral by the blur constant of the preprocessing: the standard deviation of the Gaussian that averages "
        "the surround is the radius of the field of view divided by the blur constant."
    )
    return _table("blur", results, "Effect of the blur constant", caption, blocks)


Floats = NDArray[np.float64]
BENCHMARKS = {"in_domain": "diabetic_retinopathy_diagnosis", "shifted": "aptos2019"}
METRICS = {"accuracy": "accuracy", "auc": "auroc"}
RETAINED = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_FILOS_REFERRED = ((0.5, "50 % retained"), (0.3, "70 % retained"), (0.0, "100 % retained"))
_FILE_NAMES = {
    "Deterministic": "deterministic", "MC dropout": "mc_dropout", "MFVI": "mfvi",
    "ensemble Deterministic": "deep_ensemble", "ensemble MAP": "deep_ensemble", "ensemble MC dropout": "ensemble_mc_dropout",
}  # fmt: skip
_POINTS = ("Deterministic", "MAP")  # methods of one network without noise
_FILOS_BLOCK_TITLES = {
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
    if parts.has_roc_curve(results.methods, "in_domain"):
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
    marks = parts.method_marks(results.methods)
    x = np.array(RETAINED)
    for k, ((metric, name), axes) in enumerate(zip(shown, [a for row in grid for a in row], strict=True)):
        for method, mark in zip(results.methods, marks, strict=True):
            values = np.stack(
                [_at_share(method, name, metric, round(1 - share, 1)) for share in RETAINED], axis=1
            )
            if np.isfinite(values).any():
                parts.draw_runs(axes, mark, x, list(values), marker="os^Dv*"[mark.hue], markersize=3.5)
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
            parts.draw_runs(left, Mark(k + 3, k), x, values, label=f"{100 * share:.0f} % retained")
    left.legend(loc="center", fontsize=8, frameon=False)
    parts.nhs_point(left)
    left.plot([0, 1], [0, 1], color=MUTED, linewidth=0.7, linestyle=(0, (2, 3)), zorder=1)
    left.set(xlim=(-0.03, 0.93), ylim=(0.45, 1.02), xlabel="1 − specificity", ylabel="sensitivity")
    parts.style_axes(left)
    marks = parts.method_marks(results.methods)
    parts.roc_panel(right, results.methods, marks, "in_domain", collection, _ROC_RETAINED)
    parts.panel_title(left, "a", f"{one.name}, by share retained")
    parts.panel_title(right, "b", f"{100 * _ROC_RETAINED:.0f} % retained")
    parts.method_legend(figure, [method.name for method in results.methods], marks)
    return figure
