"""The one summary of a study: `summary.json`, the same as Markdown, and what the terminal shows of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from retinabench.core.atomic_files import write_bytes, write_json
from retinabench.core.progress import QUIET, Progress
from retinabench.core.version import __version__
from retinabench.experiments.config import PROTOCOL
from retinabench.experiments.search.criteria import CRITERIA
from retinabench.experiments.search.trials import values_of
from retinabench.experiments.study.definition import UNTUNED, Study
from retinabench.experiments.study.prediction_files import Entry
from retinabench.experiments.study.results import MAIN, Key, in_order, score_entries
from retinabench.experiments.study.runner import Chosen
from retinabench.metrics.registry import SCORES
from retinabench.metrics.sets import SET_LABELS

SCHEMA = "retinabench.benchmark/1"
RANKED: tuple[Key, ...] = (
    ("balanced", "referral_accuracy_area"),
    ("in_domain", "referral_accuracy_area"),
    ("shifted", "referral_accuracy_area"),
    ("in_domain", "auroc"),
    ("shifted", "auroc"),
    ("in_domain", "nll"),
    ("shifted", "nll"),
)


def summarise(
    study: Study, out: Path, chosen: Sequence[Chosen], entries: Sequence[Entry], progress: Progress = QUIET
) -> dict[str, Any]:
    """Score all entries, write `summary.json` and `summary.md` below `out`, and return the content."""
    tables = []
    groups = _gathered(entries)
    files = sum(len({file for entry in group for file in entry.files}) for group in groups)
    with progress.track("Scores and ranks", files, unit="files") as advance:
        for group in groups:
            rows = score_entries(study, group, advance)
            lead, order = in_order(rows)
            tables.append(
                {
                    "task": group[0].task,
                    "criterion": group[0].criterion,
                    "ordered_by": list(lead) if lead else None,
                    "entries": [_entry(group[k], rows[k], out) for k in order],
                }
            )
    content = {
        "schema": SCHEMA,
        "title": study.title,
        "version": __version__,
        "protocol": PROTOCOL,
        "rules": study.rules,
        "definition": study.model_dump(mode="json"),
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
            yield from _table(table["entries"], SET_LABELS[name], [(name, kind) for kind in kinds], value_of)
        yield from _table(table["entries"], "Ranks", RANKED, rank_of)
    yield ""
    yield "## What was chosen"
    yield ""
    yield from _rows(["task", "method", "by", "value", "configuration"], map(_chosen, content["choices"]))
    yield ""
    for note in content["notes"]:
        yield f"- {note}"


def _table(
    entries: Sequence[dict[str, Any]],
    title: str,
    keys: Sequence[Key],
    write: Callable[[dict[str, Any], Key], str],
) -> Iterator[str]:
    """A heading and a table of the keys that any entry has; nothing where there are none."""
    present = [key for key in keys if any(key[1] in entry["scores"].get(key[0], {}) for entry in entries)]
    if not present:
        return
    several = len({name for name, _ in present}) > 1
    heads = [
        f"{SCORES[kind].label}{', ' + SET_LABELS[name].lower() if several else ''} {SCORES[kind].arrow}"
        for name, kind in present
    ]
    yield ""
    yield f"### {title}"
    yield ""
    yield from _rows(
        ["method", *heads], ([entry["name"], *(write(entry, key) for key in present)] for entry in entries)
    )


def _rows(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield "|" + " --- |" * len(heads)
    for row in rows:
        yield f"| {' | '.join(word.replace('|', '/') for word in row)} |"


def _chosen(choice: dict[str, Any]) -> list[str]:
    value = "" if choice["value"] is None else f"{choice['value']:.4f}"
    values = ", ".join(f"{key} = {given}" for key, given in (choice["values"] or {}).items())
    how = criterion_title(choice["criterion"])
    return [choice["task"], choice["method"], how, value, values or choice["why"]]


def value_of(entry: dict[str, Any], key: Key) -> str:
    """Write one score: mean ± standard error, or why there is none."""
    found = entry["scores"].get(key[0], {}).get(key[1])
    if found is None or found["mean"] is None:
        return "undefined" if entry["state"] == "done" else entry["state"]
    error = "" if found["error"] is None else f" ± {found['error']:.4f}"
    return f"{found['mean']:.4f}{error}"


def rank_of(entry: dict[str, Any], key: Key) -> str:
    """Write one rank [its interval]; `last` without one."""
    found = entry["scores"].get(key[0], {}).get(key[1])
    if found is None or "rank" not in found:
        return "undefined" if entry["state"] == "done" else "last"
    place, low, high = (
        None if found.get(name) is None else f"{round(found[name], 1):g}"
        for name in ("rank", "rank_low", "rank_high")
    )
    return f"{place}" if low is None else f"{place} [{low}, {high}]"
