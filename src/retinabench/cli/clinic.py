"""The questions of a screening programme: `clinic`, and `plan` before there are any data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from retinabench.cli.options import PLAIN, FileReader, Json, Threshold, reads_predictions
from retinabench.cli.output import print_notes, print_table

Pilot = Annotated[
    Path | None, typer.Argument(help="Predictions of a pilot, from which what is not stated is read.")
]
Prevalence = Annotated[float | None, typer.Option("--prevalence", help="Share of referable images: 0.1.")]
Sensitivity = Annotated[
    float | None, typer.Option("--sensitivity", help="That is expected; default 0.9, or the pilot's.")
]
Specificity = Annotated[
    float | None, typer.Option("--specificity", help="That is expected; default 0.9, or the pilot's.")
]
Auroc = Annotated[
    float | None, typer.Option("--auroc", help="That is expected; default 0.95, or the pilot's.")
]
HalfWidth = Annotated[
    float, typer.Option("--half-width", help="Of the intervals of sensitivity, specificity and AUROC.")
]
AboveSensitivity = Annotated[
    float | None, typer.Option("--above-sensitivity", help="A goal that must be shown to be exceeded.")
]
AboveSpecificity = Annotated[
    float | None, typer.Option("--above-specificity", help="A goal that must be shown to be exceeded.")
]
OtherAuroc = Annotated[
    float | None,
    typer.Option("--other-auroc", help="Of a second model, from which the first must be told apart."),
]
Power = Annotated[float, typer.Option("--power", help="Probability of showing what must be shown.")]
ImagesPerPatient = Annotated[
    float | None, typer.Option("--images-per-patient", help="Mean number; default 2, or the pilot's.")
]
Correlation = Annotated[
    float | None,
    typer.Option(
        "--correlation",
        help="Of the model's being right on two images of a patient; default 0.5, or the pilot's.",
    ),
]


@reads_predictions
def plan(
    pilot: Pilot = None,
    prevalence: Prevalence = None,
    sensitivity: Sensitivity = None,
    specificity: Specificity = None,
    auroc: Auroc = None,
    half_width: HalfWidth = 0.05,
    above_sensitivity: AboveSensitivity = None,
    above_specificity: AboveSpecificity = None,
    other_auroc: OtherAuroc = None,
    power: Power = 0.8,
    images_per_patient: ImagesPerPatient = None,
    correlation: Correlation = None,
    threshold: Threshold = "0.5",
    json: Json = None,
    reader: FileReader = PLAIN,
) -> None:
    """Say how many patients a study needs, from stated expectations or from a pilot."""
    from retinabench.core.atomic_files import write_json
    from retinabench.metrics.planning.plan import Aims, plan_study, stated_assumptions
    from retinabench.reports.clinic.plan_terminal import plan_table

    predictions = None if pilot is None else reader.read([pilot])[0]
    stated = {
        "prevalence": prevalence, "sensitivity": sensitivity, "specificity": specificity, "auroc": auroc,
        "images_per_patient": images_per_patient, "correlation": correlation,
    }  # fmt: skip
    assumptions = stated_assumptions(stated, predictions, threshold)
    aims = Aims(half_width, above_sensitivity, above_specificity, other_auroc, power=power)
    found = plan_study(assumptions, aims)
    if json is not None:
        write_json(json, found.to_dict())
    print_table(plan_table(found))
    print_notes((*(() if predictions is None else predictions.notes), *found.notes))
