"""The settings of all entries are searched alike, on development targets and under the budget of the benchmark.

Trial i is point i of a scrambled Sobol sequence (`experiments/search/space.py`) in the space that the method states
(`FidelitySettings.search`); it is run on the development target like any entry. The trial closest to that target's
reference, by total variation or Wasserstein distance, is the best; its settings are copied into the method by hand.

`OUT/ENTRY-TARGET.json` records the space, the trials with their settings, distances and cost, and the best one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from retinabench.core.errors import InputError, WorkError, nearest
from retinabench.core.files import write_json
from retinabench.core.results import JsonObject
from retinabench.experiments.execution import Resources
from retinabench.experiments.search.space import Point, Space, points, space_of
from retinabench.fidelity import distances
from retinabench.fidelity.reference.reference_file import Reference, read_reference
from retinabench.fidelity.submissions.entries import entries
from retinabench.fidelity.submissions.runner import CPU, run_entry
from retinabench.fidelity.submissions.submission import Submission, read_submission
from retinabench.fidelity.targets.data import TargetData, load
from retinabench.fidelity.targets.target import Target

SCHEMA = "retinabench.fidelity-tuning/1"


def search_space(name: str, target: Target) -> Space:
    """Return what is searched for an entry on a target."""
    search = entries()[name].search if name in entries() else {}
    if target.likelihood not in search:
        raise InputError(
            f"nothing is searched for '{name}'",
            hint=nearest(name, [one for one in entries() if entries()[one].search]),
        )
    return space_of(search[target.likelihood], name=name)


@dataclass(frozen=True)
class TuningPoint:
    """One point of a search space."""

    settings: Point
    distance: float | None
    why: str = ""
    gradients: float = 0.0
    seconds: float = 0.0

    def to_dict(self) -> JsonObject:
        """Return the trial as JSON holds it."""
        if self.distance is None:
            return {"settings": dict(self.settings), "distance": None, "why": self.why}
        return {
            "settings": dict(self.settings),
            "distance": self.distance,
            "gradients": self.gradients,
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
class Tuning:
    """The trials of an entry on a target, of which at least one succeeded."""

    trials: tuple[TuningPoint, ...]

    @property
    def best(self) -> TuningPoint:
        """The trial that comes closest to the reference."""
        return min(
            (trial for trial in self.trials if trial.distance is not None),
            key=lambda trial: trial.distance or 0.0,
        )

    def to_dict(self) -> JsonObject:
        """Return the trials, the best one and their time as JSON holds them."""
        return {
            "trials": [trial.to_dict() for trial in self.trials],
            "best": self.best.to_dict(),
            "seconds": round(sum(trial.seconds for trial in self.trials), 1),
        }


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
) -> Tuning:
    """Run those trials of an entry that are not yet done, and write the record."""
    space = search_space(name, target)
    data = load(target, source)
    given = read_reference(target, data.sha256, reference)
    done = []
    for number, settings in enumerate(points(space, 0, trials, seed)):
        resources.progress.say(f"{name}, trial {number + 1} of {trials}: {settings}")
        try:
            file = run_entry(
                name,
                target,
                source,
                budget=budget,
                seed=seed,
                out=out / "runs",
                overrides=[f"{key}={value}" for key, value in settings.items()],
                resources=resources,
            )
            done.append(_trial_of(file, settings, target, data, given))
        except (InputError, WorkError) as error:
            done.append(TuningPoint(settings, None, str(error)))
    if all(trial.distance is None for trial in done):
        raise InputError(f"no trial of '{name}' gave a submission: {done[0].why}")
    found = Tuning(tuple(done))
    record = {
        "schema": SCHEMA, "entry": name, "task": target.name, "target": target.fingerprint(data.sha256),
        "reference_passed": given.passed, "budget": budget, "seed": seed, "space": space.to_dict(), **found.to_dict(),
    }  # fmt: skip
    write_json(out / f"{name}-{target.name}.json", record)
    return found


def _trial_of(
    file: Path, settings: Point, target: Target, data: TargetData, reference: Reference
) -> TuningPoint:
    submission = read_submission(file, target, len(data.test), data.sha256)
    about = submission.about
    assert about.budget is not None
    assert about.seconds is not None
    return TuningPoint(settings, _distance(submission, reference), "", about.budget.used, about.seconds)


def _distance(submission: Submission, reference: Reference) -> float:
    """Total variation or Wasserstein distance to the reference, mean over all test points."""
    if submission.probs is not None:
        return float(distances.total_variation(submission.probs, reference.probs).mean())
    assert submission.draws is not None
    return float(np.mean(distances.wasserstein(submission.draws, reference.draws)))
