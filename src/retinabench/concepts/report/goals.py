"""The rates that a model is meant to reach: stated by the user for all concepts or for one, otherwise nothing is judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from retinabench.core.errors import InputError, nearest
from retinabench.experiments.config import read_toml

MEASURES = ("sensitivity", "specificity")
ALL = "all"
Goals = dict[str, dict[str, float]]


def parse_goals(texts: Sequence[str], concepts: Sequence[str]) -> Goals:
    """Read goals, each ``sensitivity=0.85`` or ``sensitivity=85%``, ``"specificity of haemorrhage=0.8"`` or a TOML file.

    The file has a table per concept and one named ``all``, with ``sensitivity`` and ``specificity``. What is stated for one
    concept is preferred to what is stated for all.
    """
    stated: Goals = {}
    for text in texts:
        for source, concept, measure, value in (
            _of_file(Path(text)) if text.endswith(".toml") else [_of_text(text)]
        ):
            if concept not in (ALL, *concepts):
                raise InputError(
                    f"{source} is a goal of an unknown concept '{concept}'", hint=nearest(concept, concepts)
                )
            known = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1
            if measure not in MEASURES or not known:
                hint = "For example sensitivity=0.85, or 'specificity of NAME=0.8'."
                raise InputError(f"{source} is no goal", hint=hint)
            if measure in stated.setdefault(concept, {}):
                raise InputError(f"{source} states the {measure} of '{concept}' twice", hint="State it once.")
            stated[concept][measure] = float(value)
    common = stated.pop(ALL, {})
    found = {concept: {**common, **stated.get(concept, {})} for concept in concepts}
    return {concept: goals for concept, goals in found.items() if goals}


def _of_text(text: str) -> tuple[str, str, str, Any]:
    """What a text states: its name in messages, the concept, the measure and the rate."""
    left, _, number = text.partition("=")
    number = number.strip()
    measure, of, concept = left.strip().partition(" of ")
    try:
        value = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        value = -1.0
    return f"--goal '{text}'", concept.strip() if of else ALL, measure.strip().lower(), value


def _of_file(path: Path) -> Iterator[tuple[str, str, str, Any]]:
    """What a file states, as `_of_text`."""
    for concept, goals in read_toml(path).items():
        if not isinstance(goals, Mapping):
            raise InputError(
                f"'{concept}' is no table", file=path, hint=f"Write [{concept}] and its goals below it."
            )
        for measure, value in goals.items():
            yield f"{path}: {measure} of '{concept}'", concept, measure, value
