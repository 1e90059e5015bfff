"""Referral thresholds that hold on new patients: `transfer`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from retinabench.cli.options import PLAIN, FileReader, Json, Seed, Silent, Uncertainty, reads_predictions
from retinabench.cli.output import ExitCode, print_notes, print_table, progress_of
from retinabench.core.errors import InputError


@reads_predictions
def transfer(
    file: Annotated[Path, typer.Argument(help="Predictions with a validation and a test split.")],
    target: Annotated[
        str, typer.Option("--target", help="accuracy, sensitivity, selective_risk or referral_rate.")
    ] = "selective_risk",
    goal: Annotated[float, typer.Option("--goal", help="What the target must reach.")] = 0.05,
    confidence: Annotated[
        float | None,
        typer.Option("--confidence", help="Guarantee the risk with this confidence, or refuse: 0.95."),
    ] = None,
    bootstrap: Annotated[
        int, typer.Option("--bootstrap", min=1, help="Replicates for the intervals.")
    ] = 1000,
    uncertainty: Uncertainty = "auto",
    json: Json = None,
    seed: Seed = 0,
    quiet: Silent = False,
    reader: FileReader = PLAIN,
) -> ExitCode:
    """Choose a referral threshold on the validation split, freeze it, and see what it does on the test sets."""
    from retinabench.core.atomic_files import write_json
    from retinabench.metrics.guarantees.transfer import transfer as transfer_threshold
    from retinabench.reports.evaluation.transfer_terminal import transfer_table

    if confidence is not None and not 0 < confidence < 1:
        raise InputError(f"--confidence {confidence:g} is not between 0 and 1", hint="For example 0.95.")
    (predictions,) = reader.read([file])
    delta = None if confidence is None else 1 - confidence
    with progress_of(quiet).track("Choosing and testing a threshold", 1, unit="file") as advance:
        found = transfer_threshold(
            predictions, target, goal, delta=delta, uncertainty=uncertainty, bootstrap=bootstrap, seed=seed
        )
        advance(1)
    if json is not None:
        write_json(json, found.to_dict())
    print_table(transfer_table(found))
    print_notes(found.notes)
    return ExitCode.REFUSED if found.threshold is None else ExitCode.DONE
