"""A sweep's folder: what it was begun with, and that one search at a time works in it.

    sweep.json     what decides its numbers: version, protocol, data, base run, space, seed
    runs/          the run folders of all trials (`run.py`)
    results/       the result table (`results.py`)
    CRITERION-RULES/   a ranking: table, chosen configuration, figures (`ranking.py`)

The criterion is not part of it: another one ranks the same trials anew.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from retinabench.core.atomic_files import explain, write_json
from retinabench.core.errors import InputError
from retinabench.core.version import __version__
from retinabench.experiments.config import PROTOCOL, Run
from retinabench.experiments.search.space import Space, points

if sys.platform != "win32":
    import fcntl

SCHEMA = "retinabench.sweep/1"
FILE, LOCK, RUNS, RESULTS = "sweep.json", ".lock", "runs", "results"


def identity(fingerprint: str) -> dict[str, Any]:
    """Return what every row of the sweep's table depends on beside its run."""
    return {"version": __version__, "protocol": PROTOCOL, "fingerprint": fingerprint}


def begin(out: Path, base: Run, space: Space, seed: int, fingerprint: str) -> None:
    """Write `sweep.json`, or compare what an earlier search wrote with what is asked for now.

    Raises `InputError` that names the first difference and both sides.
    """
    own = {parameter.key for parameter in space}
    content = {
        "schema": SCHEMA,
        **identity(fingerprint),
        "seed": seed,
        "base": {key: value for key, value in _flat(base.model_dump(mode="json")) if key not in own},
        "space": space.to_dict(),
        # Another release of SciPy may draw other points: then this one differs.
        "first": points(space, 0, 1, seed)[0],
    }
    for path in ("data", "shifted"):  # the fingerprint stands for both
        del content["base"][path]
    file = out / FILE
    earlier = _read(file)
    if earlier is None:
        write_json(file, content)
        return
    for key, ours in content.items():
        # The order of a space's keys is that of the sequence's dimensions.
        if json.dumps(earlier.get(key)) != json.dumps(ours):
            raise InputError(
                f"belongs to another sweep: {_difference(key, earlier.get(key), ours)}",
                file=file,
                hint="Their trials are never mixed. Choose another --out.",
            )


@contextlib.contextmanager
def hold(out: Path) -> Iterator[None]:
    """Hold the folder; the lock ends with the process, however that ends.

    Raises `InputError` where another search holds it.
    """
    path = out / LOCK
    try:
        out.mkdir(parents=True, exist_ok=True)
        handle = open(path, "wb")  # noqa: SIM115  # closed below, whichever way this ends
    except OSError as error:
        raise explain(error, path) from error
    with handle:
        if sys.platform != "win32":
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                hint = "Wait until it ends, or choose another --out."
                raise InputError("another search is at work in this folder", file=out, hint=hint) from None
            except OSError:
                pass  # a file system without locks: better unguarded than not at all
        yield


def _read(file: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(file.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise InputError("is no note of a sweep", file=file, hint="Choose another --out.")
    return content


def _difference(key: str, theirs: Any, ours: Any) -> str:
    """Put the first difference into words."""
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        for inner in dict.fromkeys([*theirs, *ours]):
            if theirs.get(inner) != ours.get(inner):
                return f"{key} {inner} is {_said(theirs.get(inner))} there and {_said(ours.get(inner))} here"
        return f"the keys of its {key} stand in another order"
    return f"{key} is {_said(theirs)} there and {_said(ours)} here"


def _said(value: Any) -> str:
    text = "absent" if value is None else json.dumps(value)
    return text if len(text) <= 80 else f"{text[:12]}…"


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
