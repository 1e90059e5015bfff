"""What several benchmarks share: options by their defaults, rows of tables, shares with their errors, ratios of paired timings."""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Clock = Callable[[], float]


def parse(doc: str | None, arguments: Sequence[str] | None = None, **defaults: Any) -> argparse.Namespace:
    """Read options that have the types of their defaults: of a list several values, of False none, of None a path.

    An option whose default is [] is repeated, one whose default is [str] takes several words; words whose default is a tuple have no name.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        flag = f"--{name.replace('_', '-')}"
        if default is False:
            parser.add_argument(flag, action="store_true")
        elif isinstance(default, tuple):
            parser.add_argument(name, nargs="*", default=default)
        elif default == []:
            parser.add_argument(flag, action="append", default=[])
        elif default == [str]:
            parser.add_argument(flag, nargs="+", default=[])
        elif isinstance(default, list):
            parser.add_argument(flag, type=type(default[0]), nargs="+", default=default)
        else:
            parser.add_argument(flag, type=Path if default is None else type(default), default=default)
    return parser.parse_args(arguments)


def kept_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def keep_lines(path: Path, *rows: Any) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def print_row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def print_head(title: str, columns: str) -> None:
    """Print the title and the head of a Markdown table, whose columns are divided as in Markdown."""
    print(f"\n## {title}\n")
    print_row(columns)
    print("|---" * columns.count(" | ") + "|---|", flush=True)


def share(count: float, of: int) -> str:
    """Percent with its standard error, such as 3.5 ± 0.9."""
    p = count / of
    return f"{100 * p:.1f} ± {100 * np.sqrt(max(p * (1 - p), 1 / of) / of):.1f}"


def seconds(function: Callable[[], object], clock: Clock = time.perf_counter) -> float:
    start = clock()
    function()
    return clock() - start


def ratio(reference: Clock, other: Clock, rounds: int) -> tuple[float, float, list[tuple[float, float]]]:
    """Median of other / reference over rounds that measure both, its largest deviation, and the pairs."""
    pairs = [(reference(), other()) for _ in range(rounds)]
    ratios = [b / a for a, b in pairs]
    middle = statistics.median(ratios)
    return middle, max(abs(one - middle) for one in ratios), pairs
