"""Tables of a board: rows, pairs and terminal tables, and values that others printed beside them."""

from __future__ import annotations

import csv
import io
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markupsafe import Markup

from retinabench.core.errors import InputError
from retinabench.core.untrusted import kept_inside, visible
from retinabench.metrics.comparison import Standing, standings
from retinabench.metrics.image_sets import SET_LABELS
from retinabench.metrics.registry import SCORES as SPECS
from retinabench.metrics.registry import ScoreSpec
from retinabench.reports.leaderboard.board import BenchmarkBoard
from retinabench.reports.leaderboard.submission import Card, Kind
from retinabench.reports.papers.tables import PRINTED
from retinabench.reports.toolkit.number_format import THREE_DIGITS, NumberFormat, Quantity, p_value
from retinabench.reports.toolkit.tables import Cell, Column, Row, Table, cell_html

TERMINAL = ("referral_accuracy_area", "auroc", "accuracy", "nll")

KINDS = {"baseline": "baseline", "submission": "submission", "file": "your file"}


@dataclass(frozen=True)
class SortableCell:
    """A cell of a sortable table: its content and the number that orders it, empty where it is undefined."""

    content: Markup
    order: str


@dataclass(frozen=True)
class MethodRow:
    """A method in a table of a benchmark: its card, the range of its rank, and a cell per score."""

    key: str
    title: str
    kind: Kind
    card: Card
    ranks: str
    order: str
    cells: tuple[SortableCell, ...]


@dataclass(frozen=True)
class PairCell:
    """A pair of two methods: `better`, `worse`, `tie` or `self`, and a sentence."""

    state: str
    sign: str
    text: str


def rank_text(standing: Standing) -> str:
    """Return the range of a rank, such as `1–4`; a dash where the score is undefined."""
    if not standing.rank:
        return "–"
    return str(standing.rank) if standing.rank == standing.worst else f"{standing.rank}–{standing.worst}"


def score_cell(standing: Standing, *, below: str = "") -> Cell:
    """Return the cell of a score: the value with its interval and, of several seeds, its standard error."""
    return Cell.number(standing.value, standing.low, standing.high, standing.error, below=below)


def specs_of(board: BenchmarkBoard, name: str) -> list[ScoreSpec]:
    """Return the scores that a set has, the primary one first."""
    names = sorted(board.sets[name].scores, key=lambda score: score != board.benchmark.primary)
    return [SPECS[score] for score in names]


def method_rows(board: BenchmarkBoard, name: str) -> list[MethodRow]:
    """Return the methods on a set, the best first by the primary score."""
    specs, rows = specs_of(board, name), []
    for key, standing in board.first(name).methods.items():
        entry = board.entries[key]
        cells = []
        for spec in specs:
            own = board.sets[name][spec.name].methods[key]
            below = f"rank {rank_text(own)}" if own.rank else ""
            order = f"{own.value:.12g}" if math.isfinite(own.value) else ""
            cells.append(SortableCell(cell_html(score_cell(own, below=below)), order))
        order = str(standing.rank * 1000 + standing.worst) if standing.rank else ""
        rows.append(
            MethodRow(
                key, board.titles[key], entry.kind, entry.card, rank_text(standing), order, tuple(cells)
            )
        )
    return rows


def pair_matrix(board: BenchmarkBoard, name: str, score: str) -> list[tuple[str, str, list[PairCell]]]:
    """Return key, title and pairs of every method; rows and columns have the order of the ranking."""
    found = board.sets[name][score]
    pairs = {(one.a, one.b): one for one in found.pairs}
    better = found.better()
    rows = []
    for a in found.methods:
        cells = []
        for b in found.methods:
            if a == b:
                cells.append(PairCell("self", "", ""))
                continue
            one, sign = (pairs[a, b], 1) if (a, b) in pairs else (pairs[b, a], -1)
            state = "better" if (a, b) in better else "worse" if (b, a) in better else "tie"
            text = _difference_text(
                sign * one.difference, sorted((sign * one.low, sign * one.high)), one.p_holm
            )
            cells.append(PairCell(state, {"better": "▲", "worse": "▽", "tie": "·"}[state], text))
        rows.append((a, board.titles[a], cells))
    return rows


def _difference_text(difference: float, ends: Sequence[float], p: float) -> str:
    quantity = Quantity(difference, ends[0], ends[1])
    form = quantity.form(THREE_DIGITS)
    interval = form.interval(ends[0], ends[1])
    return f"{form(difference)} {interval}, p {p_value(p)}" if interval else form(difference)


