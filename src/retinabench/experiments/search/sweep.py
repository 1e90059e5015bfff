"""The folder of a search, what it was begun with, and the runs of its trials.

    sweep.json         the manifest: version, protocol, data, base run, space, seed
    runs/              the run folders of all trials (`experiments/run.py`)
    results/           the result table (`results.py`)
    CRITERION-RULES/   a ranking: table, chosen configuration, figures (`ranking.py`)

The criterion is not part of the manifest: another one ranks the same trials. A space is checked against the run that it varies
before anything is computed.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

from retinabench.core.errors import InputError, nearest
from retinabench.core.results import JsonObject
from retinabench.core.settings import flat
from retinabench.core.version import __version__
from retinabench.core.workspace import Workspace
from retinabench.experiments.config import PROTOCOL, Run, load_run
from retinabench.experiments.search.space import Point, Space, points

SCHEMA = "retinabench.sweep/1"
RUNS, RESULTS = "runs", "results"
FIXED = ("data", "shifted", "task", "seed", "model.name")  # the trials of a search are comparable


def workspace(out: Path) -> Workspace:
    """Return the folder of a search, to lock and to begin."""
    return Workspace(out, "search", "sweep.json")


def identity(fingerprint: str) -> JsonObject:
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
        flat(base.model_dump(mode="json", exclude={"data", "shifted"}))
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


def _decisive(manifest: JsonObject) -> JsonObject:
    """Return what must agree: all of a manifest, and the order of the space's keys, which is that of its dimensions."""
    rest = {key: value for key, value in manifest.items() if key != "first"}
    return {**rest, "order of keys": list(manifest.get("space", ())), "first": manifest.get("first")}


def trial_runs(base: Run, space: Space, trials: int, seed: int) -> list[Run]:
    """Return the runs of all trials: `base` with the values of the space's points.

    Args:
        base: The run that the space varies.
        space: What varies.
        trials: How many.
        seed: Seed of the points.

    Returns:
        One run per trial.

    Raises:
        InputError: See `check_space`; or values are possible one by one but not together.
    """
    check_space(base, space)
    return [
        _vary(base, values, space, f"trial {number}: ")
        for number, values in enumerate(points(space, 0, trials, seed))
    ]


def check_space(base: Run, space: Space) -> None:
    """Raise `InputError` naming file and key where the run has no such key, or refuses an end of a range."""
    known = [key for key in values_of(base) if _may_vary(key)]
    for parameter in space:
        if parameter.key not in known:
            raise InputError(
                f"unknown key '{parameter.key}' for the method '{base.method.name}'",
                file=space.file,
                hint=nearest(parameter.key, known),
            )
        for value in parameter.bounds():
            _vary(base, {parameter.key: value}, space, "")


def values_of(run: Run) -> JsonObject:
    """Return all values of a run under dotted keys."""
    return dict(flat(run.model_dump(mode="json")))


def _may_vary(key: str) -> bool:
    return key not in FIXED and not (key.startswith("method.") and key.endswith(".name"))


def _vary(base: Run, values: Point, space: Space, what: str) -> Run:
    tree = deepcopy(base.model_dump(mode="json"))
    for key, value in values.items():
        *tables, last = key.split(".")
        inner = tree
        for table in tables:
            inner = inner[table]
        inner[last] = value
    try:
        return load_run(None, **tree)
    except InputError as error:
        raise InputError(f"{what}{error.problem}", file=space.file, hint=error.hint) from None
