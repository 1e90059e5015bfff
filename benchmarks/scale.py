"""What large inputs take: peak memory and processor seconds of one command each, in a process of its own.

    python benchmarks/scale.py                  # all parts, one after the other; needs 6 GB of memory and 3 GB of disk
    python benchmarks/scale.py --part report    # one of them; `--shrink 500` divides every size, to try the script

Each part ends within the limits of `core/errors`, or is refused in one line before the work begins.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from toolkit import parse

from retinabench.predictions.io import write_predictions
from retinabench.predictions.table import Predictions

ROWS = 5_000_000
Commands = list[tuple[str, list[str]]]


def main() -> None:
    options = parse(__doc__, part=[], shrink=1, make=["", ""])
    if all(options.make):
        print(json.dumps(PARTS[options.make[0]](Path(options.make[1]), options.shrink)))
        return
    print("| what | processor seconds | wall seconds | peak memory | ends with |\n|---|---|---|---|---|")
    for name in options.part or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            # In a process of its own: a child inherits the peak memory of its parent.
            make = [sys.executable, __file__, "--make", name, folder, "--shrink", str(options.shrink)]
            for what, arguments in json.loads(subprocess.check_output(make)):
                print(measured(what, arguments), flush=True)


def measured(what: str, arguments: list[str]) -> str:
    start = time.perf_counter()
    command = [sys.executable, "-m", "retinabench", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryFile() as errors_of:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors_of, env=environment)
        if arguments[0] == "examine":
            transcript = Path(arguments[arguments.index("--out") + 1]) / "transcript.jsonl"
            what += f"; the first answer after {until_first_answer(process, transcript, start)}"
        _, status, used = os.wait4(process.pid, 0)
        errors_of.seek(0)
        said = errors_of.read().decode(errors="replace")
    seconds, wall = used.ru_utime + used.ru_stime, time.perf_counter() - start
    errors = [line for line in said.splitlines() if line.startswith("retinabench: error: ")]
    code = f"exit code {os.waitstatus_to_exitcode(status)}"
    ends = errors[0][20:].replace(tempfile.gettempdir(), "")[:160] if errors else code
    return f"| {what} | {seconds:.1f} | {wall:.1f} | {used.ru_maxrss / 2**20:.2f} GB | {ends} |"


def until_first_answer(process: subprocess.Popen[bytes], transcript: Path, start: float) -> str:
    """Wait until a transcript holds an answer; return the processor and wall seconds of the command so far (Linux)."""
    while not (transcript.is_file() and transcript.read_bytes().count(b"\n") > 1):
        if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return "the end"
        time.sleep(0.01)
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    seconds = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    return f"{seconds:.1f} processor seconds, {time.perf_counter() - start:.1f} by the clock"


def table(rows: int) -> pa.Table:
    random = np.random.default_rng(0)
    label = (random.random(rows) < 0.2).astype(np.int8)
    prob = 1 / (1 + np.exp(-random.normal(2.0 * label - 1, 1)))
    name = pa.compute.binary_join_element_wise("image-", pa.array(np.arange(rows)).cast(pa.string()), "")
    patient = pa.compute.binary_join_element_wise("patient-", pa.array(np.arange(rows) // 2).cast(pa.string()), "")
    return pa.table({"image_id": name, "patient_id": patient, "label": label, "prob": prob.round(6)})


def large(folder: Path, shrink: int) -> Commands:
    rows = table(ROWS // shrink)
    pa.csv.write_csv(rows, folder / "t.csv")
    pa.parquet.write_table(rows, folder / "t.parquet")
    score = ["score", "--quiet", "--bootstrap"]
    return [
        (f"`score`, {len(rows):,} rows, CSV, no replicates", [*score, "0", str(folder / "t.csv")]),
        (f"`score`, {len(rows):,} rows, Parquet, no replicates", [*score, "0", str(folder / "t.parquet")]),
        ("the same with 10 replicates", [*score, "10", str(folder / "t.parquet")]),
    ]


def samples(folder: Path, shrink: int) -> Commands:
    random, n = np.random.default_rng(0), 42_670 // shrink
    label = (random.random(n) < 0.2).astype(np.int8)
    probs = 1 / (1 + np.exp(-random.normal(2.0 * label[:, None] - 1, 1, (n, 100))))
    patients = [f"p{k // 2}" for k in range(n)]
    made = Predictions([f"i{k}" for k in range(n)], label, probs, patient_id=patients, metadata={"samples": 100})
    commands = []
    for kind in ("parquet", "csv", "npz"):
        write_predictions(made, folder / f"t.{kind}")
        arguments = ["score", "--quiet", "--bootstrap", "100", str(folder / f"t.{kind}")]
        commands.append((f"`score`, {n:,} images with 100 samples, {kind}, 100 replicates", arguments))
    return commands


def report(folder: Path, shrink: int) -> Commands:
    """A page about 300 runs: 60 methods with 5 seeds, 800 images with 10 samples, 1,000 replicates."""
    random, n = np.random.default_rng(0), 800
    label = (random.random(n) < 0.3).astype(int)
    base = random.normal(1.5 * label - 0.7, 1)
    for number in range(300 // shrink):
        logits = base + random.normal(0, 0.5 + 0.01 * (number // 5), n)
        probs = 1 / (1 + np.exp(-(logits[:, None] + random.normal(0, 0.5, (n, 10)))))
        title = f"Method {number // 5}"
        one = Predictions(
            [f"i{k}" for k in range(n)], label, probs, patient_id=[f"p{k // 2}" for k in range(n)],
            domain=np.where(np.arange(n) % 2, "shifted", "in_domain"),
            split=np.where(np.arange(n) % 4 < 1, "validation", "test"),
            metadata={"title": title, "method": title, "seed": number % 5, "setting": title},
        )  # fmt: skip
        write_predictions(one, folder / f"run-{number:03}" / "predictions.parquet")
    runs = sorted(str(path) for path in folder.glob("run-*"))
    return [(f"`report` of {len(runs)} runs", ["report", *runs, "--out", str(folder / "report"), "--quiet"])]


def bank(folder: Path, shrink: int) -> Commands:
    return [_examined(folder, ROWS // shrink, 10, 200)]


def wide_bank(folder: Path, shrink: int) -> Commands:
    """A bank of 1,000,000 images by 50 concepts: reading it, and the first question."""
    return [_examined(folder, ROWS // 5 // shrink, 50, 1)]


def _examined(folder: Path, n: int, concepts: int, questions: int) -> tuple[str, list[str]]:
    random = np.random.default_rng(0)
    truth = random.random((n, concepts)) < 0.3
    name = table(n)["image_id"]
    answers = np.clip(truth * 0.6 + random.random((n, concepts)) * 0.4, 0, 1)
    for file, values in (("truth", truth.astype(np.int8)), ("answers", answers.astype(np.float32))):
        columns = {f"concept {k}": values[:, k] for k in range(concepts)}
        pa.parquet.write_table(pa.table({"image_id": name, **columns}), folder / f"{file}.parquet")
    arguments = ["examine", "--answers", str(folder / "answers.parquet"), "--truth", str(folder / "truth.parquet"),
                 "--strategy", "precision", "--questions", str(questions),
                 "--out", str(folder / "out"), "--quiet"]  # fmt: skip
    return f"`examine`, a bank of {n:,} images by {concepts} concepts, {questions} questions", arguments


PARTS: dict[str, Callable[[Path, int], Commands]] = {
    "large": large, "samples": samples, "report": report, "bank": bank, "wide": wide_bank,
}  # fmt: skip

if __name__ == "__main__":
    main()
