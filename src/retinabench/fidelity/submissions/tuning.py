"""The settings of all entries are searched alike, on development targets and under the budget of the benchmark.

Trial i is point i of a scrambled Sobol sequence (`experiments/search/space.py`) in the space that the method states
(`FidelitySettings.search`); it is run on the development target like any entry (`experiments/many.py` skips those that are
done). The trial closest to that target's reference, by total variation or Wasserstein distance, is the best; its settings are
copied into the method by hand.

`OUT/ENTRY-TARGET.json` records the space, the trials with their settings, distances and cost, and the best one.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from retinabench.core.errors import DivergedError, InputError, WorkError, nearest
from retinabench.core.files import write_json
from retinabench.core.results import Document
from retinabench.core.version import __version__
from retinabench.experiments.engines.scheduler import State
from retinabench.experiments.execution import Resources
from retinabench.experiments.many import Item, Result, ResultTable, run_many
from retinabench.experiments.search.space import Point, Space, points, space_of
from retinabench.fidelity import distances
from retinabench.fidelity.reference.reference_file import predictive, read_reference
from retinabench.fidelity.submissions.entries import entries
from retinabench.fidelity.submissions.runner import CPU, run_entry
from retinabench.fidelity.submissions.submission import read_submission
from retinabench.fidelity.targets.data import load
from retinabench.fidelity.targets.target import Target

SCHEMA = "retinabench.fidelity-tuning/1"


def search_space(name: str, target: Target) -> Space:
    search = entries()[name].search if name in entries() else {}
    if target.likelihood not in search:
        hint = nearest(name, [one for one in entries() if entries()[one].search])
        raise InputError(f"nothing is searched for '{name}'", hint=hint)
    return space_of(search[target.likelihood], name=name)


@dataclass(frozen=True)
class TuningPoint(Document):
    """One point of a search space: its values by dotted key, and how its trial ended.

    distance: to the reference, None where the trial failed; why: the reason. gradients: per training example; seconds: of the
    training.
    """

    _optional = ("why", "gradients", "seconds")

    settings: Point
    distance: float | None
    why: str | None = None
    gradients: float | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Tuning(Document):
    """The trials of an entry on a target, of which at least one succeeded."""

    _also = ("best", "seconds")

    trials: tuple[TuningPoint, ...]

    @property
    def best(self) -> TuningPoint:
        return min((one for one in self.trials if one.distance is not None), key=lambda one: one.distance or 0.0)

    @property
    def seconds(self) -> float:
        return round(sum(trial.seconds or 0.0 for trial in self.trials), 1)


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
    """Run those trials of an entry that are not yet done, and write the record; one that fails is recorded with the reason."""
    space, data = search_space(name, target), load(target, source)
    given, values = read_reference(target, data.sha256, reference), points(space, 0, trials, seed)
    wanted = predictive(given)
    digest = hashlib.sha256(np.ascontiguousarray(wanted).tobytes()).hexdigest()[:12]
    common = [__version__, name, target.fingerprint(data.sha256), digest, budget, seed]
    table = ResultTable(out / "results", {})

    def compute(items: Sequence[Item[Point]]) -> Iterator[tuple[Item[Point], Result]]:
        for item in items:
            state: State = "done"
            scores: dict[str, float | None] = {}
            message, seconds = "", 0.0
            try:
                words = [f"{key}={value}" for key, value in item.work.items()]
                file = run_entry(
                    name, target, source, budget=budget, seed=seed, out=out / "runs", overrides=words, resources=resources,
                )  # fmt: skip
                submission = read_submission(file, target, len(data.test), data.sha256)
                about = submission.about
                assert about.budget is not None
                assert about.seconds is not None
                distance = float(distances.DISTANCE[target.likelihood](submission.values, wanted).mean())
                scores, seconds = {"distance": distance, "gradients": about.budget.used}, about.seconds
            except (InputError, WorkError) as error:
                state, message = ("diverged" if isinstance(error, DivergedError) else "failed"), str(error)
            yield item, Result(item.key, state, "", seconds, 1, time.time(), message, scores=scores)

    items = [Item(table, _key([*common, dict(one)]), one) for one in values]
    results = run_many(items, compute, lambda row: str(row.scores.get("distance", row.state)), resources.progress)
    done = []
    for one, row in zip(values, results, strict=True):
        if (distance := row.scores.get("distance")) is None:
            done.append(TuningPoint(one, None, row.message))
        else:
            done.append(TuningPoint(one, distance, None, row.scores["gradients"], row.seconds))
    if all(trial.distance is None for trial in done):
        raise InputError(f"no trial of '{name}' gave a submission: {done[0].why}")
    found = Tuning(tuple(done))
    record = {
        "schema": SCHEMA, "entry": name, "task": target.name, "target": target.fingerprint(data.sha256),
        "reference_passed": given.passed, "budget": budget, "seed": seed, "space": space.to_dict(), **found.to_dict(),
    }  # fmt: skip
    write_json(out / f"{name}-{target.name}.json", record)
    return found


def _key(content: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
