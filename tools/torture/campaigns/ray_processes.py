"""A search on a Ray cluster of this machine, whose worker, node or head is killed.

The command ends, with one clear line or with its results; none of the cluster's processes is left; the same command, repeated
without Ray, finds the runs and gives the files of an undisturbed search.
"""

import contextlib
import importlib.util
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from torture.outcomes import Outcome, Verdict
from torture.running import start
from torture.trees import contents, damage_in, difference
from torture.trial import RETINABENCH, environment
from torture.verbs import TUNE, make_inputs

UNIT, SHARE = "kills", 2.0
ROW, PATIENCE = "ray", 900.0
KINDS = {"worker": "ray::", "node": "raylet/raylet", "head": "gcs/gcs_server"}


def campaign(seed: int, scratch: Path) -> Iterator[Outcome]:
    if importlib.util.find_spec("ray") is None:
        yield Outcome(ROW, "all", Verdict.SKIPPED, "Ray is not installed")
        return
    inputs = scratch / "inputs"
    make_inputs(inputs, {"data"})
    search = [*f"{TUNE} --trials 3 --device cpu optimizer.epochs=30".format(i=inputs).split()]
    local = _fresh(scratch / "local")
    ended = start([*search, "--workers", "1"], local, scratch / "output").wait(PATIENCE)
    if ended.code:
        raise RuntimeError(ended.error)
    expected, rng = contents(local / "out"), random.Random(seed)
    for kind in KINDS:
        yield _trial(search, scratch, kind, rng, expected)


def _fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "out").mkdir(parents=True)
    return folder


def _trial(search: list[str], scratch: Path, kind: str, rng: random.Random, expected: Mapping[str, bytes]) -> Outcome:
    folder = _fresh(scratch / "trial")
    rays = tempfile.mkdtemp(prefix="r", dir="/tmp")  # paths of sockets must be short
    env = environment(RAY_TMPDIR=rays, RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="disabled", RAY_worker_niceness="0")
    with open(scratch / "output", "wb") as output:
        process = subprocess.Popen(
            [*RETINABENCH, *search, "--engine", "ray"], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=output,
            stderr=output, start_new_session=True,
        )  # fmt: skip
    deadline, victim = time.monotonic() + PATIENCE, 0
    while process.poll() is None and not victim and time.monotonic() < deadline:
        found = [number for number, line in _processes(rays).items() if KINDS[kind] in line and "::IDLE" not in line]
        if found and any((folder / "out" / "runs").glob("*/run.json")):
            time.sleep(rng.uniform(0, 3))
            victim = rng.choice(found)
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        time.sleep(0.05)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(1.0, deadline - time.monotonic()))
    code, wrong = process.poll(), ""
    left = _left(rays)
    for number in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    shutil.rmtree(rays, ignore_errors=True)
    text = (scratch / "output").read_text(errors="replace")
    case = f"tune, {kind} killed" if victim else f"tune, no {kind} found to kill"
    if code is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        wrong = f"longer than {PATIENCE:g} s: {text[-300:]}"
    elif code not in (0, 1) or "Traceback (most recent call last)" in text:
        wrong = f"{code}: {text[-600:]}"
    elif left:
        wrong = f"{len(left)} processes were left: {list(left.values())[:3]}"
    elif damage := damage_in(folder / "out"):
        wrong = damage
    else:
        ended = start([*search, "--workers", "1"], folder, scratch / "output").wait(PATIENCE)
        wrong = ended.problem or difference(_steady(expected), _steady(contents(folder / "out")))
    good = Verdict.SURVIVED if code else Verdict.EQUAL
    return Outcome(ROW, case, Verdict.FAILED if wrong else good, wrong or text.strip()[-200:])


def _steady(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """What does not depend on when a run was started, and on which engine."""
    return {name: one for name, one in files.items() if Path(name).name in ("predictions.parquet", "posterior.pt")}


def _processes(rays: str) -> dict[int, str]:
    """The processes of the cluster with this folder for temporary files: number -> command line."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (path / "cmdline").read_bytes().decode("utf-8", "replace")
            if line and f"RAY_TMPDIR={rays}" in (path / "environ").read_bytes().decode("utf-8", "replace"):
                found[int(path.name)] = line.replace("\0", " ").strip()[:200]
    return found


def _left(rays: str) -> dict[int, str]:
    deadline = time.monotonic() + 90
    while (left := _processes(rays)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left
