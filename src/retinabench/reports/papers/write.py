"""All tables and figures of a collection as files, and the page that lists them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from retinabench.core import atomic_files
from retinabench.core.progress import Progress
from retinabench.core.version import __version__
from retinabench.reports.papers import filos, render, retina, words
from retinabench.reports.papers.collect import Collection, Study
from retinabench.reports.papers.drawing import Drawing, save
from retinabench.reports.papers.layout import Table

TABLES, FIGURES, LEADERBOARD = "tables", "figures", "leaderboard"


def write(collection: Collection, out: Path, photographs: Path | None, progress: Progress) -> list[Path]:
    """Write everything below `out`; return the files, the index first."""
    of_2019 = filos.studies_of(collection)
    made, lacking = tables_of(collection)
    drawings, more = _drawings(collection, of_2019, photographs)
    files = [*table_files(made, out), *_leaderboard_files(of_2019, out)]
    with progress.track("Drawing", len(drawings), unit="figures") as advance:
        for one in drawings:
            files += save(one.draw(), out / FIGURES / one.name)
            advance(1)
    index = out / "index.md"
    page = _index(collection, made, drawings, [*lacking, *more], bool(of_2019))
    atomic_files.write_bytes(index, page.encode())
    return [index, *files]


def tables_of(collection: Collection) -> tuple[list[Table], list[str]]:
    """Return all tables, captions complete, and a line for each that cannot be made."""
    made, lacking = retina.tables(collection)
    made += [filos.table(study, collection) for study in filos.studies_of(collection)]
    return [_captioned(table, collection) for table in made], lacking


def table_files(tables: Sequence[Table], out: Path) -> list[Path]:
    """Write tables as Markdown, CSV and LaTeX; return the files."""
    files = []
    for table in tables:
        contents = {
            ".md": render.markdown(table).encode(),
            ".csv": render.csv_bytes(table),
            ".tex": render.latex(table).encode(),
        }
        for ending, content in contents.items():
            files.append(out / TABLES / f"{table.name}{ending}")
            atomic_files.write_bytes(files[-1], content)
    return files


def _leaderboard_files(studies: Sequence[Study], out: Path) -> list[Path]:
    files = []
    for study in studies:
        folder = out / LEADERBOARD / words.slug(study) if len(studies) > 1 else out / LEADERBOARD
        for path, content in filos.leaderboard(study).items():
            files.append(folder / path)
            atomic_files.write_bytes(files[-1], content)
    return files


def _captioned(table: Table, collection: Collection) -> Table:
    """The table with what its numbers are at the end of its caption."""
    studies = [
        s
        for s in collection.studies
        if not table.task or (s.task, s.criterion) == (table.task, table.criterion)
    ]
    return replace(table, caption=f"{table.caption} {words.spread(collection, studies)}")


def _drawings(
    collection: Collection, of_2019: list[Study], photographs: Path | None
) -> tuple[list[Drawing], list[str]]:
    # Only here: tables alone must not wait for matplotlib.
    from retinabench.reports.papers import curve_figures, filos_figures, histograms
    from retinabench.reports.papers import photographs as pictures

    made: list[Drawing] = []
    lacking: list[str] = []
    for study in collection.studies:
        for part in (curve_figures, histograms):
            some, missing = part.drawings(study, collection)
            made += some
            lacking += missing
    if photographs is None:
        lacking.append("Figures 6, 7 and 18 (preprocessing) need --photographs.")
    else:
        made += pictures.drawings(photographs, collection.rules)
    made.sort(key=lambda one: (int(re.match(r"\d+|", one.number)[0] or 99), one.name))  # type: ignore[index]
    for study in of_2019:
        made += filos_figures.drawings(study, collection)
    return made, lacking


def _index(
    collection: Collection,
    tables: list[Table],
    drawings: list[Drawing],
    lacking: list[str],
    leaderboard: bool,
) -> str:
    tasks = dict.fromkeys(words.TASKS.get(s.task, s.task) for s in collection.studies)
    lines = [
        "# The papers' tables and figures",
        "",
        f"From {collection.files} predictions files; tasks: {render.escape(', '.join(tasks))}; rules: {collection.rules}; "
        f"seed {collection.seed}; retinabench {__version__}. Every table is also there as CSV with all digits and as LaTeX, "
        "every figure as SVG, PDF and PNG.",
        "",
    ]
    lines += [f"- {render.escape(note)}" for note in collection.notes]
    if lacking:
        lines += ["", "Left out:", "", *(f"- {render.escape(line)}" for line in lacking)]
    lines += ["", "## Tables", ""]
    for table in tables:
        stem = f"{TABLES}/{table.name}"
        lines += [
            render.markdown(table),
            f"[Markdown]({stem}.md) · [CSV]({stem}.csv) · [LaTeX]({stem}.tex)",
            "",
        ]
    if leaderboard:
        lines += [f"The 2019 leaderboard's CSV files: [{LEADERBOARD}/]({LEADERBOARD}/)", ""]
    lines += ["## Figures", ""]
    for one in drawings:
        stem = f"{FIGURES}/{one.name}"
        name = f"Figure {one.number}: {one.title}" if one.number else one.title
        lines += [
            f"**{render.escape(name)}.** {render.escape(one.caption)}", "",
            f"![{render.escape(one.title)}]({stem}.svg)", "",
            f"[SVG]({stem}.svg) · [PDF]({stem}.pdf) · [PNG]({stem}.png)", "",
        ]  # fmt: skip
    return "\n".join(lines).rstrip() + "\n"
