"""What becomes of an image and of a patient: the actions of a frozen rule, on new predictions without labels.

| action | a threshold of the uncertainty | three zones |
|---|---|---|
| expert reads | uncertainty > threshold | between the zones |
| refer to hospital | not above it, and called referable | positive zone |
| no referral | not above it, and called not referable | negative zone |

An image that cannot be graded is read by the expert. The action for a patient is the first of "refer to hospital", "expert reads" and
"no referral" that holds for one of the patient's images.

A rule is what `transfer` wrote (`--json`), of a threshold, of zones, or of either for every group of a column::

    found = rb.apply(rb.read_predictions("today.csv", unlabelled=True), "transfer.json")
    found.actions  # (N,)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from retinabench.core.errors import InputError, csv_text
from retinabench.core.results import JsonObject
from retinabench.core.settings import read_checked
from retinabench.metrics.clinical.groups import group_labels
from retinabench.metrics.guarantees.goals import Goal, Per
from retinabench.metrics.image_sets import ABOVE_HALF, UNCERTAINTIES, FrozenThreshold, gradable, referral_uncertainty
from retinabench.metrics.weighted_images import Bools, Floats
from retinabench.predictions.check import own_patients
from retinabench.predictions.table import Predictions

Names = NDArray[np.str_]
ACTIONS = ("refer to hospital", "expert reads", "no referral")
"""From the one that overrules the others of a patient to the one that none may overrule."""
COLUMNS = (
    "rank", "image_id", "patient_id", "domain", "prob", "uncertainty", "call", "gradable", "read_by_expert", "action",
    "patient_action",
)  # fmt: skip
HINT = "Write it with: retinabench transfer FILE --confidence 0.95 --json transfer.json."


@dataclass(frozen=True, eq=False)
class ActionList:
    """Images, the most uncertain first; equally uncertain ones by their id."""

    images: Predictions  # in this order
    uncertainty: Floats  # (N,)
    call: Names  # (N,) `referable` or `not referable`; empty where no call is made
    read: Bools | None = None  # (N,) by the expert; None where nothing is decided
    notes: tuple[str, ...] = ()

    @property
    def actions(self) -> Names:
        """(N,) one of `ACTIONS` for each image; empty where nothing is decided."""
        if self.read is None:
            return np.full(len(self.images), "")
        return np.where(self.read, ACTIONS[1], np.where(self.call == "referable", ACTIONS[0], ACTIONS[2]))

    @property
    def patients(self) -> Names:
        """(N,) the patient of each image: the image itself where none is known."""
        images = self.images
        known = np.full(len(images), "") if images.patient_id is None else images.patient_id
        return np.asarray(own_patients(known, images.image_id)[0])

    @property
    def patient_actions(self) -> Names:
        if self.read is None:
            return self.actions
        codes = np.unique(self.patients, return_inverse=True)[1]
        rank = np.select([self.actions == one for one in ACTIONS], range(len(ACTIONS)))
        first = np.full(codes.max() + 1, len(ACTIONS))
        np.minimum.at(first, codes, rank)
        return np.array(ACTIONS)[first[codes]]

    def to_csv(self) -> bytes:
        """Return one row per image with `COLUMNS`, as UTF-8 text; numbers read back bit by bit."""
        one = self.images
        unknown = np.full(len(one), "")
        patient = unknown if one.patient_id is None else one.patient_id
        good, read = (unknown if of is None else np.where(of, "yes", "no") for of in (gradable(one), self.read))
        of_image = one.image_id, patient, one.domain, one.prob, self.uncertainty, self.call, good, read
        columns = (column.tolist() for column in (*of_image, self.actions, self.patient_actions))
        return csv_text([COLUMNS, *zip(range(1, len(one) + 1), *columns, strict=True)]).encode()


def listed(images: Predictions, uncertainty: Floats, call: Names, read: Bools | None) -> ActionList:
    order = np.lexsort((images.image_id, -uncertainty))
    return ActionList(images.take(order), uncertainty[order], call[order], None if read is None else read[order])


def called(prob: Floats, decision: FrozenThreshold) -> Names:
    above = prob > 0.5 if decision.is_default else prob >= decision.value
    return np.where(above, "referable", "not referable")


def referral_list(
    predictions: Predictions, uncertainty: str = "auto", *, share: float | None = None, threshold: float = 0.5
) -> ActionList:
    """Return the test images in the order in which the expert reads them; the first `share` of them is read."""
    if share is not None and not 0 <= share <= 1:
        raise InputError(f"a share of {share:g} cannot be referred", hint="Give a number from 0 to 1.")
    test = predictions.select(split="test", unlabelled=True)
    if test is None:
        raise InputError("holds no image of the test split", file=predictions.source)
    values, _ = referral_uncertainty(test, uncertainty, threshold=threshold)
    found = listed(test, values, called(test.prob, FrozenThreshold(threshold)), None)
    if share is None:
        return found
    n, values = len(test), found.uncertainty
    many = round(share * n)
    read = np.arange(n) < many
    notes = [f"the expert reads {many} of {n} images"]
    if 0 < many < n and values[many - 1] == values[many]:
        tied = values == values[many]
        tie = f"{int((tied & read).sum())} of {int(tied.sum())} equally uncertain images are read: those whose ids come first"
        notes.insert(0, tie)
    return ActionList(found.images, values, found.call, read, tuple(notes))


@dataclass(frozen=True, eq=False)
class FrozenRule:
    """A threshold of the uncertainty, or zones of the probability, that no longer depends on the predictions that it is applied to."""

    uncertainty: str = "total"
    threshold: float | None = None
    decision: FrozenThreshold = ABOVE_HALF
    negative: float | None = None
    positive: float | None = None
    goals: tuple[Goal, ...] = ()  # that are certified; none of a plain choice
    per: Per = "image"
    most_images: int = 1  # of a patient that the certificate covers
    reference: Mapping[str, Floats] = field(default_factory=dict)  # of validation patients, by which drift is seen
    broken: tuple[str, ...] = ()  # sets whose labels refute the certificate
    column: str = ""  # whose groups have rules of their own; images of other groups are read by the expert
    groups: Mapping[str, FrozenRule] = field(default_factory=dict)  # by `site: B`

    def to_dict(self) -> JsonObject:
        threshold = self.threshold if self.threshold is None or math.isfinite(self.threshold) else str(self.threshold)
        return {
            "threshold": threshold, "negative": self.negative, "positive": self.positive, "decision": self.decision.value,
            "uncertainty": self.uncertainty, "goals": [one.to_dict() for one in self.goals], "per": self.per,
            "groups": {name: one.to_dict() for name, one in self.groups.items()},
        }  # fmt: skip

    def apply(self, images: Predictions) -> ActionList:
        values, call, read = self.decide(images)
        good = gradable(images)
        return listed(images, values, np.where(good, call, ""), read | ~good)

    def decide(self, images: Predictions) -> tuple[Floats, Names, Bools]:
        """Return the uncertainty, the call, and whether the expert reads, of every image, (N,) each."""
        if self.groups:
            labels, n = group_labels(images, self.column), len(images)
            values = referral_uncertainty(images, self.uncertainty, threshold=self.decision.value)[0].copy()
            call, read = np.full(n, "", "<U13"), np.ones(n, bool)
            for name, own in self.groups.items():
                if len(rows := np.flatnonzero(labels == name)):
                    values[rows], call[rows], read[rows] = own.decide(images.take(rows))
            return values, call, read
        if self.uncertainty == "own" and images.uncertainty is None:
            hint = "Add the column that the threshold was chosen from."
            problem = "the threshold is one of the model's own uncertainty, and it states none"
            raise InputError(problem, file=images.source, column="uncertainty", hint=hint)
        exact = self.threshold is None  # a threshold is compared with the digits that it was chosen from
        values, _ = referral_uncertainty(images, self.uncertainty, exact=exact, threshold=self.decision.value)
        if self.threshold is not None:
            call, read = called(images.prob, self.decision), values > self.threshold
        else:
            above = images.prob >= (math.inf if self.positive is None else self.positive)
            below = images.prob <= (-math.inf if self.negative is None else self.negative)
            call, read = np.where(above, "referable", np.where(below, "not referable", "")), ~(above | below)
        return values, call, read


def apply(predictions: Predictions, certificate: FrozenRule | str | Path) -> ActionList:
    """Return the action for every new image and patient, by the frozen thresholds of a certificate; labels are not used.

    Args:
        predictions: New predictions; only images of the test split are new ones.
        certificate: What `retinabench transfer --json` wrote, of a threshold or of zones, or of the groups of a column.

    Returns:
        The images, the most uncertain first, and what becomes of each.

    Raises:
        InputError: The certificate is damaged, refused or refuted, or the predictions lack the uncertainty that it is about.

    Examples:
        >>> import json, tempfile
        >>> from pathlib import Path
        >>> import retinabench as rb
        >>> split = ["validation"] * 3 + ["test"] * 3
        >>> known = rb.Predictions(list("abcdef"), [0, 1, 1] * 2, [0.1, 0.5, 0.9] * 2, split=split)
        >>> file = Path(tempfile.mkdtemp()) / "zones.json"
        >>> _ = file.write_text(json.dumps(rb.triage(known, ["npv=.9", "ppv=.9"], bootstrap=20).to_dict()))
        >>> rb.apply(rb.Predictions(["g", "h"], [0, 0], [0.4, 0.7]), file).actions.tolist()
        ['expert reads', 'refer to hospital']
    """
    rule = certificate if isinstance(certificate, FrozenRule) else read_rule(Path(certificate))
    refuse_refuted(rule, None if isinstance(certificate, FrozenRule) else certificate)
    new = np.flatnonzero(predictions.split == "test")
    if not len(new):
        hint = "Leave the column out for new images."
        raise InputError("holds no image of the test split", file=predictions.source, column="split", hint=hint)
    return rule.apply(predictions.take(new))


def refuse_refuted(rule: FrozenRule, file: str | Path | None) -> None:
    if rule.broken:
        problem = f"may not be applied: the labels of {' and '.join(rule.broken)} refute it"
        raise InputError(problem, file=file, hint="Choose a new threshold on recent patients.")


def read_rule(path: Path) -> FrozenRule:
    found = read_checked(path, lambda content: validated(content).rule(), HINT, named=True)
    if found is None:
        problem = "holds no threshold: no goal was met, or the certificate was refused"
        raise InputError(problem if path.is_file() else "does not exist", file=path, hint=HINT)
    return found


def validated(content: object) -> _Referral | _Zones | _Within:
    """Return the part of a JSON of `transfer` that the rule is made of."""
    schema = str(content["schema"]) if isinstance(content, dict) and "schema" in content else ""
    for name, kind in _KINDS.items():
        if schema.startswith(f"retinabench.{name}/"):
            return kind.model_validate(content)
    raise ValueError("it is neither a threshold nor zones")


class _Part(BaseModel):
    """A part of the file; what is not needed to apply the rule is left alone."""

    model_config = ConfigDict(extra="ignore")


class _Decision(_Part):
    value: float = Field(ge=0, le=2)
    rule: str | None = None


class _Aim(_Part):
    target: str
    goal: float


class _Sequence(_Part):
    goal: _Aim


class _Certificate(_Part):
    most_images: int
    goals: list[_Sequence] = []


class _Chosen(_Part):
    """What a certificate of a threshold and one of zones have in common."""

    model: dict[Literal["config_hash", "weights"], str] | None = None
    per: Per = "image"
    sets: dict[str, dict[str, object]] = {}
    reference: dict[Literal["prob", "uncertainty"], list[float]] = {}

    def common(self, certificates: Sequence[_Certificate | None]) -> dict[str, Any]:
        granted = [one for one in certificates if one is not None]
        goals = [Goal(each.goal.target, each.goal.goal) for one in granted for each in one.goals]
        return {
            "goals": tuple(goals), "per": self.per, "most_images": max((one.most_images for one in granted), default=1),
            "reference": {name: np.array(values, np.float64) for name, values in self.reference.items()},
            "broken": tuple(name.replace("_", "-") for name, one in self.sets.items() if one.get("guarantee") == "broken"),
        }  # fmt: skip


class _Referral(_Chosen):
    uncertainty: Literal[(*UNCERTAINTIES, "own")]  # type: ignore[valid-type]
    threshold: float | None = None
    decision_threshold: _Decision
    certificate: _Certificate | None = None

    def rule(self) -> FrozenRule | None:
        if self.threshold is None:
            return None
        if math.isnan(self.threshold):
            raise ValueError("the threshold is not a number")
        decision = FrozenThreshold(self.decision_threshold.value, self.decision_threshold.rule or "")
        return FrozenRule(self.uncertainty, self.threshold, decision, **self.common([self.certificate]))


class _Zone(_Part):
    threshold: float | None = Field(None, ge=0, le=1)
    certificate: _Certificate | None = None


class _Zones(_Chosen):
    zones: dict[Literal["negative", "positive"], _Zone]

    def rule(self) -> FrozenRule | None:
        below, above = (self.zones[side].threshold if side in self.zones else None for side in ("negative", "positive"))
        if below is None and above is None:
            return None
        if below is not None and above is not None and below >= above:
            raise ValueError("the zones overlap")
        granted = [one.certificate for one in self.zones.values() if one.threshold is not None]
        return FrozenRule(negative=below, positive=above, **self.common(granted))


class _Within(_Part):
    model: dict[Literal["config_hash", "weights"], str] | None = None
    column: str
    groups: dict[str, dict[str, Any]]

    def rule(self) -> FrozenRule | None:
        known = {f"{self.column}: {value}": validated(content).rule() for value, content in self.groups.items()}
        kept = {name: one for name, one in known.items() if one is not None and not one.broken}
        if not kept:
            return None
        first, values = next(iter(kept.values())), ("prob", "uncertainty")
        parts = {name: [one.reference[name] for one in kept.values() if name in one.reference] for name in values}
        return FrozenRule(
            uncertainty=first.uncertainty, decision=first.decision, goals=first.goals, per=first.per,
            most_images=max(one.most_images for one in kept.values()),
            reference={name: np.concatenate(found) for name, found in parts.items() if found},
            column=self.column, groups=kept,
        )  # fmt: skip


_KINDS: dict[str, type[_Referral | _Zones | _Within]] = {"transfer": _Referral, "triage": _Zones, "within": _Within}
