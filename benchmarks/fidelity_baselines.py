"""Packs the submissions of board runs, so that `fidelity board` ranks a lone new entry among them.

    python benchmarks/fidelity_baselines.py fidelity-runs [--add] [--data idrid=data/idrid] [--reference TASK=FILE] [--out FOLDER]

Reads every submission below the folders as the board does, leaves out those that it would not rank, and writes one compact file
per task into the package (`fidelity/leaderboard/shipped`), in place of what is there or, with `--add`, beside it. A task whose data
or reference are not at hand is left out, and named.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from retinabench.core.errors import InputError
from retinabench.fidelity.leaderboard.files import find_submissions, make_evaluator, task_of
from retinabench.fidelity.leaderboard.shipped import FOLDER, beside, pack, shipped_submissions
from retinabench.fidelity.scoring.nearness import nearness
from retinabench.fidelity.submissions.submission import Submission, read_submission
from retinabench.fidelity.targets.registry import TARGETS


def main() -> None:
    """Pack what is found, and print per task how many submissions and bytes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument(
        "--data", action="append", default=[], help="TASK=FOLDER of data that are not shipped"
    )
    parser.add_argument("--reference", action="append", default=[], help="TASK=FILE of other references")
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--add", action="store_true", help="keep the shipped submissions of other runs")
    options = parser.parse_args()
    sources, references = (
        {task: Path(path) for task, _, path in (word.partition("=") for word in words)}
        for words in (options.data, options.reference)
    )
    files: dict[str, list[Path]] = {}
    for file in find_submissions(options.folders):
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
            found += beside(found, shipped_submissions(target, evaluator.data.sha256))
        if found:
            path = pack(target, evaluator.data.sha256, found, options.out)
            print(f"{task}: {len(found)} submissions, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
