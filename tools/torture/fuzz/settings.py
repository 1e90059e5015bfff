"""Inputs of the readers of TOML: runs, search spaces and studies; and of the certificate that `monitor` reads."""

from __future__ import annotations

import json
import random
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from retinabench.experiments.config import load_run
from retinabench.experiments.search.space import points, read_space
from retinabench.experiments.study.definition import read_study
from retinabench.metrics.monitoring import read_certificate
from torture.fuzz.case import Case
from torture.fuzz.damage import damages

RUN = """data = "data/idrid"
task = "country_shift"
seed = 3
[model]
name = "resnet18"
[method]
name = "dropout"
rate = 0.1
[optimizer]
epochs = 9
lr = 0.05
"""
SPACE = """optimizer.lr = { low = 1e-3, high = 0.5, scale = "log" }
optimizer.momentum = { low = 0.95, high = 0.995, scale = "log_complement" }
method.inducing = { low = 5, high = 30, integer = true }
optimizer.final_lr = { choices = [0.001, 0.01, 0.1] }
"""
STUDY = """title = "Two methods"
trials = 4
criteria = ["in_domain_auroc"]
seeds = 2
ensemble = 2
[tasks.country_shift]
data = "data/eyepacs"
shifted = "data/aptos"
[base.optimizer]
epochs = 6
[methods.map]
config = "demo/map"
space = "demo/map"
[methods.dropout]
config = "demo/dropout"
space = "demo/dropout"
"""
CERTIFICATE = json.dumps({
    "schema": "retinabench.transfer/2", "per": "image", "uncertainty": "total", "decision_threshold": {"value": 0.5},
    "certificate": {"threshold": 0.4, "most_images": 2, "goals": [{"goal": {"target": "selective_risk", "goal": 0.1}}]},
}, indent=1)  # fmt: skip
VALUES = (
    "1" * 5000, "-" + "9" * 400, "1e999", "nan", "inf", "-inf", "true", '""', '"x"', "[]", "{}", "[[]]", "0", "-1", "1e-400", "2.5",
    "1979-05-27", "07:32:00", "[1, 'a']", "{a = 1}", '"' + "x" * 100_000 + '"', '"\\ud800"', '"\\u0000"', "0x7fffffffffffffffffff",
    "[" * 1000 + "]" * 1000, "[" * 100_000, "{a = " * 1000 + "1" + "}" * 1000, "'../../etc/passwd'", '"\\u001b[31m"', "1_000", "9007199254740993",
)  # fmt: skip
LINES = (
    "a." * 1000 + "b = 1", "[" + "a." * 2000 + "b]", "[model]", "[[model]]", "unknown = 1", "seed = 1\nseed = 2", '"" = 1', '"a.b" = 1',
    "[method.method]", "[tasks.x]", "[methods.'../x']", "[methods.x.run.optimizer]\nlr = 'a'", "[base]\nseed = 1", "x = {low = 1, high = 2}",
    "optimizer.lr.x = {low = 1, high = 2}", "x = {choices = [1, 1]}", "x = {choices = [nan, nan]}", "x = {low = 1, high = 1e400}",
    "x = {low = -1e308, high = 1e308}", "x = {low = 0, high = 99999999999999999999, integer = true}", "x = {low = 1, high = 2, scale = []}",
    "x = {low = 1e-320, high = 1, scale = 'log'}", "x = {low = 0.9, high = 0.99999999999999999, scale = 'log_complement'}", "x = {choices = [[1], [2]]}",
    "x = {low = '1', high = 2}", "\ufeffseed = 1", "\u2028 = 1", "# \u0007", "criteria = ['x']", "ensemble = 10000000000", "seeds = 0", "seeds = -1",
    "trials = 1000000000000", "bootstrap = -5",
)  # fmt: skip


