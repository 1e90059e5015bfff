"""Every other file that a command reads: whole inputs with damaged bytes, each refused in one clear line or accepted.

The inputs are those of `torture.verbs` and the files that one undisturbed run of each verb leaves: tables of labels and
answers, spaces, studies, prepared folders, checkpoints, posteriors, weights, references, submissions and certificates.
"""

import random
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from retinabench.core.errors import CHECKSUMS
from torture.fuzz.case import Case, trials
from torture.fuzz.damage import KINDS, damaged
from torture.outcomes import Outcome
from torture.verbs import VERBS, make_inputs

UNIT, INPUTS, SHARE = "inputs", 60, 2.0
READERS = [verb for verb in VERBS if not verb.given and verb.name not in ("benchmark", "tune", "site")]


def campaign(seed: int, scratch: Path) -> Iterator[Outcome]:
    verb, rng = READERS[seed % len(READERS)], random.Random(seed)
    inputs = scratch / "inputs"
    make_inputs(inputs, verb.needs)
    named = " ".join(verb.arguments(inputs))
    every = [path for path in sorted(inputs.rglob("*")) if path.is_file() and path.stat().st_size]
    files = [path for path in every if str(inputs / path.relative_to(inputs).parts[0]) in named]
    drawn = []
    for _ in range(INPUTS if files else 0):
        path, kind = rng.choice(files).relative_to(inputs), rng.choice(KINDS)
        place = rng.randrange((inputs / path).stat().st_size)
        change = partial(_damage, inputs, path, kind, place, rng.randrange(2**32))
        arguments = [word.replace(str(inputs), "@/inputs") for word in verb.arguments(inputs)]
        arguments = [f"@/{word}" if Path(word).parts[:1] == ("out",) else word for word in arguments]
        what = f"{verb.name}: {path}, {kind} at byte {place}"
        drawn.append(Case(f"inputs of {verb.name}", what, {}, arguments, prepare=change))
    yield from trials(drawn, scratch / "trials")


def _damage(inputs: Path, path: Path, kind: str, place: int, seed: int, folder: Path) -> None:
    """Copy the inputs and damage one file, without the checksums that would name it at once."""
    shutil.copytree(inputs, folder / "inputs")
    target = folder / "inputs" / path
    target.write_bytes(damaged(target.read_bytes(), kind, place, random.Random(seed)))
    (target.parent / CHECKSUMS).unlink(missing_ok=True)
