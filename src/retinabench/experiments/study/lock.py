"""One command at a time on one folder: whoever has the turn, who had it last, and whether they still live.

A turn is a numbered file, `turn-000003.json`, that one process of several claims (`store.claim`) and marks as over when
it ends. A turn whose process has died (`kill -9`) is over too: the next one takes the next number, which again only one
process gets. Nothing is locked, so that nothing stays locked.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from retinabench.core.atomic_files import claim, write_json
from retinabench.core.errors import InputError

FOLDER = "turns"


@contextlib.contextmanager
def take_turn(out: Path) -> Iterator[None]:
    """Hold the folder `out` while the block runs.

    Raises `InputError` where another live command holds it.
    """
    number, last = _last(out)
    if last is not None and alive(last):
        raise _refusal(out, number, last)
    mine = {
        "token": secrets.token_hex(8),
        "host": socket.gethostname(),
        "process": os.getpid(),
        "born": _born(os.getpid()),
        "since": time.time(),
        "over": False,
    }
    file = _file(out, number + 1)
    claim(file, mine)
    if (winner := _read(file)) != mine:
        raise _refusal(out, number + 1, winner)
    for old in (out / FOLDER).glob("turn-*.json"):
        if old.name < file.name:
            old.unlink(missing_ok=True)
    try:
        yield
    finally:
        write_json(file, mine | {"over": True})


def holder(out: Path) -> dict[str, Any] | None:
    """Return the live turn on `out`, or None."""
    _, last = _last(out)
    return last if last is not None and alive(last) else None


def alive(turn: dict[str, Any]) -> bool:
    """Tell whether a turn goes on; of another machine nobody can tell, so it counts as going on."""
    if turn["over"]:
        return False
    if turn["host"] != socket.gethostname():
        return True
    try:
        os.kill(turn["process"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return bool(_born(turn["process"]) == turn["born"])  # a number of a dead process is given out again


def _last(out: Path) -> tuple[int, dict[str, Any] | None]:
    files = sorted((out / FOLDER).glob("turn-*.json"))
    return (int(files[-1].stem.rpartition("-")[2]), _read(files[-1])) if files else (0, None)


def _file(out: Path, number: int) -> Path:
    return out / FOLDER / f"turn-{number:06d}.json"


def _read(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_text())
    return content


def _born(process: int) -> str:
    """Return when a process was started, in the system's own ticks; empty where the system does not tell."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _refusal(out: Path, number: int, turn: dict[str, Any]) -> InputError:
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(turn["since"]))
    elsewhere = turn["host"] != socket.gethostname()
    hint = f" If that machine is gone, delete {_file(out, number)}." if elsewhere else ""
    return InputError(
        f"another benchmark command is at work in it since {since} (process {turn['process']} on {turn['host']})",
        file=out,
        hint=f"Wait for it, ask it with --status, or stop it first.{hint}",
    )