def _run_differs(file: Path) -> str:
    run, given = load_run(file).model_dump(), tomllib.loads(file.read_text("utf-8-sig"))
    return next(
        (
            f"{key} is {found!r}, not {wanted!r}"
            for key, found, wanted in _leaves(given, run)
            if not _equal(found, wanted)
        ),
        "",
    )


def _leaves(
    given: Mapping[str, Any], found: Mapping[str, Any], prefix: str = ""
) -> list[tuple[str, Any, Any]]:
    pairs: list[tuple[str, Any, Any]] = []
    for key, value in given.items():
        there = found.get(key, "absent")
        if isinstance(value, Mapping) and isinstance(there, Mapping):
            pairs += _leaves(value, there, f"{prefix}{key}.")
        elif isinstance(there, Mapping) and "name" in there:  # method = "map" is short for its table
            pairs.append((prefix + key, there["name"], value))
        else:
            pairs.append((prefix + key, there, value))
    return pairs


def _equal(found: Any, wanted: Any) -> bool:
    if isinstance(found, tuple | list):
        return isinstance(wanted, list) and len(found) == len(wanted) and all(map(_equal, found, wanted))
    if isinstance(wanted, str) and not isinstance(found, str):  # "3" stands for 3
        return str(found).lower() == wanted.lower() or float(wanted) == found
    return bool(found == wanted or (isinstance(found, float) and found == float(wanted)))


def _space_differs(file: Path) -> str:
    space = read_space(file)
    for point in points(space, 0, 5, 0):
        for key, parameter in space.parameters.items():
            value, bounds = point[key], parameter.bounds()
            if value not in bounds and not bounds[0] <= value <= bounds[-1]:
                return f"{key} = {value!r} lies outside its range"
    return ""


def _study_differs(file: Path) -> str:
    study, given = read_study(str(file), []), tomllib.loads(file.read_text("utf-8-sig"))
    return next(
        (
            f"{key} is not {given[key]!r}"
            for key in ("title", "trials", "seeds", "ensemble", "bootstrap")
            if key in given and not _equal(getattr(study, key), given[key])
        ),
        "",
    )


def _certificate_differs(file: Path) -> str:
    found, given = read_certificate(file), json.loads(file.read_text("utf-8-sig"))
    wanted = (float(given["certificate"]["threshold"]), given["uncertainty"], given["per"])
    return "" if (found.threshold, found.uncertainty, found.per) == wanted else f"it reads as {found}"


KINDS: dict[str, tuple[str, str, Callable[[Path], str]]] = {
    "TOML of a run": ("run.toml", RUN, _run_differs),
    "TOML of a space": ("space.toml", SPACE, _space_differs),
    "TOML of a study": ("study.toml", STUDY, _study_differs),
    "certificate": ("certificate.json", CERTIFICATE, _certificate_differs),
}


@st.composite
def settings_files(draw: st.DrawFn) -> Case:
    """A file of settings with another value, a strange line, or damaged bytes."""
    reader = draw(st.sampled_from(sorted(KINDS)))
    name, text, differs = KINDS[reader]
    rng = random.Random(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(("value", "value", "line", "damage", "lost line")))
    lines = text.splitlines()
    place = rng.randrange(len(lines))
    said, content = f"{kind} at line {place}", b""
    match kind:
        case "value":
            value = draw(st.sampled_from(VALUES))
            key, mark, _ = lines[place].partition(":" if name.endswith("json") else "=")
            lines[place] = f"{key}{mark} {value}" + (
                "," if name.endswith("json") and place < len(lines) - 2 else ""
            )
            said += f": {value[:40]}"
        case "line":
            line = draw(st.sampled_from(LINES))
            lines.insert(place, line)
            said += f": {line[:40]}"
        case "lost line":
            del lines[place]
    content = "\n".join(lines).encode("utf-8", "surrogatepass")
    if kind == "damage":
        content, said = draw(damages(content))
    return Case(reader, said, {name: content}, (), function=lambda folder: differs(folder / name))
