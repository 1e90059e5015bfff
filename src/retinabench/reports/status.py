"""`status`: where every certificate of a folder stands: made, applied, watched, refuted.

What belongs to a certificate is found by its checksum: the lists of `apply` by their log, and the results of `monitor`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from retinabench.core.errors import InputError
from retinabench.core.files import check, sha256
from retinabench.core.results import Document, JsonObject
from retinabench.metrics.actions import read_rule
from retinabench.reports.actions import LOG, judged, read_log
from retinabench.reports.guarantees import SHEET
from retinabench.reports.monitoring import goal_text
from retinabench.reports.toolkit.pages import counted

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
    watched = [
        (path, content)
        for path, content in found.items()
        if str(content.get("schema", "")).startswith("retinabench.monitor/")
    ]
    certificates = [path for path, content in found.items() if str(content.get("schema", "")).startswith(CERTIFICATES)]
    if not certificates:
        raise InputError("holds no certificate", file=folder, hint="`retinabench transfer … --json FILE` writes one.")
    certificates.sort(key=lambda path: (path.stat().st_mtime, path.name))
    names = {sha256(path): path.relative_to(folder).as_posix() for path in certificates}
    return [_status(folder / name, name, digest, names, logs, watched) for digest, name in names.items()]


def _read(path: Path) -> JsonObject | None:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        if path.stat().st_size <= MOST_BYTES:
            content = json.loads(check(path).read_bytes())
            return content if isinstance(content, dict) else None
    return None


def _status(
    path: Path,
    name: str,
    digest: str,
    names: Mapping[str, str],
    logs: list[tuple[Path, list[JsonObject]]],
    watched: list[tuple[Path, JsonObject]],
) -> CertificateStatus:
    sheet = (path.parent / SHEET).is_file()
    try:
        rule = read_rule(path)
    except InputError as error:
        return CertificateStatus(name, False, f"refused or damaged: {error.problem}", (), 0, 0, "", "", "", sheet, "")
    lines = [(out, line) for out, log in logs for line in log if line["certificate"] == digest]
    alarms = [
        alarm
        for out in dict.fromkeys(out for out, _ in lines)
        if (alarm := judged([line for place, line in lines if place == out], rule, out).alarm) is not None
    ]
    newest = max(
        (one for one in watched if one[1].get("certificate") == digest),
        key=lambda one: one[0].stat().st_mtime,
        default=None,
    )
    seen = "" if newest is None else str(newest[1].get("headline", ""))
    refuted = newest is not None and bool(newest[1].get("alarm"))
    newer = [log[-1]["certificate"] for _, log in logs if any(line["certificate"] == digest for line in log)]
    replaced = next((names[one] for one in newer if one in names and one != digest), "")
    state = "in use" if lines else "made, not yet applied"
    if rule.broken:
        state = f"refuted by the labels of {' and '.join(rule.broken)}"
    elif refuted:
        state = "alarm: watched labels or drift speak against it"
    elif alarms:
        state = f"alarm: the images have drifted since {alarms[0]}"
    if replaced and digest not in newer:
        state = f"replaced by {replaced}" + (f" after {state}" if state != "in use" else "")
    patients = sum(sum(line["patients"].values()) for _, line in lines)
    last = max((f"{line['file']} at {line['time']}" for _, line in lines), default="")
    return CertificateStatus(
        name, bool(rule.broken or refuted or alarms) and not state.startswith("replaced"), state,
        tuple(goal_text(one) for one in rule.goals), len(lines), patients, last, alarms[0] if alarms else "", seen,
        sheet, replaced,
    )  # fmt: skip


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
