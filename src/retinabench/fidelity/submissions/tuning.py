"""Fair tuning: the settings of every entry are searched on development targets, under the same budget as the benchmark.

Trial i is point i of the entry's scrambled Sobol sequence (`tune/space.py`) in the space that the method states (`FidelitySettings.search`); a trial is
run on the development target like any entry, resumable and idempotent. Least distance to that target's reference wins:
total variation, or the Wasserstein distance. What wins is written into the method's `FIDELITY` by hand and stays there.

`OUT/ENTRY-TASK.json` is the record: space, trials with their settings, distances and cost, and the best.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from retinabench.core.atomic_files import write_json
from retinabench.core.errors import InputError, WorkError, nearest
from retinabench.experiments.execution import Resources
from retinabench.experiments.search.space import Space, points, space_of
from retinabench.fidelity.reference.reference_file import Reference, read_reference
from retinabench.fidelity.scoring import distances
from retinabench.fidelity.submissions.entries import entries
from retinabench.fidelity.submissions.runner import CPU, run_entry
from retinabench.fidelity.submissions.submission import Submission, read_submission
from retinabench.fidelity.targets.data import load
from retinabench.fidelity.targets.target import Target

SCHEMA = "retinabench.fidelity-tuning/1"


def search_space(name: str, target: Target) -> Space:
    """Return what is searched for an entry on a target.

    Raises:
        InputError: Nothing is searched for that entry.
    """
    search = entries()[name].search if name in entries() else {}
    if target.likelihood not in search:
        raise InputError(
            f"nothing is searched for '{name}'",
            hint=nearest(name, [one for one in entries() if entries()[one].search]),
        )
    return space_of(search[target.likelihood], name=name)


def tune(
    name: str,
    target: Target,
    source: Path | None = None,
    reference: Path | None = None,
    *,
    trials: int,
    budget: float = 1000,
    seed: int = 0,
    out: Path = Path("fidelity-tuning"),
    resources: Resources = CPU,
) -> dict[str, Any]:
    """Run the trials of one entry that are not yet done, write and return the record.

    A trial that breaks, or whose predictions are not finite, is recorded with the reason and cannot win. Raises `InputError`
    where none is left.
    """
    space = search_space(name, target)
    data = load(target, source)
    given = read_reference(target, data.sha256, reference)
    record: dict[str, Any] = {
        "schema": SCHEMA, "entry": name, "task": target.name, "target": target.fingerprint(data.sha256),
        "reference_passed": given.passed, "budget": budget, "seed": seed, "space": space.to_dict(), "trials": [],
    }  # fmt: skip
    for number, settings in enumerate(points(space, 0, trials, seed)):
        resources.progress.say(f"{name}, trial {number + 1} of {trials}: {settings}")
        words = [f"{key}={value}" for key, value in settings.items()]
        try:
            file = run_entry(
                name,
                target,
                source,
                budget=budget,
                seed=seed,
                out=out / "runs",
                overrides=words,
                resources=resources,
            )
            submission = read_submission(file, target, len(data.test), data.sha256)
            found: dict[str, Any] = {"distance": _distance(submission, given)}
            found |= {"gradients": submission.meta["budget"]["used"], "seconds": submission.meta["seconds"]}
        except (InputError, WorkError) as error:
            found = {"distance": None, "why": str(error)}
        record["trials"].append({"settings": settings, **found})
    sound = [trial for trial in record["trials"] if trial["distance"] is not None]
    if not sound:
        raise InputError(f"no trial of '{name}' gave a submission: {record['trials'][0]['why']}")
    record["best"] = min(sound, key=lambda trial: trial["distance"])
    record["seconds"] = round(sum(trial["seconds"] for trial in sound), 1)
    write_json(out / f"{name}-{target.name}.json", record)
    return record


def _distance(submission: Submission, reference: Reference) -> float:
    """Total variation or Wasserstein distance to the reference, mean over all test points."""
    if submission.probs is not None:
        return float(distances.total_variation(submission.probs, reference.probs).mean())
    assert submission.draws is not None
    return float(np.mean(distances.wasserstein(submission.draws, reference.draws)))
