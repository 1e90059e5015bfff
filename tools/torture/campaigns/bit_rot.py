"""A flipped or missing byte in any file that a command keeps and reads again.

`retinabench verify` names the file, where it has a checksum. The commands that read it refuse it, or make it again, or give the
same result: never another one.
"""

import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from glob import glob
from pathlib import Path

from retinabench.core.errors import CHECKSUMS
from retinabench.core.files import verify
from torture.interpose import What, interposed
from torture.outcomes import Outcome, Verdict, equal
from torture.trees import Undisturbed, contents, fresh, undisturbed
from torture.verbs import VERBS

UNIT = "faults"
DAMAGES = 16  # of one batch
RUN = "[a-z]*-mlp-seed-0-????????????"


Read = Mapping[str, bytes]
SCORE = "--task fundus-small --bootstrap 0 --json read/s.json"


@dataclass(frozen=True)
class Case:
    """A folder, and the command that reads it: the verb once more, or `reads` with the inputs `{i}` and the folder `{f}`."""

    verb: str
    part: float = 1
    reads: str = ""

    def arguments(self, base: Undisturbed, folder: Path) -> list[str]:
        """Return the words of the command; a pattern stands for the first file that it fits."""
        words = [word.format(i=base.scratch / "inputs", f=folder / "out") for word in self.reads.split()]
        return [next(iter(sorted(glob(word))), word) if "*" in word else word for word in words] or base.arguments


CASES = (
    Case("train map", 0.6), Case("train swag", 0.7),
    Case("train map", 1, f"score {{f}}/{RUN}/predictions.parquet --json read/s.json --bootstrap 0"),
    Case("train map", 1, f"predict {{f}}/{RUN} --data {{i}}/other --out read/p.parquet"),
    Case("train map", 1, f"export {{f}}/{RUN} --out read/model"), Case("train ensemble", 0.6),
    Case("train map", 1, f"report {{f}}/{RUN} --out read --bootstrap 0 --quiet"), Case("prepare", 0.6),
    Case("prepare", 1, "train --data {f} --out read --quiet model.name=mlp model.width=4 optimizer.epochs=1"),
    Case("prepare", 1, "inspect {f} --out read --quiet"), Case("fidelity run", 0.6),
    Case("fidelity run", 1, f"fidelity score {{f}}/*/submission.npz {SCORE}"), Case("fidelity reference", 0.6),
    Case("fidelity reference"),
    Case("fidelity reference", 1, f"fidelity score {{i}}/submission.csv --reference {{f}}/r.npz {SCORE}"),
    Case("examine", 0.7), Case("tune"), Case("benchmark"),
)  # fmt: skip


def campaign(seed: int, scratch: Path) -> Iterator[Outcome]:
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
    every = sorted(path for path in kept.rglob("*") if "logs" not in path.parts)
    files = [path for path in every if path.is_file() and path.stat().st_size]
    for _ in range(DAMAGES):
        yield _trial(case, base, kept, rng.choice(files).relative_to(kept), rng, reference)


def _read(
    case: Case, base: Undisturbed, kept: Path, damage: Callable[[Path], None] = lambda out: None
) -> tuple[Read, str]:
    """Copy the folder, damage it, and run the command that reads it; return what it writes, or how it fails."""
    folder = fresh(base)
    shutil.rmtree(folder / "out")
    shutil.copytree(kept, folder / "out")
    damage(folder / "out")
    (folder / "read").mkdir()
    ended = replace(base, arguments=case.arguments(base, folder)).start(folder).wait()
    if ended.problem:
        return {}, ended.lines[0] if len(ended.lines) == 1 and not ended.broken else f"FAILED {ended.problem}"
    return contents(folder / ("read" if case.reads else "out")), ""


def _trial(case: Case, base: Undisturbed, kept: Path, name: Path, rng: random.Random, reference: Read) -> Outcome:
    content = (kept / name).read_bytes()
    at, cut = rng.randrange(len(content)), rng.random() < 0.3
    other = content[:at] if cut else content[:at] + bytes([content[at] ^ (1 << rng.randrange(8))]) + content[at + 1 :]
    noticed: list[str] = []

    def damage(out: Path) -> None:
        (out / name).write_bytes(other)
        noticed.extend(str(one.path) for one in verify(out) if one.state in ("damaged", "missing"))

    found, said = _read(case, base, kept, damage)
    reader = " ".join(case.reads.split()[:2]) or "repeated"
    what = f"{case.verb} ({case.part:g}), {name}, {'cut at' if cut else 'bit of'} byte {at} of {len(content)}, {reader}"
    row = "bit_rot in finished folders" if case.part == 1 else "bit_rot in begun folders"
    if said.startswith("FAILED"):
        return Outcome(row, what, Verdict.FAILED, said)
    if said:
        return Outcome(row, what, Verdict.REFUSED, said)
    changed = _changed(base, reference, found)
    if changed and changed <= {str(name)}:  # the command does not read that file
        if noticed:
            return Outcome(row, what, Verdict.REFUSED, f"verify names it: {name}")
        return Outcome(row, what, Verdict.EQUAL, "not read")
    return equal(row, what, ", ".join(sorted(changed)[:4]))


def _changed(base: Undisturbed, reference: Mapping[str, bytes], found: Mapping[str, bytes]) -> set[str]:
    """The files that differ, but for those in which two undisturbed commands differ, and for the lists of checksums."""
    every = {path for path in {*reference, *found} if Path(path).name != CHECKSUMS}
    steady = {path for path in every if base.files.get(path, b"") is not None}
    return {path for path in steady if reference.get(path) != found.get(path)}
