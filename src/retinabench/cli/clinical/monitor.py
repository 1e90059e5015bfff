"""A certificate watched while patients arrive: `monitor`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from retinabench.cli.application import (
    ExitCode,
    argument,
    option,
    print_notes,
    print_path,
    print_result,
    progress_of,
)
from retinabench.cli.options import PLAIN, FileReader, Json, Seed, Silent, reads_predictions
from retinabench.core.errors import InputError


@reads_predictions
def monitor(
    files: Annotated[
        list[Path],
        argument(
            "FILE",
            "Predictions with dates, labels may be empty; rows of the validation split are the reference.",
        ),
    ],
    certificate: Annotated[
        Path, option("--certificate", "FILE", "What `transfer --confidence … --json` wrote.")
    ],
    date_column: Annotated[
        str, option("--date-column", "COLUMN", "Column with the date of each image, as 2026-03-31.")
    ] = "date",
    level: Annotated[
        float, option("--level", "X", "Rate of false alarms over all looks, of each alarm.")
    ] = 0.05,
    out: Annotated[Path | None, option("--out", "FOLDER", "Write a page into this folder.")] = None,
    json: Json = None,
    seed: Seed = 0,
    quiet: Silent = False,
    reader: FileReader = PLAIN,
) -> ExitCode:
    """Watch whether a certificate still holds on new patients: drift without labels, risk where there are labels."""
    from retinabench.metrics.monitoring.certified import read_certificate
    from retinabench.metrics.monitoring.follow_up import follow_up
    from retinabench.metrics.monitoring.monitor import monitor as watch
    from retinabench.predictions.io import notes_of_files
    from retinabench.reports.monitoring.tables import monitor_tables

    if not 0 < level < 1:
        raise InputError(f"--level {level:g} is not between 0 and 1", hint="For example 0.05.")
    certified = read_certificate(certificate)
    predictions = replace(reader, unlabelled=True).read(files)
    try:
        images, reference = follow_up(predictions, certified.uncertainty, certified.decision, date_column)
        with progress_of(quiet).track("Watching", 1, unit="follow-up") as advance:
            found = watch(images, certified, reference=reference, level=level, seed=seed)
            advance(1)
    except InputError as error:
        raise error if error.file is not None else _of_files(error, files) from None
    print_result(monitor_tables(found), json, found.to_dict)
    print_notes(
        (*notes_of_files([str(file) for file in files], [one.notes for one in predictions]), *found.notes)
    )
    if out is not None:
        from retinabench.reports.monitoring.page import write_page

        print_path(write_page(found, out), json)
    return ExitCode.REFUTED if found.alarm else ExitCode.DONE


def _of_files(error: InputError, files: Sequence[Path]) -> InputError:
    """Return an error about all files together with their names."""
    names = f"{files[0]} and {len(files) - 1} more" if len(files) > 1 else files[0]
    return InputError(error.problem, file=names, row=error.row, column=error.column, hint=error.hint)
