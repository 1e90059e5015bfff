"""What a fresh interpreter has not imported after each of some steps, and what it does on a machine without PyTorch."""

import subprocess
import sys

import numpy as np

from retinabench.fidelity.reference.reference_file import Reference, ReferenceAbout, write_reference
from retinabench.fidelity.targets.data import load
from retinabench.fidelity.targets.target import TARGETS
from support.fake_reference import classified

ENTRIES = ("retinabench.data.", "retinabench.methods.", "retinabench.models.", "retinabench.fidelity.")
SCORES = ("PIL", "torch", "matplotlib", "pandas", "scipy.stats", "sklearn", "ray", *ENTRIES)
# Code, and the modules that it must not import; registries hold names and locations, and import an entry on first use.
STEPS = [
    ("from retinabench.data.registry import DATASETS, TASKS; assert list(DATASETS) and list(TASKS)", ("numpy", *SCORES)),
    ("import retinabench as rb; rb.score(rb.Predictions(['a', 'b'], [0, 1], [0.2, 0.7]), bootstrap=3)", SCORES),
    ("from retinabench.cli.main import run; assert run(['score', 'p.csv', '--bootstrap', '5', '--quiet']) == 0", SCORES),
    ("from retinabench.data.prepared import open_data", ("PIL", "torch", "retinabench.data.datasets", "retinabench.data.synth")),
    ("import retinabench.integrations.trackers", ("torch",)),
    ("rb.fidelity.problem('banana').gradient([0.0, 1.0])", ("torch",)),
    ("import retinabench.concepts.examine", ("torch",)),
]  # fmt: skip
COMMANDS = [
    "list methods", "tune --help", "score p.csv -q --bootstrap 10", "report p.csv -q --bootstrap 10",
    "report p.csv --tables -q --bootstrap 10", "inspect p.csv",
    "fidelity score theirs.csv --task fundus --bootstrap 20 --reference r.npz --keep kept",
    "fidelity board kept --out board --bootstrap 20 --reference fundus=r.npz",
]  # fmt: skip
PROGRAM = """
import sys
for code, forbidden in {steps}:
    exec(code)
    found = [name for name in sys.modules if name.startswith(forbidden) and not name.endswith(".registry")]
    assert not found, (code, found)

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, NoTorch())
from retinabench.reports.papers import write
write.figures_of = lambda *_: ([], [])  # drawing takes ten times as long as the rest
for words in {commands}:
    assert run(words.split()) == 0, words
assert run(["train", "--data", "."]) == 2
"""


def test_what_is_heavy_is_imported_where_it_is_needed_and_training_alone_needs_torch(tmp_path):
    rows = [f"i{k},{k % 2},{(k * 37 % 60) / 60:.4f}" for k in range(60)]
    (tmp_path / "p.csv").write_text("\n".join(["image_id,label,prob", *rows]) + "\n")
    fundus, fake = TARGETS["fundus"], classified(1000, 5)
    data = load(fundus).sha256
    about = ReferenceAbout(task="fundus", target=fundus.fingerprint(data), data=data, chains=4, passed=True, why=())
    kept = fake.mcse, fake.epistemic, fake.chain_probs, fake.samples.astype(np.float16)
    write_reference(tmp_path / "r.npz", Reference(about, *[np.ones((1000, 5))] * 3, *kept))
    np.savetxt(tmp_path / "theirs.csv", np.random.default_rng(0).dirichlet(np.ones(5), 1000))
    code = [sys.executable, "-c", PROGRAM.format(steps=STEPS, commands=COMMANDS)]
    done = subprocess.run(code, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for said in ("In-domain", "MC dropout", "one chain of"):
        assert said in done.stdout
    assert (tmp_path / "board" / "index.html").is_file()
    assert "pip install 'retinabench[train]'" in done.stderr.splitlines()[-1]
