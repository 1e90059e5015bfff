"""The one summary of a study: `summary.json`, the same as Markdown, and what the terminal shows of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from retinabench import __version__
from retinabench.config import PROTOCOL
from retinabench.progress import QUIET, Progress
from retinabench.protocol.conduct import Chosen
from retinabench.protocol.definition import UNTUNED, Study
from retinabench.protocol.files import Entry
from retinabench.protocol.results import MAIN, in_order, score_entries
from retinabench.scores.table import SCORES
from retinabench.store import write_bytes, write_json
from retinabench.tune.criteria import CRITERIA
from retinabench.tune.trials import values_of

SCHEMA = "retinabench.benchmark/1"
SET_TITLES = {
    "in_domain": "In domain",
    "shifted": "Shifted",
    "joint": "Both, image by image",
    "balanced": "Both, with the same mass",
}


def summarise(
    study: Study, out: Path, chosen: Sequence[Chosen], entries: Sequence[Entry], progress: Progress = QUIET
) -> dict[str, Any]:
    """Score all entries, write `summary.json` and `summary.md` below `out`, and return the content."""
    tables = []
    groups = [list(group) for _, group in groupby(entries, lambda entry: (entry.task, entry.criterion))]
    groups = _gathered(entries)
    with progress.track("Scores and ranks", len(groups), unit="tables") as advance:
        for group in groups:
            rows = score_entries(study, group)
            lead, order = in_order(rows)
            tables.append(
                {
                    "task": group[0].task,
                    "criterion": group[0].criterion,
                    "ordered_by": list(lead) if lead else None,
                    "entries": [_entry(group[k], rows[k], out) for k in order],
                }
            )
            advance(1)
    content = {
        "schema": SCHEMA,
        "title": study.title,
        "version": __version__,
        "protocol": PROTOCOL,
        "rules": study.rules,
        "bootstrap": 0 if study.rules == "published" else study.bootstrap,
        "complete": all(entry.complete for entry in entries),
        "choices": [_choice(choice) for choice in chosen],
        "tables": tables,
        "notes": list(_notes(study, chosen, entries)),
    }
    write_json(out / "summary.json", content)
    write_bytes(out / "summary.md", markdown(content).encode())
    return content


def criterion_title(name: str) -> str:
    """What readers call a criterion."""
    return "as configured" if name == UNTUNED else f"tuned by {CRITERIA[name].title}"


def markdown(content: dict[str, Any]) -> str:
    """Return the summary as Markdown."""
    return "\n".join(_lines(content)) + "\n"


def _gathered(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Entries of one task and criterion together, in the order in which they first come."""
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.task, entry.criterion), []).append(entry)
    return list(groups.values())


def _entry(entry: Entry, scores: dict[str, Any], out: Path) -> dict[str, Any]:
    return {
        "name": entry.name,
        "method": entry.method,
        "members": entry.members,
        "files": [str(file.relative_to(out)) for file in entry.files],
        "state": _state(entry),
        "diverged": list(entry.diverged),
        "lacking": list(entry.lacking),
        "why": entry.why,
        "scores": scores,
    }


def _state(entry: Entry) -> str:
    if entry.why:
        return "no trial has a value"
    if entry.diverged:
        return f"diverged with seed {', '.join(map(str, entry.diverged))}"
    if entry.lacking:
        return f"failed with seed {', '.join(map(str, entry.lacking))}"
    return "done"


def _choice(choice: Chosen) -> dict[str, Any]:
    keys = [parameter.key for parameter in choice.cell.space] if choice.cell.space else []
    return {
        "task": choice.cell.task,
        "method": choice.cell.method,
        "criterion": choice.criterion,
        "value": choice.value,
        "trials": choice.searched,
        "values": values_of(choice.run, keys) if choice.run else None,
        "why": choice.why,
    }


def _notes(study: Study, chosen: Sequence[Chosen], entries: Sequence[Entry]) -> Iterator[str]:
    for choice in chosen:
        bad = {state: n for state, n in choice.searched.items() if state != "done"}
        if bad:
            counts = ", ".join(f"{n} {state.replace('_', ' ')}" for state, n in bad.items())
            yield f"{choice.cell.task}, {choice.cell.method}: of {study.trials} trials {counts}, ranked last"
        for seed, outcome in choice.outcomes.items():
            if outcome.state != "done":
                told = outcome.state.replace("_", " ")
                yield f"{choice.cell.task}, {choice.cell.method}, seed {seed}: {told}: {outcome.message}"
    if study.rules == "published":
        yield "published rules: standard errors as released (ddof 0, members shared), ranks without intervals"
        return
    yield (
        "±: standard error over seeds; of ensembles of the same seeds by the jackknife over seeds, none where one "
        "ensemble holds them all"
    )
    if study.bootstrap:
        yield f"rank: of the mean; in brackets its 95 % interval over {study.bootstrap} draws of patients and of seeds"


def _lines(content: dict[str, Any]) -> Iterator[str]:
    yield f"# {content['title']}"
    yield ""
    yield f"retinabench {content['version']}, protocol {content['protocol']}, {content['rules']} rules."
    if not content["complete"]:
        yield "**Not complete**: some runs diverged or failed; see the notes."
    for table in content["tables"]:
        yield ""
        yield f"## {table['task']}, {criterion_title(table['criterion'])}"
        for name, kinds in MAIN.items():
            present = [kind for kind in kinds if any(kind in e["scores"].get(name, {}) for e in table["entries"])]
            if not present:
                continue
            titles = [f"{SCORES[kind].title} {'↑' if SCORES[kind].direction == 'higher' else '↓'}" for kind in present]
            yield ""
            yield f"### {SET_TITLES[name]}"
            yield ""
            yield f"| method | {' | '.join(titles)} |"
            yield "| --- |" + " --- |" * len(titles)
            for entry in table["entries"]:
                cells = [cell(entry["scores"].get(name, {}).get(kind), entry["state"]) for kind in present]
                yield f"| {entry['name'].replace('|', '/')} | {' | '.join(cells)} |"
    yield ""
    yield "## What was chosen"
    yield ""
    yield "| task | method | by | value | configuration |"
    yield "| --- | --- | --- | --- | --- |"
    for choice in content["choices"]:
        value = "" if choice["value"] is None else f"{choice['value']:.4f}"
        values = ", ".join(f"{key} = {given}" for key, given in (choice["values"] or {}).items())
        words = (choice["task"], choice["method"], criterion_title(choice["criterion"]), value, values or choice["why"])
        yield f"| {' | '.join(word.replace('|', '/') for word in words)} |"
    yield ""
    for note in content["notes"]:
        yield f"- {note}"


def cell(found: dict[str, Any] | None, state: str) -> str:
    """Write one score: mean ± standard error, rank [its interval]."""
    if found is None or found["mean"] is None:
        return "undefined" if state == "done" else state
    text = f"{found['mean']:.4f}"
    if found["error"] is not None:
        text += f" ± {found['error']:.4f}"
    if "rank" in found:
        text += f", {found['rank']:g}."
        if found.get("rank_low") is not None:
            text += f" [{found['rank_low']:g}, {found['rank_high']:g}]"
    return text
