"""Many runs in one command: `tune`, `benchmark`, `reproduce`, and `uci`, the comparison of 2019."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from retinabench.cli import application
from retinabench.cli.application import argument, flag, option, print_notes, print_table, progress_of, say
from retinabench.cli.training import Method, Task, configured_run
from retinabench.core.errors import InputError, WorkError

if TYPE_CHECKING:
    from retinabench.core.progress import Progress
    from retinabench.experiments.study.definition import Study

SpaceFile = Annotated[
    str, option("--space", "NAME|FILE", "TOML file of ranges, or one that comes along, such as demo/dropout.")
]
Trials = Annotated[int, option("--trials", "N", "Points of the space; more later keep the first.", min=1)]
Criterion = Annotated[
    Literal["in_domain_auroc", "balanced_joint_accuracy_area"],
    option(
        "--criterion",
        "CRITERION",
        "What ranks the trials, on the validation split: in_domain_auroc or balanced_joint_accuracy_area.",
    ),
]
StudyName = Annotated[
    str,
    typer.Argument(
        metavar="PRESET|FILE.toml",
        help="demo, synthetic, severity, country, blur_country, blur_severity, filos2019, sites, or a study of your own.",
    ),
]
StudyOverrides = Annotated[
    list[str] | None, argument("KEY=VALUE", "key=value, such as seeds=3 or base.optimizer.epochs=10.")
]
StudyOut = Annotated[Path | None, option("--out", "FOLDER", "Folder to write into; default: benchmark-NAME.")]
Plan = Annotated[bool, flag("--plan", help="Only say what it will compute, and roughly in how many hours.")]
Status = Annotated[bool, flag("--status", help="Only show its progress, also while another process works.")]
FirstSeed = Annotated[
    int | None, option("--seed", "N", "First seed of the runs, and of all else that is random.", min=0)
]
UciSets = Annotated[
    str | None,
    option(
        "--sets",
        "SETS",
        "boston, concrete, energy, kin8nm, naval, power, protein, wine, yacht, joined by commas; "
        "default: those that are there.",
    ),
]


@application.computes_runs
def tune(
    data: application.Data,
    space: SpaceFile,
    shifted: application.Shifted = None,
    out: application.Out = Path("sweep"),
    config: application.Config = None,
    overrides: application.Overrides = None,
    task: Task = None,
    method: Method = None,
    trials: Trials = 32,
    criterion: Criterion = "in_domain_auroc",
    rules: application.Rules = "corrected",
    seed: application.Seed = 0,
    quiet: application.Silent = False,
    computing: application.Computing = application.HERE,
) -> None:
    """Search the hyper-parameters of a method: compute trials, rank them, write the best as a configuration.

    The same command continues a stopped search; more --trials add to it, another --criterion ranks it anew.
    """
    from retinabench.experiments.search.ranking import ranking_table, write_figure, write_ranking
    from retinabench.experiments.search.search import search
    from retinabench.experiments.search.space import read_space
    from retinabench.reports.toolkit.tables import to_terminal

    base = configured_run(config, overrides, data, shifted, task, method, seed, computing.precision())
    ranges, progress = read_space(space), progress_of(quiet)
    ranking = search(
        base, ranges, trials=trials, criterion=criterion, rules=rules, out=out, engine=computing.engine(progress), seed=seed,
        progress=progress,
    )  # fmt: skip
    folder = out / f"{criterion}-{rules}"
    write_ranking(ranking, folder)
    write_figure(ranking, folder)
    print_table(to_terminal(ranking_table(ranking)))
    if ranking.first:  # says why where there is none
        say(folder / "best.toml")
    if failed := sum(row.state == "failed" for row in ranking.rows):
        raise WorkError(
            f"{folder}: {failed} trials failed, and the others are ranked. The same command tries them again."
        )


@application.computes_runs
def benchmark(
    study: StudyName,
    overrides: StudyOverrides = None,
    data: Annotated[
        list[Path] | None,
        option("--data", "FOLDER", "Prepared folder of a site; given three times or more: leave one site out."),
    ] = None,
    out: StudyOut = None,
    plan: Plan = False,
    status: Status = False,
    seed: FirstSeed = None,
    quiet: application.Silent = False,
    computing: application.Computing = application.HERE,
) -> None:
    """Tune, train with several seeds, ensemble, score and tabulate several methods; the same command continues."""
    from retinabench.experiments.study.definition import read_study

    words = [*(overrides or ()), *([] if seed is None else [f"seed={seed}"])]
    folder = out or Path(f"benchmark-{Path(study).stem}")
    tasks = None
    if data is None and study == "sites":
        raise InputError("names no site", hint="Name each prepared folder by --data, three or more.")
    if data is not None:
        from retinabench.experiments.study.sites import site_tasks

        tasks = site_tasks(data, folder, progress_of(quiet))
    definition = read_study(study, words, tasks)
    if definition.precision is None:
        definition = definition.model_copy(update={"precision": computing.precision()})
    if status:
        _show_status(definition, folder)
    elif plan:
        _show_plan(definition, folder, computing)
    else:
        _compute(definition, folder, computing, progress_of(quiet), of_sites=data is not None)


def _show_status(definition: Study, folder: Path) -> None:
    from retinabench.experiments.study.status import read_status, status_lines, status_table
    from retinabench.reports.toolkit.tables import to_terminal

    found = read_status(definition, folder)
    print_table(to_terminal(status_table(found)))
    for line in status_lines(found):
        say(line)


def _show_plan(definition: Study, folder: Path, computing: application.Computing) -> None:
    from retinabench.core.progress import QUIET
    from retinabench.experiments.engines.engine import LocalEngine
    from retinabench.experiments.execution import Resources
    from retinabench.experiments.study.plan import make_plan, plan_lines, plan_table
    from retinabench.reports.toolkit.tables import to_terminal

    if computing.name == "ray":
        places, device = (computing.parallel, "cuda" if computing.gpus > 0 or computing.device == "cuda" else "cpu")
    else:
        engine, device = computing.engine(QUIET), Resources(computing.device).torch_device().type
        places = engine.places if isinstance(engine, LocalEngine) else computing.parallel
    planned = make_plan(definition, folder, device, places)
    print_table(to_terminal(plan_table(planned)))
    for line in plan_lines(planned):
        say(line)


def _compute(
    definition: Study, folder: Path, computing: application.Computing, progress: Progress, *, of_sites: bool
) -> None:
    from retinabench.experiments.study.benchmark import benchmark as run_benchmark
    from retinabench.experiments.study.sites import site_tables
    from retinabench.experiments.study.summary import summary_tables
    from retinabench.reports.toolkit.tables import to_terminal

    engine = computing.engine(progress, definition.readers)
    # Sites share their test images, which the papers' tables would take for one data set with two truths.
    summary = run_benchmark(definition, folder, engine, progress, **({"writes": ()} if of_sites else {}))
    for table in site_tables(definition, summary, folder) if of_sites else summary_tables(summary):
        print_table(to_terminal(table))
    print_notes(summary.notes)
    say(folder / ("sites.md" if of_sites else "summary.md"))


@application.computes_runs
def reproduce(
    paper: Annotated[Literal["country"], argument("PAPER", "country: Band et al. 2021, EyePACS to APTOS.")],
    overrides: StudyOverrides = None,
    source: Annotated[
        Path | None, option("--source", "FOLDER", "Holds EyePACS and APTOS as downloaded, in eyepacs/ and aptos/.")
    ] = None,
    out: application.Out = Path("reproduce-country"),
    network: Annotated[
        Literal["frozen", "resnet50"],
        option("--network", "NETWORK", "frozen: heads on pretrained features; resnet50: the paper's, for a GPU."),
    ] = "frozen",
    size: Annotated[int, option("--size", "N", "Side of the square images, in pixels.")] = 512,
    draw: Annotated[
        float | None,
        option("--draw", "SHARE", "Rehearse on drawn retinas: this share of the published images.", min=0, max=1),
    ] = None,
    quiet: application.Silent = False,
    computing: application.Computing = application.HERE,
) -> None:
    """Repeat a paper from its data: prepare, train every method, tabulate, judge each claim; the same command continues."""
    from retinabench.experiments.study.benchmark import country_study
    from retinabench.experiments.study.benchmark import reproduce as run
    from retinabench.reports.papers.claims import claims_table
    from retinabench.reports.toolkit.tables import to_terminal

    progress = progress_of(quiet)
    study = country_study(source, out, network, overrides or (), size=size, draw=draw, progress=progress)
    if study.precision is None:
        study = study.model_copy(update={"precision": computing.precision()})
    summary, judged = run(study, out, computing.engine(progress, study.readers), progress)
    print_table(to_terminal(claims_table(judged)))
    print_notes(summary.notes)
    say(out / "tables" / "index.md")
    say(out / "claims.md")


def uci(
    source: Annotated[Path, option("--source", "PATH", "Folder with the UCI sets, such as UCI_Datasets.")],
    sets: UciSets = None,
    out: application.Out = Path("uci"),
    epochs: Annotated[int, option("--epochs", "N", "40: the standard protocol; 400: to convergence.", min=1)] = 40,
    workers: application.Workers = None,
    seed: application.Seed = 0,
    quiet: application.Silent = False,
) -> None:
    """Compare MC dropout, mean-field VI and deep ensembles on the UCI regression sets, beside the published table."""
    from retinabench.experiments.uci import compare_methods

    names = [name.strip() for name in sets.split(",")] if sets is not None else []
    processes, progress = workers or os.cpu_count() or 1, progress_of(quiet)
    for file in compare_methods(source, names, out, epochs=epochs, seed=seed, workers=processes, progress=progress):
        say(file)
