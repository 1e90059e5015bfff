"""Weights & Biases: one W&B run per run folder, with an id that depends on the name of the folder alone.

Points on a server cannot be withdrawn. `OUT/exported.json` therefore lists the last epoch sent of every run, and another
export sends later epochs only. `WANDB_MODE=offline` writes below OUT without network, for a later `wandb sync`; there the
whole run is written each time and its earlier folder deleted, because a sync replaces the result of an earlier one.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from retinabench.core.errors import InputError, WorkError
from retinabench.core.files import write_json
from retinabench.core.results import JsonObject
from retinabench.integrations.tracked_run import TrackedRun

EXPORTED = "exported.json"


def export(runs: Iterable[TrackedRun], out: Path, project: str) -> list[str]:
    """Send new epochs and scores of every run to `project`; return a line per run with new content."""
    try:
        import wandb
    except ImportError:
        hint = "Install it with: pip install 'retinabench[track]'"
        raise InputError("--to wandb needs Weights & Biases", hint=hint) from None
    exported, lines = _read(out / EXPORTED), []
    out.mkdir(parents=True, exist_ok=True)
    for record in runs:
        key = f"{os.environ.get('WANDB_MODE', 'online')}/{project}/{run_id(record)}"
        before = exported.get(key, {"epoch": -1, "scores": ""})
        after = {
            "epoch": max((epoch for epoch, _ in record.rows), default=0),
            "scores": _digest(record.scores),
        }
        if after == before:
            continue
        try:
            _send(wandb, record, project, out, before["epoch"])
        except wandb.errors.UsageError as error:
            hint = "Run `wandb login`, or set WANDB_MODE=offline and `wandb sync` later."
            raise InputError(f"Weights & Biases refuses: {error}", hint=hint) from None
        except wandb.errors.Error as error:
            raise WorkError(f"Weights & Biases: {error}. The same command sends the rest.") from None
        exported[key] = after
        write_json(out / EXPORTED, exported)  # after every run, so that an interrupted export continues
        lines.append(f"{record.name}: epochs {max(before['epoch'], 0)} to {after['epoch']}")
    return lines


def run_id(record: TrackedRun) -> str:
    """Return the id of a run: 16 digits of the hash of its folder's name, which ends in the hash of the run."""
    return hashlib.sha256(record.name.encode()).hexdigest()[:16]


def _send(wandb: Any, record: TrackedRun, project: str, out: Path, sent: int) -> None:
    """Log the scores and the epochs after `sent`; offline, all epochs."""
    # The machine that exports may not be the one that trained: its code, console and load are left out.
    settings = wandb.Settings(
        console="off",
        silent=True,
        disable_git=True,
        save_code=False,
        x_disable_stats=True,
        x_disable_meta=True,
    )
    run = wandb.init(
        project=project,
        id=run_id(record),
        name=record.name,
        config=dict(record.settings),
        dir=str(out),
        resume="allow",
        settings=settings,
    )
    try:
        for epoch, values in record.rows:
            if epoch > sent or run.offline:
                run.log(dict(values), step=epoch)
        run.summary.update(dict(record.scores))
    finally:
        run.finish()
    if run.offline:
        for folder in (out / "wandb").glob(f"offline-run-*-{run_id(record)}"):
            if folder.resolve() != Path(run.dir).resolve().parent:
                shutil.rmtree(folder)


def _digest(scores: Any) -> str:
    return hashlib.sha256(json.dumps(dict(scores), sort_keys=True).encode()).hexdigest()[:12]


def _read(file: Path) -> JsonObject:
    try:
        content: JsonObject = json.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except ValueError:
        raise InputError("is damaged", file=file, hint="Choose another --out and --project.") from None
    return content
