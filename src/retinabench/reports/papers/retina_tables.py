"""The tables of the Retina Benchmark (Band et al. 2021), with marks on the methods that none is significantly better than.

Differences are tested by `metrics.comparison`, over patients and seeds; Holm's correction covers all pairs of a column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from retinabench.metrics import published
from retinabench.metrics.image_sets import SET_LABELS
from retinabench.metrics.p_values import holm
from retinabench.metrics.registry import SCORES
from retinabench.reports.papers import measurements
from retinabench.reports.papers.measurements import Collection, Key, MethodRuns, TaskResults
from retinabench.reports.toolkit.tables import THREE_DIGITS, Block, Cell, Column, NumberFormat, Quantity, Row, Table

NUMBERS = {  # (kind, task, tuned on the joint validation set)
    ("referral", "country_shift", False): 1, ("referral", "severity_shift", False): 2,
    ("prediction", "country_shift", False): 4, ("prediction", "severity_shift", False): 5,
    ("areas", "country_shift", False): 6, ("areas", "severity_shift", False): 7,
    ("prediction", "country_shift", True): 8, ("prediction", "severity_shift", True): 9,
    ("areas", "country_shift", True): 10, ("areas", "severity_shift", True): 11,
    ("blur", "severity_shift", False): 12, ("blur", "country_shift", False): 13,
}  # fmt: skip
DETECTION = 3
PERCENT = NumberFormat(1, scale=100, most=2)  # the papers print one decimal
_PREDICTION = (("nll", "accuracy", "auprc"), ("auroc", "ece_top_label"))
_AREAS = (("referral_auroc_area", "referral_accuracy_area"), ("referral_nll_area", "referral_auprc_area"))
_CAPTIONS = {  # kind -> title and caption
    "referral": ("Expert referral", "AUROC and accuracy of the images that are retained when the most uncertain are referred to an expert."),
    "prediction": (
        "Prediction and calibration",
        "Predictive performance and calibration of all images, none referred. NLL in nats; ECE of the top label, 15 bins.",
    ),
    "areas": (
        "Selective prediction",
        "Areas under the selective prediction curves: each metric of the retained images, averaged over the share "
        "referred. Balanced: both domains have the same total weight.",
    ),
}  # fmt: skip
_IN_PERCENT = ("accuracy", "auprc", "auroc", "ood_auroc", "ood_auprc")
_REFERRED = ((0.0, "No referral"), (0.5, "50 % referred"), (0.7, "70 % referred"))
_BLOCK_TITLES = {
    ("country_shift", "in_domain"): "In-domain (EyePACS in the paper)",
    ("country_shift", "shifted"): "Population shift (APTOS 2019 in the paper)",
    ("severity_shift", "in_domain"): "In-domain (no, mild or moderate: grades 0 to 2)",
    ("severity_shift", "shifted"): "Severity shift (severe or proliferative: grades 3 and 4)",
}


def retina_tables(collection: Collection) -> tuple[list[Table], list[str]]:
    built = [_standard(kind, results, collection.rules) for kind in _CAPTIONS for results in collection.results]
    built += [*(_blur(results, collection.rules) for results in collection.results), _detection(collection)]
    made = [found for found in built if isinstance(found, Table)]
    missing = [found for found in built if found and not isinstance(found, Table)]
    made.sort(key=lambda table: (int(table.number) if table.number else 99, table.name))
    return made, missing


def score_column(set_name: str, score: str, group: str, label: str, **facts: str) -> Column:
    return Column(label, group, SCORES[score].direction, facts={"set": set_name, "score": score, **facts})


def method_rows(
    methods: Sequence[MethodRuns], columns: Sequence[Column], rules: str, form: dict[str, NumberFormat] | NumberFormat
) -> list[Row]:
    cells = []
    for column in columns:
        key = column.facts["set"], column.facts["score"]
        one = form if isinstance(form, NumberFormat) else form[key[1]]
        cells.append(column_cells(methods, key, rules, one))
    return [Row(method.name, [of_column[k] for of_column in cells]) for k, method in enumerate(methods)]


def referral_columns(set_name: str, shares: Sequence[tuple[float, str]]) -> list[Column]:
    return [
        score_column(set_name, f"{metric}_at_{round(100 * share)}", header, _label(metric))
        for share, header in shares
        for metric in ("auroc", "accuracy")
    ]


def _label(score: str) -> str:
    return f"{SCORES[score].label} (%)" if score in _IN_PERCENT else SCORES[score].label


def _table(kind: str, results: TaskResults, title: str, caption: str, blocks: Sequence[Block]) -> Table:
    number = ""
    if results.criterion in ("", "in_domain_auroc", measurements.JOINT_CRITERION):
        number = str(NUMBERS.get((kind, results.kind, results.criterion == measurements.JOINT_CRITERION), ""))
    name = "-".join(part for part in ("table", number.zfill(2) * bool(number), kind, results.slug) if part)
    return Table(caption, blocks, "Method", "", name, f"{title}, {results.title()}", number, results.facts)


def _standard(kind: str, results: TaskResults, rules: str) -> Table | str:
    if not results.methods:
        return results.missing(kind, f"a file at the standard blur {measurements.STANDARD_BLUR}")
    if kind == "referral":
        blocks = _referral_blocks(results.methods, results, rules)
    elif kind == "prediction":
        blocks = _score_blocks(results, _PREDICTION, ("in_domain", "shifted", "joint"), rules)
    else:
        blocks = _score_blocks(results, _AREAS, tuple(SET_LABELS), rules)
    return _table(kind, results, *_CAPTIONS[kind], blocks)


def _referral_blocks(methods: Sequence[MethodRuns], results: TaskResults, rules: str) -> list[Block]:
    blocks = []
    for name in ("in_domain", "shifted"):
        if measurements.has_set(methods, name):
            columns = referral_columns(name, _REFERRED)
            title = _BLOCK_TITLES.get((results.kind, name), SET_LABELS[name])
            blocks.append(Block(columns, method_rows(methods, columns, rules, PERCENT), title))
    return blocks


def _score_blocks(results: TaskResults, parts: Sequence[Sequence[str]], sets: Sequence[str], rules: str) -> list[Block]:
    blocks = []
    for scores in parts:
        columns = [
            score_column(name, score, _label(score), SET_LABELS[name])
            for score in scores
            for name in sets
            if results.holds(name)
        ]
        form = {score: PERCENT if score in _IN_PERCENT else THREE_DIGITS for score in scores}
        blocks.append(Block(columns, method_rows(results.methods, columns, rules, form)))
    return blocks


def _detection(collection: Collection) -> Table | str:
    found = [results for results in collection.results if results.holds("joint")]
    primary = [results for results in found if results.criterion != measurements.JOINT_CRITERION] or found
    if not primary:
        return "Table 3 (detection of shifted images) needs a file with images of both domains."
    one_criterion = len({results.criterion for results in primary}) == 1
    names = list(dict.fromkeys(method.name for results in primary for method in results.methods))
    columns: list[Column] = []
    cells: dict[str, list[Cell]] = {name: [] for name in names}
    for results in primary:
        for score in ("ood_auroc", "ood_auprc"):
            column = score_column("joint", score, results.title(not one_criterion), _label(score), **results.facts)
            of_methods = column_cells(results.methods, ("joint", score), collection.rules, PERCENT)
            by_name = dict(zip((method.name for method in results.methods), of_methods, strict=True))
            columns.append(column)
            for name in names:
                absent = Cell.number(None, form=PERCENT, why="there is no such file", runs=0)
                cells[name].append(by_name.get(name, absent))
    block = Block(columns, [Row(name, cells[name]) for name in names])
    caption = (
        "How well the uncertainty that orders the referral tells shifted images from those of the training domain."
    )
    tuned = measurements.criterion_title(primary[0].criterion) if one_criterion else ""
    title = f"Detection of shifted images, {tuned}" if tuned else "Detection of shifted images"
    facts = {"task": "", "dataset": "", "criterion": ""}
    return Table(caption, [block], "Method", "", f"table-{DETECTION:02d}-detection", title, str(DETECTION), facts)


def _blur(results: TaskResults, rules: str) -> Table | str:
    if not results.blur_variants:
        if results.criterion == measurements.JOINT_CRITERION:
            return ""
        return results.missing("blur", "files of several blur constants (metadata or label `blur`)")
    bases = [method.base for method in results.blur_variants]
    methods = sorted(
        results.blur_variants,
        key=lambda one: (bases.index(one.base), one.ensemble, one.blur or measurements.STANDARD_BLUR),
    )
    named = [replace(one, name=f"{one.name}, blur {one.blur or measurements.STANDARD_BLUR}") for one in methods]
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


LEVEL = 0.05


def column_cells(methods: Sequence[MethodRuns], key: Key, rules: str, form: NumberFormat = THREE_DIGITS) -> list[Cell]:
    """Return one cell per method for a number.

    "corrected": mean and standard error over runs (ddof 1), or the value of a single run with its interval; the best mean is marked
    with all that are not significantly worse, unless none is. "published": mean and standard error with ddof 0, runs without a value
    dropped; the best mean is marked.
    """
    sign = SCORES[key[1]].sign
    if rules == "published":
        cells = [_published_cell(method, key, form) for method in methods]
        known = {k: sign * value_of(cell) for k, cell in enumerate(cells) if cell.defined}
        best = {k for k, value in known.items() if value == max(known.values())} if len(known) > 1 else set()
    else:
        cells = [_corrected_cell(method, key, form) for method in methods]
        best = _not_worse_than_best(methods, cells, key, sign)
    return [replace(cell, emphasis="best") if k in best else cell for k, cell in enumerate(cells)]


def value_of(cell: Cell) -> float:
    assert isinstance(cell.content, Quantity)
    return cell.content.value


def _corrected_cell(method: MethodRuns, key: Key, form: NumberFormat) -> Cell:
    found = method.ranked(key)
    if found is None or not np.isfinite(found.value):
        return Cell.number(np.nan, form=form, why=_why(method, key), runs=len(method.runs))
    if len(method.runs) > 1:
        return Cell.number(found.value, error=found.error, form=form, runs=len(method.runs))
    return Cell.number(found.value, found.low, found.high, form=form)


def _published_cell(method: MethodRuns, key: Key, form: NumberFormat) -> Cell:
    values = [value for run in method.runs if not np.isnan(value := run.get(key))]
    if not values:
        return Cell.number(np.nan, form=form, why=_why(method, key), runs=len(method.runs))
    mean, _, error = published.aggregate(values)
    return Cell.number(mean, error=error if len(values) > 1 else None, form=form, runs=len(values))


def _why(method: MethodRuns, key: Key) -> str:
    return next((why for run in method.runs if (why := run.why.get(key))), "the set is missing")


def _not_worse_than_best(methods: Sequence[MethodRuns], cells: Sequence[Cell], key: Key, sign: int) -> set[int]:
    known = [i for i, cell in enumerate(cells) if cell.defined]
    if len(known) < 2:
        return set()
    best = max(known, key=lambda i: sign * value_of(cells[i]))
    pairs = list(combinations(known, 2))
    ranking = methods[best].rankings[key]
    adjusted = holm([ranking.pair(methods[i].label, methods[j].label).p for i, j in pairs])
    worse = {i + j - best for (i, j), p in zip(pairs, adjusted, strict=True) if best in (i, j) and p < LEVEL}
    return set(known) - worse if worse else set()
