"""`retinabench fidelity hidden make | score`: an official ranking on points whose labels and reference are kept."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from retinabench.cli.application import (
    Verbs,
    add_verbs,
    application,
    argument,
    option,
    print_result,
    progress_of,
    say,
)
from retinabench.cli.options import Bootstrap, BurnIn, Chains, Json, Keep, Seed, Silent, Target, TargetFolder

if TYPE_CHECKING:
    from retinabench.fidelity.reference.reference_file import Reference
    from retinabench.fidelity.targets.data import TargetData


def make(
    points: Annotated[
        Path, argument("FILE", "NPZ of your points: inputs (M, ...), targets (M,), group (M,).")
    ],
    task: Target,
    out: Annotated[
        Path,
        option(
            "--out",
            "FOLDER",
            "Folder: points.npz to publish, secret/ to keep; an interrupted command continues in it.",
        ),
    ],
    data: TargetFolder = None,
    chains: Chains = 4,
    burn_in: BurnIn = 50,
    keep: Keep = 500,
    seed: Seed = 0,
    quiet: Silent = False,
) -> None:
    """Sample a target's posterior at points of your own; write the inputs to publish, and labels and reference to keep."""
    from retinabench.fidelity.leaderboard import hidden
    from retinabench.fidelity.reference import quadrature
    from retinabench.fidelity.reference.make_reference import make_reference
    from retinabench.fidelity.targets.data import load
    from retinabench.fidelity.targets.registry import TARGETS

    chosen, command = TARGETS.find(task), shlex.join(["retinabench", *sys.argv[1:]])

    def sampler(opened: TargetData) -> Reference:
        if quadrature.known(chosen):
            return quadrature.quadrature_reference(chosen, opened, seed, command)
        return make_reference(
            chosen, opened, out / hidden.SECRET / "chains", chains=chains, burn_in=burn_in, keep=keep, seed=seed,
            command=command, progress=progress_of(quiet),
        )  # fmt: skip

    found = hidden.make_hidden(chosen, load(chosen, data), points, out, sampler)
    say(f"publish {found}; keep {out / hidden.SECRET}")


def score(
    files: Annotated[list[Path], argument("FILE", "Submissions that were made with --points.")],
    task: Target,
    hidden: Annotated[Path, option("--hidden", "FOLDER", "What `hidden make` wrote.")],
    data: TargetFolder = None,
    bootstrap: Bootstrap = 1000,
    seed: Seed = 0,
    json: Json = None,
) -> None:
    """Check that the hidden points are those that were committed to, and rank submissions on them."""
    from rich.console import Group

    from retinabench.fidelity.leaderboard.board import make_board, score_task
    from retinabench.fidelity.leaderboard.hidden import hidden_evaluator
    from retinabench.fidelity.leaderboard.pages.tables import groups_shown, task_table
    from retinabench.fidelity.submissions.submission import read_submission
    from retinabench.fidelity.targets.data import load
    from retinabench.fidelity.targets.registry import TARGETS
    from retinabench.reports.toolkit.terminal import to_terminal

    chosen = TARGETS.find(task)
    evaluator, published = hidden_evaluator(chosen, load(chosen, data), hidden, bootstrap, seed)
    points = len(evaluator.data.test)
    found = score_task(evaluator, [read_submission(file, chosen, points, published) for file in files])
    tables = (to_terminal(task_table(found, group, terminal=True)) for group in groups_shown(found))
    print_result(Group(*tables), json, lambda: make_board([found]).to_dict())


VERBS: Verbs = {
    "make": (make, "retinabench fidelity hidden make mine.npz --task drawn-head --out hidden"),
    "score": (score, "retinabench fidelity hidden score a.npz b.npz --task drawn-head --hidden hidden"),
}

app = application("Hidden test points for an official ranking.")
add_verbs(app, VERBS)
