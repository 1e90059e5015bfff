"""Laws: maps of a file whose effect on every number of a result is known, through the commands and every format."""

import contextlib
import csv
import functools
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

import retinabench as rb
from retinabench.cli.main import run
from retinabench.reports.clinic import clinic_json
from torture.outcomes import Outcome, equal
from torture.trial import isolated_each

UNIT, ROWS = "inputs", 1000
Columns = dict[str, list[Any]]
Json = Any
FILES = {"notes", "source", "a", "b", "entry"}  # say how a file was read, and which
SAMPLED = "low|high|error|better|p|p_.*|null_.*|missed"  # draws follow the order of the rows
LONG = 2**53 + 1  # from here on, whole numbers are no floats
GOALS = ["selective_risk=.2", "sensitivity=.6"]
WORDS = {
    "score": "score @/a.csv --bootstrap 40 --json @/o.json",
    "compare": "compare @/a.csv @/b.csv --bootstrap 40 --json @/o.json",
    "clinic": "clinic @/a.csv --json @/o.json",
    "transfer": "transfer @/a.csv --goal selective_risk=.2 --goal sensitivity=.6 --confidence .9 --bootstrap 40 --json @/o.json",
    "monitor": "monitor @/a.csv --certificate @/transfer.json --json @/o.json",
    "apply": "apply @/a.csv --certificate @/transfer.json --out @/lists --json @/o.json",
    "examine": "examine --answers @/answers.csv --truth @/truth.csv --strategy precision --questions 300 --out @/page",
    "report": "report @/a.csv @/b.csv --bootstrap 40 --out @/page",
}
CALLS: dict[str, Callable[[rb.Predictions, rb.Predictions], Json]] = {
    "score": lambda a, b: rb.score(a, bootstrap=40).to_dict(),
    "compare": lambda a, b: rb.compare(a, b, bootstrap=40).to_dict(),
    "clinic": lambda a, b: clinic_json(rb.clinic(a, referral_rate=0.2)),
    "transfer": lambda a, b: rb.transfer(a, goals=GOALS, delta=0.1, bootstrap=40).to_dict(),
}
COMMANDS, QUICK = tuple(WORDS), tuple(name for name in WORDS if name not in ("report", "examine"))


