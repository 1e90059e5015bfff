"""What campaigns yield, where they are found, and the log of outcomes, from which a run continues and the table is counted."""

import importlib
import json
import pkgutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from torture import campaigns


class Verdict(StrEnum):
    """How a trial ended."""

    REFUSED = "refused"  # in one line that names the place and a hint
    EQUAL = "equal"  # accepted, with the result of an independent reading or of an undisturbed run
    SURVIVED = "survived"  # the work failed with one clear line, and nothing was damaged
    SKIPPED = "skipped"  # not possible on this machine; the detail says why
    FAILED = "FAILED"  # traceback, hang, too much memory, wrong acceptance, other result, leftover


@dataclass(frozen=True)
class Outcome:
    """The result of one trial."""

    campaign: str
    case: str
    verdict: Verdict
    detail: str = ""


def equal(campaign: str, case: str, wrong: str) -> Outcome:
    """Return an outcome that is equal to what it should be, unless something is wrong."""
    return Outcome(campaign, case, Verdict.FAILED if wrong else Verdict.EQUAL, wrong)


class Campaign(Protocol):
    """A module of `torture.campaigns`."""

    UNIT: str

    def campaign(self, seed: int, scratch: Path) -> Iterator[Outcome]:
        """Run one batch of trials."""


def campaign_names() -> list[str]:
    return sorted(found.name for found in pkgutil.iter_modules(campaigns.__path__))


def load(name: str) -> Campaign:
    module: Campaign = importlib.import_module(f"torture.campaigns.{name}")
    return module


class OutcomeLog:
    """The log file: one JSON line each, only ever appended to."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, line: dict[str, Any]) -> None:
        """Add one line in one write, so that several processes can log to one file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab", buffering=0) as file:
            file.write(json.dumps(line).encode() + b"\n")

    def outcome(self, name: str, seed: int, unit: str, outcome: Outcome) -> None:
        self.append({"name": name, "seed": seed, "unit": unit, **asdict(outcome)})

    def ended(self, name: str, seed: int, seconds: float, trials: int) -> None:
        """Log the end of a batch; without this line the batch is repeated."""
        self.append({"name": name, "seed": seed, "ended": True, "seconds": seconds, "trials": trials})

    def lines(self) -> Iterator[dict[str, Any]]:
        """All whole lines; the last may be cut by a kill."""
        if self.path.is_file():
            for line in self.path.read_bytes().split(b"\n"):
                try:
                    yield json.loads(line)
                except ValueError:
                    continue

    def batches(self) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {}
        for line in self.lines():
            if line.get("ended"):
                found.setdefault(line["name"], []).append(line)
        return found

    def trials(self) -> list[dict[str, Any]]:
        """The trials; of a batch that was interrupted and repeated, each case counts once, as it ended last."""
        found = [line for line in self.lines() if "verdict" in line]
        return list({(line["name"], line["seed"], line["campaign"], line["case"]): line for line in found}.values())


def table(log: OutcomeLog) -> str:
    units: dict[str, str] = {}
    counts: dict[str, Counter[str]] = {}
    for trial in log.trials():
        units[trial["campaign"]] = trial["unit"]
        counts.setdefault(trial["campaign"], Counter())[trial["verdict"]] += 1
    rows = [(name, units[name], counts[name]) for name in sorted(counts)]
    rows.append(("all", "trials", sum(counts.values(), Counter())))
    lines = [f"| campaign | trials | {' | '.join(Verdict)} |", f"|---|{'---:|' * (1 + len(Verdict))}"]
    for name, unit, count in rows:
        tried = sum(count.values()) - count[Verdict.SKIPPED]
        lines.append(f"| {name} | {tried:,} {unit} | {' | '.join(f'{count[c]:,}' for c in Verdict)} |")
    return "\n".join(lines)


def failures(log: OutcomeLog, limit: int = 40) -> list[str]:
    failed = [one for one in log.trials() if one["verdict"] == Verdict.FAILED]
    about = [f"{one['campaign']} (batch {one['name']} {one['seed']}): {one['case']}" for one in failed]
    lines = [f"{what}: {one['detail'][:300]}" for what, one in zip(about, failed, strict=True)]
    return [*lines[:limit], *([f"and {len(lines) - limit} more"] if len(lines) > limit else [])]
