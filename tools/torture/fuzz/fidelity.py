"""Inputs of `fidelity score`: submissions and references, valid, forged and damaged."""

from __future__ import annotations

import functools
import io
import json
import random
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from hypothesis import strategies as st
from rich.console import Console

from retinabench.fidelity.leaderboard.board import make_board
from retinabench.fidelity.leaderboard.files import make_evaluator, score_files, task_of
from retinabench.fidelity.leaderboard.tables import task_table
from retinabench.fidelity.scoring.grading import Evaluator
from retinabench.fidelity.targets.target import TARGETS
from retinabench.reports.toolkit.tables import to_terminal
from torture.fuzz.binary import FORGED
from torture.fuzz.case import Case, Must
from torture.fuzz.damage import damages
from torture.fuzz.tables import npy_file, zip_file

TASK = "fundus-small"
META: tuple[Any, ...] = (
    {"task": 3}, {"task": "fundus"}, {"task": ["fundus-small"]}, {"title": {}}, {"title": "\ud800"}, {"title": "x" * 100_000}, {"title": "<script>"},
    {"seed": "x"}, {"seed": 2**70}, {"budget": []}, {"budget": {"used": "x"}}, {"budget": {"used": 1e400}}, {"budget": {"used": -1, "limit": None}},
    {"run": []}, {"run": {"method": 3}}, {"run": {"method": {"name": []}}}, {"seconds": float("nan")}, {"version": 2}, {"baseline": "maybe"},
    {"data": "0" * 64}, {"target": 1}, {"method": None}, {"method": 1.5}, {1: 2}, {"a": {"b": [None] * 50}}, {"schema": 5}, [], 3, None, "text",
    {"title": ""}, {"model_config": 1}, {"__class__": 1}, {"self": 1}, {"path": 1}, {"cls": 1},
)  # fmt: skip
TEXTS = (
    "",
    "{",
    "[" * 100_000,
    '{"a": NaN}',
    '{"seed": 1' + "0" * 5000 + "}",
    '{"title": "\\ud800"}',
    "\ud800",
)


@functools.cache
def evaluator() -> Evaluator:
    """The evaluator of a small target whose data and reference come with the package."""
    return make_evaluator(TARGETS.find(TASK), None, None, bootstrap=0)


def probabilities(seed: int) -> np.ndarray[Any, Any]:
    """Class probabilities of the test points."""
    return np.random.default_rng(seed).dirichlet(np.ones(5), len(evaluator().data.test)).round(6)


def _differs(wanted: np.ndarray[Any, Any] | None) -> Any:
    """Return the function that scores a submission and compares its accuracy with counting."""

    def function(folder: Path) -> str:
        found = score_files([folder / "submission"], evaluator())
        board = json.loads(json.dumps(make_board([found]).to_dict(), allow_nan=False))
        Console().print(to_terminal(task_table(found, terminal=True)))
        if wanted is None:
            return ""
        truth = evaluator().data.test.targets
        accuracy = float(
            np.mean(
                [
                    max(range(5), key=row.__getitem__) == y
                    for row, y in zip(wanted.tolist(), truth.tolist(), strict=True)
                ]
            )
        )
        said = board["tasks"][0]["entries"]
        values = [entry["groups"]["all"]["accuracy"]["value"] for entry in said]
        return (
            ""
            if any(abs(value - accuracy) < 1e-12 for value in values)
            else f"no entry has the accuracy {accuracy}: {values}"
        )

    return function


@st.composite
def submissions(draw: st.DrawFn) -> Case:
    """A submission in any format: whole, with a fault, or damaged."""
    seed = draw(st.integers(0, 2**32))
    rng, probs = random.Random(seed), probabilities(seed)
    kind = draw(st.sampled_from(("meta", "meta", "forged", "whole", "damage", "damage", "value", "samples")))
    form = (
        draw(st.sampled_from(("npz", "npz", "csv", "bare", "parquet")))
        if kind in ("whole", "damage", "value")
        else "npz"
    )
    said = f"{kind}, {form}"
    must: Must = ""
    arrays: dict[str, Any] = {"probs": probs}
    wanted: np.ndarray[Any, Any] | None = probs
    if kind == "meta":
        text = draw(st.one_of(st.sampled_from(META).map(json.dumps), st.sampled_from(TEXTS)))
        arrays["meta"] = np.array(text)
        said += f" {text[:50]!r}"
    elif kind == "forged":
        arrays[rng.choice(("probs", "meta", "samples"))] = rng.choice(FORGED)
        wanted = None
    elif kind == "samples":
        arrays = {
            "samples": np.stack([probs, probabilities(seed + 1)]).astype(rng.choice((np.float16, np.float64)))
        }
        wanted = None
    elif kind == "value":
        probs = probs.copy()
        probs[rng.randrange(len(probs)), rng.randrange(5)] = rng.choice((np.nan, np.inf, -0.5, 7.0))
        arrays, must = {"probs": probs}, "refuse"
    content = _written(form, arrays, probs)
    if kind == "whole":
        must = "accept"
    if kind == "damage":
        content, said = draw(damages(content))
        said = f"{form}, {said}"
        wanted = probs if form == "npz" else None
    return Case("submission", said, {"submission": content}, (), must=must, function=_differs(wanted))


