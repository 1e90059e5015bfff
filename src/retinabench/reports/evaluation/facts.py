"""What a page states of an evaluation: the facts of its sentences, its tables, and its example images.

A fact that the page states in one paragraph is a mapping; None or an empty list leaves the paragraph out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np

from retinabench.metrics.image_sets import PER_IMAGE, PER_PATIENT, SET_LABELS
from retinabench.metrics.patients import by_patient
from retinabench.metrics.registry import SCORES
from retinabench.metrics.weighted_images import Cases
from retinabench.reports.evaluation.evaluation import Evaluation, SetPredictions, quantities
from retinabench.reports.evaluation.terminal import Worth, worth
from retinabench.reports.toolkit import tables as toolkit
from retinabench.reports.toolkit.figures import ImageSource, data_uri
from retinabench.reports.toolkit.tables import PERCENT, THREE_DIGITS, Cell, Column, Quantity, Row, Table, percent, plain

Fact = Mapping[str, Any]
FEW_ERRORS, FEW_PATIENTS = 10, 30
SLIGHT = 0.6  # An AUROC of shifted against in-domain images below this is called slight.


def verdict(evaluation: Evaluation) -> Fact:
    """Return everything that the head of the page states.

    `worth` is that of the leading method by set, `useful` the number of useful methods and of methods by set. `overall` and
    `outcomes` (by set) say whether referral by uncertainty beats random referral. `gains` are the sets on which the leading method
    gains by a known share of the possible gain, `referral` those whose gain is known, the shifted one first. `detection` is the
    AUROC of the uncertainty of shifted against in-domain images.
    """
    e, sets = evaluation, evaluation.domains
    gains = {name: e.lead_value(name, e.at("gain")) for name in sets}
    known = {name for name in sets if e.lead_value(name, e.at("closed")).defined}
    detection = e.lead_value("joint", "ood_auroc") if len(sets) > 1 else None
    outcomes = [_outcome(e, name) for name in sets]
    worths = {name: [_worth(e, i, name) for i in range(len(e.methods))] for name in sets}
    kinds = {name: [one.kind for one in found if one is not None] for name, found in worths.items()}
    return {
        "worth": [own for found in worths.values() if (own := found[e.leader]) is not None],
        "useful": {name: (found.count("useful"), len(found)) for name, found in kinds.items()},
        "overall": _overall(outcomes),
        "outcomes": outcomes,
        "gains": [name for name in sets if gains[name].sign() == 1 and name in known],
        "scarce": [few for name in sets if (few := _scarce(e, name)) is not None],
        "shift": _shift(e),
        "referral": [name for name in reversed(sets) if gains[name].defined],
        "dips": [dip for name in sets if (dip := _dip(e, name)) is not None],
        "retained": {name: left for name in e.sets if (left := _retained(e, name)) is not None},
        "missed": _missed(e, sets[-1]),
        "order": _order(e),
        "detection": detection if detection is not None and detection.defined else None,
    }


def _worth(e: Evaluation, i: int, name: str) -> Worth | None:
    found = [file[name] for file in e.files[i] if name in file.sets] if e.files else []
    return worth(e.methods[i].name, name, found[0], lambda score: e.get(i, name, score)) if found else None


def _dip(e: Evaluation, name: str) -> Fact | None:
    """Where the accuracy of the leading method lies below random referral; `sure` if the upper end of the band does somewhere."""
    band = e.curves.get((e.leader, name, "accuracy"))
    if band is None or not np.isfinite(band.y[0]):
        return None
    below = np.flatnonzero(band.y < band.y[0] - 1e-12)
    if not below.size:
        return None
    low, high = float(band.x[below[0]]), float(band.x[below[-1]])
    sure = bool((band.high[below] < band.y[0]).any())
    return {"set": name, "low": low, "high": high, "sure": sure, "lowest": float(band.y[below].min())}


def _retained(e: Evaluation, name: str) -> Fact | None:
    """What referral does to the composition of a set: `change` of the share of referable images, 0 where none is shown, and whether it falls `below_baseline`."""
    case = e.first(e.leader, name)
    if case is None:
        return None
    share, accuracy = (e.lead_value(name, e.at(score)) for score in ("prevalence", "accuracy"))
    prevalence, larger = float(case.label.mean()), max(share.value, 1 - share.value)
    return {
        "set": name, "prevalence": prevalence, "retained_prevalence": share,
        **{score: e.lead_value(name, score) for score in ("sensitivity", "specificity")},
        **{f"retained_{score}": e.lead_value(name, e.at(score)) for score in ("sensitivity", "specificity")},
        "change": share.sign(prevalence), "larger_class": larger,
        "below_baseline": accuracy.defined and accuracy.value < larger,
    }  # fmt: skip


def _outcome(e: Evaluation, name: str) -> Fact:
    methods = [i for i in range(len(e.methods)) if (i, name) in e.cases]
    signs = [e.get(i, name, e.at("gain")).sign() for i in methods]
    better, worse = signs.count(1), signs.count(-1)
    counts = better, worse, len(signs)
    return {"set": name, "counts": counts, "better": better, "worse": worse, "methods": len(signs)}


def _overall(outcomes: Sequence[Fact]) -> str:
    better, worse, total = (sum(numbers) for numbers in zip(*(one["counts"] for one in outcomes), strict=True))
    if total in (better, worse):
        return "better" if better == total else "worse"
    return "partly worse" if worse else "partly better" if better else "unclear"


def _scarce(e: Evaluation, name: str) -> Fact | None:
    case = e.first(e.leader, name)
    if case is None:
        return None
    errors, patients = int((~case.correct).sum()), len(np.unique(case.cluster))
    if errors >= FEW_ERRORS and patients >= FEW_PATIENTS:
        return None
    return {"set": name, "errors": errors, "images": len(case), "patients": patients}


def _shift(e: Evaluation) -> Fact | None:
    if len(e.domains) < 2:
        return None
    score = "auroc" if all(e.lead_value(name, "auroc").defined for name in e.domains) else "accuracy"
    change = e.change(e.leader, score)
    return None if change is None else {"score": score, "change": change}


def _missed(e: Evaluation, name: str) -> Fact | None:
    case, share = e.first(e.leader, name), e.lead_value(name, e.at("missed"))
    if case is None or not share.defined:
        return None
    positives, retained = int(case.label.sum()), e.lead_value(name, e.at("prevalence"))
    prevalence = float(case.label.mean())
    return {"set": name, "positives": positives, "share": share, "prevalence": prevalence, "retained": retained}


def _order(e: Evaluation) -> Fact | None:
    """Of which methods the leading one is ahead on the last set, with the `gap` from the `nearest`, and which it cannot be told from (`level`)."""
    leads = e.leads()
    if not leads or not e.same_images:
        return None
    ahead, level = ([other for other, gap in leads.items() if gap.sign() == sign] for sign in (1, 0))
    nearest = min(ahead, key=lambda other: leads[other].value, default="")
    gap, found = leads.get(nearest, Quantity(np.nan)), {"set": e.sets[-1], "ahead": ahead, "level": level}
    return {**found, "others": len(leads), "nearest": nearest, "gap": gap}


# Scores of the main table.
MAIN = (
    "auroc", "accuracy", "sensitivity", "specificity", "brier_skill", "nll", "ece_positive_class",
    "referral_accuracy_area", "failure_auroc",
)  # fmt: skip
RETAINED = ("accuracy", "gain", "closed", "sensitivity", "specificity", "prevalence", "missed")
"""Scores of the table of the retained images, at the share referred."""
FORMATS = {"gain": toolkit.NumberFormat(3, signed=True), "closed": PERCENT, "prevalence": PERCENT, "missed": PERCENT}
FILE_COLUMNS = {
    "method": "Method as run", "model": "Network", "task": "Task", "seed": "Seed", "samples": "Samples",
    "members": "Members", "config_hash": "Configuration", "version": "Package",
}  # fmt: skip


def score_tables(e: Evaluation) -> list[Table]:
    """Return methods by scores that any of them has, one table per set, with the baseline, and random and oracle referral of the leading method."""
    shown = [score for score in MAIN if any(e.get(i, name, score).defined for i, name in e.cases)]
    columns = [Column(SCORES[score].heading) for score in shown]
    tables = []
    for name in e.sets:
        best = {score: e.best(name, score) for score in shown}
        rows = [
            Row(one.name, [Cell(e.get(i, name, s), emphasis="best" if best[s] == i else "") for s in shown])
            for i, one in enumerate(e.methods)
            if (i, name) in e.cases
        ]
        for kind, values in e.controls(name).items():
            control = [Cell.number(values[score]) if score in values else Cell() for score in shown]
            rows.append(Row(kind, control, control=True))
        tables.append(Table.of(f"{SET_LABELS[name]}, {PER_IMAGE}", columns, rows, row_header="Method"))
    return tables


def retained_tables(e: Evaluation) -> list[Table]:
    """Return the scores of the retained images, one table per set, and in the last row the leading method before referral."""
    columns = [Column(e.spec(e.at(score)).label) for score in RETAINED]
    forms = {score: FORMATS.get(score, THREE_DIGITS) for score in RETAINED}
    tables = []
    for name in e.sets:
        rows = [
            Row(one.name, [Cell(e.get(i, name, e.at(score)), forms[score]) for score in RETAINED])
            for i, one in enumerate(e.methods)
            if (i, name) in e.cases
        ]
        case = e.first(e.leader, name)
        if case is not None:
            before = {score: e.lead_value(name, score) for score in ("accuracy", "sensitivity", "specificity")}
            before["prevalence"] = Quantity(float(case.label.mean()))
            unreferred = [Cell(before[s], forms[s]) if s in before else Cell() for s in RETAINED]
            rows.append(Row(f"“{e.leading}”, nothing referred", unreferred, control=True))
        referred = percent(e.settings.referred)
        caption = f"{SET_LABELS[name]}: the images retained when {referred} are referred, {PER_IMAGE}"
        tables.append(Table.of(caption, columns, rows, row_header="Method"))
    return tables


def patients_tables(e: Evaluation) -> list[Table]:
    specs = [SCORES[score] for score in ("auroc", "accuracy", "sensitivity", "specificity")]
    tables = []
    for name in e.domains:
        rows = []
        for i, method in enumerate(e.methods):
            parts = [one.select(domain=name, split="test") for one in method.predictions]
            known = [one for one in parts if one is not None and one.patient_id is not None]
            threshold = e.cases[i, name][0].cases.threshold
            people = [by_patient(one, e.settings.uncertainty, threshold) for one in known]
            if not people or len(people[0]) == len(known[0]):
                continue
            wholes = [Cases(one.label, one.prob, threshold=threshold).weighted() for one in people]
            values = np.array([[spec(w) for spec in specs] for w in wholes])
            draws = np.zeros((len(wholes), 2, len(specs)))  # not looked at: these intervals have closed forms …
            draws[..., 0] = 0.0 if len(wholes) == 1 else np.nan  # … but that of an AUROC over several seeds
            found = quantities([spec.interval for spec in specs], wholes, values, draws)
            rows.append(Row(method.name, [Cell(one) for one in found]))
        if rows:
            caption = f"{SET_LABELS[name]}, {PER_PATIENT} (any eye): diseased, or called referable, where one image is"
            tables.append(Table.of(caption, [Column(spec.heading) for spec in specs], rows, row_header="Method"))
    return tables


def sets_table(evaluation: Evaluation) -> Table:
    columns = [Column("Images"), Column("Patients"), Column("Referable")]
    rows = []
    for name in evaluation.sets:
        one = next((files[0][name] for files in evaluation.files if name in files[0].sets), None)
        if one is not None:
            patients = f"{one.patients:,}" if one.patients else "not given"
            share = percent(one.positives / one.images)
            texts = [f"{one.images:,}", patients, f"{one.positives:,} ({share})"]
            rows.append(Row(SET_LABELS[name], [Cell(text) for text in texts]))
    return Table.of("Test images", columns, rows, row_header="Set")


def files_table(evaluation: Evaluation) -> Table:
    names, found = [], []
    for method in evaluation.methods:
        for predictions in method.predictions:
            meta = {"samples": predictions.samples, **predictions.metadata}
            meta["version"] = meta.get("package_version", meta.get("version", ""))
            source = PurePath(predictions.source).name if predictions.source else ""
            names.append(method.name)
            found.append([*(str(meta.get(key, "")) for key in FILE_COLUMNS), source])
    labels = (*FILE_COLUMNS.values(), "File")
    filled = [k for k in range(len(labels)) if any(texts[k] for texts in found)]
    rows = [Row(name, [Cell(texts[k]) for k in filled]) for name, texts in zip(names, found, strict=True)]
    return Table.of("Files", [Column(labels[k], text=True) for k in filled], rows, row_header="Method")


EACH = 6


def example_groups(evaluation: Evaluation, images: ImageSource | None) -> list[dict[str, Any]]:
    """Return the first examples of each kind of the leading method, and how many there are; missed disease by retained, severity, uncertainty."""
    case = evaluation.first(evaluation.leader, evaluation.sets[-1])
    if case is None:
        return []
    order = np.lexsort((case.image_id, case.uncertainty))
    retained = np.zeros(len(case), bool)
    retained[order[: int((1 - evaluation.settings.referred) * len(case) + 1e-9)]] = True
    grade = np.zeros(len(case)) if case.grade is None else case.grade
    wrong = order[~case.correct[order]]
    missed = wrong[case.label[wrong]]
    chosen = {
        "missed": missed[np.lexsort((-grade[missed], ~retained[missed]))],
        "alarm": wrong[~case.label[wrong]],
        "uncertain": order[::-1],
        "right": order[case.correct[order]],
    }
    return [
        {"kind": kind, "cards": [_card(case, int(k), images, retained[k]) for k in rows[:EACH]], "images": len(rows)}
        for kind, rows in chosen.items()
    ]


def _card(case: SetPredictions, row: int, images: ImageSource | None, retained: bool) -> dict[str, object]:
    image = images(str(case.image_id[row])) if images else None
    source, width, height = data_uri(image) if image is not None else ("", 0, 0)
    known = -1 if case.grade is None else int(case.grade[row])
    grade = f", grade\u00a0{known}" if known >= 0 else ""
    wrong, predicted = not case.correct[row], "referable" if case.called[row] else "not referable"
    chance = probability_text(float(case.prob[row])).replace(" ", "\u00a0")
    unit = " nats" if case.uncertainty_name in ("total", "aleatoric", "epistemic") else ""
    value, after = float(case.uncertainty[row]), "retained" if retained else "referred"
    shown = "< 0.001" if 0 < value < 0.0005 else plain(value, 3)
    shown = f"{value:.3g}" if case.uncertainty_name == "own" else shown
    # Compared with all others in whole percent, rounded down.
    above, below = (int(100 * np.mean(part)) for part in (case.uncertainty < value, case.uncertainty > value))
    rank = f"lower than {below} % of all" if below > above else f"higher than {above} % of all"
    return {
        "source": source, "alt": f"Fundus image {case.image_id[row]}", "width": width, "height": height, "wrong": wrong,
        "truth": ("Referable" if case.label[row] else "Not referable") + grade,
        "predicted": f"{'Wrongly predicted' if wrong else 'Predicted'} {predicted}, {chance}",
        "uncertainty": f"Uncertainty {shown}{unit}, {rank}: {after}",
        "id": f"{case.image_id[row]}, {SET_LABELS[str(case.domain[row])].lower()}",
    }  # fmt: skip


def probability_text(p: float) -> str:
    """Write P(referable) without claiming certainty by rounding."""
    return "P > 0.999" if 0.9995 <= p < 1 else "P < 0.001" if 0 < p < 0.0005 else f"P = {plain(p, 3)}"
