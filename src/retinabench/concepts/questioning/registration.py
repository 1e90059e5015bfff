"""Which claims an examination decides: those that its transcript's first line registers, before the first question.

A claim that is first stated when answers are known could have been chosen for them. It is *exploratory*: its answers are
counted, it is never decided, does not end the examination and guides no question. The registered claims stay what they were:
a later command that leaves one out does not make the others easier to decide.

Transcripts of version 1 register the claims of the strategy `claims` alone, each decided at its confidence by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.inference.claims import Claim, check_confidence, parse_claim
from retinabench.concepts.questioning.strategies import find_strategy
from retinabench.concepts.questioning.transcript import SCHEMA
from retinabench.core.errors import InputError
from retinabench.core.results import JsonObject

SEPARATOR = " @ "  # between a claim and its confidence


@dataclass(frozen=True)
class Registration:
    """What the first line of a transcript fixes."""

    schema: str
    strategy: str
    texts: list[str]
    claims: list[Claim]

    def header(self, **fixed: Any) -> JsonObject:
        """Return the first line of the transcript, with what else determines the questions."""
        return {"schema": self.schema, **fixed, "strategy": self.strategy, "claims": self.texts}


def register(
    bank: Bank,
    texts: str | Sequence[str] | None,
    confidence: float,
    strategy: str | None,
    recorded: JsonObject,
) -> Registration:
    """Register claims, or take up those of a transcript with answers."""
    check_confidence(confidence)
    stated = [" ".join(text.split()) for text in ([texts] if isinstance(texts, str) else texts or ())]
    stated = [f"{text}{SEPARATOR}{float(confidence)!r}" for text in dict.fromkeys(stated)]
    registered = [str(text) for text in recorded.get("claims", ())] if recorded else stated
    schema = str(recorded.get("schema", SCHEMA))
    name = strategy or str(recorded.get("strategy", "claims" if registered else "precision"))
    together = len(registered) if schema == SCHEMA else 1
    claims = [_parse(text, bank, together, registered=True) for text in registered]
    claims += [_parse(text, bank, together, registered=False) for text in stated if text not in registered]
    if claims and not find_strategy(name).companion_valid:
        raise InputError(
            f"the strategy '{name}' selects samples within a cell, so no claim can be decided by it",
            hint="Choose claims, precision, uncertainty or random.",
        )
    if name == "claims" and not registered:
        raise InputError("the strategy 'claims' needs a claim", hint="Give it with --claim.")
    return Registration(schema, name, registered, claims)


def _parse(text: str, bank: Bank, together: int, *, registered: bool) -> Claim:
    """A claim as the transcript writes it."""
    claim, _, confidence = text.rpartition(SEPARATOR)
    try:
        number = float(confidence)
    except ValueError:
        raise InputError(f"the registered claim '{text}' has no confidence") from None
    return parse_claim(claim, bank, number, together=together, registered=registered)
