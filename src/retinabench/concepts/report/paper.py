"""Figures 2 to 4 of the paper for its three synthetic examinees, side by side on one page, for any bank.

References:
    Fountoukidou and Sznitman, Concept-Centric Visual Turing Tests for Method Validation, MICCAI 2019.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.examinees import SYNTHETIC, Examinee
from retinabench.concepts.questioning.examination import examine
from retinabench.concepts.report.figures import performance_panel
from retinabench.core.errors import QUIET, Progress
from retinabench.core.files import write_bytes
from retinabench.core.random_streams import derive
from retinabench.reports.toolkit import pages
from retinabench.reports.toolkit.figures import WIDTH, LegendEntry, Line, Panel, canvas, draw_lines, drawing, mark

PAPER = "paper"  # the name of the three examinees together
EXAMINEES = ("biased-1", "biased-2", "unbiased")
STRATEGIES = ("random", "unpredictability", "uncertainty", "uncertainty+unpredictability")
QUESTIONS = 100  # of Figure 3
REPETITIONS = 10  # of Figure 4


@drawing()
def write_paper(
    bank: Bank, out: Path, *, questions: int | None = None, seed: int = 0, progress: Progress = QUIET
) -> Path:
    """Write the page; `questions` limits those of each examination of Figure 4."""
    present = bank.cells[:, 1]
    rarest = int(np.where(present > 0, present, bank.samples).argmin())
    concepts = {"commonest": int(present.argmax()), "rarest": rarest}
    some: dict[str, list[Panel]] = {strategy: [] for strategy in STRATEGIES}
    whole, fall = list[Panel](), list[Panel]()
    with progress.track("Examinees", len(EXAMINEES), unit="examinees") as advance:
        for name in EXAMINEES:
            whole += _panels(bank, concepts, name, f"whole-{name}", seed)
            for place, strategy in enumerate(STRATEGIES):
                some[strategy] += _panels(bank, concepts, name, f"some-{place}-{name}", seed, strategy)
            figure = _courses(bank, name, questions, seed)
            fall.append(Panel.of(figure, f"fall-{name}", name, f"Mean uncertainty of {name} after each question"))
            advance(1)
    for panels in (whole, *some.values()):
        panels.sort(key=lambda one: one.heading.endswith("rarest concept"))  # a row for each concept
    context = {
        "title": "The three examinees of the paper",
        "bank": bank, "names": {kind: bank.concepts[place] for kind, place in concepts.items()},
        "questions": QUESTIONS, "repetitions": REPETITIONS, "whole": whole, "some": some, "fall": fall,
        "entries": [LegendEntry(strategy, mark(place)) for place, strategy in enumerate(STRATEGIES)],
    }  # fmt: skip
    page = pages.render("paper.html.j2", context, package="retinabench.concepts.report")
    write_bytes(out / "index.html", page.encode())
    return out / "index.html"


def _panels(
    bank: Bank, concepts: dict[str, int], name: str, figure: str, seed: int, strategy: str | None = None
) -> list[Panel]:
    """Draw what is known of two concepts when everything was asked, or after `QUESTIONS` by a strategy."""
    questions = None if strategy is None else QUESTIONS
    found = examine(bank, SYNTHETIC[name](bank, seed), strategy=strategy, questions=questions, seed=seed)
    panels = []
    for kind, place in concepts.items():
        one = found[bank.concepts[place]]
        told = ", ".join(f"{count} {key.upper()}" for key, count in one.counts.items())
        panels.append(Panel.of(performance_panel(one), f"{figure}-{kind}", f"{name}, {kind} concept", told))
    return panels


def _courses(bank: Bank, name: str, questions: int | None, seed: int) -> Figure:
    figure, [[axes]] = canvas(WIDTH, 270)
    lines = []
    for place, strategy in enumerate(STRATEGIES):
        rows = course(bank, lambda number: SYNTHETIC[name](bank, number), strategy, questions=questions, seed=seed)
        half = stats.t.ppf(0.975, REPETITIONS - 1) / np.sqrt(REPETITIONS) * rows.std(axis=0, ddof=1)
        mean = rows.mean(axis=0)
        lines.append(Line(mark(place), np.arange(len(mean), dtype=np.float64), mean, mean - half, mean + half))
    draw_lines(axes, lines)
    axes.set(xlabel="questions", ylabel="mean uncertainty", ylim=(0, 2.05), xlim=(0, None))
    return figure


def course(
    bank: Bank, factory: Callable[[int], Examinee], strategy: str, *, seed: int = 0, **options: Any
) -> NDArray[np.float64]:
    """Return the mean uncertainty after 0, 1, … questions of each repetition, (`REPETITIONS`, questions + 1)."""
    seeds = [derive(seed, "repetition", repetition) for repetition in range(REPETITIONS)]
    return np.stack([examine(bank, factory(k), strategy=strategy, seed=k, **options).uncertainty for k in seeds])
