"""How many files of the package run between a CSV and its tables: `python tools/traced_files.py [--list]`.

`score` and `report` are run on a small drawn CSV in a process of their own. A file counts where at least one of its functions
is called; definitions that run on import (modules, class bodies, the building of registries) do not count.
"""

import argparse
import contextlib
import inspect
import io
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

import numpy as np

SCORE = ["score", "{file}", "--bootstrap", "20"]
COMMANDS = {"score": SCORE, "report": ["report", *SCORE[1:], "--out", "{folder}/report"]}


def traced(arguments: list[str]) -> Counter[str]:
    """Return file of the package -> number of its functions that a command calls after its modules are imported."""
    import retinabench
    from retinabench.cli.main import run

    package = str(Path(retinabench.__file__).parent)
    called: set[CodeType] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        ours = event == "call" and code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.startswith(package)
        if ours and code not in called and not _importing(frame):
            called.add(code)

    sys.setprofile(note)
    threading.setprofile(note)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            status = run([*arguments, "--quiet"])
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    if status:
        raise SystemExit(f"{arguments[0]} ended with {status}")
    return Counter(str(Path(code.co_filename).relative_to(package)) for code in called)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename != __file__:
            return True
        frame = frame.f_back
    return False


def write_csv(path: Path, images: int = 120) -> None:
    rng = np.random.default_rng(0)
    ill = rng.random(images) < 0.3
    prob = 1 / (1 + np.exp(-rng.normal(2 * ill - 1, 1)))
    lines = ["image_id,patient_id,label,prob,domain"]
    for k in range(images):
        lines.append(f"i{k},p{k // 2},{int(ill[k])},{prob[k]:.6f},{'shifted' if k % 3 == 0 else 'in_domain'}")
    path.write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="name the files")
    parser.add_argument("--command", choices=COMMANDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.command is None:
        listed = ["--list"] if options.list else []
        for name in COMMANDS:
            subprocess.run([sys.executable, __file__, "--command", name, *listed], check=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "predictions.csv")
        write_csv(file)
        counts = traced([part.format(file=file, folder=folder) for part in COMMANDS[options.command]])
    print(f"{options.command}: {sum(counts.values())} functions in {len(counts)} files")
    if options.list:
        for path, functions in sorted(counts.items()):
            print(f"  {functions:4d} {path}")


if __name__ == "__main__":
    main()
