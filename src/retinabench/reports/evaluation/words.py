"""What the page says around its numbers: what was scored, notes, definitions, how to repeat it."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import numpy as np
from markupsafe import Markup

from retinabench.metrics.registry import SCORES
from retinabench.metrics.sets import SET_LABELS
from retinabench.reports.evaluation.panels import MOST_BANDS
from retinabench.reports.evaluation.study import MOST_BAND_DRAWS, Study
from retinabench.reports.evaluation.tables import Cell, Column, Row, Sheet
from retinabench.reports.toolkit.number_format import percent

TERMS = (
    ("Grades", "0 no retinopathy, 1 mild, 2 moderate, 3 severe, 4 proliferative; referable is 2 and above."),
    (SCORES["auroc"].label, "The chance that a referable picture gets a higher probability than one that is not; 0.5 is guessing, 1 is perfect."),
    (SCORES["accuracy"].label, "The share of right answers when P(referable) above 0.5 counts as referable."),
    (SCORES["nll"].label, "Negative log-likelihood in nats: the mean of −ln P(the right answer). Lower is better; sure and wrong costs most."),
    (SCORES["ece_top_label"].label, "Expected calibration error: how far confidence in the answer is from the share of right answers, over 15 bins of equal width. Above 0 even for a perfect model in finite samples."),
    (SCORES["accuracy_at_50"].label, "Accuracy on the half of the pictures that the method is most sure of. The other half goes to the expert."),
    (SCORES["referral_accuracy_area"].label, "The mean of the accuracy curve over every number of pictures referred."),
    (SCORES["failure_auroc"].label, "The chance that a wrong answer is more uncertain than a right one; 0.5 is random referral."),
    (SCORES["closed_at_50"].label, "Gain over random referral divided by the gain of the oracle, at half referred."),
    (SCORES["missed_at_50"].label, "Of all referable pictures, the share that the method calls healthy and does not refer when half may be referred."),
    ("Random referral", "The same answers, referred in random order: its exact expectation, so no luck is involved."),
    ("Oracle referral", "The same answers, referred by their true loss, which only one who knows the labels could do."),
    ("Uncertainty", "What orders the referral: the predictive entropy of the mean probability in nats (at most ln 2 = 0.69), or the file's own score."),
    ("Interval", "95 %, by drawing patients (both eyes together) with replacement; not by drawing pictures, which fail together in one patient."),
    ("± after a number", "The standard error over seeds of the same method; the interval then is that of the seed mean."),
)  # fmt: skip


def context(study: Study, *, pictures: bool) -> dict[str, Any]:
    """Return the texts of the page."""
    own = any(case[0].uncertainty_name == "own" for case in study.cases.values())
    return {
        "standfirst": _standfirst(study),
        "sets_table": _sets_table(study),
        "facts": _facts(study),
        "scores_note": _scores_note(study),
        "roc_text": _roc_text(study),
        "referral_note": _referral_note(study),
        "retained_note": RETAINED_NOTE,
        "histogram_text": _histogram_text(study, own=own),
        "reliability_text": RELIABILITY_TEXT,
        "reliability_legend": [
            (color, SET_LABELS[name].lower())
            for name, color in (("in_domain", "good"), ("shifted", "bad"))
            if name in study.sets
        ],
        "examples_text": _examples_text(study, pictures),
        "terms": TERMS,
        "repeat_text": _repeat_text(study),
        "files_table": _files_table(study),
    }


RETAINED_NOTE = (
    "Sensitivity, specificity and the share of referable pictures are those of the kept half. Referral takes the "
    "difficult and often the diseased away: where the referable share falls, accuracy rises by itself, and sensitivity "
    "may fall while accuracy climbs."
)
RELIABILITY_TEXT = (
    "Pictures are sorted by predicted P(referable) into ten equally filled bins (positive class); each point is the "
    "share that truly is referable, with its 95 % interval. On the dotted line, probabilities mean what they say; "
    "below it, disease is predicted too often. The shading at the bottom shows where the predictions lie."
)


def _standfirst(study: Study) -> str:
    counts = []
    for name in study.sets:
        block = study.files[study.leader][0]["sets"].get(name)
        if block and (name != "joint"):
            counts.append(f"{block['images']:,} {SET_LABELS[name].lower()} pictures")
    methods = f"{len(study.entries)} methods" if len(study.entries) > 1 else study.entries[0].name
    return f"{methods}, scored on {' and '.join(counts)}; the task is to tell referable diabetic retinopathy (grade 2 and above) from the rest."


def _sets_table(study: Study) -> Sheet:
    columns = [
        Column("Set", True),
        Column("Pictures"),
        Column("Patients"),
        Column("Referable"),
    ]
    rows = []
    for name in study.sets:
        block = next((f[0]["sets"][name] for f in study.files if name in f[0]["sets"]), None)
        if block is None:
            continue
        patients = block.get("patients")
        share = block["positives"] / block["images"]
        texts = [
            f"{block['images']:,}",
            f"{patients:,}" if patients else "not given",
            f"{block['positives']:,} ({percent(share)})",
        ]
        rows.append(Row(SET_LABELS[name], [Cell(Markup.escape(text)) for text in texts]))
    return Sheet("Test pictures", columns, rows)


def _facts(study: Study) -> list[tuple[str, str]]:
    known = [p.metadata for entry in study.entries for p in entry.predictions]
    facts = []
    for key, term in (("task", "Task"), ("model", "Network")):
        values = sorted({str(meta[key]) for meta in known if meta.get(key) is not None})
        if values:
            facts.append((term, ", ".join(values)))
    counts = {len(entry.predictions) for entry in study.entries}
    seeds = ", ".join(f"{entry.name}: {len(entry.predictions)}" for entry in study.entries)
    facts.append(("Methods", ", ".join(entry.name for entry in study.entries)))
    facts.append(("Seeds", f"{counts.pop()} per method" if len(counts) == 1 else seeds))
    rules = {
        "corrected": "corrected (the default)",
        "published": "published: the scores follow the released Retina Benchmark code, its faults included; figures, and numbers at half referred, follow the corrected rules",
    }
    facts.append(("Rules", rules.get(study.rules, study.rules)))
    draws = (
        f"95 %, {study.bootstrap:,} bootstrap draws of patients, the same draws for every method"
        if study.bootstrap
        else "none asked for"
    )
    facts.append(("Intervals", draws))
    facts.append(
        ("Threshold", "P(referable) > 0.5 for accuracy, sensitivity and specificity unless said otherwise")
    )
    facts += [("Note", note) for note in _notes(study)]
    facts.append(
        (
            "Not assessed",
            "gradability, macular oedema, ethnicity and age, how human experts err, clinical outcome",
        )
    )
    return facts


def _notes(study: Study) -> list[str]:
    """Return the notes of all files once each, led by the methods they are about where not all share them."""
    where: dict[str, list[str]] = {}
    for entry, found in zip(study.entries, study.files, strict=True):
        for note in dict.fromkeys(note for one in found for note in one.get("notes", [])):
            where.setdefault(str(note), []).append(entry.name)
    undefined: dict[str, list[str]] = {}
    for found in study.files:
        for name in study.sets:
            for score, one in found[0]["sets"].get(name, {}).get("scores", {}).items():
                if one.get("why"):
                    label = f"{SET_LABELS[name].lower()}: {one['why']}"
                    if SCORES[score].label not in undefined.setdefault(label, []):
                        undefined[label].append(SCORES[score].label)
    everyone = len(study.entries)
    notes = [note if len(who) == everyone else f"{', '.join(who)}: {note}" for note, who in where.items()]
    return notes + [f"{'; '.join(scores)}, {label}" for label, scores in undefined.items()]


def _scores_note(study: Study) -> str:
    text = "Arrows show which way is better"
    text += "; 95 % intervals stand below the numbers." if study.bootstrap else "."
    if study.rules != "corrected":
        text += " The published protocol has no intervals; those shown belong to the corrected rules."
    elif len(study.entries) > 1:
        text += " Bold: better than every other method by a paired interval that excludes 0; where nothing is bold, these pictures cannot name a best."
    return text + f" Grey rows: the answers of {study.entries[study.leader].name} under the two controls."


def _roc_text(study: Study) -> str:
    if all(
        not np.isfinite(study.get(i, n, "auroc").value) for i in range(len(study.entries)) for n in study.sets
    ):
        return "There are pictures of one class only, so sensitivity and specificity cannot both be known."
    return (
        "A curve that enters the shaded corner meets the standard of the English screening programme (NHS): at least "
        "85 % sensitivity at 80 % specificity or better. The thresholds below are chosen on the test pictures "
        "themselves, which flatters every method."
    )


def _referral_note(study: Study) -> str:
    draws = min(study.bootstrap, MOST_BAND_DRAWS)
    bands = (
        f"Bands: 95 % over {draws:,} draws of patients, point by point"
        if draws
        else "No bands were asked for"
    )
    if len(study.entries) > MOST_BANDS and draws:
        bands += f", drawn for {study.entries[study.leader].name} alone to keep the figure readable"
    return (
        f"{bands}. Dotted grey: random and oracle referral with the answers of {study.entries[study.leader].name}. "
        "A curve stops where fewer than 5 % of the pictures, ten pictures or (AUROC) ten of either class are left."
    )


def _histogram_text(study: Study, *, own: bool) -> str:
    graded = any(case[0].grade is not None for case in study.cases.values())
    rows = "each grade of severity (rows)" if graded else "all grades together (the files give none)"
    text = (
        f"Uncertainty of {rows}. Right answers stand up, wrong answers hang down; each half is scaled to its own "
        "tallest bar, its number of pictures at the right. Useful uncertainty puts the red to the right of the blue; "
        "red at the left edge is wrong and sure of it."
    )
    if any(len(entry.predictions) > 1 for entry in study.entries):
        text += " Of several seeds the first is shown."
    return text + (" The scale is that of the files' own uncertainty." if own else "")


def _examples_text(study: Study, pictures: bool) -> str:
    name = study.entries[study.leader].name
    where = "" if len(study.sets) == 1 else " over both sets"
    text = f"Chosen by a fixed rule from the answers of {name}{where}, not by hand."
    return text if pictures else f"{text} No photographs were given to this report; the cards name them."


def _repeat_text(study: Study) -> Markup:
    return Markup(
        "Every number of this page is in <code>scores.json</code> and <code>table.csv</code> beside it. The same "
        "files, rules (<code>{}</code>), bootstrap draws (<code>{}</code>) and seed (<code>{}</code>) give the same page, byte for byte. "
        "To score one file again: <code>retinabench score FILE --rules {} --bootstrap {} --seed {}</code>."
    ).format(study.rules, study.bootstrap, study.seed, study.rules, study.bootstrap, study.seed)


FILE_COLUMNS = {
    "method": "Method as run", "model": "Network", "task": "Task", "seed": "Seed", "samples": "Samples",
    "members": "Members", "config_hash": "Configuration", "version": "Package",
}  # fmt: skip


def _files_table(study: Study) -> Sheet:
    """Return where every file came from; columns that no file fills are left out."""
    names, found = [], []
    for entry in study.entries:
        for predictions in entry.predictions:
            meta = {"samples": predictions.samples, **predictions.metadata}
            meta["version"] = meta.get("package_version", meta.get("version", ""))
            source = PurePath(predictions.source).name if predictions.source else ""
            names.append(entry.name)
            found.append([*(str(meta.get(key, "")) for key in FILE_COLUMNS), source])
    labels = (*FILE_COLUMNS.values(), "File")
    filled = [k for k in range(len(labels)) if any(texts[k] for texts in found)]
    rows = [
        Row(name, [Cell(Markup.escape(texts[k]), "text wrap") for k in filled])
        for name, texts in zip(names, found, strict=True)
    ]
    return Sheet("Files", [Column("Method", True), *(Column(labels[k], True) for k in filled)], rows)