def ranking_table(board: BenchmarkBoard, name: str, score: str) -> Table:
    """Return the table of a set for the terminal, ordered by a score."""
    ranked = board.sets[name][score]
    others = [key for key in (score, *TERMINAL) if key in board.sets[name].scores]
    specs = [SPECS[key] for key in dict.fromkeys(others)][:4]
    columns = [Column("rank"), *(Column(spec.label, direction=spec.direction) for spec in specs)]
    rows = []
    for key, standing in ranked.methods.items():
        cells = [Cell(rank_text(standing))]
        cells += [score_cell(board.sets[name][spec.name].methods[key]) for spec in specs]
        kind = board.entries[key].kind
        label = board.titles[key] if kind == "baseline" else f"{board.titles[key]} ({KINDS[kind]})"
        rows.append(Row(label, cells, control=False))
    found = board.sets[name]
    caption = f"{board.benchmark.name}, {SET_LABELS[name].lower()}: {found.images:,} images, {found.positives:,} referable"
    note = "Ranks of methods that cannot be told apart are ranges (p < 0.05 by Holm's correction over all pairs)."
    return Table.of(caption, columns, rows, note=note)


def scores_table(board: BenchmarkBoard, key: str) -> Table:
    """Return all scores of one method, a row per score and a column per set."""
    sets = list(board.sets)
    names = list(dict.fromkeys(score for name in sets for score in board.sets[name].scores))
    rows = []
    for score in names:
        cells = []
        for name in sets:
            found: Mapping[str, Standing] = (
                board.sets[name][score].methods if score in board.sets[name].scores else {}
            )
            cells.append(
                score_cell(found[key], below=f"rank {rank_text(found[key])}") if key in found else Cell("–")
            )
        rows.append(Row(SPECS[score].heading, cells))
    columns = [Column(SET_LABELS[name]) for name in sets]
    return Table.of(f"{board.benchmark.title}: all scores", columns, rows, row_header="score")


HERE = Path(__file__).parent / "printed"

ONE_DIGIT = NumberFormat(1)

RETAINED = (0.5, 0.7, 1.0)  # of Table 1 of 2019

TITLES = {
    "deterministic": "Deterministic", "mc_dropout": "MC dropout", "mfvi": "MFVI", "deep_ensemble": "Deep ensemble",
    "ensemble_mc_dropout": "Ensemble MC dropout", "random": "Random referral",
}  # fmt: skip

BENCHMARKS_2019 = {"in_domain": "diabetic_retinopathy_diagnosis", "shifted": "aptos2019"}

METRICS = ("auc", "accuracy")

MOST_BYTES, MOST_FILES = 64 * 1024, 1000

Values = dict[float, tuple[float, float]]  # share retained -> mean and std, percent


@dataclass(frozen=True)
class PrintedMethod:
    """A method of a summary: its values by metric."""

    benchmark: str
    method: str
    values: Mapping[str, Values]


@cache
def printed_tables() -> tuple[Table, ...]:
    """Return the tables of `printed/*.toml`, each with its source."""
    return tuple(_toml_table(file) for file in sorted(HERE.glob("*.toml")))


def _toml_table(file: Path) -> Table:
    content = tomllib.loads(file.read_text("utf-8"))
    columns = [Column(label, direction=direction) for label, direction in content["columns"]]
    rows = [Row(name, [Cell(text or "–") for text in cells]) for name, cells in content["rows"].items()]
    caption = f"{content['source']}, Table {content['number']}, printed: {content['caption']}"
    return Table.of(caption, columns, rows, row_header="method", note=content["note"])


