"""A flipped or missing byte in any file that a command keeps and reads again.

`retinabench verify` names the file, where it has a checksum. The commands that read it refuse it, or make it again, or give the
same result: never another one.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from retinabench.core.files import CHECKSUMS, verify
from torture.contract import Outcome, Verdict
from torture.interpose import What, interposed
from torture.trees import Undisturbed, contents, fresh, undisturbed
from torture.verbs import VERBS

UNIT = "faults"
DAMAGES = 16  # of one batch
RUN = "[a-z]*-mlp-seed-0-????????????"


@dataclass(frozen=True)
class Case:
    """A folder, and who reads it."""

    verb: str
    part: float
    reads: Callable[[Path, Path], list[str]] | None = None


def _found(folder: Path, pattern: str) -> str:
    return str(next(iter(sorted((folder / "out").glob(pattern))), folder / "out" / pattern))


CASES = (
    Case("train map", 0.6),
    Case("train swag", 0.7),
    Case("train map", 1, lambda i, f: ["score", _found(f, f"{RUN}/predictions.parquet"), "--json", "read/s.json", "--bootstrap", "0"]),
    Case("train map", 1, lambda i, f: ["predict", _found(f, RUN), "--data", f"{i}/other", "--out", "read/p.parquet"]),
    Case("train map", 1, lambda i, f: ["export", _found(f, RUN), "--out", "read/model"]),
    Case("train ensemble", 0.6),
    Case("train map", 1, lambda i, f: ["report", _found(f, RUN), "--out", "read", "--bootstrap", "0", "--quiet"]),
    Case("prepare", 0.6),
    Case("prepare", 1, lambda i, f: [
        "train", "--data", f"{f}/out", "--out", "read", "--quiet", "model.name=mlp", "model.width=4", "optimizer.epochs=1"]),
    Case("prepare", 1, lambda i, f: ["inspect", f"{f}/out", "--out", "read", "--quiet"]),
    Case("fidelity run", 0.6),
    Case("fidelity run", 1, lambda i, f: [
        "fidelity", "score", _found(f, "*/submission.npz"), "--task", "fundus-small", "--bootstrap", "0", "--json", "read/s.json"]),
    Case("fidelity reference", 0.6),
    Case("fidelity reference", 1),
    Case("fidelity reference", 1, lambda i, f: [
        "fidelity", "score", f"{i}/submission.csv", "--task", "fundus-small", "--reference", f"{f}/out/r.npz", "--bootstrap", "0",
        "--json", "read/s.json"]),
    Case("examine", 0.7),
    Case("tune", 1),
    Case("benchmark", 1),
)  # fmt: skip


def campaign(seed: int, scratch: Path) -> Iterator[Outcome]:
    """One folder, some of its bytes."""
    plan = interposed()
    if plan is None:
        yield Outcome("bit_rot", "all", Verdict.SKIPPED, "needs Linux and a C compiler")
        return
    case, rng = CASES[seed % len(CASES)], random.Random(seed)
    verb = next(one for one in VERBS if one.name == case.verb)
    base = undisturbed(verb, scratch, plan, ("other",) if case.reads else ())
    folder = fresh(base)
    if case.part < 1:
        plan.set(folder / "out", max(1, round(case.part * base.operations)), What.KILL_BEFORE)
    base.start(folder).wait()
    plan.set(None)
    kept = scratch / "kept"
    shutil.copytree(folder / "out", kept)
    reference, said = _read(case, base, kept)
    if said:
        raise RuntimeError(f"{case} cannot be read: {said}")
    files = [
        path for path in sorted(kept.rglob("*")) if path.is_file() and path.stat().st_size and "logs" not in path.parts
    ]
    for _ in range(DAMAGES):
        yield _trial(case, base, kept, rng.choice(files).relative_to(kept), rng, reference)


def _read(
    case: Case, base: Undisturbed, kept: Path, damage: Callable[[Path], None] = lambda out: None
) -> tuple[Mapping[str, bytes], str]:
    """Copy the folder, damage it, and run the command that reads it; return what it writes, or how it fails."""
    folder = fresh(base)
    shutil.rmtree(folder / "out")
    shutil.copytree(kept, folder / "out")
    damage(folder / "out")
    (folder / "read").mkdir()
    arguments = base.arguments if case.reads is None else case.reads(base.scratch / "inputs", folder)
    ended = Undisturbed(arguments, base.scratch, {}, 0, 0.0).start(folder).wait()
    if ended.broken:
        return {}, f"FAILED {ended.broken}: {ended.error[-700:]}"
    if ended.code:
        lines = [line for line in ended.error.splitlines() if line.startswith("retinabench: error: ")]
        return {}, lines[0] if len(lines) == 1 else f"FAILED {ended.code}: {ended.error[-300:]}"
    return contents(folder / "out") if case.reads is None else contents(folder / "read"), ""


def _trial(
    case: Case, base: Undisturbed, kept: Path, name: Path, rng: random.Random, reference: Mapping[str, bytes]
) -> Outcome:
    content = (kept / name).read_bytes()
    at, cut = rng.randrange(len(content)), rng.random() < 0.3
    other = content[:at] if cut else content[:at] + bytes([content[at] ^ (1 << rng.randrange(8))]) + content[at + 1 :]
    noticed: list[str] = []

    def damage(out: Path) -> None:
        (out / name).write_bytes(other)
        noticed.extend(str(one.path) for one in verify(out) if one.state in ("damaged", "missing"))

    found, said = _read(case, base, kept, damage)
    reader = "repeated" if case.reads is None else " ".join(case.reads(Path("i"), Path("f"))[:2])
    what = f"{case.verb} ({case.part:g}), {name}, {'cut at' if cut else 'bit of'} byte {at} of {len(content)}, {reader}"
    row = "bit_rot in finished folders" if case.part == 1 else "bit_rot in begun folders"
    if said.startswith("FAILED"):
        return Outcome(row, what, Verdict.FAILED, said)
    if said:
        return Outcome(row, what, Verdict.REFUSED, said)
    changed = _changed(base, reference, found)
    if changed and changed <= {str(name)}:  # the command does not read that file
        return (
            Outcome(row, what, Verdict.REFUSED, f"verify names it: {name}")
            if noticed
            else Outcome(row, what, Verdict.EQUAL, "not read")
        )
    return Outcome(row, what, Verdict.FAILED if changed else Verdict.EQUAL, ", ".join(sorted(changed)[:4]))


def _changed(base: Undisturbed, reference: Mapping[str, bytes], found: Mapping[str, bytes]) -> set[str]:
    """The files that differ, but for those in which two undisturbed commands differ, and for the lists of checksums."""
    steady = {
        path for path in {*reference, *found} if base.files.get(path, b"") is not None and Path(path).name != CHECKSUMS
    }
    return {path for path in steady if reference.get(path) != found.get(path)}
