"""The threshold or zones that travel with a model: attached by `retinabench transfer --attach`, applied to new images.

The file `threshold.json` of an exported model is what `retinabench transfer --json` writes, and the model that it was chosen for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from retinabench.core.errors import InputError
from retinabench.core.files import check, write_bytes, write_json
from retinabench.core.results import JsonObject
from retinabench.core.settings import read_checked
from retinabench.core.untrusted import kept_inside
from retinabench.core.workspace import Workspace
from retinabench.experiments.exporting.model_files import ABOUT, CARD, ModelAbout, read_about, weights_of
from retinabench.metrics.clinical.thresholds import ABOVE_HALF, FrozenThreshold
from retinabench.metrics.guarantees.transfer import Transfer
from retinabench.metrics.guarantees.triage import Triage
from retinabench.metrics.uncertainty import UNCERTAINTIES, referral_uncertainty
from retinabench.predictions.table import Predictions
from retinabench.reports.toolkit import pages

THRESHOLD = "threshold.json"
MOST_BYTES = 2**22
_HINT = "Attach it again: retinabench transfer FILE … --attach MODEL"


@dataclass(frozen=True)
class FrozenRule:
    """What becomes of an image: referred to an expert, or decided by the model."""

    config_hash: str
    weights: str
    uncertainty: str = "total"
    threshold: float | None = None
    decision: FrozenThreshold = ABOVE_HALF
    negative: float | None = None
    positive: float | None = None

    def decide(self, predictions: Predictions) -> tuple[NDArray[np.float64], NDArray[np.str_]]:
        """Return the uncertainty of every image, by which an expert reads them, and what becomes of it.

        Shapes: returns (N,).
        """
        if self.uncertainty == "own" and predictions.uncertainty is None:
            raise InputError(
                "the attached threshold is one of the model's own uncertainty, and it states none", hint=_HINT
            )
        exact = self.threshold is None  # a threshold is compared with the digits that it was chosen from
        values, _ = referral_uncertainty(predictions, self.uncertainty, exact=exact, threshold=self.decision.value)
        if self.threshold is not None:
            return values, np.where(values > self.threshold, "refer", "keep")
        below = -math.inf if self.negative is None else self.negative
        above = math.inf if self.positive is None else self.positive
        called = np.where(predictions.prob >= above, "positive", "refer")
        return values, np.where(predictions.prob <= below, "negative", called)

    def calls(self, predictions: Predictions) -> NDArray[np.str_]:
        """Return what the model says of every image (N,), whether it is referred or not: `referable` or `not referable`."""
        prob = predictions.prob
        above = prob > 0.5 if self.decision.is_default else prob >= self.decision.value
        return np.where(above, "referable", "not referable")


def rule_content(found: Transfer | Triage, config_hash: str, weights: str) -> JsonObject:
    """Return the content of `threshold.json`."""
    return {**found.to_dict(), "model": {"config_hash": config_hash, "weights": weights}}


def read_rule(folder: Path) -> FrozenRule | None:
    """Read the rule of an exported model, None where none is attached."""

    def validate(content: object) -> FrozenRule:
        schema = str(content["schema"]) if isinstance(content, dict) and "schema" in content else ""
        for name, kind in _KINDS.items():
            if schema.startswith(f"retinabench.{name}/"):
                return kind.model_validate(content).rule()
        raise ValueError("it is neither a threshold nor zones")

    return read_checked(kept_inside(folder, folder / THRESHOLD), validate, _HINT)


class _Part(BaseModel):
    """A part of the file; what is not needed to apply the rule is left alone."""

    model_config = ConfigDict(extra="ignore")


class _Model(_Part):
    config_hash: str = Field(max_length=100)
    weights: str = Field(max_length=20_000)


class _Decision(_Part):
    value: float = Field(ge=0, le=2)
    rule: str | None = None


class _Referral(_Part):
    model: _Model
    uncertainty: Literal[(*UNCERTAINTIES, "own")]  # type: ignore[valid-type]
    threshold: float
    decision_threshold: _Decision

    def rule(self) -> FrozenRule:
        """Return the rule."""
        if math.isnan(self.threshold):
            raise ValueError("the threshold is not a number")
        decision = FrozenThreshold(self.decision_threshold.value, self.decision_threshold.rule or "")
        return FrozenRule(self.model.config_hash, self.model.weights, self.uncertainty, self.threshold, decision)


class _Zone(_Part):
    threshold: float | None = Field(None, ge=0, le=1)


class _Zones(_Part):
    model: _Model
    zones: dict[Literal["negative", "positive"], _Zone]

    def rule(self) -> FrozenRule:
        """Return the rule."""
        below, above = (self.zones[side].threshold if side in self.zones else None for side in ("negative", "positive"))
        if below is None and above is None:
            raise ValueError("both zones are empty")
        if below is not None and above is not None and below >= above:
            raise ValueError("the zones overlap")
        return FrozenRule(self.model.config_hash, self.model.weights, negative=below, positive=above)


_KINDS: dict[str, type[_Referral] | type[_Zones]] = {"transfer": _Referral, "triage": _Zones}
SECTION = "## Referral"  # of the card; it is the last one
PACKAGE = "retinabench.experiments.exporting"


def attach(found: Transfer | Triage, predictions: Predictions, folder: Path) -> Path:
    """Store a frozen threshold, or zones, with an exported model, in place of what was attached before."""
    _check_usable(found)
    about, weights = read_about(folder, run_code=False), weights_of(folder)
    _check_same_model(predictions, about, weights, folder)
    with Workspace(folder, "model", ABOUT).lock():
        card = folder / CARD
        text = check(card).read_text(encoding="utf-8") if card.is_file() else ""
        before = text.partition(f"\n{SECTION}\n")[0].rstrip("\n")
        write_bytes(card, f"{before}\n\n{_section(found, predictions)}".encode(), checked=True)
        write_json(folder / THRESHOLD, rule_content(found, about.config_hash, weights), checked=True)
    return folder / THRESHOLD


def _check_usable(found: Transfer | Triage) -> None:
    if found.broken:
        raise InputError(f"the labels of {found.broken[0]} refute the certificate, so that nothing is attached")
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
        goals = [str(goal) for zone in found.zones.values() if zone.threshold is not None for goal in zone.goals]
    context = {
        "found": found, "zones": isinstance(found, Triage), "goals": goals, "delta": delta, "images": len(validation),
        "patients": patients, "most_images": max((one.most_images for one in certificates), default=None),
    }  # fmt: skip
    return pages.render("referral.md.j2", context, package=PACKAGE)
