"""Packs the submissions of board runs, so that `fidelity board` ranks a lone new entry among them.

    python benchmarks/fidelity_baselines.py fidelity-runs [--add] [--data idrid=data/idrid] [--reference TASK=FILE] [--out FOLDER]

Reads every submission below the folders as the board does, leaves out those that it would not rank, and writes one compact file
per task into the data package (`retinabench-references`), in place of what is there or, with `--add`, of its rows of the same title and tier
that have the same seed or other settings. A task whose data or reference are not at hand is left out, and named. Of a classification it prints,
per tier, the share of the variance of one run's agreement and total variation that its seed carries: where that is large, a task needs more seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from toolkit import parse

from retinabench.core.errors import InputError
from retinabench.fidelity.distances import agreement, total_variation
from retinabench.fidelity.leaderboard.files import find_submissions, make_evaluator, task_of
from retinabench.fidelity.leaderboard.shipped import FOLDER, pack, settings_of, shipped_submissions
from retinabench.fidelity.scoring.measures import decided, nearness
from retinabench.fidelity.submissions.submission import Submission, read_submission
from retinabench.fidelity.targets.target import TARGETS


def main() -> None:
    """Pack what is found, and print per task how many submissions and bytes."""
    options = parse(__doc__, folders=(), data=[], reference=[], out=FOLDER, add=False)
    sources, references = (
        {task: Path(path) for task, _, path in (word.partition("=") for word in words)}
        for words in (options.data, options.reference)
    )
    files: dict[str, list[Path]] = {}
    for file in find_submissions([Path(one) for one in options.folders]):
        files.setdefault(task_of(file), []).append(file)
    for task, own in files.items():
        target = TARGETS.find(task)
        try:
            evaluator = make_evaluator(target, sources.get(task), references.get(task))
        except InputError as error:
            print(f"{task} left out: {error}")
            continue
        found: list[Submission] = []
        for file in own:
            try:
                one = read_submission(file, target, len(evaluator.data.test), evaluator.data.sha256)
            except InputError as error:
                print(f"left out: {error}")
                continue
            if mark := nearness(one, evaluator.reference):
                print(f"left out: {file}: {mark}")
            else:
                found.append(one)
        if options.add:
            shipped = shipped_submissions(target, evaluator.data.sha256)
            found += [old for old in shipped if not any(replaces(one, old) for one in found)]
        if found:
            path = pack(target, evaluator.data.sha256, found, options.out)
            print(f"{task}: {len(found)} submissions, {path.stat().st_size:,} bytes")
            if evaluator.reference.probs is not None:
                known = decided(evaluator.reference)
                print(seed_shares(found, evaluator.reference.probs, known))


def replaces(one: Submission, old: Submission) -> bool:
    """Tell whether a row replaces one of its title and tier: that of its seed, and all that have other settings."""
    tiers = [row.about.budget.limit if row.about.budget else None for row in (one, old)]
    if (one.title, tiers[0]) != (old.title, tiers[1]):
        return False
    return one.about.seed == old.about.seed or settings_of(one) != settings_of(old)


def seed_shares(found: Sequence[Submission], reference: NDArray[np.floating], known: NDArray[np.bool_]) -> str:
    """Return, per tier, the variance between the seeds of an entry over that between single runs: one-way analysis of variance."""
    lines = []
    for tier in sorted({one.about.budget.limit for one in found if one.about.budget and one.about.budget.limit}):
        entries: dict[str, list[tuple[float, float]]] = {}
        for one in found:
            if one.about.budget and one.about.budget.limit == tier:
                assert one.probs is not None
                agree = agreement(one.probs, reference)[known].mean()
                distance = total_variation(one.probs, reference).mean()
                entries.setdefault(one.title, []).append((float(agree), float(distance)))
        runs = [np.array(each) for each in entries.values() if len(each) > 1]
        within = np.mean([each.var(axis=0, ddof=1) for each in runs], axis=0)
        of_means = np.mean([each.var(axis=0, ddof=1) / len(each) for each in runs], axis=0)
        between = np.maximum(np.var([each.mean(axis=0) for each in runs], axis=0, ddof=1) - of_means, 0)
        agree, distance = within / (within + between)
        lines.append(f"  {tier:,.0f}: seeds carry {agree:.0%} (agreement), {distance:.0%} (total variation)")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
