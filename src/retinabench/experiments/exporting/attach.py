"""Attach a threshold, or zones, to an exported model: only those that were chosen with its own weights."""

from __future__ import annotations

from pathlib import Path

from retinabench.core.atomic_files import write_bytes, write_json
from retinabench.core.errors import InputError
from retinabench.core.workspace import Workspace
from retinabench.experiments.exporting.about import ABOUT, CARD, ModelAbout, read_about
from retinabench.experiments.exporting.frozen_rule import THRESHOLD, rule_content
from retinabench.experiments.exporting.member_files import weights_of
from retinabench.metrics.guarantees.transfer import Transfer
from retinabench.metrics.guarantees.triage import Triage
from retinabench.predictions.table import Predictions
from retinabench.reports.toolkit import pages

SECTION = "## Referral"  # of the card; it is the last one
PACKAGE = "retinabench.experiments.exporting"


def attach(found: Transfer | Triage, predictions: Predictions, folder: Path) -> Path:
    """Store a frozen threshold, or zones, with an exported model, in place of what was attached before.

    Args:
        found: The threshold or zones.
        predictions: The predictions that they were chosen on.
        folder: The exported model.

    Returns:
        The file that holds them.

    Raises:
        InputError: There is no threshold, the labels of a test set refute it, or the predictions are those of other weights.
    """
    _check_usable(found)
    about, weights = read_about(folder, run_code=False), weights_of(folder)
    _check_same_model(predictions, about, weights, folder)
    with Workspace(folder, "model", ABOUT).lock():
        card = folder / CARD
        text = card.read_text(encoding="utf-8") if card.is_file() else ""
        before = text.partition(f"\n{SECTION}\n")[0].rstrip("\n")
        write_bytes(card, f"{before}\n\n{_section(found, predictions)}".encode(), checked=True)
        write_json(folder / THRESHOLD, rule_content(found, about.config_hash, weights), checked=True)
    return folder / THRESHOLD


def _check_usable(found: Transfer | Triage) -> None:
    if found.broken:
        raise InputError(
            f"the labels of {found.broken[0]} refute the certificate, so that nothing is attached"
        )
    refused = found.threshold is None if isinstance(found, Transfer) else found.thresholds == (None, None)
    if refused:
        raise InputError("there is no threshold to be attached")


def _check_same_model(predictions: Predictions, about: ModelAbout, weights: str, folder: Path) -> None:
    """Refuse predictions of another model: method, settings, data, samples, weights or label."""
    stated = predictions.metadata
    if "weights" not in stated or "config_hash" not in stated:
        raise InputError(
            "does not say which weights predicted it",
            file=predictions.source,
            hint="Give predictions.parquet of the exported run, or: retinabench predict MODEL --images … --labels … --out FILE.parquet",
        )
    theirs = {"config_hash": about.config_hash, "weights": weights}
    for key, name in (("config_hash", "of another run"), ("weights", "by other weights")):
        if stated[key] != theirs[key]:
            raise InputError(
                f"was predicted {name} than the model {folder} ({stated.get('title', '')} seed {stated.get('seed', '')}, "
                f"{key.replace('_', ' ')} {str(stated[key])[:16]}, not {theirs[key][:16]})",
                file=predictions.source,
            )
    if (lowest := stated.get("referable_from", "label")) not in ("label", about.referable_from):
        raise InputError(
            f"calls images referable from grade {lowest} on, the model from {about.referable_from}",
            file=predictions.source,
        )


def _section(found: Transfer | Triage, predictions: Predictions) -> str:
    validation = predictions.select(domain="in_domain", split="validation")
    assert validation is not None
    patients = len(set(validation.patient_id)) if validation.patient_id is not None else None
    if isinstance(found, Transfer):
        certificates = [found.certificate] if found.certificate else []
        delta = None if found.certificate is None else found.certificate.delta
        goals = [str(goal) for goal in found.goals]
    else:
        certificates = [zone.certificate for zone in found.zones.values() if zone.certificate]
        delta = found.delta
        goals = [
            str(goal) for zone in found.zones.values() if zone.threshold is not None for goal in zone.goals
        ]
    context = {
        "found": found, "zones": isinstance(found, Triage), "goals": goals, "delta": delta, "images": len(validation),
        "patients": patients, "most_images": max((one.most_images for one in certificates), default=None),
    }  # fmt: skip
    return pages.render("referral.md.j2", context, package=PACKAGE)
