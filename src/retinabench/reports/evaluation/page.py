"""`write_report`: predictions in, one self-contained page, its numbers as JSON and CSV out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from retinabench.core import atomic_files
from retinabench.core.version import __version__
from retinabench.predictions.table import Predictions
from retinabench.reports.evaluation import examples, panels, tables, words
from retinabench.reports.evaluation.examples import ImageSource
from retinabench.reports.evaluation.record import score_records
from retinabench.reports.evaluation.study import Entry, Progress, Study, gather
from retinabench.reports.evaluation.verdict import verdict

CONTENTS = (
    ("verdict", "Verdict"), ("scored", "What was scored"), ("scores", "Scores"), ("roc", "ROC"),
    ("referral", "Referral"), ("uncertainty", "Uncertainty"), ("reliability", "Reliability"),
    ("examples", "Pictures"), ("reading", "How to read"), ("repeat", "How to repeat"),
)  # fmt: skip


def write_report(
    entries: Sequence[Entry] | Mapping[str, Predictions | Sequence[Predictions]],
    out: str | Path,
    *,
    title: str = "Does the model know when it does not know?",
    images: ImageSource | None = None,
    rules: str = "corrected",
    bootstrap: int = 1000,
    seed: int = 0,
    progress: Progress | None = None,
) -> Path:
    """Score the entries and write `index.html`, `scores.json` and `table.csv` into `out`; return the page's path.

    Arguments
    ---------
    entries: methods in the order in which they are shown, each with the test predictions of one or more seeds; a
    dictionary {name: predictions} will do. images: image_id -> (H, W, 3) uint8 or None, for the example pictures.
    rules: "corrected" or "published", for the scores; figures always follow the corrected rules. bootstrap: draws of
    patients for every interval. progress: called with what is done now and the share done, 0 to 1.

    The same arguments give the same bytes. The page needs no network and runs no script.
    """
    if isinstance(entries, Mapping):
        entries = [Entry.of(name, predictions) for name, predictions in entries.items()]
    study = gather(entries, rules=rules, bootstrap=bootstrap, seed=seed, progress=_share(progress, 0.0, 0.9))
    tell = _share(progress, 0.9, 1.0)
    if tell:
        tell("drawing figures", 0.0)
    page = render(study, title=title, images=images)
    folder = Path(out)
    atomic_files.write_json(folder / "scores.json", score_records(study))
    atomic_files.write_bytes(folder / "table.csv", tables.csv_bytes(study))
    atomic_files.write_bytes(folder / "index.html", page.encode())
    if tell:
        tell("report written", 1.0)
    return folder / "index.html"


def render(study: Study, *, title: str, images: ImageSource | None = None) -> str:
    """Return the page of a study."""
    return fill("page.html.j2", {**_context(study, images), "title": title})


def fill(template: str, context: Mapping[str, Any]) -> str:
    """Fill a page of `templates/`: everything is escaped, the style sheet is inside, a missing name is an error."""
    texts = {
        file.name: file.read_text("utf-8")
        for file in (files("retinabench.reports.toolkit") / "templates").iterdir()
    }
    environment = Environment(loader=DictLoader(texts), autoescape=True, undefined=StrictUndefined)
    return environment.get_template(template).render(
        {**context, "style": Markup(texts["style.css"]), "version": __version__}
    )


def _context(study: Study, images: ImageSource | None) -> dict[str, Any]:
    pairs = zip(study.entries, study.marks, strict=True)
    return {
        "contents": CONTENTS,
        "methods": [{"name": entry.name, "swatch": mark.swatch} for entry, mark in pairs],
        "verdict": verdict(study),
        "lead_figure": panels.lead_panel(study),
        "score_tables": tables.score_tables(study),
        "nhs_table": tables.nhs_table(study),
        "referral_tables": tables.referral_tables(study),
        "roc_figures": panels.roc_panels(study),
        "referral_figures": panels.referral_panels(study),
        "histogram_figures": panels.histogram_panels(study),
        "reliability_figures": panels.reliability_panels(study),
        "example_groups": examples.groups(study, images),
        **words.context(study, pictures=images is not None),
    }


def _share(progress: Progress | None, start: float, end: float) -> Progress | None:
    if progress is None:
        return None
    return lambda text, share: progress(text, start + (end - start) * share)
