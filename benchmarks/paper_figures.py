"""Figures 2 to 4 of Fountoukidou and Sznitman (2019) for its three synthetic examinees, side by side.

    python benchmarks/paper_figures.py OUT [FOLDER]

FOLDER: one with a truth.csv, such as `retinabench examine --bank NAME --source DIR --examinee unbiased --out FOLDER` writes it for
any bank; without it, 120 drawn retinas. OUT/index.html has a column for each examinee, and a row for

- Figure 2: the Gaussian process of the commonest and of the rarest concept when every question was asked;
- Figure 3: the same after 100 questions by each of the four published strategies;
- Figure 4: the mean uncertainty after each question by these strategies, with 95 % intervals over ten repetitions, for each of which
  the examinee's answers are drawn anew.

Half a minute for 120 retinas.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from scipy import stats
from strategies import PUBLISHED, REPETITIONS, course

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.banks.masks import drawn
from retinabench.concepts.banks.tables import read_reference
from retinabench.concepts.examinees import SYNTHETIC
from retinabench.concepts.questioning.examination import examine
from retinabench.concepts.report.figures import performance_panel
from retinabench.reports.toolkit.figures import HUES, WIDTH, canvas, drawing

STRATEGIES = ("random", "unpredictability", "uncertainty", "uncertainty+unpredictability")
QUESTIONS = 100
STYLE = "table{table-layout:fixed;width:100%;font-family:sans-serif} img{width:100%} th{vertical-align:top}"


@drawing()
def write(bank: Bank, out: Path) -> None:
    """Write the figures and the page that shows them."""
    out.mkdir(parents=True, exist_ok=True)
    present = bank.cells[:, 1]
    concepts = {"commonest": bank.concepts[present.argmax()], "rarest": bank.concepts[present.argmin()]}
    rows: dict[str, list[str]] = {}

    def keep(row: str, name: str, figure: Figure) -> None:
        path = f"figure-{len(rows.setdefault(row, []))}-{list(rows).index(row)}.svg"
        figure.savefig(out / path)
        rows[row].append(Markup('<td><img src="{}" alt="{}: {}"></td>').format(path, row, name))

    for name in PUBLISHED:
        whole = examine(bank, SYNTHETIC[name](bank, 0))
        for kind, concept in concepts.items():
            keep(f"Figure 2: {concept} ({kind}), all asked", name, performance_panel(whole[concept]))
        for strategy in STRATEGIES:
            some = examine(bank, SYNTHETIC[name](bank, 0), strategy=strategy, questions=QUESTIONS)
            for kind, concept in concepts.items():
                row = f"Figure 3: {concept} ({kind}), {QUESTIONS} questions by {strategy}"
                keep(row, name, performance_panel(some[concept]))
        keep("Figure 4: mean uncertainty after each question", name, courses(bank, name))
    head = Markup("").join(Markup("<th>{}</th>").format(name) for name in PUBLISHED)
    body = Markup("").join(
        Markup("<tr><th>{}</th>{}</tr>\n").format(row, Markup("").join(cells)) for row, cells in rows.items()
    )
    page = Markup("<!DOCTYPE html><meta charset=utf-8><style>{}</style>\n<table><tr><th></th>{}</tr>\n{}</table>\n")
    (out / "index.html").write_text(page.format(STYLE, head, body), encoding="utf-8")


def courses(bank: Bank, name: str) -> Figure:
    """Draw the mean uncertainty by strategy, with Student's interval over repetitions."""
    figure, [[axes]] = canvas(WIDTH, 270)
    factor = stats.t.ppf(0.975, REPETITIONS - 1) / np.sqrt(REPETITIONS)
    for strategy, color in zip(STRATEGIES, HUES, strict=False):
        rows = course(bank, lambda seed: SYNTHETIC[name](bank, seed), strategy)
        mean, half = rows.mean(axis=0), factor * rows.std(axis=0, ddof=1)
        axes.fill_between(np.arange(len(mean)), mean - half, mean + half, color=color, alpha=0.2, linewidth=0)
        axes.plot(mean, color=color, label=strategy)
    axes.set(xlabel="questions", ylabel="mean uncertainty", ylim=(0, None))
    axes.legend()
    return figure


def main() -> None:
    out, *folders = map(Path, sys.argv[1:])
    if folders:
        bank = read_reference(folders[0] / "truth.csv")[0]
    else:
        images = drawn(120, population="shifted")
        bank = Bank(images.sample_id, images.concepts, images.truth.astype(np.int8))
    write(bank, out)


if __name__ == "__main__":
    main()
