"""Write the report: the page and the files beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from retinabench.core.errors import QUIET, InputError
from retinabench.core.errors import Progress as Bars
from retinabench.core.files import check_writable, write_bytes, write_json
from retinabench.core.results import JsonObject, json_content
from retinabench.data.prepared import open_data
from retinabench.metrics import classification
from retinabench.metrics.clinical.screening_table import GOALS, MOST_GROUPS, PolicyGrid, Screened, policy_grid
from retinabench.metrics.image_sets import DEFAULT, PER_IMAGE, SET_LABELS, DecisionThreshold, referral_rule
from retinabench.metrics.intervals import Interval
from retinabench.metrics.registry import SCORES
from retinabench.metrics.scoring import Rules
from retinabench.predictions.io import ReadEach, find_files, read_each
from retinabench.predictions.table import Predictions, join_folds, method_names, notes_of_files
from retinabench.predictions.values import SEVERE
from retinabench.reports.evaluation import evaluation as evaluations
from retinabench.reports.evaluation import facts, figures
from retinabench.reports.evaluation.evaluation import DEFAULTS, Evaluation, EvaluationSettings, evaluate_methods
from retinabench.reports.evaluation.facts import SLIGHT, verdict
from retinabench.reports.evaluation.figures import grade_section
from retinabench.reports.evaluation.terminal import rejection_tables
from retinabench.reports.toolkit import pages
from retinabench.reports.toolkit.figures import OTHERS, ImageSource, LegendEntry, data_uri, drawing, mark
from retinabench.reports.toolkit.pages import explorer
from retinabench.reports.toolkit.tables import NumberFormat, Quantity, csv_bytes, join_names

CONTENTS = (
    ("verdict", "Verdict"), ("explore", "Other thresholds"), ("findings", "Findings"), ("scored", "Data"), ("scores", "Scores"), ("roc", "ROC"), ("referral", "Referral"), ("rejection", "Uncertainties compared"),
    ("uncertainty", "Uncertainty"), ("reliability", "Calibration"), ("grades", "Grades"), ("examples", "Images"),
    ("reading", "Definitions"), ("repeat", "Reproduction"),
)  # fmt: skip


READER = (0.9, 0.95)
"""Sensitivity and specificity of the reader of the referred images, as `clinic` states them by default."""
MOST_METHODS = 4
THUMBNAIL_SIDE = 170
IMAGES_PER_HOUR = 60.0
TITLE = "Does the model know when it does not know?"
ADDED = ("brier_skill", "net_benefit_gain")  # Scores of the page that `score` gives on request only.
SCORED = 0.9  # Share of the work that is done when everything is scored.


@drawing()
def render(
    evaluation: Evaluation, grids: dict[int, PolicyGrid], *, title: str, images: ImageSource | None = None
) -> str:
    cases = [found[0] for found in evaluation.cases.values()]
    one_class = not any(evaluation.get(i, name, "auroc").defined for i, name in evaluation.cases)
    graded = _grades(evaluation)
    context = {
        "title": title,
        "own_title": title != TITLE,
        "contents": [
            entry for entry in CONTENTS if {"grades": graded, "rejection": evaluation.rejections}.get(entry[0], True)
        ],
        "rejections": _rejections(evaluation),
        "grades": graded,
        "e": evaluation,
        "labels": SET_LABELS,
        "scores": SCORES,
        "nhs": GOALS["nhs"],
        "verdict": verdict(evaluation),
        "slight": SLIGHT,
        "methods": _legend(evaluation),
        "metadata": _metadata(evaluation),
        "notes": _notes(evaluation),
        "one_class": one_class,
        "single": len(evaluation.domains) == 1,
        "thresholds": _thresholds(evaluation),
        "show": lambda one, style="plain": one.whole_html(NumberFormat(2, signed=style == "signed")),
        "shown": _shown,
        "per_image": PER_IMAGE,
        "patients_tables": facts.patients_tables(evaluation),
        "graded": any(case.grade is not None for case in cases),
        "own_uncertainty": any(case.uncertainty_name == "own" for case in cases),
        "band_replicates": min(evaluation.settings.bootstrap, evaluations.MOST_BAND_REPLICATES),
        "many_bands": len(evaluation.methods) > evaluations.MOST_COLORS,
        "with_images": images is not None,
        "of_table": all(p.metadata.get("inputs") == "table" for one in evaluation.methods for p in one.predictions),
        "pathways": pathways(evaluation, grids),
        "explorer": page_explorer(evaluation, grids, images),
        "lead_figure": figures.lead_panel(evaluation),
        "sets_table": facts.sets_table(evaluation),
        "score_tables": facts.score_tables(evaluation),
        "retained_tables": facts.retained_tables(evaluation),
        "files_table": facts.files_table(evaluation),
        "roc_figures": figures.roc_panels(evaluation),
        "referral_figures": figures.referral_panels(evaluation),
        "histogram_figures": figures.histogram_panels(evaluation),
        "reliability_figures": figures.reliability_panels(evaluation),
        "example_groups": facts.example_groups(evaluation, images),
    }
    return pages.render("evaluation.html.j2", context, package="retinabench.reports.evaluation")


def _grades(evaluation: Evaluation) -> list[dict[str, object]]:
    methods = list(zip(evaluation.methods, evaluation.marks, evaluation.files, strict=True))
    found = {
        name: {
            method.name: (mark, [own for one in files if name in one.sets and (own := one[name].grades)])
            for method, mark, files in methods
        }
        for name in evaluation.sets
    }
    return grade_section(found, evaluation.leading)


def _rejections(evaluation: Evaluation) -> list[dict[str, object]]:
    shown = []
    for number, ((i, name), one) in enumerate(evaluation.rejections.items()):
        method, label = evaluation.methods[i].name, SET_LABELS[name].lower()
        shown.append({
            "title": f"{method}, {label}" if len(evaluation.rejections) > 1 else "",
            "figure": figures.rejection_panel(one, name, f"rejection-{number}"),
            "legend": [LegendEntry(key.replace("_", " "), mark(k)) for k, key in enumerate(one.uncertainties)],
            "tables": rejection_tables(one, f"{method}, {label}"),
        })  # fmt: skip
    return shown


def _shown(share: Interval, scale: float = 100) -> str:
    form = NumberFormat(0, scale=scale, suffix=" %" if scale == 100 else "").fitted(share.high - share.low)
    return f"{form(share.value)} {form.interval(share.low, share.high)}".rstrip()


def _thresholds(evaluation: Evaluation) -> list[str]:
    found = {
        method.name: list(dict.fromkeys(one.threshold.note or "P(referable) above 0.5" for one in files))
        for method, files in zip(evaluation.methods, evaluation.files, strict=True)
    }
    everyone = list(dict.fromkeys(note for notes in found.values() for note in notes))
    return everyone if len(everyone) == 1 else [f"{name}: {'; '.join(notes)}" for name, notes in found.items()]


def _legend(evaluation: Evaluation) -> list[LegendEntry]:
    told = [(one.name, mark) for one, mark in zip(evaluation.methods, evaluation.marks, strict=True) if mark != OTHERS]
    rest = len(evaluation.methods) - len(told)
    return [LegendEntry(name, mark) for name, mark in [*told, *([(f"{rest} other methods", OTHERS)] if rest else [])]]


def _metadata(evaluation: Evaluation) -> list[tuple[str, str]]:
    known = [p.metadata for method in evaluation.methods for p in method.predictions]
    terms = {"task": "Task", "model": "Network"}
    values = {key: sorted({str(meta[key]) for meta in known if meta.get(key) is not None}) for key in terms}
    return [(terms[key], ", ".join(of_key)) for key, of_key in values.items() if of_key]


def _notes(evaluation: Evaluation) -> list[str]:
    """Return the notes of all files once each, led by the methods they are about where not all share them."""
    thresholds = {one.threshold.note for files in evaluation.files for one in files}  # stand under "Threshold"
    said = [[note for one in files for note in one.notes if note not in thresholds] for files in evaluation.files]
    notes = notes_of_files([method.name for method in evaluation.methods], said)
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
    return notes + [f"{scores}, {join_names(sets)}: {why}" for (scores, why), sets in undefined.items()]


def write_report(
    methods: evaluations.PredictionsByMethod,
    out: str | Path,
    settings: EvaluationSettings = DEFAULTS,
    *,
    title: str = TITLE,
    images: ImageSource | None = None,
    progress: evaluations.Progress | None = None,
) -> Path:
    """Score methods and write `index.html`, `scores.json`, `policies.json` and `table.csv` into `out`; the same arguments give the same bytes."""
    tell = progress or (lambda _share: None)
    found = evaluate_methods(methods, settings, progress=lambda share: tell(SCORED * share))
    page = write_evaluation(found, Path(out), title=title, images=images)
    tell(1.0)
    return page


def write_evaluation(
    evaluation: Evaluation, out: Path, *, title: str = TITLE, images: ImageSource | None = None
) -> Path:
    grids = policy_grids(evaluation)
    page = render(evaluation, grids, title=title, images=images)
    write_json(out / "policies.json", policy_records(evaluation, grids), indented=False)
    write_json(out / "scores.json", score_records(evaluation))
    write_bytes(out / "table.csv", table_csv(evaluation))
    write_bytes(out / "index.html", page.encode())
    return out / "index.html"


def report_files(
    paths: Sequence[Path],
    out: Path,
    settings: EvaluationSettings = DEFAULTS,
    *,
    data: Path | None = None,
    shifted: Path | None = None,
    progress: Bars = QUIET,
    read: ReadEach = read_each,
) -> Path:
    if shifted is not None and data is None:
        raise InputError("--shifted needs --data", hint="Name the folders as `train` had them.")
    files = find_files(paths)
    files, predictions = join_folds(files, list(read(files)))
    check_writable(out)
    methods: dict[str, list[Predictions]] = {}
    for name, one in zip(method_names(files, predictions), predictions, strict=True):
        methods.setdefault(name, []).append(one)
    images = open_data(data, shifted).image if data is not None else None
    with progress.track("Report", 100, unit="%") as advance:
        return write_report(methods, out, settings, images=images, progress=percent_steps(advance))


def percent_steps(advance: Callable[[int], None]) -> evaluations.Progress:
    done = 0

    def tell(share: float) -> None:
        nonlocal done
        advance(round(100 * share) - done)
        done = round(100 * share)

    return tell


def score_records(evaluation: Evaluation) -> list[JsonObject]:
    """Return, per file, the method (`entry`), `Scores.to_dict()`, and per set what the page adds (`report`), with `controls` at the leading method."""
    records = []
    for i, method in enumerate(evaluation.methods):
        for k, scores in enumerate(evaluation.files[i]):
            record = {"entry": method.name, **scores.to_dict(), "report": _added(evaluation, i, k)}
            if i == evaluation.leader and k == 0:
                sets = [name for name in evaluation.sets if (i, name) in evaluation.cases]
                record["controls"] = {name: _controls(evaluation, name) for name in sets}
            compared = {name: one for (j, name), one in evaluation.rejections.items() if j == i and k == 0}
            record |= {"uncertainties": json_content(compared)} if compared else {}
            records.append(record)
    return records


def table_csv(evaluation: Evaluation) -> bytes:
    rows: list[tuple[str, str, str, Quantity, object]] = []
    for (i, name, score), quantity in sorted(evaluation.estimates.items(), key=lambda item: item[0]):
        method = evaluation.methods[i]
        rows.append((method.name, name, score, quantity, len(method.predictions)))
    for (i, score), quantity in sorted(evaluation.changes.items()):
        method = evaluation.methods[i]
        rows.append((method.name, "shifted_minus_in_domain", score, quantity, len(method.predictions)))
    for other, gap in evaluation.leads().items():
        rows.append((f"{evaluation.leading} − {other}", evaluation.sets[-1], evaluation.at("accuracy"), gap, ""))
    header = ["method", "set", "score", "value", "low", "high", "standard_error", "files"]
    return csv_bytes(header, ([*names, q.value, q.low, q.high, q.error, files] for *names, q, files in rows))


def _controls(evaluation: Evaluation, name: str) -> dict[str, dict[str, float]]:
    return {
        kind: {score: value for score, value in values.items() if math.isfinite(value)}
        for kind, values in evaluation.controls(name).items()
    }


def _added(evaluation: Evaluation, i: int, file: int) -> JsonObject:
    added: JsonObject = {}
    own = {*classification.referred_names(evaluation.settings.referred), *ADDED}
    for name in evaluation.sets:
        if (i, name) not in evaluation.replicates or file >= len(evaluation.replicates[i, name][0]):
            continue
        values, replicates = (array[file : file + 1] for array in evaluation.replicates[i, name])
        wholes = [evaluation.cases[i, name][file].cases.weighted()]
        methods = [evaluation.spec(score).interval for score in evaluation.replicated]
        found = zip(evaluation.replicated, evaluations.quantities(methods, wholes, values, replicates), strict=True)
        parts = {key: {"value": q.value, "low": q.low, "high": q.high} for key, q in found if key in own}
        added[name] = json_content(parts)
    return added


def report(
    predictions: Predictions | evaluations.PredictionsByMethod,
    out: str | Path = "report",
    *,
    title: str = TITLE,
    rules: Rules = "corrected",
    bootstrap: int = 1000,
    seed: int = 0,
    referred: float = 0.5,
    threshold: DecisionThreshold | float | str = DEFAULT,
    uncertainty: str = "auto",
) -> Path:
    """Write a self-contained page about one model or several, with its numbers as JSON and CSV.

    Args:
        predictions: The predictions of a model; or a name and predictions of each, several of one are its seeds.
        out: A folder; made where it does not exist.
        title: Headline of the page.
        rules: As in `score`.
        bootstrap: As in `score`.
        seed: As in `score`.
        referred: Share of the images that statements and figures refer.
        threshold: As in `score`.
        uncertainty: As in `score`.

    Returns:
        The path of the page.

    Raises:
        InputError: There is no model, or no test image.

    Examples:
        >>> import tempfile
        >>> import retinabench as rb
        >>> predictions = rb.Predictions(["a", "b", "c", "d"], [0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     rb.report({"ours": predictions}, folder, bootstrap=0).name
        'index.html'
    """
    methods = predictions if isinstance(predictions, Mapping) else {"model": predictions}
    settings = EvaluationSettings(rules, bootstrap, seed, uncertainty, threshold, referred)
    return write_report(methods, out, settings, title=title)


def policy_grids(evaluation: Evaluation) -> dict[int, PolicyGrid]:
    order = sorted(range(len(evaluation.methods)), key=lambda i: i != evaluation.leader)[:MOST_METHODS]
    s = evaluation.settings
    grids = {}
    for i in order:
        predictions, threshold = evaluation.methods[i].predictions[0], evaluation.files[i][0].threshold
        rule = referral_rule(predictions, s.uncertainty, threshold.value, threshold=None, rate=s.referred)
        stated = Screened(threshold, rule, (), READER, 0.0, IMAGES_PER_HOUR, None)
        grids[i] = policy_grid(predictions, stated, most_groups=MOST_GROUPS // len(order))
    return grids


def pathways(evaluation: Evaluation, grids: dict[int, PolicyGrid]) -> list[dict[str, Any]]:
    """Return what the leading method and the reader do on each set at the stated pair of thresholds, and what is missed without referral (`alone`)."""
    found, grid = [], grids[evaluation.leader]
    i, j = grid.frozen
    for name, groups in grid.outcomes.items():
        case = evaluation.first(evaluation.leader, name)
        assert case is not None, "a set with outcomes has images"
        severe = np.zeros(len(case), bool) if case.grade is None else (case.grade >= SEVERE) & case.label
        lost = case.label & ~case.called
        found.append({
            "set": name, "positives": int(case.label.sum()), "severe": int(severe.sum()), "alone": int(lost.sum()),
            "severe_alone": int((lost & severe).sum()), "outcome": groups[""][i][j],
        })  # fmt: skip
    return found


def page_explorer(evaluation: Evaluation, grids: dict[int, PolicyGrid], images: ImageSource | None) -> dict[str, Any]:
    def thumbnail(image_id: str) -> str:
        image = None if images is None else images(image_id)
        return "" if image is None else data_uri(image, THUMBNAIL_SIDE)[0]

    named = {evaluation.methods[i].name: grid for i, grid in grids.items()}
    return explorer(named, READER, None if images is None else thumbnail)


def policy_records(evaluation: Evaluation, grids: dict[int, PolicyGrid]) -> JsonObject:
    entries = [{"entry": evaluation.methods[i].name, **grid.to_dict()} for i, grid in grids.items()]
    return {"schema": "retinabench.policies/1", "reader": list(READER), "entries": entries}
