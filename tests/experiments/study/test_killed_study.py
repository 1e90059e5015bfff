"""`kill -9` anywhere in a study, again and again, then the same command: the same bytes as an undisturbed one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support.helpers import make_prepared
from support.killing import KILLING
from support.studies import BOTH, tiny

# Every durable write ends in os.replace or, of a claim, in os.link. A child kills itself at the given one: before it,
# half-way through the temporary file, or right after it. The study is the same for all; only the last child is spared.
DRIVER = f"""
{KILLING}
import json, os, sys
from pathlib import Path

sys.path[:0] = sys.argv[4:]
from support.studies import Serial
from retinabench.experiments.study import benchmark as module
from retinabench.experiments.study import runner
from retinabench.experiments.study.definition import Study

module.write_outputs = lambda *_: None  # tables, pages and figures come after all that can be lost
runner.write_figures = lambda *_: None
definition, out = Study(**json.loads(Path(sys.argv[1]).read_text())), Path(sys.argv[2])

def attempt(how, target):
    os.replace = killing(how, target)
    module.benchmark(definition, out, Serial())

for how, target in json.loads(sys.argv[3]):
    child = os.fork()
    if child == 0:
        attempt(how, target)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
# Number of the write within each command; the whole study has more than 60.
KILLS = [("before", 1), ("after", 2), ("torn", 9), ("before", 20), ("after", 22)]


def drive(root: Path, out: Path, kills: list[tuple[str, int]]) -> list[int]:
    tests = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, root / "study.json", out, json.dumps(kills), tests],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()]


def contents(out: Path) -> dict[str, bytes]:
    """All results by path: the runs' and the labelled predictions, the choices, the summary."""
    names = ("**/*.parquet", "**/choices.json", "summary.*", "study.json")
    files = [file for name in names for file in out.glob(name)]
    return {str(file.relative_to(out)): file.read_bytes() for file in files}


def test_killed_again_and_again_it_ends_with_the_same_bytes(tmp_path):
    tables = tiny(tmp_path, make_prepared(tmp_path / "data"), criteria=BOTH[:1])
    (tmp_path / "study.json").write_text(json.dumps(tables))
    assert drive(tmp_path, tmp_path / "undisturbed", [("never", 0)]) == [0]
    codes = drive(tmp_path, tmp_path / "killed", [*KILLS, ("never", 0)])
    assert codes == [-9] * len(KILLS) + [0]
    expected, found = contents(tmp_path / "undisturbed"), contents(tmp_path / "killed")
    assert len(expected) > 12
    assert found.keys() == expected.keys()
    assert [name for name in expected if found[name] != expected[name]] == []
