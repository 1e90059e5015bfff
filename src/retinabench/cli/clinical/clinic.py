"""The questions of a screening programme: `clinic`, and `plan` before there are any data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from retinabench.cli.application import argument, option, print_notes, print_path, print_result, progress_of
from retinabench.cli.options import (
    PLAIN,
    FileReader,
    Json,
    Silent,
    Threshold,
    Uncertainty,
    reads_predictions,
)
from retinabench.core.errors import InputError

if TYPE_CHECKING:
    from retinabench.metrics.clinical.screening_report import ScreeningReport

Pilot = Annotated[
    Path | None, argument("FILE", "Predictions of a pilot, from which what is not stated is read.")
]
Prevalence = Annotated[float | None, option("--prevalence", "X", "Share of referable images: 0.1.")]
Sensitivity = Annotated[
    float | None, option("--sensitivity", "X", "That is expected; default 0.9, or the pilot's.")
]
Specificity = Annotated[
    float | None, option("--specificity", "X", "That is expected; default 0.9, or the pilot's.")
]
Auroc = Annotated[float | None, option("--auroc", "X", "That is expected; default 0.95, or the pilot's.")]
HalfWidth = Annotated[
    float, option("--half-width", "X", "Of the intervals of sensitivity, specificity and AUROC.")
]
AboveSensitivity = Annotated[
    float | None, option("--above-sensitivity", "X", "A goal that must be shown to be exceeded.")
]
AboveSpecificity = Annotated[
    float | None, option("--above-specificity", "X", "A goal that must be shown to be exceeded.")
]
OtherAuroc = Annotated[
    float | None, option("--other-auroc", "X", "Of a second model, from which the first must be told apart.")
]
Power = Annotated[float, option("--power", "X", "Probability of showing what must be shown.")]
ImagesPerPatient = Annotated[
    float | None, option("--images-per-patient", "X", "Mean number; default 2, or the pilot's.")
]
Correlation = Annotated[
    float | None,
    option(
        "--correlation",
        "X",
        "Of the model's being right on two images of a patient; default 0.5, or the pilot's.",
    ),
]

ReferralRate = Annotated[
    float, option("--referral", "X", "Share of images to refer, frozen on the validation split if any.")
]
Prevalences = Annotated[
    list[float] | None,
    option("--prevalence", "X", "At which PPV and NPV are stated; may be repeated. Default: 0.05 to 0.3."),
]
Cost = Annotated[
    float,
    option(
        "--cost", "X", "Price of a referral in detected referable images; 0.02: 50 readings are worth one."
    ),
]
Reader = Annotated[
    str,
    option(
        "--reader", "X/X", "Sensitivity/specificity of the human who reads the referred images: 0.9/0.95."
    ),
]
ImagesPerHour = Annotated[float, option("--images-per-hour", "X", "What an expert reads in an hour.")]
Subgroups = Annotated[
    list[str] | None,
    option("--subgroup", "COLUMN", "Column of subgroups; may be repeated. Default: all that make groups."),
]
Page = Annotated[Path | None, option("--out", "FOLDER", "Folder for the page and its numbers.")]


@reads_predictions
def clinic(
    file: Annotated[Path, argument("FILE", "Predictions file or run folder.")],
    referral: ReferralRate = 0.2,
    threshold: Threshold = "0.5",
    uncertainty: Uncertainty = "auto",
    prevalence: Prevalences = None,
    cost: Cost = 0.0,
    human: Reader = "0.9/0.95",
    images_per_hour: ImagesPerHour = 60.0,
    subgroup: Subgroups = None,
    json: Json = None,
    out: Page = None,
    quiet: Silent = False,
    reader: FileReader = PLAIN,
) -> None:
    """Say whether a model's uncertainty can drive referral: what is missed, what it costs, for whom it fails."""
    from retinabench.metrics.clinical.screening_report import clinic as screen
    from retinabench.reports.clinic.terminal import clinic_summary

    rates = _reader(human)
    (predictions,) = replace(reader, ungradable=True).read([file])
    with progress_of(quiet).track("Screening", 1, unit="file") as advance:
        found = screen(
            predictions, threshold, referral_rate=referral, uncertainty=uncertainty,
            prevalences=prevalence or (0.05, 0.1, 0.2, 0.3), reader=rates, referral_cost=cost,
            images_per_hour=images_per_hour, subgroups=subgroup or None,
        )  # fmt: skip
        advance(1)
    print_result(clinic_summary(found), json, lambda: _json(found))
    print_notes(found.notes)
    if out is not None:
        from retinabench.metrics.policies.grid import policy_grid
        from retinabench.reports.clinic.page import write_clinic

        with progress_of(quiet).track("Trying other thresholds", 1, unit="file") as advance:
            grid = policy_grid(predictions, found.stated)
            advance(1)
        write_clinic(found, out, grid)
        if not quiet:
            print_path(out / "index.html", json)


def _json(found: ScreeningReport) -> dict[str, object]:
    from retinabench.reports.clinic.page import clinic_json  # draws figures, which the table does without

    return clinic_json(found)


def _reader(text: str) -> tuple[float, float]:
    """Read `0.9/0.95`."""
    parts = text.split("/")
    try:
        sensitivity, specificity = map(float, parts)
    except ValueError:
        raise InputError(
            f"--reader {text} is no pair of sensitivity and specificity", hint="For example 0.9/0.95."
        ) from None
    return sensitivity, specificity


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
    from retinabench.metrics.planning.assumptions import Stated, stated_assumptions
    from retinabench.metrics.planning.plan import plan_study
    from retinabench.metrics.planning.study_plan import Aims
    from retinabench.reports.clinic.terminal import plan_table

    predictions = None if pilot is None else reader.read([pilot])[0]
    stated = Stated(prevalence, sensitivity, specificity, auroc, images_per_patient, correlation)
    assumptions = stated_assumptions(stated, predictions, threshold)
    aims = Aims(half_width, above_sensitivity, above_specificity, other_auroc, power=power)
    found = plan_study(assumptions, aims)
    print_result(plan_table(found), json, found.to_dict)
    print_notes((*(() if predictions is None else predictions.notes), *found.notes))
