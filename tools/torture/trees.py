"""Undisturbed runs of a verb, and how the folder of a disturbed one differs from theirs."""

import contextlib
import csv
import importlib
import io
import json
import shutil
import zipfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from retinabench.core.errors import CHECKSUMS, read_checksums
from retinabench.core.files import verify
from torture.interpose import Plan
from torture.running import Running, start
from torture.verbs import Verb, make_inputs

# a killed worker is started again, a line is sealed with its time
VOLATILE = ("seconds", "attempts", "time", "checksum")
LOCKS = (".lock", ".lock.json")
LOGS = ("logs", "results")  # they state when and how often something was started; names of run folders are random


@dataclass(frozen=True)
class Undisturbed:
    """What an undisturbed command leaves."""

    arguments: list[str]
    scratch: Path
    files: Mapping[str, bytes | None]
    operations: int
    seconds: float
    given: str = ""

    def start(self, folder: Path, number: int = 0, first: Callable[[], object] = int) -> Running:
        return start(self.arguments, folder, self.scratch / f"output-{number}", first)


def undisturbed(verb: Verb, scratch: Path, plan: Plan, more: Collection[str] = ()) -> Undisturbed:
    """Make the inputs, import what the command needs into this process, and run it twice."""
    plan.set(None)
    inputs = scratch / "inputs"
    make_inputs(inputs, {*verb.needs, *more})
    arguments = verb.arguments(inputs)
    _import_what_it_needs(Undisturbed(arguments, scratch, {}, 0, 0.0, verb.given))
    found, operations, seconds = [], 0, 0.0
    for _ in range(2):
        base = Undisturbed(arguments, scratch, {}, 0, 0.0, verb.given)
        folder = fresh(base)
        plan.set(folder / "out")
        ended = base.start(folder).wait()
        operations, seconds = plan.done, ended.seconds
        plan.set(None)
        if ended.code or ended.broken:
            raise RuntimeError(f"{verb.name} fails undisturbed: {ended.error}")
        found.append(contents(folder / "out"))
    first, second = found
    files = {name: content if first.get(name) == content else None for name, content in second.items()}
    return Undisturbed(arguments, scratch, files, operations, seconds, verb.given)


def _import_what_it_needs(base: Undisturbed) -> None:
    """Run the command once in a child, and import the modules that it has imported."""
    names = base.scratch / "modules"
    start(base.arguments, fresh(base), base.scratch / "output", modules=names).wait()
    for name in names.read_text().split("\n") if names.is_file() else ():
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def fresh(base: Undisturbed) -> Path:
    """Return a working folder, always under the same name, with `out` in it, which is empty or holds what is given."""
    folder = base.scratch / "trial"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "out").mkdir(parents=True)
    if base.given:
        shutil.copytree(base.scratch / "inputs" / base.given, folder / "out" / base.given)
    return folder


def contents(out: Path) -> dict[str, bytes]:
    found = {}
    for path in sorted(out.rglob("*")):
        name = path.relative_to(out)
        if path.is_file() and path.name not in LOCKS and not set(name.parts) & set(LOGS):
            found[str(name)] = without_seconds(path)
    return found


def without_seconds(path: Path) -> bytes:
    """Return the content of a file; where it states how long something took, the rest of it; the names in a list of checksums."""
    if path.name == CHECKSUMS:
        return "\n".join(name for name in sorted(read_checksums(path.parent)) if (path.parent / name).exists()).encode()
    content, read = path.read_bytes(), READERS.get(path.suffix)
    with contextlib.suppress(ValueError, KeyError, OSError, zipfile.BadZipFile):
        if read and any(key.encode() in content for key in VOLATILE):
            return repr(_dropped(read(content))).encode()
        if path.suffix == ".npz":
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            if "meta" in arrays:
                arrays["meta"] = np.array(repr(_dropped(json.loads(str(arrays["meta"])))))
            if "cost" in arrays:
                arrays["cost"] = arrays["cost"][:1]  # gradients; then seconds
            return b"".join(name.encode() + values.tobytes() for name, values in sorted(arrays.items()))
    return content


def _plain(content: object) -> object:
    """Return what a checkpoint holds with the bytes of its tensors, and its JSON as objects."""
    if isinstance(content, torch.Tensor):
        return content.dtype, content.shape, content.reshape(-1).view(torch.uint8).numpy().tobytes()
    if isinstance(content, dict):
        return {key: _plain(value) for key, value in content.items()}
    if isinstance(content, str) and content.startswith("[{"):
        return json.loads(content)
    return [_plain(one) for one in content] if isinstance(content, list) else content


def _dropped(content: object) -> object:
    if isinstance(content, dict):
        return {key: _dropped(value) for key, value in content.items() if key not in VOLATILE}
    return [_dropped(one) for one in content] if isinstance(content, list) else content


READERS: dict[str, Callable[[bytes], object]] = {
    ".json": json.loads,
    ".jsonl": lambda content: [json.loads(line) for line in content.splitlines()],
    ".pt": lambda content: _plain(torch.load(io.BytesIO(content), weights_only=True)),
    ".csv": lambda content: list(csv.DictReader(content.decode().splitlines())),
}


def damage_in(out: Path) -> str:
    for found in verify(out):
        if found.state in ("damaged", "missing"):
            return f"{found.path.relative_to(out)} is {found.state}"
        if found.path.suffix == ".json":
            try:
                json.loads(found.path.read_bytes())
            except ValueError:
                return f"{found.path.relative_to(out)} is half-written"
    return ""


def wrong_after(verb: Verb, base: Undisturbed, folder: Path) -> str:
    """Repeat the command in a folder that was disturbed, and say what differs from the undisturbed result; "" if nothing."""
    out = folder / "out"
    if damage := damage_in(out):
        return f"after the kill: {damage}"
    ended = base.start(folder).wait()
    if leaked := [line for line in ended.error.splitlines() if "leaked" in line and not ended.broken]:
        return f"left: {leaked}"  # Python reports processes and locks that were not released
    if ended.problem:
        return f"repeated: {ended.problem}"
    return difference(base.files, contents(out))


def difference(expected: Mapping[str, bytes | None], found: Mapping[str, bytes]) -> str:
    if missing := sorted(set(expected) - set(found)):
        return f"missing: {', '.join(missing[:3])}"
    if more := sorted(set(found) - set(expected)):
        return f"left over: {', '.join(more[:3])}"
    other = [name for name, content in expected.items() if content is not None and content != found[name]]
    return f"other content: {', '.join(other[:3])}" if other else ""
