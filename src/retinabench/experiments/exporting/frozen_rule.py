"""The threshold or zones that travel with a model: attached by `retinabench transfer --attach`, applied to new images.

The file `threshold.json` of an exported model is what `retinabench transfer --json` writes, and the model that it was chosen for.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from retinabench.core.errors import InputError, check, kept_inside
from retinabench.core.files import write_bytes, write_json
from retinabench.core.settings import read_checked
from retinabench.core.workspace import Workspace
from retinabench.experiments.exporting.model_files import ABOUT, CARD, ModelAbout, read_about, weights_of
from retinabench.metrics.actions import FrozenRule, validated
from retinabench.metrics.guarantees.transfer import Transfer
from retinabench.metrics.guarantees.triage import Triage
from retinabench.predictions.table import Predictions
from retinabench.reports.toolkit import pages

THRESHOLD = "threshold.json"
_HINT = "Attach it again: retinabench transfer FILE … --attach MODEL"


@dataclass(frozen=True, eq=False)
class AttachedRule:
    """A frozen rule, and the model that it was chosen for."""

    rule: FrozenRule
    config_hash: str
    weights: str


def read_rule(folder: Path) -> AttachedRule | None:
    def validate(content: object) -> AttachedRule:
        found = validated(content)
        rule = found.rule()
        if found.model is None or rule is None:
            raise ValueError("it holds no threshold, or does not say for which model it was chosen")
        return AttachedRule(rule, found.model["config_hash"], found.model["weights"])

    return read_checked(kept_inside(folder, folder / THRESHOLD), validate, _HINT)


SECTION = "## Referral"  # of the card; it is the last one
PACKAGE = "retinabench.experiments.exporting"


def attach(found: Transfer | Triage, predictions: Predictions, folder: Path) -> Path:
    """Store a frozen threshold, or zones, with an exported model, in place of what was attached before."""
    if found.broken:
        raise InputError(f"the labels of {found.broken[0]} refute the certificate, so that nothing is attached")
    if found.threshold is None if isinstance(found, Transfer) else found.thresholds == (None, None):
        raise InputError("the certificate has no threshold to attach")
    about, weights = read_about(folder, run_code=False), weights_of(folder)
    _check_same_model(predictions, about, weights, folder)
    with Workspace(folder, "model", ABOUT).lock():
        card = folder / CARD
        text = check(card).read_text(encoding="utf-8") if card.is_file() else ""
        before = text.partition(f"\n{SECTION}\n")[0].rstrip("\n")
        write_bytes(card, f"{before}\n\n{_section(found, predictions)}".encode(), checked=True)
        chosen_for = {"config_hash": about.config_hash, "weights": weights}
        write_json(folder / THRESHOLD, {**found.to_dict(), "model": chosen_for}, checked=True)
    return folder / THRESHOLD


def _check_same_model(predictions: Predictions, about: ModelAbout, weights: str, folder: Path) -> None:
    """Refuse predictions of another model: method, settings, data, samples, weights or label."""
    stated = predictions.metadata
    if "weights" not in stated or "config_hash" not in stated:
        hint = "Give predictions.parquet of the exported run, or: retinabench predict MODEL --images … --labels … --out FILE.parquet"
        raise InputError("does not say which weights predicted it", file=predictions.source, hint=hint)
    for key, name, ours in (
        ("config_hash", "of another run", about.config_hash),
        ("weights", "by other weights", weights),
    ):
        if (theirs := str(stated[key])) != ours:
            problem = (
                f"was predicted {name} than the model {folder} ({stated.get('title', '')} seed {stated.get('seed', '')}, "
                f"{key.replace('_', ' ')} {theirs[:16]}, not {ours[:16]})"
            )
            raise InputError(problem, file=predictions.source)
    if (lowest := stated.get("referable_from", "label")) not in ("label", about.referable_from):
        problem = f"calls images referable from grade {lowest} on, the model from {about.referable_from}"
        raise InputError(problem, file=predictions.source)


def _section(found: Transfer | Triage, predictions: Predictions) -> str:
    validation = predictions.select(domain="in_domain", split="validation")
    assert validation is not None
    patients = len(set(validation.patient_id)) if validation.patient_id is not None else None
    if isinstance(found, Transfer):
        delta = None if found.certificate is None else found.certificate.delta
        parts = [(found.certificate, found.goals)]
    else:
        delta = found.delta
        parts = [(zone.certificate, zone.goals if zone.threshold is not None else ()) for zone in found.zones.values()]
    context = {
        "found": found, "zones": isinstance(found, Triage), "delta": delta, "images": len(validation), "patients": patients,
        "goals": [str(goal) for _, goals in parts for goal in goals],
        "most_images": max((one.most_images for one, _ in parts if one), default=None),
    }  # fmt: skip
    return pages.render("referral.md.j2", context, package=PACKAGE)
