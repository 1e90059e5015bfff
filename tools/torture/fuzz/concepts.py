"""Inputs of `examine`: banks, tables of answers and transcripts."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from retinabench.concepts.banks.tables import read_bank
from retinabench.concepts.examinees import read_answers
from retinabench.concepts.questioning.examination import examine
from torture.fuzz import plain
from torture.fuzz.case import Case, Must
from torture.fuzz.damage import damages
from torture.fuzz.tables import Dialect, csv_file, dialects

CONCEPTS = ("haemorrhage", "exudate, hard", "neo-vessels")
QUESTIONS = 12


def tables(rng: random.Random, n: int) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """A bank of n images and three concepts, and answers to all its questions."""
    ids = [f"img {k}" for k in range(n)]
    truth = {name: [rng.choice((0, 1)) for _ in ids] for name in CONCEPTS}
    answers = {name: [round(rng.random(), 3) for _ in ids] for name in CONCEPTS}
    return {"image_id": ids, **truth}, {"image_id": ids, **answers}


def _read(folder: Path, transcript: Path | None = None) -> Any:
    bank = read_bank(folder / "truth.csv")
    return examine(
        bank, read_answers(folder / "answers.csv", bank), questions=QUESTIONS, transcript=transcript
    )


def _numbers_differ(folder: Path) -> str:
    """Compare bank and answers with the plain reading of both files."""
    bank = read_bank(folder / "truth.csv")
    answers = read_answers(folder / "answers.csv", bank)
    try:
        truth, said = (
            plain.csv_columns((folder / f"{name}.csv").read_bytes()) for name in ("truth", "answers")
        )
        if list(bank.concepts) != [name for name in truth if name != "image_id"]:
            return f"concepts are {bank.concepts}"
        rows = {name: k for k, name in enumerate(said["image_id"])}
        for k, image in enumerate(truth["image_id"]):
            for column, name in enumerate(bank.concepts):
                cell = truth[name][k].strip()
                wanted = -1 if cell in ("", "nan", "NaN") else plain.number(cell)
                if bank.truth[k, column] != wanted:
                    return f"the truth of {image}, {name} is {bank.truth[k, column]}, not {wanted}"
                if wanted >= 0 and answers(k, name) != plain.number(said[name][rows[image]]):
                    return f"the answer of {image}, {name} is {answers(k, name)}"
    except (plain.UnreadableError, KeyError, ValueError) as error:
        return f"the plain reader sees no tables: {error!r}"
    examine(bank, answers, questions=QUESTIONS)
    return ""


@st.composite
def tables_damaged(draw: st.DrawFn) -> Case:
    """A bank or answers in some dialect, whole or with damaged bytes."""
    truth, answers = tables(random.Random(draw(st.integers(0, 2**32))), draw(st.integers(2, 20)))
    dialect = draw(dialects())
    dialect = Dialect(
        dialect.delimiter, dialect.comma, dialect.quote_all, dialect.newline, dialect.final, dialect.encoding
    )
    files = {"truth.csv": csv_file(truth, dialect), "answers.csv": csv_file(answers, dialect)}
    said = "valid"
    must: Must = "accept"
    if draw(st.integers(0, 3)):
        name = draw(st.sampled_from(("truth.csv", "answers.csv")))
        files[name], said = draw(damages(files[name]))
        said, must = f"{name}: {said}", ""
    return Case("bank and answers", f"{said}; {dialect}", files, (), must=must, function=_numbers_differ)


def _cell(name: str, value: str) -> Callable[[dict[str, list[Any]], random.Random], dict[str, list[Any]]]:
    def fault(columns: dict[str, list[Any]], rng: random.Random) -> dict[str, list[Any]]:
        row = rng.randrange(len(columns["image_id"]))
        return {**columns, name: [value if k == row else cell for k, cell in enumerate(columns[name])]}

    return fault


FAULTS = {
    "a third truth": ("truth.csv", _cell(CONCEPTS[0], "2")),
    "no number": ("truth.csv", _cell(CONCEPTS[1], "yes")),
    "infinite truth": ("truth.csv", _cell(CONCEPTS[1], "inf")),
    "no image": ("truth.csv", _cell("image_id", "")),
    "an image twice": ("truth.csv", lambda columns, rng: {**columns, "image_id": ["a"] * len(columns["image_id"])}),
    "images alike": ("truth.csv", lambda columns, rng: {**columns, "image_id": ["a", "a ", *columns["image_id"][2:]]}),
    "an answer above 1": ("answers.csv", _cell(CONCEPTS[0], "1.5")),
    "no answer": ("answers.csv", _cell(CONCEPTS[0], "")),
    "an answer that is no number": ("answers.csv", _cell(CONCEPTS[0], "nan")),
    "another image": ("answers.csv", _cell("image_id", "other")),
    "a concept missing": ("answers.csv", lambda columns, rng: {k: v for k, v in columns.items() if k != CONCEPTS[2]}),
    "only ids": ("truth.csv", lambda columns, rng: {"image_id": columns["image_id"]}),
    "a wide id": ("truth.csv", _cell("image_id", "x" * 200_000)),
}  # fmt: skip


@st.composite
def tables_faulty(draw: st.DrawFn) -> Case:
    """A bank or answers with one fault."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    truth, answers = tables(rng, draw(st.integers(3, 20)))
    columns = {"truth.csv": truth, "answers.csv": answers}
    name = draw(st.sampled_from(sorted(FAULTS)))
    file, fault = FAULTS[name]
    columns[file] = fault(columns[file], rng)
    files = {key: csv_file(value) for key, value in columns.items()}
    return Case("bank and answers", name, files, (), must="refuse", function=_numbers_differ)


