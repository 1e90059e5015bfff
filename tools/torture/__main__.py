"""Run the campaigns for a time and print the table of counts; an interrupted run continues.

python -m torture --minutes 60
python -m torture --only kills --seed 3     # repeat one batch, and print each outcome
python -m torture --every-operation         # kill each verb at each operation on its files; takes hours
"""

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from torture.outcomes import Outcome, OutcomeLog, Verdict, campaign_names, failures, load, table
from torture.trial import end_group

LONGEST_BATCH = 1800.0  # seconds after which a batch is stopped and counted as a failure


@dataclass
class Batch:
    """A batch that runs now."""

    name: str
    seed: int
    process: subprocess.Popen[bytes]
    folder: Path
    start: float


def run_batch(
    name: str, seed: int, log: OutcomeLog, scratch: Path, *, show: bool = False, most: int | None = None
) -> None:
    module, start, trials = load(name), time.monotonic(), 0
    for outcome in islice(module.campaign(seed, scratch), most):
        log.outcome(name, seed, module.UNIT, outcome)
        trials += 1
        if show:
            print(f"{outcome.verdict:9}{outcome.campaign}: {outcome.case}: {outcome.detail}", flush=True)
    log.ended(name, seed, time.monotonic() - start, trials)


def start_batch(name: str, seed: int, log: Path) -> Batch:
    """Start a batch in a process group of its own; its temporary files lie in its folder, which is deleted at its end."""
    folder = Path(tempfile.mkdtemp(prefix=f"torture-{name}-"))
    scratch, temporary = folder / "scratch", folder / "tmp"
    scratch.mkdir()
    temporary.mkdir()
    arguments = ["--log", str(log), "--only", name, "--seed", str(seed), "--scratch", str(scratch), "--quiet"]
    command, env = [sys.executable, "-m", "torture", *arguments], {**os.environ, "TMPDIR": str(temporary)}
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, env=env)
    return Batch(name, seed, process, folder, time.monotonic())


def stop(batch: Batch) -> None:
    end_group(batch.process.pid)
    batch.process.wait()
    shutil.rmtree(batch.folder, ignore_errors=True)


def next_batch(names: list[str], log: OutcomeLog, running: list[Batch]) -> tuple[str, int] | None:
    """Return the campaign that has had the least of its share of time, and its next seed; None when all have nothing left."""
    done = log.batches()
    spent = {name: sum(line["seconds"] for line in done.get(name, [])) for name in names}
    for batch in running:
        spent[batch.name] += time.monotonic() - batch.start
    # A batch without trials ends its campaign.
    left = [name for name in names if all(line["trials"] for line in done.get(name, []))]
    if not left:
        return None
    name = min(left, key=lambda name: spent[name] / getattr(load(name), "SHARE", 1.0))
    taken = {line["seed"] for line in done.get(name, [])}
    taken |= {batch.seed for batch in running if batch.name == name}
    return name, next(seed for seed in range(len(taken) + 1) if seed not in taken)


def run_all(names: list[str], log: OutcomeLog, minutes: float, jobs: int) -> None:
    before = sum(line["elapsed"] for line in log.lines() if "elapsed" in line)
    running: list[Batch] = []
    last = time.monotonic()
    try:
        while before < minutes * 60:
            while len(running) < jobs and (following := next_batch(names, log, running)):
                running.append(start_batch(*following, log.path))
            if not running:
                break
            time.sleep(0.2)
            for batch in [*running]:
                if batch.process.poll() is not None or time.monotonic() - batch.start > LONGEST_BATCH:
                    _close(batch, log)
                    running.remove(batch)
            now = time.monotonic()
            if now - last > 10 or before + now - last >= minutes * 60:
                log.append({"elapsed": now - last})
                before, last = before + now - last, now
    finally:
        for batch in running:
            stop(batch)


def _close(batch: Batch, log: OutcomeLog) -> None:
    """Count a batch that hung or crashed as a failure, so that it is not repeated without end."""
    code = batch.process.poll()
    stop(batch)
    if code != 0:
        why = f"the batch ended with code {code}" if code is not None else f"longer than {LONGEST_BATCH:g} s"
        outcome = Outcome(batch.name, "whole batch", Verdict.FAILED, why)
        log.outcome(batch.name, batch.seed, load(batch.name).UNIT, outcome)
        log.ended(batch.name, batch.seed, time.monotonic() - batch.start, 1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="torture", description="Try to break retinabench, and count.")
    parser.add_argument("--minutes", type=float, default=60, help="time to spend, with that of earlier runs in the log")
    parser.add_argument("--log", type=Path, default=Path("build/torture/outcomes.jsonl"), help="log to continue")
    parser.add_argument("--only", action="append", choices=campaign_names(), help="campaigns; all by default")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="batches at once")
    parser.add_argument("--seed", type=int, help="run one batch of each campaign with this seed, and log nothing")
    every = "kill these commands, or all, at each of their operations on files, and continue the log"
    parser.add_argument("--every-operation", nargs="*", metavar="VERB", help=every)
    parser.add_argument("--trials", type=int, help="with --seed: stop each batch after so many trials")
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--quiet", action="store_true", help="print only the table")
    given = parser.parse_args()
    names = given.only or campaign_names()
    if given.scratch:
        run_batch(names[0], given.seed, OutcomeLog(given.log), given.scratch)
        return 0
    if given.seed is not None:
        with tempfile.TemporaryDirectory(prefix="torture-") as folder:
            log = OutcomeLog(Path(folder) / "outcomes.jsonl")
            for name in names:
                (scratch := Path(folder) / name).mkdir()
                run_batch(name, given.seed, log, scratch, show=not given.quiet, most=given.trials)
            print(table(log))
            return bool(failures(log))
    log = OutcomeLog(given.log)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        if given.every_operation is None:
            run_all(names, log, given.minutes, given.jobs)
        else:
            from torture.campaigns.kills import kill_verbs  # imports PyTorch, which other campaigns need not

            kill_verbs(given.every_operation, log)
    print(table(log))
    print("\n".join(failures(log)))
    print(f"Log: {given.log}")
    return bool(failures(log))


if __name__ == "__main__":
    sys.exit(main())
