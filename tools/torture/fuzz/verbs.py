"""Predictions in the other verbs that read them: `compare`, `clinic`, `plan`, `transfer`, `monitor` and `report`."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from retinabench.predictions.formats import parquet_bytes
from torture.fuzz import plain
from torture.fuzz.binary import of_package
from torture.fuzz.case import Case, Check, Must, nothing_wrong
from torture.fuzz.damage import damages
from torture.fuzz.predictions import REFUSED, tables
from torture.fuzz.settings import CERTIFICATE
from torture.fuzz.tables import Truth, csv_file, npz_file, parquet_file

Numbers = Callable[[dict[str, Any], dict[str, dict[str, Any]]], str]


def _json(name: str, truth: Truth, differs: Numbers) -> Check:
    def check(folder: Path, printed: str) -> str:
        return differs(json.loads((folder / name).read_text()), plain.numbers(truth))

    return check


def _of_compare(found: dict[str, Any], wanted: dict[str, dict[str, Any]]) -> str:
    for name, numbers in wanted.items():
        scores = found["sets"][name]["scores"]
        for key in ("auroc", "accuracy"):
            sides = scores.get(key, {"a": None, "b": None})
            if not (plain.same(sides["a"], numbers[key]) and plain.same(sides["b"], numbers[key])):
                return f"{name} {key} is {sides}, not {numbers[key]}"
    return ""


def _of_clinic(found: dict[str, Any], wanted: dict[str, dict[str, Any]]) -> str:
    for name in wanted.keys() - {"joint"}:
        auroc = found["sets"][name]["auroc"]["value"]
        if not plain.same(auroc, wanted[name]["auroc"]):
            return f"{name} AUROC is {auroc}, not {wanted[name]['auroc']}"
    return ""


COMMANDS: dict[str, tuple[tuple[str, ...], Numbers | None]] = {
    "compare": (("compare", "@/table", "@/table", "--bootstrap", "0", "-q", "--json", "@/out.json"), _of_compare),
    "clinic": (("clinic", "@/table", "-q", "--json", "@/out.json"), _of_clinic),
    "plan": (("plan", "@/table", "--json", "@/out.json"), None),
    "transfer": (("transfer", "@/table", "--goal", "0.3", "--bootstrap", "20", "-q", "--json", "@/out.json"), None),
    "transfer --confidence": (
        ("transfer", "@/table", "--goal", "0.4", "--confidence", "0.6", "--bootstrap", "20", "-q", "--json", "@/out.json"), None,
    ),
    "monitor": (("monitor", "@/table", "--certificate", "@/certificate.json", "-q", "--json", "@/out.json"), None),
    "report": (("report", "@/table", "--bootstrap", "0", "-q", "--out", "@/report"), None),
}  # fmt: skip


@st.composite
def verbs(draw: st.DrawFn, names: tuple[str, ...] = tuple(COMMANDS)) -> Case:
    """A table in any format, whole, with a fault or damaged, given to one of the verbs."""
    name = draw(st.sampled_from(names))
    arguments, differs = COMMANDS[name]
    truth = draw(tables())
    rng = random.Random(draw(st.integers(0, 2**32)))
    form = draw(st.sampled_from(("csv", "parquet", "npz", "own")))
    kind = draw(st.sampled_from(("whole", "whole", "fault", "damage")))
    columns = truth.columns()
    if name == "monitor":
        columns["date"] = [f"2026-{1 + k % 12:02}-{1 + k % 28:02}" for k in range(len(truth))]
    said = f"{kind}, {form}"
    found: Must = ""
    check: Check = nothing_wrong if differs is None else _json("out.json", truth, differs)
    if kind == "fault" or name == "monitor":
        faults = [key for key, (_, needed) in REFUSED.items() if all(one in columns for one in needed)]
        if name == "monitor":  # where labels may be empty
            faults = [key for key in faults if key not in ("label no number", "label contradicts grade")]
        fault = rng.choice(sorted(faults))
        said = f"CSV: {fault if kind == 'fault' else 'whole'}"
        content = csv_file(REFUSED[fault][0](columns, rng) if kind == "fault" else columns)
        found = "refuse" if kind == "fault" else ""
    elif form == "csv":
        content = csv_file(columns)
    elif form == "parquet":
        content = parquet_file(truth, rng)
        check = (
            nothing_wrong
            if differs is None
            else _json("out.json", plain.truth_of(plain.parquet_columns(content)), differs)
        )
    else:
        content = npz_file(truth, rng) if form == "npz" else parquet_bytes(of_package(truth))
    if kind == "damage":
        content, damage = draw(damages(content))
        said += f", {damage}"
        if form != "own":
            check = nothing_wrong
    files = {"table": content, "certificate.json": CERTIFICATE.encode()}
    return Case(f"predictions in {name.split()[0]}", said, files, arguments, check, must=found)
