"""The fidelity targets by name: those of `targets.toml`, and those of plug-ins.

A plug-in adds a target by an entry point of the group ``retinabench.targets`` that names a `Target`.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources

from retinabench.core.registry import Registry
from retinabench.core.results import JsonObject
from retinabench.fidelity.targets.target import Target


@cache
def _tables() -> dict[str, JsonObject]:
    file = resources.files("retinabench.fidelity.targets").joinpath("targets.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def __getattr__(name: str) -> Target:
    """Return the target of a table of `targets.toml`: what the registry imports from this module."""
    if name.startswith("_") or name not in _tables():
        raise AttributeError(name)
    return Target(name=name, **_tables()[name])


TARGETS: Registry[Target] = Registry(
    "retinabench.targets", "fidelity target", {name: f"{__name__}:{name}" for name in _tables()}
)
