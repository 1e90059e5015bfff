"""`apply`: the list of actions of every file of new predictions, the log of a folder of such lists, and what the command prints.

A folder holds `NAME-actions.csv` for every file `NAME.csv` that was applied, and `log.jsonl` with one line for each. A list is written before
its line: where the command was killed between them, the same command writes the list again. A file that stands in the log is not applied again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from rich.console import Group
from rich.text import Text

from retinabench.core.errors import InputError, check, inside, sha256
from retinabench.core.files import sealed, unsealed, write_bytes
from retinabench.core.results import JsonObject
from retinabench.core.workspace import Workspace
from retinabench.metrics.actions import ACTIONS, ActionList, FrozenRule, apply, refuse_refuted
from retinabench.metrics.follow_up import Visits, Watched, first_alarm
from retinabench.metrics.monitoring import LEVEL, drift_evidence
from retinabench.predictions.io import read_predictions
from retinabench.predictions.table import Predictions
from retinabench.reports.toolkit.tables import Cell, Column, Row, Table, percent

LOG = "log.jsonl"
SCHEMA = "retinabench.apply/1"


@dataclass(frozen=True)
class Applied:
    """What a folder of lists holds after a command."""

    new: tuple[JsonObject, ...]  # lines of the log for the files of this command, in their order
    log_wealth: float | None  # of the evidence of drift over all lists of this certificate; None without a reference
    alarm: str | None  # the file at which that evidence reached the alarm
    patients: int  # that the evidence is of
    reference: int  # validation patients with which they are compared
    notes: tuple[str, ...]

    def to_dict(self) -> JsonObject:
        drift = {"log_wealth": self.log_wealth, "alarm": self.alarm, "patients": self.patients, "level": LEVEL}
        return {"schema": SCHEMA, "files": list(self.new), "drift": drift, "notes": list(self.notes)}

    def count(self, what: str) -> Mapping[str, int]:
        return {action: sum(line[what][action] for line in self.new) for action in ACTIONS}


def apply_files(files: Sequence[tuple[Path, Predictions]], certificate: Path, rule: FrozenRule, out: Path) -> Applied:
    """Write the list of every file that is not in the log yet, and look for drift over all lists of this certificate."""
    refuse_refuted(rule, certificate)
    digest, notes, new = sha256(certificate), [], []
    with Workspace(out, "log of lists", LOG).lock():
        log = read_log(out)
        known = {line["file"]: line for line in log}
        for path, predictions in files:
            line, content = known.get(path.name), sha256(path)
            if line is not None and (line["sha256"], line["certificate"]) != (content, digest):
                hint = "Rename the new file, or choose another --out: a list that was worked through is not replaced."
                other = "content" if line["sha256"] != content else "certificate"
                raise InputError(f"was applied with another {other} at {line['time']}", file=path, hint=hint)
            if line is not None:
                where = check(inside(out, line["list"]))
                notes.append(f"{path.name} was applied at {line['time']}: {where} is left as it is")
            else:
                found = apply(predictions, rule)
                notes += [f"{path.name}: {note}" for note in _notes(found, rule)]
                name = f"{path.stem}-actions.csv"
                if name in {one["list"] for one in log}:
                    hint = "Rename the new file."
                    raise InputError(f"would replace {name}, the list of another file", file=path, hint=hint)
                write_bytes(out / name, found.to_csv(), checked=True)
                time = datetime.now(UTC).isoformat(timespec="seconds")
                line = {"file": path.name, "sha256": content, "certificate": digest, "list": name, "time": time}
                first = np.unique(found.patients, return_index=True)[1]
                for what, one in (("images", found.actions), ("patients", found.patient_actions[first])):
                    line[what] = {action: int((one == action).sum()) for action in ACTIONS}
                log.append(line)
                known[path.name] = line
                write_bytes(out / LOG, b"".join(map(sealed, log)), checked=True)
            new.append(line)
        lists = [line for line in log if line["certificate"] == digest]
        return judged(lists, rule, out, tuple(new), tuple(notes))


def read_log(folder: Path) -> list[JsonObject]:
    path = folder / LOG
    if not path.is_file():
        return []
    try:
        lines = [unsealed(line) for line in check(path).read_bytes().splitlines()]
        for line in lines:  # a log from elsewhere may hold anything
            if not all(isinstance(line[name], str) for name in ("file", "sha256", "certificate", "list", "time")):
                raise ValueError("a line names no file")
            sum(int(line[what][action]) for what in ("images", "patients") for action in ACTIONS)
        return lines
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"is damaged ({error})", file=path, hint="Restore it from a copy.") from None


def _notes(found: ActionList, rule: FrozenRule) -> list[str]:
    notes = list(found.notes)
    if not rule.goals:
        notes.append("the thresholds are plain choices on the validation images: they carry no guarantee")
    most = int(np.unique(found.patients, return_counts=True)[1].max())
    several = rule.per == "patient" or rule.most_images > 1
    if rule.goals and rule.per != "patient" and most > rule.most_images:
        notes.append(f"a patient has {most} images, and the certificate is of patients with up to {rule.most_images}")
    if several and found.images.patient_id is None:
        notes.append("there is no column patient_id: the actions are those of single images, not of patients")
    return notes


def judged(
    lists: Sequence[JsonObject],
    rule: FrozenRule,
    out: Path,
    new: tuple[JsonObject, ...] = (),
    notes: tuple[str, ...] = (),
) -> Applied:
    """Compare the patients of all lists, in the order of the log, with the validation patients of the certificate."""
    if not rule.reference:
        older = "the certificate keeps no validation values, so that drift is not watched: write it again with `transfer --json`"
        return Applied(new, None, None, 0, 0, (*notes, older))
    reference = len(rule.reference.get("prob", ()))
    parts = []
    for k, line in enumerate(lists):
        if not (file := inside(out, line["list"])).is_file():
            hint = "Restore it from a copy: its patients are a part of the evidence of drift."
            raise InputError("is missing", file=file, hint=hint)
        graded = read_predictions(file, unlabelled=True, ungradable=True).select(unlabelled=True)
        if graded is not None:
            part = Watched.of(graded, "own", None)
            parts.append(replace(part, day=np.full(len(part), np.datetime64(k, "D"))))
    if not parts:
        return Applied(new, None, None, 0, reference, notes)
    images = Watched(*(np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(Watched)))
    visits = Visits.of(images)
    path = drift_evidence(images, visits, rule.reference, 0)
    crossed = first_alarm(path, LEVEL)
    alarm = None if crossed is None else str(lists[int(visits.day[crossed].astype(int))]["file"])
    return Applied(new, float(path[-1]), alarm, len(np.unique(images.patient)), reference, notes)


def apply_summary(found: Applied) -> Group:
    hospital, expert, nothing = found.count("patients").values()
    heads = [
        f"Of {hospital + expert + nothing:,} patients, {hospital:,} are referred to the hospital, the expert reads the images of "
        f"{expert:,}, and {nothing:,} need no referral."
    ]
    if found.alarm is not None:
        alarm = (
            f"Alarm: since {found.alarm} the images differ from those of the certificate. Let the expert read all images until "
            "labels show that its goals are still met."
        )
        heads.insert(0, alarm)
    counts = [found.count(what) for what in ("images", "patients")]
    rows = [Row(action, [Cell.count(one[action]) for one in counts]) for action in ACTIONS]
    rows.append(Row("all", [Cell.count(sum(one.values())) for one in counts]))
    table = Table.of("", [Column("images"), Column("patients")], rows, row_header="Action")
    lines = []
    if found.log_wealth is not None:
        evidence = math.exp(min(found.log_wealth, 20))
        lines.append(
            f"Drift. {found.patients:,} patients of all lists are compared with {found.reference:,} validation patients: the "
            f"evidence of another probability or uncertainty is {evidence:.3g}, and the alarm is raised at {1 / LEVEL:g}. Without a "
            f"change it is ever raised with probability {percent(LEVEL)} at most. Errors of which the model is sure leave no trace in it."
        )
    return Group(*(Text(line, style="bold") for line in heads), table, *map(Text, lines))
