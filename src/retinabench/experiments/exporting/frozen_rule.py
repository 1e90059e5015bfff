"""The threshold or the zones that travel with a model: chosen on validation by `retinabench transfer`, applied to new images.

The file `threshold.json` of an exported model is what `retinabench transfer --json` writes, and the model that it was chosen for.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from retinabench.core.checksums import check
from retinabench.core.errors import InputError
from retinabench.core.results import JsonObject
from retinabench.core.settings import first_problem
from retinabench.core.untrusted.paths import kept_inside
from retinabench.metrics.clinical.decision_threshold import ABOVE_HALF, FrozenThreshold
from retinabench.metrics.guarantees.transfer import Transfer
from retinabench.metrics.guarantees.triage import Triage
from retinabench.metrics.uncertainty import UNCERTAINTIES, referral_uncertainty
from retinabench.predictions.table import Predictions

THRESHOLD = "threshold.json"
MOST_BYTES = 2**22
_HINT = "Attach it again: retinabench transfer FILE … --attach MODEL"


@dataclass(frozen=True)
class FrozenRule:
    """What becomes of an image: referred to an expert, or decided by the model.

    Args:
        config_hash: Of the run that it was chosen for.
        weights: Fingerprint of the weights that it was chosen for.
        uncertainty: What is compared with the threshold, as in `score`; `total` orders the images of zones.
        threshold: Images with a larger uncertainty are referred; None where there are zones.
        decision: The model calls an image referable from this probability on.
        negative: The largest probability of the zone that is called negative; None: there is none.
        positive: The smallest probability of the zone that is called positive; None: there is none.
    """

    config_hash: str
    weights: str
    uncertainty: str = "total"
    threshold: float | None = None
    decision: FrozenThreshold = ABOVE_HALF
    negative: float | None = None
    positive: float | None = None

    def decide(self, predictions: Predictions) -> tuple[NDArray[np.float64], NDArray[np.str_]]:
        """Return the uncertainty of every image, by which an expert reads them, and what becomes of it.

        Args:
            predictions: N images.

        Returns:
            (N,) uncertainties, and (N,) `refer`; else `keep`, or with zones `negative` or `positive`.

        Raises:
            InputError: The rule is about an uncertainty that the model does not state.
        """
        if self.uncertainty == "own" and predictions.uncertainty is None:
            raise InputError(
                "the attached threshold is one of the model's own uncertainty, and it states none", hint=_HINT
            )
        exact = self.threshold is None  # a threshold is compared with the digits that it was chosen from
        values, _ = referral_uncertainty(
            predictions, self.uncertainty, exact=exact, threshold=self.decision.value
        )
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
    """Return the content of `threshold.json`.

    Args:
        found: The threshold or zones.
        config_hash: Of the run of the model.
        weights: Fingerprint of its weights.
    """
    return {**found.to_dict(), "model": {"config_hash": config_hash, "weights": weights}}


def read_rule(folder: Path) -> FrozenRule | None:
    """Read the rule of an exported model, None where none is attached.

    Raises:
        InputError: The file is damaged.
    """
    path = check(folder / THRESHOLD, _HINT)
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
        content = json.loads(kept_inside(folder, path).read_text(encoding="utf-8"))
        schema = str(content["schema"]) if isinstance(content, dict) and "schema" in content else ""
        kind = next(
            (kind for name, kind in _KINDS.items() if schema.startswith(f"retinabench.{name}/")), None
        )
        if kind is None:
            raise ValueError("it is neither a threshold nor zones")
        return kind.model_validate(content).rule()
    except FileNotFoundError:
        return None
    except ValidationError as error:
        problem = str(first_problem(error, None, lambda _: []))
        raise InputError(f"is damaged ({problem})", file=path, hint=_HINT) from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"is damaged ({error})", file=path, hint=_HINT) from None


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
        return FrozenRule(
            self.model.config_hash, self.model.weights, self.uncertainty, self.threshold, decision
        )


class _Zone(_Part):
    threshold: float | None = Field(None, ge=0, le=1)


class _Zones(_Part):
    model: _Model
    zones: dict[Literal["negative", "positive"], _Zone]

    def rule(self) -> FrozenRule:
        """Return the rule."""
        below, above = (
            self.zones[side].threshold if side in self.zones else None for side in ("negative", "positive")
        )
        if below is None and above is None:
            raise ValueError("both zones are empty")
        if below is not None and above is not None and below >= above:
            raise ValueError("the zones overlap")
        return FrozenRule(self.model.config_hash, self.model.weights, negative=below, positive=above)


_KINDS: dict[str, type[_Referral] | type[_Zones]] = {"transfer": _Referral, "triage": _Zones}
