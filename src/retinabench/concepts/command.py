"""What the verb `examine` does with files: examination.json, transcript.jsonl, comparison.json, and the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from retinabench.concepts.banks.table_files import read_answers, read_bank
from retinabench.concepts.inference.gaussian_process import Reading
from retinabench.concepts.questioning.loop import examine
from retinabench.concepts.questioning.strategy_comparison import compare_strategies
from retinabench.concepts.report.overlap import together
from retinabench.concepts.report.page import write_report
from retinabench.concepts.report.snapshot import snapshot
from retinabench.core.atomic_files import write_json
from retinabench.core.errors import InputError
from retinabench.core.progress import QUIET, Progress

LONGEST = 5000  # questions of one repetition of the comparison, where none were asked for: the paper's largest bank has 2,200


def examine_files(
    answers: Path,
    truth: Path,
    out: Path,
    *,
    concepts: Sequence[str] | None,
    strategy: str,
    questions: int | None,
    tolerance: float | None,
    patience: int | None,
    claims: Sequence[str],
    confidence: float,
    reading: Reading,
    rules: Literal["corrected", "published"],
    kernel: Literal["published", "fitted"],
    repetitions: int,
    seed: int,
    progress: Progress = QUIET,
) -> dict[str, Any]:
    """Examine a table of answers against the truth and write all files to `out`; continues a transcript found there.

    Returns `Examination.to_dict()`, its bank with the concepts that come `together` (`overlap.together`). comparison.json
    is what `compare_strategies` returns, with a `snapshot` of the strategies under `state`.
    """
    if repetitions == 1:
        hint = "At least 2, or 0 to leave the comparison out."
        raise InputError("--repetitions 1 gives no interval", hint=hint)
    bank = read_bank(truth, concepts)
    examinee = read_answers(answers, bank)
    found = examine(
        bank,
        examinee,
        progress=progress,
        strategy=strategy,
        questions=questions,
        tolerance=tolerance,
        patience=patience,
        claim=claims,
        confidence=confidence,
        seed=seed,
        reading=reading,
        rules=rules,
        kernel=kernel,
        transcript=out / "transcript.jsonl",
    ).to_dict()
    found["bank"]["together"] = together(bank)
    write_json(out / "examination.json", found)
    comparison = None
    if repetitions:
        comparison = compare_strategies(
            bank,
            lambda _: examinee,
            repetitions=repetitions,
            questions=questions or LONGEST,
            seed=seed,
            reading=reading,
            rules=rules,
            progress=progress,
        )
        comparison["state"] = snapshot(bank, examinee, seed=seed, reading=reading, rules=rules)
        write_json(out / "comparison.json", comparison)
    write_report(found, comparison, out)
    return found


def summary_lines(found: dict[str, Any]) -> list[str]:
    """The examination in a few lines for the terminal."""
    width = max(len(name) for name in found["concepts"])
    lines = [f"{found['asked']:,} questions asked, stopped by: {found['stopped']}"]
    lines.append(f"{'':<{width}}  {'sensitivity':<28}specificity (95 % interval, asked/all)")
    for name, one in found["concepts"].items():
        cells = "".join(f"{_rate(one[measure]):<28}" for measure in ("sensitivity", "specificity"))
        lines.append(f"{name:<{width}}  {cells}".rstrip())
    for claim in found["claims"]:
        when = f" after {claim['after']} questions" if claim["after"] is not None else ""
        lines.append(f"claim: {claim['text']}: {claim['decided']}{when}")
    return lines


def _rate(one: dict[str, Any]) -> str:
    asked = f"{one['asked']}/{one['of']}"
    if one["value"] is None:
        return f"unknown {asked}"
    return f"{one['value']:.2f} [{one['low']:.2f}, {one['high']:.2f}] {asked}"
