"""What a fresh interpreter has not imported after each of some steps, one after the other in one process."""

from __future__ import annotations

import subprocess
import sys

DATA = ("retinabench.data.", "retinabench.methods.", "retinabench.models.")
SCORES = ("PIL", "torch", "matplotlib", "pandas", "scipy.stats", "sklearn", *DATA)
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
PROGRAM = """
import sys
for code, forbidden in {steps}:
    exec(code)
    found = [name for name in sys.modules if name.startswith(forbidden) and not name.endswith(".registry")]
    assert not found, (code, found)
"""


def test_what_is_heavy_is_imported_where_it_is_needed(tmp_path):
    rows = [f"i{k},{k % 2},{(k * 37 % 60) / 60:.4f}" for k in range(60)]
    (tmp_path / "p.csv").write_text("\n".join(["image_id,label,prob", *rows]) + "\n")
    code = [sys.executable, "-c", PROGRAM.format(steps=STEPS)]
    done = subprocess.run(code, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "In-domain" in done.stdout
