"""The figures of the papers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from retinabench.core.errors import InputError
from retinabench.data.preprocessing.preprocess import Recipe, preprocess_bytes
from retinabench.metrics.clinical.screening_table import GOALS
from retinabench.metrics.image_sets import SET_LABELS, binary_entropy
from retinabench.metrics.weighted_images import Floats
from retinabench.reports.evaluation.evaluation import GRID
from retinabench.reports.papers import measurements
from retinabench.reports.papers.measurements import JOINT_CRITERION, STANDARD_BLUR, Collection, MethodRuns, TaskResults
from retinabench.reports.toolkit import figures as toolkit
from retinabench.reports.toolkit.figures import BAD, FAINT, GOOD, HUES, MUTED, PASS, Mark, canvas, diagonal, math_free
from retinabench.reports.toolkit.tables import capitalise

AT_REFERRAL, CLASS_SHOWN = "accuracy_at_20", 4
PANEL = (6 * 72 * 0.62, 4 * 72 * 0.62)  # a panel: the 6 x 4 inches of the released plots, scaled; in points
EDGES = np.linspace(0, np.log(2), 31)
NUMBERS = {  # (task, set, ensembles)
    ("severity_shift", "joint", False): "8", ("severity_shift", "joint", True): "9",
    ("country_shift", "in_domain", False): "10", ("country_shift", "in_domain", True): "11",
    ("country_shift", "shifted", False): "12", ("country_shift", "shifted", True): "13",
}  # fmt: skip
MOST = 6  # columns of one figure
FEWEST = 10  # predictions that have a density
_CAPTION = (
    "Predictive entropy of right (blue) and wrong (red) predictions, each normalised to a density; all panels share "
    "their axes, and bars taller than the frame are cut. Of fewer than ten predictions, each is a stroke. Numbers: "
    "images predicted right and wrong. All runs of a method are pooled."
)
ENDINGS = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", ".webp", ".ppm", ".jp2", ".gif")
SHOWN = 4
SIDE = 320  # pixels of an image in a figure
BLURS = (5, 10, 20, 30)  # of section B.6
METRIC_LABELS = {
    "accuracy": "accuracy of the retained", "auroc": "AUROC of the retained", "nll": "NLL of the retained (nats)",
    "auprc": "AUPRC of the retained",
}  # fmt: skip
BANDS = "Lines: means over runs; bands: ± one standard error over runs (none for a single run). "
_CONTROLS = "Grey: the predictions of the best method referred at random and in the order of their true loss (oracle)."
_TITLES = {**SET_LABELS, "rebalanced": "Shifted, grades as in EyePACS"}
_ROC = "roc"
Draw = Callable[[], Figure]
Panel = tuple[str, str]  # What a panel shows (ROC curves, or a metric over referral), and the set.


@dataclass(frozen=True)
class PaperFigure:
    """A figure of a paper: the name of its files, its number ("" if it has none), title, caption, and what draws it."""

    name: str
    number: str
    title: str
    caption: str
    draw: Draw


def _figure(
    results: TaskResults, kind: str, number: str, title: str, caption: str, draw: Draw, end: str = ""
) -> PaperFigure:
    lead = f"figure-{int(number):02d}" if number else "figure"
    name = "-".join(part for part in (lead, kind, results.slug) if part)
    return PaperFigure(name + end, number, f"{title}{results.title()}", caption, draw)


def method_legend(figure: Figure, names: Sequence[str], marks: Sequence[Mark]) -> None:
    longest = max(map(len, names))
    width = figure.get_size_inches()[0] * 72
    columns = max(1, min(len(names), int(width / (5.2 * longest + 45))))
    figure.set_figheight(figure.get_figheight() + 13 / 72 * (-(-len(names) // columns) - 2))
    handles = [
        Line2D([], [], color=m.color, linestyle=(0, m.dashes) if m.dashes else "-", linewidth=1.8) for m in marks
    ]
    figure.legend(
        handles, [math_free(name) for name in names], loc="outside lower center", ncols=columns, frameon=False,
        fontsize=8.5, handlelength=3.2,
    )  # fmt: skip


def panel_title(axes: Axes, letter: str, text: str) -> None:
    axes.set_title(f"({letter}) {text}" if letter else text, fontsize=9.5, loc="left")


def referral_axes(axes: Axes, label: str) -> None:
    axes.set(xlim=(0, 1), xlabel="referred to the expert", ylabel=label)
    toolkit.percent_axis(axes.xaxis)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    style_axes(axes)


def style_axes(axes: Axes) -> None:
    axes.tick_params(labelsize=8)
    axes.xaxis.label.set_fontsize(9)
    axes.yaxis.label.set_fontsize(9)
    axes.grid(color=FAINT, linewidth=0.5)
    axes.set_axisbelow(True)


def control_line(axes: Axes, x: Floats, y: Floats, name: str) -> None:
    known = y[np.isfinite(y)]
    if not known.size:
        return
    axes.plot(x, y, color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)), zorder=2)
    low, high = axes.get_ylim()
    # The names of two curves that end at the same height do not overlap.
    height = float(np.clip((known[-1] - low) / (high - low), 0.02, 0.9 if name == "random" else 0.98))
    axes.text(1.01, height, name, transform=axes.transAxes, fontsize=7.5, color=MUTED, va="center")


def panel_grid(rows: int, columns: int) -> tuple[Figure, list[list[Axes]]]:
    figure, grid = canvas(PANEL[0] * columns + 10, PANEL[1] * rows + 46, rows, columns, text=11)
    figure.get_layout_engine().set(w_pad=0.05, h_pad=0.06)  # type: ignore[union-attr, call-arg]
    return figure, grid


def histogram_figures(results: TaskResults) -> tuple[list[PaperFigure], list[str]]:
    if not results.methods:
        return [], []
    if any(test.grade is None for method in results.methods for test in method.tests[:1]):
        return [], [results.missing("histograms by grade", "the column 'grade'")]
    domains = set(results.methods[0].tests[0].domain.tolist())
    sets = [name for name in ("in_domain", "shifted") if name in domains]
    if results.kind == "severity_shift" and len(domains) == 2:
        sets = ["joint"]
    made = []
    for name in sets:
        for pooled in (False, True):
            methods = [method for method in results.methods if method.ensemble == pooled]
            for part in range(0, len(methods), MOST):
                made.append(_histogram_figure(results, name, pooled, methods[part : part + MOST], part // MOST))
    return made, []


def _histogram_figure(
    results: TaskResults, name: str, pooled: bool, methods: Sequence[MethodRuns], part: int
) -> PaperFigure:
    number = "" if results.criterion == JOINT_CRITERION else NUMBERS.get((results.kind, name, pooled), "")
    kind = f"uncertainty-{name.replace('_', '-')}-{'ensembles' if pooled else 'single'}"
    title = f"Uncertainty by grade, {SET_LABELS[name].lower()}, {'ensembles' if pooled else 'single methods'}, "
    draw, end = partial(_draw_histograms, methods, name), f"-{part + 1}" if part else ""
    return _figure(results, kind, number, title, _CAPTION, draw, end)


def _draw_histograms(methods: Sequence[MethodRuns], name: str) -> Figure:
    pairs = [[_entropies(method, name, grade) for method in methods] for grade in range(5)]
    figure, grid = canvas(80 + 118 * len(methods), 5 * 84 + 40, 5, len(methods), sharex=True, text=11)
    parts = [part for row in pairs for pair in row for part in pair if len(part) >= FEWEST]
    values = np.concatenate([np.zeros(1), *map(_density, parts)])
    # One upper limit for all panels: the spikes of confident predictions are cut.
    top = float(1.15 * np.quantile(values[values > 0], 0.95)) if values.any() else 1.0
    for grade, (line, cells) in enumerate(zip(grid, pairs, strict=True)):
        for axes, cell in zip(line, cells, strict=True):
            _density_panel(axes, *cell, top)
        line[0].set_ylabel("density", fontsize=7.5)
        line[-1].text(1.04, 0.5, f"grade {grade}", transform=line[-1].transAxes, rotation=270, va="center", fontsize=9)
    for axes, method in zip(grid[0], methods, strict=True):
        axes.set_title(_folded(method.name), fontsize=9, pad=14)
    for axes in grid[-1]:
        axes.set_xlabel("entropy (nats)", fontsize=8.5)
    for line in grid:
        for axes in line[1:]:
            axes.tick_params(labelleft=False)
    return figure


def _entropies(method: MethodRuns, name: str, grade: int) -> tuple[Floats, Floats]:
    values, right = [], []
    for test in method.tests:
        assert test.grade is not None
        rows = (test.grade == grade) & ((test.domain == name) | (name == "joint"))
        values.append(binary_entropy(test.prob[rows]))
        right.append((test.prob[rows] > 0.5) == (test.label[rows] == 1))
    entropy, correct = np.concatenate(values).clip(0, EDGES[-1]), np.concatenate(right)
    return entropy[correct], entropy[~correct]


def _density(entropies: Floats) -> Floats:
    return np.asarray(np.histogram(entropies, EDGES, density=True)[0], np.float64)


def _density_panel(axes: Axes, right: Floats, wrong: Floats, top: float) -> None:
    for place, entropies, word, color in ((0, right, "right", GOOD), (1, wrong, "wrong", BAD)):
        if len(entropies) >= FEWEST:
            axes.stairs(_density(entropies), EDGES, color=color, fill=True, alpha=0.45, linewidth=0)
            axes.stairs(_density(entropies), EDGES, color=color, linewidth=0.7)
        else:
            axes.vlines(entropies, 0, 0.3 * top, color=color, linewidth=1)
        style: dict[str, Any] = {"fontsize": 7, "ha": ("left", "right")[place], "va": "bottom", "color": color}
        axes.text(place, 1.03, f"{len(entropies):,} {word}", transform=axes.transAxes, **style)
    axes.set(xlim=(0, EDGES[-1]), ylim=(0, top))
    axes.tick_params(labelsize=7)
    axes.xaxis.set_major_locator(MaxNLocator(3))
    axes.yaxis.set_major_locator(MaxNLocator(3))


def _folded(name: str) -> str:
    words, lines = math_free(name).split(), [""]
    for word in words:
        if len(lines[-1]) + len(word) > 18 and lines[-1]:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines[:3])


def image_figures(folder: Path, rules: str, labels: Mapping[str, int]) -> list[PaperFigure]:
    """Return the figures of some images of a folder, evenly spaced in the order of their names; `labels` are of those whose class is known."""
    if not folder.is_dir():
        raise InputError("is not a folder", file=folder, hint="Name a folder of fundus images.")
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file())
    if not found:
        hint = f"Recognised endings: {', '.join(ENDINGS)}."
        raise InputError("holds no images", file=folder, hint=hint)
    chosen = [found[k] for k in np.unique(np.linspace(0, len(found) - 1, SHOWN).round().astype(int))]
    how = "exactly as released" if rules == "published" else "by the corrected form of Graham's preprocessing"
    blur = "A smaller blur constant averages over a larger surround and keeps more signal and more noise."
    classes = [
        [(path, Recipe(SIDE, "crop")) for path in found if labels.get(path.stem) == label][:CLASS_SHOWN]
        for label in (0, 1)
    ]
    recipes = [Recipe(SIDE, "none"), *(Recipe(SIDE, "graham", one, rules == "published") for one in BLURS)]
    by_blur = [[(path, recipe) for recipe in recipes] for path in chosen]
    both = [[(path, recipe) for path in chosen] for recipe in (recipes[0], recipes[-1])]
    of_class = (
        [
            PaperFigure("figure-01-classes", "1", "Images of both classes",
                        "Above: label 0, not referable. Below: label 1, referable.", partial(_sheet, classes, ["not referable", "referable"])),
        ]
        if all(len(paths) == CLASS_SHOWN for paths in classes)
        else []
    )  # fmt: skip
    return [
        *of_class,
        PaperFigure("figure-06-preprocessing", "6 and 7", "Images before and after preprocessing",
                    f"Above: original images. Below: the same {how}, blur 30.", partial(_sheet, both, ["original", "blur 30"])),
        PaperFigure("figure-18-blur-examples", "18", "Preprocessing by blur constant", f"Images {how}. {blur}",
                    partial(_sheet, by_blur, ["original", *(f"blur {one}" for one in BLURS)], by_row=False)),
    ]  # fmt: skip


def pipeline_figure(results: TaskResults) -> PaperFigure | None:
    known = [one for one in results.methods if one.runs and ("in_domain", AT_REFERRAL) in one.runs[0].value]
    if not known:
        return None
    method = known[0]
    sets = [name for name in ("in_domain", "shifted") if results.holds(name)]
    means = {
        (name, score): float(np.mean([run.get((name, score)) for run in method.runs]))
        for name in sets
        for score in ("accuracy_at_0", AT_REFERRAL)
    }
    caption = f"A model refers the images of which it is least certain. The numbers are the accuracy of {method.name}, mean over runs."
    return _figure(results, "pipeline", "2", "Automated diagnosis: ", caption, partial(_pipeline, sets, means))


def _pipeline(sets: Sequence[str], means: Mapping[tuple[str, str], float]) -> Figure:
    def of(score: str) -> str:
        return "\n".join(f"{SET_LABELS[name]}: {100 * means[name, score]:.1f} %" for name in sets)

    figure, ((axes,),) = canvas(470, 150, text=10)
    axes.set(xlim=(0, 10), ylim=(0, 4))
    axes.set_axis_off()
    box = {"boxstyle": "round,pad=0.5", "facecolor": "none", "edgecolor": MUTED}
    texts = {
        (1.0, 2.0): "images", (3.6, 2.0): f"model:\nprediction, uncertainty\n{of('accuracy_at_0')}",
        (8.2, 3.2): "20 %, least certain:\nread by an expert", (8.2, 0.9): f"80 %: read by the model\n{of(AT_REFERRAL)}",
    }  # fmt: skip
    for place, text in texts.items():
        axes.text(*place, text, ha="center", va="center", fontsize=8.5, bbox=box)
    arrow = {"arrowstyle": "->", "color": MUTED, "shrinkA": 0, "shrinkB": 0}
    for start, end in (((1.6, 2.0), (2.2, 2.0)), ((5.0, 2.3), (6.7, 3.1)), ((5.0, 1.7), (6.7, 1.0))):
        axes.annotate("", end, start, arrowprops=arrow)
    return figure


def _sheet(rows: Sequence[Sequence[tuple[Path, Recipe]]], names: Sequence[str], *, by_row: bool = True) -> Figure:
    figure, grid = canvas(104 * len(rows[0]) + 20, 104 * len(rows) + 20, len(rows), len(rows[0]), text=11)
    for row, (line, images) in enumerate(zip(grid, rows, strict=True)):
        for column, (axes, (path, recipe)) in enumerate(zip(line, images, strict=True)):
            axes.imshow(preprocess_bytes(path.read_bytes(), recipe, str(path)), interpolation="lanczos")
            axes.set(xticks=[], yticks=[])
            for spine in axes.spines.values():
                spine.set_visible(False)
            if by_row and column == 0:
                axes.set_ylabel(names[row], fontsize=9)
            if not by_row and row == 0:
                axes.set_title(names[column], fontsize=9)
    return figure


def method_marks(methods: Sequence[MethodRuns]) -> list[Mark]:
    """Return one colour per method: single trainings solid, ensembles dotted (from the seventh: dash-dotted, dashed)."""
    bases = list(dict.fromkeys(method.base for method in methods))
    found = []
    for method in methods:
        k = bases.index(method.base)
        solid, pooled = ((0, 2), (3, 1))[k // len(HUES) % 2]
        found.append(Mark(k % len(HUES), pooled if method.ensemble else solid))
    return found


def draw_runs(axes: Axes, mark: Mark, x: Floats, values: Sequence[Floats], ddof: int = 1, **style: Any) -> Floats:
    """Draw the mean over runs with a band of one standard error; return the mean (P,)."""
    array = np.array(values)
    mean: Floats = array.mean(axis=0)
    if len(array) > 1:
        error = array.std(axis=0, ddof=ddof) / np.sqrt(len(array))
        axes.fill_between(x, mean - error, mean + error, color=mark.color, alpha=0.15, linewidth=0)
    axes.plot(x, mean, color=mark.color, linestyle=mark.linestyle, linewidth=1.4, zorder=3, **style)
    return mean


def has_referral_curve(methods: Sequence[MethodRuns], name: str, metric: str) -> bool:
    curves = (run.referral.get((name, metric)) for method in methods for run in method.runs)
    return any(curve is not None and np.isfinite(curve).any() for curve in curves)


def has_roc_curve(methods: Sequence[MethodRuns], name: str) -> bool:
    return any((name, 1.0) in run.roc for method in methods for run in method.runs)


def roc_panel(
    axes: Axes, methods: Sequence[MethodRuns], marks: Sequence[Mark], name: str, rules: str, share: float = 1.0
) -> None:
    x = measurements.RATES[rules]
    for method, mark in zip(methods, marks, strict=True):
        values = [run.roc[name, share] for run in method.runs if (name, share) in run.roc]
        if values:
            draw_runs(axes, mark, x, values)
    roc_axes(axes)


def roc_axes(axes: Axes) -> None:
    diagonal(axes)
    point = 1 - GOALS["nhs"].specificity, GOALS["nhs"].sensitivity
    toolkit.goal_region(axes, *point, markersize=5)
    style: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8, "color": PASS, "va": "top", "zorder": 6}
    text = axes.annotate("NHS", point, (5, -4), **style)
    text.set_path_effects([withStroke(linewidth=2.2, foreground="white")])
    axes.set(xlim=(-0.03, 0.93), ylim=(0.45, 1.02), xlabel="1 − specificity", ylabel="sensitivity")
    style_axes(axes)


def referral_panel(
    axes: Axes, methods: Sequence[MethodRuns], marks: Sequence[Mark], metric: str, name: str, collection: Collection
) -> None:
    best: tuple[float, MethodRuns | None] = (-np.inf, None)
    for method, mark in zip(methods, marks, strict=True):
        mean = referral_line(axes, method, mark, metric, name, collection)
        worth = float(np.nanmean(mean)) if mean is not None and np.isfinite(mean).any() else -np.inf
        best = max(best, ((-worth if metric == "nll" else worth), method), key=lambda pair: pair[0])
    referral_axes(axes, METRIC_LABELS[metric])
    axes.set_ylim(*value_range(methods, metric, name))
    if best[1] is not None:
        _controls(axes, best[1], metric, name)


def referral_line(
    axes: Axes, method: MethodRuns, mark: Mark, metric: str, name: str, collection: Collection
) -> Floats | None:
    values = [found for run in method.runs if (found := run.referral.get((name, metric))) is not None]
    if not values:
        return None
    return draw_runs(axes, mark, GRID, values, ddof=0 if collection.rules == "published" else 1)


def _controls(axes: Axes, method: MethodRuns, metric: str, name: str) -> None:
    start = np.mean([run.referral[name, metric][:1] for run in method.runs], axis=0)
    control_line(axes, GRID, np.full(len(GRID), start[0]), "random")
    if oracles := [run.oracle[name, metric] for run in method.runs if (name, metric) in run.oracle]:
        control_line(axes, GRID, np.mean(oracles, axis=0), "oracle")


def value_range(methods: Sequence[MethodRuns], metric: str, name: str) -> tuple[float, float]:
    known = [method for method in methods if (name, metric) in method.runs[0].referral]
    runs = [[run.referral[name, metric] for run in method.runs] for method in known]
    values = np.concatenate([np.mean(of_method, axis=0)[: int(0.8 * len(GRID))] for of_method in runs])
    values = values[np.isfinite(values)]
    if not values.size:
        return 0.0, 1.0
    if metric == "nll":
        return 0.0, float(values.max()) * 1.15
    low = float(values.min())
    return max(0.0, low - 0.12 * (1 - low) - 0.01), 1.0 + 0.03 * (1 - low) + 0.002


def curve_figures(results: TaskResults, collection: Collection) -> tuple[list[PaperFigure], list[str]]:
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
    draw = partial(_draw_curves, results, collection, panels)
    return _figure(results, "results", number, "ROC and referral, ", caption, draw)


def _by_metric(results: TaskResults, collection: Collection) -> list[PaperFigure]:
    """Each metric over referral on every set: Figure 14 (accuracy, Country Shift) and its counterparts."""
    made = []
    for metric, label in METRIC_LABELS.items():
        panels = _possible(results.methods, [(metric, name) for name in SET_LABELS])
        if panels:
            figure_14 = (results.task, metric) == ("country_shift", "accuracy") and results.criterion != JOINT_CRITERION
            title, number = f"{capitalise(label.partition(' of')[0])} over referral, ", "14" if figure_14 else ""
            draw = partial(_draw_curves, results, collection, panels)
            made.append(_figure(results, f"referral-{metric}", number, title, BANDS + _CONTROLS, draw))
    return made


def _rebalanced(results: TaskResults, collection: Collection) -> list[PaperFigure]:
    """Figures 16 and 17: the shifted set with the grade frequencies of the EyePACS test set."""
    how = "drawn at random" if collection.rules == "published" else "by exact weights"
    caption = f"The shifted set as it is, and with the grade frequencies of the EyePACS test set ({how}). {BANDS}"
    sets = ("shifted", "rebalanced")
    curves = _possible(results.methods, [(metric, name) for metric in ("auroc", "accuracy") for name in sets])
    roc, referral = ("16", "17") if results.task == "country_shift" else ("", "")
    figures = (("ROC", roc, [(_ROC, name) for name in sets]), ("Referral", referral, curves))
    made = []
    for what, number, panels in figures:
        draw, title = partial(_draw_curves, results, collection, panels), f"{what}, class-balanced shifted set, "
        made.append(_figure(results, f"balanced-{what.lower()}", number, title, caption, draw))
    return made


def _blurs(results: TaskResults, collection: Collection) -> PaperFigure:
    """Figures 19 and 20: a row of panels per method, a line per blur constant."""
    number = {"severity_shift": "19", "country_shift": "20"}.get(results.kind, "")
    number = "" if results.criterion == JOINT_CRITERION else number
    caption = f"One line per blur constant of the preprocessing. {BANDS}"
    draw = partial(_draw_blurs, results, collection)
    return _figure(results, "blur", number, "Referral by blur constant, ", caption, draw)


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


def _possible(methods: Sequence[MethodRuns], panels: Sequence[Panel]) -> list[Panel]:
    return [
        (kind, name)
        for kind, name in panels
        if (has_roc_curve(methods, name) if kind == _ROC else has_referral_curve(methods, name, kind))
    ]


def _draw_curves(results: TaskResults, collection: Collection, panels: Sequence[Panel]) -> Figure:
    columns = min(2, len(panels))
    figure, grid = panel_grid(-(-len(panels) // columns), columns)
    places = [axes for row in grid for axes in row]
    for axes in places[len(panels) :]:
        axes.set_axis_off()
    marks = method_marks(results.methods)
    for k, ((kind, name), axes) in enumerate(zip(panels, places, strict=False)):
        if kind == _ROC:
            roc_panel(axes, results.methods, marks, name, collection.rules)
        else:
            referral_panel(axes, results.methods, marks, kind, name, collection)
        panel_title(axes, "abcdefgh"[k], _TITLES[name])
    method_legend(figure, [method.name for method in results.methods], marks)
    return figure
