"""The folder of a search: what it was begun with.

    sweep.json         the manifest: version, protocol, data, base run, space, seed
    runs/              the run folders of all trials (`experiments/run.py`)
    results/           the result table (`results.py`)
    CRITERION-RULES/   a ranking: table, chosen configuration, figures (`ranking.py`)

The criterion is not part of the manifest: another one ranks the same trials.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from retinabench.core.version import __version__
from retinabench.core.workspace import Workspace
from retinabench.experiments.config import PROTOCOL, Run
from retinabench.experiments.search.space import Space, points

SCHEMA = "retinabench.sweep/1"
RUNS, RESULTS = "runs", "results"


def workspace(out: Path) -> Workspace:
    """Return the folder of a search, to lock and to begin."""
    return Workspace(out, "search", "sweep.json")


def identity(fingerprint: str) -> dict[str, Any]:
    """Return what every row of the result table depends on beside its run."""
    return {"version": __version__, "protocol": PROTOCOL, "fingerprint": fingerprint}


def begin(out: Path, base: Run, space: Space, seed: int, fingerprint: str) -> None:
    """Write the manifest of a search, or compare it with the one that is there.

    Args:
        out: The folder of the search.
        base: The run that the space varies.
        space: What varies.
        seed: Seed of the points.
        fingerprint: Of the data.

    Raises:
        InputError: The folder was begun with other settings, data or another version.
    """
    varied = {parameter.key for parameter in space}
    fixed = dict(
        _flat(base.model_dump(mode="json", exclude={"data", "shifted"}))
    )  # the fingerprint stands for both
    manifest = {
        "schema": SCHEMA,
        **identity(fingerprint),
        "seed": seed,
        "base": {key: value for key, value in fixed.items() if key not in varied},
        "space": space.to_dict(),
        # Another release of SciPy may draw other points: then this one differs.
        "first": points(space, 0, 1, seed)[0],
    }
    workspace(out).begin(
        manifest,
        decisive=_decisive,
        hint="Restore the data and the settings, install the version that began it, or choose another --out.",
    )


def _decisive(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return what must agree: all of a manifest, and the order of the space's keys, which is that of its dimensions."""
    rest = {key: value for key, value in manifest.items() if key != "first"}
    return {**rest, "order of keys": list(manifest.get("space", ())), "first": manifest.get("first")}


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
