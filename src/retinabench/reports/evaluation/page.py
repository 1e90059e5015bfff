"""The page of an evaluation: the facts of `Evaluation` in, HTML out; the text is in `templates/evaluation.html.j2`."""

from __future__ import annotations

from markupsafe import Markup

from retinabench.metrics.clinical.operating_points import GOALS
from retinabench.metrics.image_sets import PER_IMAGE, SET_LABELS
from retinabench.metrics.policies.grid import PolicyGrid
from retinabench.metrics.proportions import Interval
from retinabench.metrics.registry import SCORES
from retinabench.reports.evaluation import examples, tables
from retinabench.reports.evaluation.evaluate import MOST_BAND_REPLICATES
from retinabench.reports.evaluation.evaluation import Evaluation
from retinabench.reports.evaluation.examples import ImageSource
from retinabench.reports.evaluation.figures import panels
from retinabench.reports.evaluation.policies import page_explorer, pathways
from retinabench.reports.evaluation.verdict.findings import SLIGHT, verdict
from retinabench.reports.toolkit import pages
from retinabench.reports.toolkit.number_format import NumberFormat, Quantity, join_names
from retinabench.reports.toolkit.style import LegendEntry

CONTENTS = (
    ("verdict", "Verdict"), ("explore", "Other thresholds"), ("findings", "Findings"), ("scored", "Data"), ("scores", "Scores"), ("roc", "ROC"), ("referral", "Referral"),
    ("uncertainty", "Uncertainty"), ("reliability", "Calibration"), ("examples", "Images"),
    ("reading", "Definitions"), ("repeat", "Reproduction"),
)  # fmt: skip


def render(
    evaluation: Evaluation, grids: dict[int, PolicyGrid], *, title: str, images: ImageSource | None = None
) -> str:
    """Return the page of an evaluation.

    Shapes: `images` (H, W, 3).
    """
    cases = [found[0] for found in evaluation.cases.values()]
    one_class = not any(evaluation.get(i, name, "auroc").defined for i, name in evaluation.cases)
    context = {
        "title": title,
        "contents": CONTENTS,
        "e": evaluation,
        "labels": SET_LABELS,
        "scores": SCORES,
        "nhs": GOALS["nhs"],
        "verdict": verdict(evaluation),
        "slight": SLIGHT,
        "methods": [
            LegendEntry(method.name, mark)
            for method, mark in zip(evaluation.methods, evaluation.marks, strict=True)
        ],
        "metadata": _metadata(evaluation),
        "notes": _notes(evaluation),
        "one_class": one_class,
        "single": len(evaluation.domains) == 1,
        "thresholds": _thresholds(evaluation),
        "show": _show,
        "shown": _shown,
        "per_image": PER_IMAGE,
        "graded": any(case.grade is not None for case in cases),
        "own_uncertainty": any(case.uncertainty_name == "own" for case in cases),
        "band_replicates": min(evaluation.settings.bootstrap, MOST_BAND_REPLICATES),
        "many_bands": len(evaluation.methods) > panels.MOST_BANDS,
        "with_images": images is not None,
        "pathways": pathways(evaluation, grids),
        "explorer": page_explorer(evaluation, grids, images),
        "lead_figure": panels.lead_panel(evaluation),
        "sets_table": tables.sets_table(evaluation),
        "score_tables": tables.score_tables(evaluation),
        "nhs_table": tables.nhs_table(evaluation),
        "retained_tables": tables.retained_tables(evaluation),
        "files_table": tables.files_table(evaluation),
        "roc_figures": panels.roc_panels(evaluation),
        "referral_figures": panels.referral_panels(evaluation),
        "histogram_figures": panels.histogram_panels(evaluation),
        "reliability_figures": panels.reliability_panels(evaluation),
        "example_groups": examples.groups(evaluation, images),
    }
    return pages.render("evaluation.html.j2", context, package="retinabench.reports.evaluation")


def _show(quantity: Quantity, style: str = "plain") -> Markup:
    return quantity.whole_html(NumberFormat(2, signed=style == "signed"))


def _shown(share: Interval, scale: float = 100) -> str:
    """Write a share with its interval: in percent, or of so many."""
    form = NumberFormat(0, scale=scale, suffix=" %" if scale == 100 else "").fitted(share.high - share.low)
    return f"{form(share.value)} {form.interval(share.low, share.high)}".rstrip()


def _thresholds(evaluation: Evaluation) -> list[str]:
    """Return what counts as referable: one rule for all, or one per method."""
    found = {
        method.name: list(dict.fromkeys(one.threshold.note or "P(referable) above 0.5" for one in files))
        for method, files in zip(evaluation.methods, evaluation.files, strict=True)
    }
    everyone = list(dict.fromkeys(note for notes in found.values() for note in notes))
    if len(everyone) == 1:
        return everyone
    return [f"{name}: {'; '.join(notes)}" for name, notes in found.items()]


def _metadata(evaluation: Evaluation) -> list[tuple[str, str]]:
    """Return what the files say of their task and network."""
    known = [p.metadata for method in evaluation.methods for p in method.predictions]
    found = []
    for key, term in (("task", "Task"), ("model", "Network")):
        values = sorted({str(meta[key]) for meta in known if meta.get(key) is not None})
        if values:
            found.append((term, ", ".join(values)))
    return found


def _notes(evaluation: Evaluation) -> list[str]:
    """Return the notes of all files once each, led by the methods they are about where not all share them."""
    where: dict[str, list[str]] = {}
    for method, files in zip(evaluation.methods, evaluation.files, strict=True):
        for note in dict.fromkeys(note for one in files for note in one.notes):
            where.setdefault(note, []).append(method.name)
    unknown: dict[tuple[str, str], list[str]] = {}  # (set, why) -> scores
    for files in evaluation.files:
        for name in (name for name in evaluation.sets if name in files[0].sets):
            for score, one in files[0][name].scores.items():
                if one.why:
                    found = unknown.setdefault((SET_LABELS[name].lower(), one.why), [])
                    found += [SCORES[score].label] if SCORES[score].label not in found else []
    undefined: dict[tuple[str, str], list[str]] = {}  # (scores, why) -> sets
    for (name, why), scores in unknown.items():
        undefined.setdefault(("; ".join(scores), why), []).append(name)
    for note in {one.threshold.note for files in evaluation.files for one in files if one.threshold.note}:
        where.pop(note, None)  # stands under "Threshold"
    everyone = len(evaluation.methods)
    notes = [note if len(who) == everyone else f"{', '.join(who)}: {note}" for note, who in where.items()]
    return notes + [f"{scores}, {join_names(sets)}: {why}" for (scores, why), sets in undefined.items()]
