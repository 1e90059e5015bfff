"""A study of seconds: two methods on easy pictures, and an engine that computes in this process."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from retinabench.experiments.engines.scheduler import Job, Outcome
from retinabench.experiments.study.definition import Study
from support.searching import train

TINY = {"model": {"name": "mlp"}, "optimizer": {"epochs": 2, "batch_size": 16, "warmup": 1}}
SPACE = 'optimizer.lr = { low = 0.01, high = 0.2, scale = "log" }\n'
BOTH = ["in_domain_auroc", "balanced_joint_accuracy_area"]


def tiny(root: Path, data: Path, **changes: object) -> dict[str, object]:
    """Return a study's tables: MAP and MC dropout, two trials, two criteria, two seeds and their ensemble."""
    space = root / "space.toml"
    space.write_text(SPACE)
    method = {"space": str(space)}
    return {
        "title": "Tiny", "tasks": {"country_shift": {"data": str(data)}}, "base": TINY,
        "methods": {"map": method, "dropout": {**method, "run": {"method": {"name": "dropout", "samples": 2}}}},
        "criteria": BOTH, "trials": 2, "seeds": 2, "ensemble": 2, "bootstrap": 20, **changes,
    }  # fmt: skip


def study(root: Path, data: Path, **changes: object) -> Study:
    return Study(**tiny(root, data, **changes))


@dataclass
class Serial:
    """Computes one job after the other here; `broken` says of which runs what comes of them instead."""

    computed: list[Job] = field(default_factory=list)
    broken: dict[tuple[str, int], str] = field(default_factory=dict)

    def compute(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        for job in jobs:
            self.computed.append(job)
            state = self.broken.get((job.run.method.name, job.run.seed))
            if state is not None:
                yield Outcome(job, state, None, 0.1, 1, "made to fail")
            else:
                yield train(job)


MINIMAL = """
trials = 0
seeds = 2
ensemble = 0
[tasks.country_shift]
data = "data"
[methods.map]
config = "demo/map"
"""


def written(tmp_path, text):
    file = tmp_path / "study.toml"
    file.write_text(text)
    return file
