"""`status`: where every certificate of a folder stands: made, applied, watched, refuted.

What belongs to a certificate is found by its checksum: the lists of `apply` by their log, and the results of `monitor`.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from retinabench.core.errors import InputError, check, sha256
from retinabench.core.results import Document, JsonObject
from retinabench.metrics.actions import read_rule
from retinabench.reports.actions import LOG, judged, read_log
from retinabench.reports.guarantees import SHEET
from retinabench.reports.monitoring import goal_text
from retinabench.reports.toolkit.tables import counted

MOST_BYTES = 50_000_000  # of a JSON file that is looked at
CERTIFICATES = ("retinabench.transfer/", "retinabench.triage/", "retinabench.within/")


@dataclass(frozen=True)
class CertificateStatus(Document):
    """Where a certificate stands; `state` is the worst of what is known of it, and `alarm` whether it must not be used as it is."""

    file: str
    alarm: bool
    state: str
    goals: tuple[str, ...]
    lists: int
    patients: int
    last: str
    drift: str
    watched: str
    sheet: bool  # whether its PDF is in the same folder
    replaced: str  # the certificate of the newest list of a folder whose older lists are of this one


def status_of(folder: Path) -> list[CertificateStatus]:
    found = {path: content for path in sorted(folder.rglob("*.json")) if (content := _read(path)) is not None}
    logs = [(path.parent, read_log(path.parent)) for path in sorted(folder.rglob(LOG))]
    schemas = {path: str(content.get("schema", "")) for path, content in found.items()}
    watched = [(path, found[path]) for path, schema in schemas.items() if schema.startswith("retinabench.monitor/")]
    certificates = [path for path, schema in schemas.items() if schema.startswith(CERTIFICATES)]
    if not certificates:
        raise InputError("holds no certificate", file=folder, hint="`retinabench transfer … --json FILE` writes one.")
    certificates.sort(key=lambda path: (path.stat().st_mtime, path.name))
    names = {sha256(path): path.relative_to(folder).as_posix() for path in certificates}
    states = []
    for digest, name in names.items():
        sheet = (folder / name).with_name(SHEET).is_file()
        try:
            rule = read_rule(folder / name)
        except InputError as error:
            problem = f"refused or damaged: {error.problem}"
            states.append(CertificateStatus(name, False, problem, (), 0, 0, "", "", "", sheet, ""))
            continue
        own = {out: of_log for out, log in logs if (of_log := [line for line in log if line["certificate"] == digest])}
        alarms = [alarm for out, mine in own.items() if (alarm := judged(mine, rule, out).alarm) is not None]
        lines = [line for mine in own.values() for line in mine]
        mine = [one for one in watched if one[1].get("certificate") == digest]
        newest = max(mine, key=lambda one: one[0].stat().st_mtime)[1] if mine else {}
        newer = [log[-1]["certificate"] for out, log in logs if out in own]
        replaced = next((names[one] for one in newer if one in names and one != digest), "")
        state = "in use" if lines else "made, not yet applied"
        if rule.broken:
            state = f"refuted by the labels of {' and '.join(rule.broken)}"
        elif newest.get("alarm"):
            state = "alarm: watched labels or drift speak against it"
        elif alarms:
            state = f"alarm: the images have drifted since {alarms[0]}"
        if gone := bool(replaced and digest not in newer):
            state = f"replaced by {replaced}" + (f" after {state}" if state != "in use" else "")
        patients = sum(sum(line["patients"].values()) for line in lines)
        last = max((f"{line['file']} at {line['time']}" for line in lines), default="")
        states.append(CertificateStatus(
            name, bool(rule.broken or newest.get("alarm") or alarms) and not gone, state,
            tuple(goal_text(one) for one in rule.goals), len(lines), patients, last, alarms[0] if alarms else "",
            str(newest.get("headline", "")), sheet, replaced,
        ))  # fmt: skip
    return states


def _read(path: Path) -> JsonObject | None:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        if path.stat().st_size <= MOST_BYTES:
            content = json.loads(check(path).read_bytes())
            return content if isinstance(content, dict) else None
    return None


def status_lines(found: list[CertificateStatus]) -> list[Text]:
    lines = []
    for one in found:
        lines.append(Text(f"{one.file}: {one.state}.", style="bold"))
        facts = [
            f"Goals: {', '.join(one.goals)}." if one.goals else "Not certified: a plain choice.",
            f"{counted(one.lists, 'list')} of {counted(one.patients, 'visit')}; the last is {one.last}."
            if one.lists
            else "",
            f"Watched: {one.watched}" if one.watched else "Not watched yet.",
            f"To sign: {SHEET}, in the same folder." if one.sheet else "",
        ]
        lines.append(Text(" ".join(fact for fact in facts if fact)))
    return lines
