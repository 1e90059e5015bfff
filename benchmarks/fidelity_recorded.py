"""Prints the standing of a task on a board as tables of `fidelity/leaderboard/recorded.toml`, where its submissions are too large to ship.

    retinabench fidelity board fidelity-runs --out board
    python benchmarks/fidelity_recorded.py board/board.json energy-gap --seeds "ten seeds each"

One table per tier of the stated track, its entries by the first ranked measure, the nearest first. Each entry has at
least two seeds, which its standard error needs.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from retinabench.fidelity.scoring.measures import ALL, MEASURES, RANKED


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("board", type=Path)
    parser.add_argument("task")
    parser.add_argument("--seeds", required=True, help="how many seeds the entries have, in words")
    options = parser.parse_args()
    for task in json.loads(options.board.read_text("utf-8"))["tasks"]:
        division = task["division"]
        if task["task"] != options.task or division["track"] != "stated" or division["tier"] is None:
            continue
        names = RANKED[task["likelihood"]]
        sign = -1 if MEASURES[names[0]].higher else 1
        entries = [one for one in task["entries"] if not one["baseline"]]
        entries.sort(key=lambda one: sign * one["groups"][ALL][names[0]]["value"])
        key = f"{options.task}.{division['tier']}"
        print(f'\n[{key}]\ndate = {time.strftime("%Y-%m-%d")}\nseeds = "{options.seeds}"\n\n[{key}.entries]')
        for one in entries:
            cells = [
                '{{ measure = "{}", value = {:.3f}, error = {:.3f} }}'.format(
                    name, cell["value"], cell["error"]
                )
                for name, cell in ((name, one["groups"][ALL][name]) for name in names)
            ]
            print(f'"{one["title"]}" = [{", ".join(cells)}]')


if __name__ == "__main__":
    main()