def table_2019(name: str, boards: Sequence[BenchmarkBoard], summaries: Sequence[PrintedMethod]) -> Table:
    """Return Table 1 of 2019 for a set: its printed rows, ours at the same shares, and unverified ones."""
    columns = [
        Column(f"{label}, {100 * share:.0f} % retained", direction="higher")
        for share in RETAINED
        for label in ("AUROC", "accuracy")
    ]
    rows = [Row(f"{TITLES[key]}, printed", _printed_cells(text)) for key, text in PRINTED[name].items()]
    for summary in (one for one in summaries if one.benchmark == BENCHMARKS_2019[name]):
        cells = [
            _summary_cell(*summary.values.get(metric, {}).get(share, (math.nan, math.nan)))
            for share in RETAINED
            for metric in METRICS
        ]
        rows.append(Row(f"{summary.method}, unverified", cells))
    for board in boards:
        if name in board.sets:
            rows += _our_rows(board, name)
    data = "Kaggle EyePACS" if name == "in_domain" else "APTOS 2019"
    return Table.of(
        f"Filos et al. 2019, Table 1, {SET_LABELS[name].lower()}: percent of the images that are retained",
        columns,
        rows,
        row_header="method",
        note=f"Printed: on {data}, ± as printed. Ours: on other images, as named, ± the standard error over seeds; the "
        "rows of one data set compare with each other, not with those of another. Unverified: anyone's summaries.",
    )


def _printed_cells(text: str) -> list[Cell]:
    """Return the cells as they are printed, not rounded again."""
    words = text.split()
    return [Cell(f"{value} ± {error}") for value, error in zip(words[::2], words[1::2], strict=True)]


def _our_rows(board: BenchmarkBoard, name: str) -> Iterator[Row]:
    chosen = {key: e for key, e in board.entries.items() if e.kind == "baseline"}
    if not chosen:
        return
    wanted = {
        (metric, share): f"{metric}_at_{round(100 * (1 - share))}"
        for share in RETAINED
        for metric in ("auroc", "accuracy")
    }
    found = standings(
        {key: e.predictions[board.benchmark.name] for key, e in chosen.items()},
        list(wanted.values()),
        [name],
        bootstrap=0,
    )[name]
    for key in board.first(name).methods:
        if key in chosen:
            cells = []
            for score in wanted.values():
                own = found[score].methods[key]
                cells.append(Cell.number(100 * own.value, error=100 * own.error, form=ONE_DIGIT))
            yield Row(f"{board.titles[key]}, on {board.benchmark.name}", cells)


def _summary_cell(mean: float, std: float) -> Cell:
    """Return a cell as the file states it."""
    if not math.isfinite(mean):
        return Cell("–")
    return Cell(f"{mean:.1f} ± {std:.1f}" if math.isfinite(std) else f"{mean:.1f}")


def read_summaries(folder: Path) -> list[PrintedMethod]:
    """Read summaries in the layout of 2019."""
    files = sorted(folder.glob("*/*/*.csv"))
    if not files or len(files) > MOST_FILES:
        raise InputError(
            f"holds {len(files):,} files BENCHMARK/METRIC/METHOD.csv",
            file=folder,
            hint=f"1 to {MOST_FILES:,} are read.",
        )
    found: dict[tuple[str, str], dict[str, Values]] = {}
    for file in files:
        metric, benchmark = file.parent.name, file.parent.parent.name
        if metric not in METRICS or benchmark not in BENCHMARKS_2019.values():
            known = " or ".join(BENCHMARKS_2019.values())
            raise InputError(
                "is no summary that is known", file=file, hint=f"Below {known}: auc or accuracy."
            )
        found.setdefault((benchmark, _title(file.stem)), {})[metric] = _read_values(kept_inside(folder, file))
    return [PrintedMethod(benchmark, method, values) for (benchmark, method), values in sorted(found.items())]


def _title(stem: str) -> str:
    return TITLES.get(stem) or visible(re.sub(r"[_-]+", " ", stem))[:100]


def _read_values(file: Path) -> Values:
    try:
        if file.stat().st_size > MOST_BYTES:
            raise InputError("is larger than 64 KB", file=file)
        rows = list(csv.DictReader(io.StringIO(file.read_text("utf-8-sig"), newline="")))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot be read: {error}", file=file) from None
    values: Values = {}
    for number, row in enumerate(rows, start=1):
        numbers = []
        for column in ("retained_data", "mean", "std"):
            try:
                text = (row.get(column) or "").strip()
                numbers.append(float(text) if text or column != "std" else math.nan)
            except ValueError:
                raise InputError("is no number", file=file, row=number, column=column) from None
        share, mean, std = numbers
        if not 0 < share <= 1 or not 0 <= mean <= 100:
            raise InputError(
                "needs a share in (0, 1] and a mean in percent",
                file=file,
                row=number,
                hint="As the files of 2019.",
            )
        values[round(share, 2)] = (mean, std)
    if not values:
        raise InputError("holds no rows", file=file)
    return values
