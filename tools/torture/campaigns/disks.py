"""Every verb that writes, on disks that are full, failing or slow, with clocks that jump, and in folders with odd names.

A fault at an operation on files ends the command with one clear line, or has no effect; the same command, repeated without the
fault, gives the files of an undisturbed run.
"""

import errno
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from torture.interpose import Plan, What, interposed
from torture.outcomes import Outcome, Verdict, equal
from torture.running import PATIENCE, Running
from torture.trees import Undisturbed, contents, difference, fresh, undisturbed, wrong_after
from torture.trial import command, environment
from torture.verbs import VERBS, Verb

UNIT, SHARE = "faults", 2.0
AT_OPERATIONS = 24
FAULTS = {
    "ENOSPC from": (What.FAIL_FROM, errno.ENOSPC), "EIO at": (What.FAIL_ONCE, errno.EIO),
    "EDQUOT from": (What.FAIL_FROM, errno.EDQUOT), "short write at": (What.SHORT, 0),
    "EROFS from": (What.FAIL_FROM, errno.EROFS), "50 ms delay at": (What.DELAY, 50),
}  # fmt: skip
NAMES = {
    "spaces and quotes": "a b 'c' \"d\"", "a line end": "a\nb", "letters of other alphabets": "výsledky-結果-😀",
    "255 bytes": "x" * 255, "a leading dash": "-out", "a percent sign and braces": "%s{0}",
}  # fmt: skip
ENVIRONMENTS: dict[str, dict[str, str | None]] = {
    "LANG=C": {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "no HOME": {"HOME": None, "XDG_CACHE_HOME": None, "XDG_CONFIG_HOME": None},
    "no TMPDIR": {"TMPDIR": "/nowhere", "TEMP": None, "TMP": None},
}


def campaign(seed: int, scratch: Path) -> Iterator[Outcome]:
    plan = interposed()
    if plan is None:
        yield Outcome("disks", "all", Verdict.SKIPPED, "needs Linux and a C compiler")
        return
    verb, turn = VERBS[seed % len(VERBS)], seed // len(VERBS)
    base, rng = undisturbed(verb, scratch, plan), random.Random(seed)
    for number in range(AT_OPERATIONS):
        at = rng.randint(1, max(1, base.operations))
        yield _at_operation(verb, base, plan, [*FAULTS][(number + turn) % len(FAULTS)], at)
    for _ in range(2):
        yield _vanished(verb, base, rng.uniform(0, base.seconds))
    for jump in (-86400.0, 86400.0, -3e8):
        yield _clock(verb, base, jump)
    for what, name in NAMES.items():
        yield _named(verb, base, what, name)
    for what, changes in ENVIRONMENTS.items():
        yield _environment(verb, base, what, changes)
    for readonly in (False, True):
        yield _mounted(verb, base, readonly)


def _at_operation(verb: Verb, base: Undisturbed, plan: Plan, fault: str, at: int) -> Outcome:
    folder = fresh(base)
    what, number = FAULTS[fault]
    plan.set(folder / "out", at, what, number)
    running = base.start(folder)
    running.wait()
    plan.set(None)
    case = f"{verb.name}: {fault} operation {at} of {base.operations}"
    return _judged("disks: faults at operations", case, verb, base, folder, running)


def _judged(row: str, case: str, verb: Verb, base: Undisturbed, folder: Path, running: Running) -> Outcome:
    """Judge a command that was disturbed: its end, what it left, and the same command once more."""
    ended = running.wait()
    lines = ended.lines
    if left := running.orphans():
        wrong = f"{len(left)} processes were left"
    elif ended.broken:
        wrong = f"{ended.broken}: {ended.error[-600:]}"
    elif ended.code and len(lines) != 1:
        wrong = f"{len(lines)} lines of errors: {ended.error[-300:]}"
    else:
        (folder / "out").mkdir(parents=True, exist_ok=True)
        wrong = wrong_after(verb, base, folder)
    if wrong:
        return Outcome(row, case, Verdict.FAILED, wrong)
    return Outcome(row, case, Verdict.SURVIVED if ended.code else Verdict.EQUAL, lines[0] if lines else "")


def _vanished(verb: Verb, base: Undisturbed, after: float) -> Outcome:
    folder = fresh(base)
    running = base.start(folder)
    running.until(after)
    shutil.rmtree(folder / "out", ignore_errors=True)
    running.wait()
    shutil.rmtree(folder / "out", ignore_errors=True)
    case = f"{verb.name}: folder deleted after {after:.3f} s"
    return _judged("disks: vanished folders", case, verb, base, folder, running)


def _clock(verb: Verb, base: Undisturbed, jump: float) -> Outcome:
    folder = fresh(base)
    running = base.start(folder, first=lambda: _jumping(jump))
    return _judged("disks: clocks", f"{verb.name}: clock jumps by {jump:g} s", verb, base, folder, running)


def _jumping(jump: float) -> None:
    real: Callable[[], float] = time.time
    calls = iter(range(10**9))
    time.time = lambda: real() + jump * (next(calls) % 2)


def _named(verb: Verb, base: Undisturbed, what: str, name: str) -> Outcome:
    folder = fresh(base)
    (folder / "out").rmdir()
    parts = [Path(one).parts for one in base.arguments]
    both = zip(parts, base.arguments, strict=True)
    given = [os.path.join(".", name, *own[1:]) if own[:1] == ("out",) else one for own, one in both]
    ended = replace(base, arguments=given).start(folder).wait()
    same = set(contents(folder / name)) == set(base.files)  # some hold the name of their folder
    return equal("disks: names of folders", f"{verb.name}: {what}", ended.problem or ("" if same else "other files"))


def _environment(verb: Verb, base: Undisturbed, what: str, changes: dict[str, str | None]) -> Outcome:
    folder = fresh(base)
    ended = command(*base.arguments, cwd=folder, env=environment(**changes), seconds=PATIENCE)
    blank = (".html", ".svg", ".png", ".pdf")
    files = {path: None if path.endswith(blank) else one for path, one in base.files.items()}
    wrong = ended.problem or difference(files, contents(folder / "out"))
    return equal("disks: environments", f"{verb.name}: {what}", wrong)


def _mounted(verb: Verb, base: Undisturbed, readonly: bool) -> Outcome:
    """Write to a disk of half the size that is needed, or to a read-only one, and then to one that is neither."""
    folder, row = fresh(base), "disks: small and read-only file systems"
    size = max(16384, sum(len(content or b"") + 4096 for content in base.files.values()) // 2)
    case = f"{verb.name}: {'read-only' if readonly else f'{size} bytes'}"
    if not _mount("-t", "tmpfs", "-o", f"size={'64m' if readonly else size}", "tmpfs", folder / "out"):
        return Outcome(row, case, Verdict.SKIPPED, "tmpfs cannot be mounted here")
    try:
        if readonly:
            _mount("-o", "remount,ro", folder / "out")
        running = base.start(folder)
        running.wait()
        _mount("-o", "remount,rw,size=64m", folder / "out")
        return _judged(row, case, verb, base, folder, running)
    finally:
        subprocess.run(["umount", "--lazy", folder / "out"], check=False)


def _mount(*arguments: str | Path) -> bool:
    mount = shutil.which("mount")
    return mount is not None and not subprocess.run([mount, *arguments], capture_output=True).returncode