LINES = (
    b'{"question": NaN}\n', b'{"schema": "retinabench.transcript/1"\n', b"[]\n", b"null\n", b"\n", b"\xff\xfe\n", b"{}\n", b"NaN\n",
    b'{"question": 1, "answer": NaN}\n', b"[" * 50_000 + b"\n", b'{"a": 1' + b"0" * 5000 + b"}\n", b'{"question": "\\ud800"}\n', b"\x00" * 100,
)  # fmt: skip


@st.composite
def transcripts(draw: st.DrawFn) -> Case:
    """A transcript that is cut, damaged, or has a strange line: refused, or continued to the same result."""
    seed = draw(st.integers(0, 2**32))
    kind = draw(st.sampled_from(("damage", "damage", "line", "cut")))
    place, line, end = (
        draw(st.integers(0, QUESTIONS)),
        draw(st.sampled_from(LINES)),
        draw(st.integers(0, 2000)),
    )
    damage_seed = draw(st.integers(0, 2**32))
    truth, answers = tables(random.Random(seed), 10)
    files = {"truth.csv": csv_file(truth), "answers.csv": csv_file(answers)}

    def function(folder: Path) -> str:
        path = folder / "out" / "transcript.jsonl"
        wanted = _read(folder, path).to_dict()
        content = path.read_bytes()
        rows = content.splitlines(keepends=True)
        if kind == "cut":
            path.write_bytes(content[: min(end, len(content))])
        elif kind == "line":
            path.write_bytes(b"".join([*rows[:place], line, *rows[place:]]))
        else:
            path.write_bytes(_flipped(content, damage_seed))
        found = _read(folder, path).to_dict()
        return "" if json.dumps(found) == json.dumps(wanted) else "the result is another one"

    return Case(
        "transcript",
        f"{kind}, line {place}, {line[:30]!r}, byte {end}, {damage_seed}",
        files,
        (),
        function=function,
    )


def _flipped(content: bytes, seed: int) -> bytes:
    rng = random.Random(seed)
    place = rng.randrange(len(content))
    return content[:place] + bytes([content[place] ^ (1 << rng.randrange(8))]) + content[place + 1 :]
