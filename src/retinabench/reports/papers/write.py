"""Write the tables and figures of the two papers, from predictions files alone, without torch.

Band et al. 2021 (the Retina Benchmark): Tables 1 to 13 and the figures of its results. Filos et al. 2019
(bdl-benchmarks): Table 1, Figures 4 to 6 and the CSV files of the leaderboard. `docs/papers.md` names each file's table or
figure and its differences from the paper.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from retinabench.core.errors import QUIET, Progress
from retinabench.core.files import write_bytes
from retinabench.predictions.io import ReadEach, read_each
from retinabench.reports.papers import figures as drawn
from retinabench.reports.papers.figures import PaperFigure, curve_figures, histogram_figures, image_figures
from retinabench.reports.papers.filos import filos_figures, filos_leaderboard, filos_results, filos_table
from retinabench.reports.papers.measurements import Collection, collect, task_title
from retinabench.reports.papers.retina_tables import retina_tables
from retinabench.reports.toolkit.figures import drawing, save
from retinabench.reports.toolkit.latex import to_latex
from retinabench.reports.toolkit.pages import render
from retinabench.reports.toolkit.tables import Table, macros, to_csv, to_markdown

FORMATS = ("svg", "pdf", "png")
_PACKAGE = "retinabench.reports.papers"


def write_tables(
    files: Sequence[Path],
    out: Path,
    *,
    rules: str,
    bootstrap: int,
    seed: int,
    labels: Path | None = None,
    images: Path | None = None,
    workers: int | None = None,
    progress: Progress = QUIET,
    read: ReadEach = read_each,
) -> list[Path]:
    """Write all tables and figures that the files allow below `out`, and `index.md`, which lists them and what the others need."""
    return write(collect(files, labels, rules, bootstrap, seed, workers, progress, read), out, images, progress)


@drawing()
def write(collection: Collection, out: Path, images: Path | None, progress: Progress) -> list[Path]:
    tables, missing = tables_of(collection)
    figures, also_missing = figures_of(collection, images)
    files = [*table_files(tables, out), *_leaderboard_files(collection, out)]
    with progress.track("Drawing", len(figures), unit="figures") as advance:
        for figure in figures:
            files += save(figure.draw(), out / "figures" / figure.name, FORMATS, dpi=200, font_size=10)
            advance(1)
    index = out / "index.md"
    context = {
        "collection": collection,
        "tasks": list(dict.fromkeys(task_title(one.task) for one in collection.results)),
        "tables": tables,
        "figures": figures,
        "missing": [*missing, *also_missing],
        "leaderboard": bool(filos_results(collection)),
    }
    write_bytes(index, render("index.md.j2", context, package=_PACKAGE).encode())
    return [index, *files]


def tables_of(collection: Collection) -> tuple[list[Table], list[str]]:
    found, missing = retina_tables(collection)
    found += [filos_table(results, collection) for results in filos_results(collection)]
    return [_captioned(table, collection) for table in found], missing


def table_files(tables: Sequence[Table], out: Path) -> list[Path]:
    files = []
    for table in tables:
        contents = {".md": to_markdown(table).encode(), ".csv": to_csv(table), ".tex": to_latex(table).encode()}
        for ending, content in contents.items():
            files.append(out / "tables" / f"{table.name}{ending}")
            write_bytes(files[-1], content)
    return files


def figures_of(collection: Collection, images: Path | None) -> tuple[list[PaperFigure], list[str]]:
    figures: list[PaperFigure] = []
    missing: list[str] = []
    for results in collection.results:
        for found, lines in (curve_figures(results, collection), histogram_figures(results)):
            figures += found
            missing += lines
        figures += filter(None, [drawn.pipeline_figure(results)])
    if images is None:
        missing.append("Figures 1, 6, 7 and 18 (images) need --source with a folder of images.")
    else:
        tests = [test for results in collection.results for method in results.methods for test in method.tests[:1]]
        pairs = (zip(test.image_id.tolist(), test.label.tolist(), strict=True) for test in tests)
        labels = {name: label for of_test in pairs for name, label in of_test}
        figures += image_figures(images, collection.rules, labels)
    figures.sort(key=_order)
    for results in filos_results(collection):
        figures += filos_figures(results, collection)
    return figures, missing


def _order(figure: PaperFigure) -> tuple[int, str]:
    number = re.match(r"\d+", figure.number)
    return int(number[0]) if number else 99, figure.name


def _leaderboard_files(collection: Collection, out: Path) -> list[Path]:
    files, of_2019 = [], filos_results(collection)
    for results in of_2019:
        folder = out / "leaderboard" / results.slug if len(of_2019) > 1 else out / "leaderboard"
        for path, content in filos_leaderboard(results).items():
            files.append(folder / path)
            write_bytes(files[-1], content)
    return files


def _captioned(table: Table, collection: Collection) -> Table:
    of_table = [one for one in collection.results if not table.facts["task"] or table.facts == one.facts]
    runs = {len(method.runs) for one in of_table for method in (one.methods or one.blur_variants)}
    several = [str(number) for number in sorted(runs - {1})]
    between = " to ".join(dict.fromkeys((several[0], several[-1]))) if several else ""
    say = macros("captions.md.j2", package=_PACKAGE).numbers
    numbers = say(collection.rules, collection.bootstrap, 1 in runs, bool(several), between)
    return replace(table, caption=f"{table.caption} {str(numbers).strip()}")