def base(seed: int) -> Columns:
    """Draw a table with everything switched on: two eyes a patient, three splits, codes, text, gaps, dates; `other` is a second model."""
    rng = np.random.default_rng(seed)
    patient = np.arange(ROWS) // 2
    label, split = np.repeat(rng.random((2, ROWS // 2)), 2, axis=1)
    y, site = label < 0.35, np.repeat(rng.integers(1, 5, ROWS // 2), 2)
    z = 3 * y - 1.5 + np.repeat(rng.normal(0, 0.7, ROWS // 2), 2) + rng.normal(0, 0.8, ROWS) - 2 * (y & (site == 3))
    prob, other = (1 / (1 + np.exp(-one)) for one in (z, z + rng.normal(0, 0.8, ROWS)))
    own = 0.5 - np.abs(prob - 0.5) + rng.uniform(0.01, 0.05, ROWS)

    def drawn(values: list[Any]) -> list[Any]:
        return [values[k] for k in np.repeat(rng.integers(0, len(values), ROWS // 2), 2)]

    day = [str(np.datetime64("2026-01-05") + int(k)) for k in np.repeat(rng.integers(0, 196, ROWS // 2), 2)]
    return {
        "image_id": [f"image-{k:05d}" for k in range(ROWS)], "patient_id": [f"P{k:05d}" for k in patient],
        "label": y.astype(int).tolist(), "prob": prob.tolist(), "uncertainty": own.tolist(), "other": other.tolist(),
        "domain": np.where(split < 0.25, "shifted", "in_domain").tolist(),
        "split": np.where(split > 0.7, "validation", "test").tolist(), "date": day, "site": site.tolist(),
        "scanner": drawn([LONG, LONG + 1, LONG + 2]), "camera": drawn(["Canon", "Topcon", "Zeiss"]),
        "sex": drawn(["F", "M", ""]), "age": drawn([30.5, 44, 51, 67, 80, ""]), "visit": drawn([20260105, 20260106, 20260107]),
    }  # fmt: skip


@dataclass(frozen=True)
class Law:
    """A map of a file, and of the result: `expect` of the result of the file is the result of the mapped one.

    leave: a pattern of keys that the law says nothing of. form: what the result is computed from. parts: files of `monitor`.
    """

    change: Callable[[Columns], Columns]
    expect: Callable[[Json], Json] = lambda found: found
    commands: tuple[str, ...] = QUICK
    leave: str = ""
    separator: str = ","
    decimal: str = "."
    form: str = "csv"
    parts: int = 1


def column(name: str, change: Callable[[Any], Any]) -> Callable[[Columns], Columns]:
    return lambda columns: {**columns, name: [change(cell) for cell in columns[name]]}


def walk(found: Json, change: Callable[[str, Any], Any], place: str = "") -> Json:
    """Change every value of a result by its place, such as `.choice.threshold`, and every key, whose place is empty."""
    if isinstance(found, dict):
        return {change("", key): walk(value, change, f"{place}.{key}") for key, value in found.items()}
    if isinstance(found, list):
        return [walk(value, change, place) for value in found]
    return change(place, found)


def monotone(function: Callable[[float], float], **options: Any) -> Law:
    """Uncertainty enters by its order alone: thresholds of referral, and the values of images, have its scale."""

    def change(place: str, value: Any) -> Any:
        of_prob = re.search("baseline|icity|ivity|curve", place)
        scaled = re.search(r"\.(referral_)?threshold$|(missed.*|reference|rows.*)\.uncertainty$", place)
        return float(function(value)) if scaled and not of_prob and isinstance(value, float) else value

    return Law(column("uncertainty", function), lambda found: walk(found, change), **options)


def renamed(name: str, names: Mapping[Any, Any]) -> Law:
    """Groups are sets of images, whatever they are called; an empty cell is the group `not known`."""
    shown = {str(old) or "not known": str(new) or "not known" for old, new in names.items()}

    def change(_: str, value: Any) -> Any:
        match = re.fullmatch(rf"{name}: (.*)", value) if isinstance(value, str) else None
        return f"{name}: {shown.get(match[1], match[1])}" if match else value

    def expect(found: Json) -> Json:
        found = walk(found, change)
        for part in found.get("sets", {}).values():
            for group in part["subgroups"]["groups"]:
                if group["column"] == name:
                    group["value"] = shown.get(group["value"], group["value"])
        return found

    return Law(column(name, lambda cell: names.get(cell, cell)), expect, ("clinic", "report"))


def moved(days: int) -> Law:
    """Windows of a week move with the days."""

    def later(text: str) -> str:
        return str(np.datetime64(text) + days)

    def change(_: str, value: Any) -> Any:
        return later(value) if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value) else value

    return Law(column("date", later), lambda found: walk(found, change), ("monitor", "clinic"))


def doubled() -> Law:
    """A second copy of every image of a patient leaves all scores as they are that are no area over single images."""

    def change(columns: Columns) -> Columns:
        again = {name: [*values, *values] for name, values in columns.items()}
        return {**again, "image_id": [*columns["image_id"], *(f"{one}-again" for one in columns["image_id"])]}

    def count(place: str, value: Any) -> Any:
        return 2 * value if re.search(r"\.(images|positives|negatives)$", place) and isinstance(value, int) else value

    areas = "referral.*|retained|predictive_share|patient_scores|curves"
    return Law(change, lambda found: walk(found, count), ("score",), f"{SAMPLED}|{areas}")


SITES, ORDER = range(1, 5), np.random.default_rng(1).permutation(ROWS)
LAWS: dict[str, Law] = {
    "uncertainty x 1e-13": monotone(lambda u: u * 1e-13, commands=COMMANDS),
    "uncertainty x 1e300": monotone(lambda u: u * 1e300),
    "uncertainty x 4 - 3": monotone(lambda u: u * 4 - 3),
    "log of the uncertainty": monotone(math.log),
    "cube of the uncertainty": monotone(lambda u: u**3),
    "codes from 1000001": renamed("site", {k: 1_000_000 + k for k in SITES}),
    "codes as dates": renamed("site", {k: 20_260_100 + k for k in SITES}),
    "codes as text": renamed("site", {k: f"S{k}" for k in SITES}),
    "codes with other separators": renamed("site", {k: f"{k};b|c,d" for k in SITES}),
    "long codes": renamed("site", {k: LONG + k for k in SITES}),
    "short codes": renamed("scanner", {LONG + k: k + 1 for k in range(3)}),
    "a group renamed": renamed("camera", {"Canon": "=Canon; EOS, “R”"}),
    "cells of a group emptied": renamed("sex", {"M": "Z", "": "M"}),
    "dates moved by 52 weeks": moved(364),
    "patients renamed": Law(column("patient_id", lambda one: f"{one[::-1]} é"), leave=f"{SAMPLED}|patient_id", commands=("score", "compare", "clinic", "transfer")),
    "rows permuted": Law(lambda columns: {name: [values[k] for k in ORDER] for name, values in columns.items()}, leave=SAMPLED),
    "rows doubled": doubled(),
    "columns permuted": Law(lambda columns: dict(reversed(columns.items())), leave="answer|worst|bins", commands=COMMANDS),
    "a column of noise": Law(lambda columns: {**columns, "noise": [f"n{k}" for k in range(ROWS)]}, leave="skipped"),
    "ids between blanks": Law(lambda columns: column("image_id", " {} ".format)(column("patient_id", "\u200b{}\u00a0".format)(columns)), commands=(*QUICK, "examine")),
    "one patient known": Law(column("patient_id", lambda one: one * (one == "P00007")), lambda _: {"code": 2}, ("transfer", "monitor", "apply"), "error"),
    "split over three files": Law(dict, commands=("monitor",), parts=3),
    "semicolons": Law(dict, separator=";", commands=COMMANDS),
    "decimal commas": Law(dict, separator=";", decimal=","),
    "blanks behind commas": Law(dict, separator=", "),
    "Parquet": Law(dict, form="parquet", commands=COMMANDS),
    "NPZ": Law(dict, form="npz"),
    "a data frame": Law(dict, form="frame", commands=tuple(CALLS)),
    "arrays": Law(dict, form="arrays", commands=tuple(CALLS)),
}  # fmt: skip


def write(columns: Columns, path: Path, law: Law) -> None:
    if law.form == "parquet":
        pa.parquet.write_table(table(columns), path)
    elif law.form == "npz":
        with path.open("wb") as handle:
            np.savez(handle, **arrays(columns))
    else:
        text = io.StringIO(newline="")
        rows = [[str(cell).replace(".", law.decimal) if isinstance(cell, float) else cell for cell in row] for row in zip(*columns.values(), strict=True)]  # fmt: skip
        csv.writer(text, delimiter=law.separator[0]).writerows([[*columns], *rows])
        path.write_text(text.getvalue().replace(law.separator[0], law.separator), encoding="utf-8", newline="")


def write_concepts(columns: Columns, folder: Path, law: Law) -> None:
    edema, scar = ([int(p > limit) for p in columns["prob"]] for limit in (0.5, 0.4))
    truth = {"edema": columns["label"], "scar": [int(p > 0.5) for p in columns["other"]]}
    for name, cells in (("truth", truth), ("answers", {"edema": edema, "scar": scar})):
        write({"image_id": columns["image_id"], **cells}, folder / f"{name}.csv", law)


def table(columns: Columns) -> pa.Table:
    return pa.table({name: [None if cell == "" else cell for cell in cells] for name, cells in columns.items()})


def arrays(columns: Columns) -> dict[str, Any]:
    return {name: np.array([math.nan if (name, cell) == ("age", "") else cell for cell in cells]) for name, cells in columns.items()}  # fmt: skip


def predictions(columns: Columns, form: str) -> rb.Predictions:
    if form == "frame":
        return rb.Predictions.from_dataframe(table(columns))
    known = arrays(columns)
    names = ("image_id", "label", "prob", "patient_id", "domain", "split", "uncertainty")
    given = {name: known.pop(name) for name in names}
    return rb.Predictions(probs=given.pop("prob"), subgroups=known, **given)


def result(columns: Columns, command: str, folder: Path, law: Law) -> Json:
    """Return what a command says of a table: its JSON, or the facts behind its pages; an error is said, too."""
    folder = folder / "table"
    folder.mkdir(parents=True, exist_ok=True)
    first = {name: values for name, values in columns.items() if name != "other"}
    tables = (first, {**first, "prob": columns["other"]})
    if law.form in ("frame", "arrays"):
        return json.loads(json.dumps(CALLS[command](*(predictions(one, law.form) for one in tables))))
    for name, one in zip("ab", tables, strict=True):
        write(one, folder / f"{name}.csv", law)
    write_concepts(columns, folder, law)
    printed = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(printed):
        if command in ("monitor", "apply"):
            run(words("transfer", folder, "transfer.json"))
        for k in range(law.parts) if law.parts > 1 else ():
            write({name: values[k :: law.parts] for name, values in first.items()}, folder / f"{'acd'[k]}.csv", law)
        code = run([*words(command, folder), *(f"{folder}/{part}.csv" for part in "cd"[: law.parts - 1])])
    if code not in (0, 3, 4):
        return {"code": code, "error": printed.getvalue()}
    pages = {"report": ("page/scores.json", "page/policies.json"), "examine": ("page/examination.json",)}
    parts = [json.loads((folder / name).read_text()) for name in pages.get(command, ("o.json",))]
    if command == "monitor":
        del parts[0]["certificate"], parts[0]["headline"]  # its checksum; a sentence with dates
    if command == "apply":
        with (folder / "lists" / "a-actions.csv").open(encoding="utf-8", newline="") as handle:
            rows = {r.pop("image_id"): {**r, "uncertainty": float(r["uncertainty"])} for r in csv.DictReader(handle)}
        counts = [{name: line[name] for name in ("images", "patients")} for line in parts[0]["files"]]
        parts = [parts[0]["drift"], *counts, {"rows": rows}]
    return parts[0] if len(parts) == 1 else {"parts": parts}


def words(command: str, folder: Path, out: str = "o.json") -> list[str]:
    return [word.replace("o.json", out).replace("@", str(folder)) for word in f"{WORDS[command]} --quiet".split()]


@functools.cache
def known(seed: int, command: str, folder: Path) -> Json:
    return result(base(seed), command, folder / f"base-{command}", Law(dict))


def difference(found: Json, wanted: Json, leave: str = "", place: str = "") -> str:
    """Return the first difference of two results, "" without one; groups are compared by name, not by place."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        for key in dict.fromkeys([*wanted, *found]):
            if re.fullmatch(leave, key) or key in FILES:
                continue
            if key not in found or key not in wanted:
                return f"{place}.{key} is {'missing' if key in wanted else 'new'}"
            if said := difference(found[key], wanted[key], leave, f"{place}.{key}"):
                return said
        return ""
    if isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        if place.endswith((".groups", "_than_others", ".between")):
            found, wanted = (sorted(one, key=lambda each: json.dumps(each)[:80]) for one in (found, wanted))
        pairs = enumerate(zip(found, wanted, strict=True))
        return next((said for k, pair in pairs if (said := difference(*pair, leave, f"{place}[{k}]"))), "")
    near = 0 if place.endswith("threshold") else 1e-12
    floats = isinstance(found, float) and isinstance(wanted, float)
    close = floats and math.isclose(found, wanted, rel_tol=1e-9, abs_tol=near)
    return "" if close or found == wanted else f"{place} is {found!r}, not {wanted!r}"


def broken(name: str, command: str, seed: int, folder: Path) -> str:
    law = LAWS[name]
    first = known(seed, command, folder)
    wanted = law.expect(first)
    found = result(law.change(base(seed)), command, folder / f"{name}-{command}", law)
    return str(first.get("error", "")) or difference(found, wanted, law.leave)


def campaign(seed: int, scratch: Path) -> Iterator[Outcome]:
    every = [(name, command, seed, scratch) for name, law in LAWS.items() for command in law.commands]
    trials = sorted(every[seed % 5 :: 5], key=lambda one: one[1])  # commands of one kind share the result of the table
    ends = isolated_each(lambda one: broken(*one), trials, seconds=120, together=len(trials))
    for trial, ended in zip(trials, ends, strict=True):
        yield equal("laws", f"{trial[1]}: {trial[0]}", str(ended.broken or ended.error or ended.value)[:300])