def _written(form: str, arrays: dict[str, Any], probs: np.ndarray[Any, Any]) -> bytes:
    if form == "npz":
        return zip_file({f"{name}.npy": npy_file(values) for name, values in arrays.items()})
    columns = {f"prob_{k}": probs[:, k] for k in range(5)}
    if form == "parquet":
        sink = io.BytesIO()
        pa.parquet.write_table(pa.table(columns), sink, write_page_checksum=True)
        return sink.getvalue()
    rows = [",".join(map(repr, row)) for row in probs.tolist()]
    return "\n".join(([",".join(columns)] if form == "csv" else []) + rows + [""]).encode()


@functools.cache
def reference_file() -> bytes:
    """The shipped reference of the target."""
    return resources.files("retinabench.fidelity.reference").joinpath("shipped", f"{TASK}.npz").read_bytes()


@functools.cache
def _reference_arrays() -> dict[str, Any]:
    with np.load(io.BytesIO(reference_file()), allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


@st.composite
def references(draw: st.DrawFn) -> Case:
    """A reference with damaged bytes, forged metadata, or an odd array: refused, or of the same ceiling."""
    kind = draw(st.sampled_from(("damage", "meta", "array")))
    rng = random.Random(draw(st.integers(0, 2**32)))
    same = True
    if kind == "damage":
        content, said = draw(damages(reference_file()))
    else:
        arrays = dict(_reference_arrays())
        if kind == "meta":
            meta = json.loads(str(arrays["meta"]))
            key = rng.choice((*meta, "other"))
            value: Any = rng.choice((None, 3, "x", [], {}, float("nan"), True, -1, 10**400, [1], "\ud800"))
            arrays["meta"], said = (
                np.array(json.dumps({**meta, key: value})),
                f"meta {key} = {str(value)[:30]}",
            )
            if draw(st.integers(0, 5)) == 0:
                text = draw(st.sampled_from(TEXTS))
                arrays["meta"], said = np.array(text), f"meta {text[:30]!r}"
            same = key not in ("chains", "passed", "why")
        else:
            key = rng.choice(sorted(set(arrays) - {"meta"}))
            n = len(arrays["epistemic"])
            odd = (
                rng.choice(FORGED),
                np.zeros(n + 1),
                np.full(arrays[key].shape, np.nan),
                np.zeros((2, n - 1, 5)),
                np.array(["x"] * n),
                np.zeros((0, n, 5)),
                None,
            )
            place = rng.randrange(len(odd))
            arrays[key], said, same = odd[place], f"array {key}, odd {place}", False
        content = zip_file(
            {f"{name}.npy": npy_file(values) for name, values in arrays.items() if values is not None}
        )

    def function(folder: Path) -> str:
        found = make_evaluator(TARGETS.find(TASK), None, folder / "reference.npz", bootstrap=0)
        (folder / "submission").write_bytes(_written("npz", {"probs": probabilities(1)}, probabilities(1)))
        score_files([folder / "submission"], found)
        return (
            ""
            if not same or repr(found.ceiling) == repr(evaluator().ceiling)
            else "its ceiling is another one"
        )

    return Case("reference", said, {"reference.npz": content}, (), function=function)


@st.composite
def run_metadata(draw: st.DrawFn) -> Case:
    """A submission in a folder of a board, whose metadata are strange."""
    text = draw(st.one_of(st.sampled_from(META).map(json.dumps), st.sampled_from(TEXTS)))
    content = zip_file({"probs.npy": npy_file(probabilities(2)), "meta.npy": npy_file(np.array(text))})
    return Case(
        "submission",
        f"task of {text[:50]!r}",
        {"submission.npz": content},
        (),
        function=lambda folder: str(task_of(folder / "submission.npz")) * 0,
    )
