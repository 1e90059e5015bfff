"""The `reproduce` command: the experiments of Band et al. 2021 from the files as downloaded to tables and judged claims.

It is a study (`studies/reproduce_NETWORK.toml`) on data that it prepares first. All parts continue where they were stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from retinabench.core.errors import QUIET, InputError, Progress
from retinabench.data.prepare import prepare
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.experiments.engines.scheduler import JobEngine
from retinabench.experiments.study.benchmark import benchmark
from retinabench.experiments.study.definition import Study, read_study
from retinabench.experiments.study.summary import StudySummary
from retinabench.predictions.io import read_predictions
from retinabench.reports.papers.claims import COUNTRY, SEVERITY, JudgedClaim, Models, judge_claims, write_claims
from retinabench.reports.papers.measurements import reduced

COUNTS = (
    35_126,
    10_906,
    42_670,
    732,
    2_930,
)  # EyePACS train, Public, Private; APTOS validation and test, by pairs of eyes
PREPROCESS: dict[str, Literal["crop", "graham"]] = {
    "frozen": "crop",
    "resnet50": "graham",
}  # a pretrained network expects the colours that Graham's takes away


def country_study(
    source: Path | None,
    out: Path,
    network: str,
    overrides: Sequence[str] = (),
    *,
    size: int = 512,
    draw: float | None = None,
    progress: Progress = QUIET,
) -> Study:
    """Prepare the data below `out`/data, and return the study on them.

    `source` holds EyePACS and APTOS as downloaded, in the folders `eyepacs` and `aptos`; with `draw` retinas are drawn in their place, that share
    of the published number of images.
    """
    if (source is None) == (draw is None):
        raise InputError(
            "the images are neither named nor to be drawn" if draw is None else "drawn images have no source",
            hint="Name the folder that holds eyepacs/ and aptos/ by --source, or --draw a share of their number.",
        )
    recipe, data, shifted = Recipe(size, PREPROCESS[network]), out / "data", {}
    if source is None:
        eyepacs = data / "drawn"
        counts = [max(32, 2 * round(count * (draw or 0) / 2)) for count in COUNTS]
        prepare("synthetic", eyepacs, recipe=recipe, counts=counts, progress=progress)
    else:
        for name in ("eyepacs", "aptos"):
            prepare(name, data / name, recipe=recipe, source=source / name, progress=progress)
        eyepacs, shifted = data / "eyepacs", {"shifted": str(data / "aptos")}
    tasks = {
        COUNTRY: {"task": "country_shift", "data": str(eyepacs), **shifted},
        SEVERITY: {"task": "severity_shift", "data": str(eyepacs)},
    }
    return read_study(f"reproduce_{network}", overrides, tasks)


def reproduce(
    study: Study, out: Path, engine: JobEngine, progress: Progress = QUIET
) -> tuple[StudySummary, list[JudgedClaim]]:
    """Compute the study with its tables, and judge the paper's claims by the runs of its first criterion."""
    summary = benchmark(study, out, engine, progress, writes=("tables",))
    tasks: dict[str, Models] = {}
    for table in summary.tables:
        if table.criterion == study.choices[0]:
            tasks[table.task] = {
                row.method + (" ensemble" if row.members > 1 else ""): (
                    [reduced(read_predictions(file), exact=False) for file in row.files], row.subsets,
                )
                for row in (one.entry for one in table.entries)
            }  # fmt: skip
    judged = judge_claims(tasks, study.bootstrap, study.seed, progress=progress)
    write_claims(judged, out)
    return summary, judged
