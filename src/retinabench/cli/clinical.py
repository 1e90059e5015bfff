"""`clinic`, `transfer`, `apply`, `monitor`, `status` and `plan`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from retinabench.cli.application import (
    MOST_REPLICATES,
    PLAIN,
    ExitCode,
    FileReader,
    Json,
    Seed,
    Silent,
    Threshold,
    Uncertainty,
    argument,
    flag,
    option,
    print_notes,
    print_path,
    print_result,
    progress_of,
    reads_predictions,
    say,
)
from retinabench.core.errors import InputError
from retinabench.core.files import sha256, write_json

if TYPE_CHECKING:
    from retinabench.metrics.clinical.screening import ScreeningReport
    from retinabench.metrics.guarantees.transfer import Transfer
    from retinabench.metrics.guarantees.triage import Triage
    from retinabench.predictions.table import Predictions


Rate = Annotated[
    float, option("--referral", "X", "Share of images that the expert reads, frozen on the validation split if any.")
]
Prevalences = Annotated[
    list[float] | None,
    option("--prevalence", "X", "At which PPV and NPV are stated; may be repeated. Default: 0.05 to 0.3."),
]
Cost = Annotated[
    float, option("--cost", "X", "Price of a reading in detected referable images; 0.02: 50 readings are worth one.")
]
Human = Annotated[str, option("--reader", "X/X", "Sensitivity/specificity of the human who reads: 0.9/0.95.")]
ImagesPerHour = Annotated[float, option("--images-per-hour", "X", "What an expert reads in an hour.")]
Population = Annotated[
    float | None,
    option("--population", "X", "Share of referable images where the model will work, if the study has more or fewer."),
]
Harm = Annotated[
    float | None,
    option(
        "--harm", "X", "False alarms that weigh as much as a missed image. Default: as the decision threshold says."
    ),
]
Columns = Annotated[
    list[str] | None,
    option("--subgroup", "COLUMN", "Column of subgroups; may be repeated. Default: all that make groups."),
]
Page = Annotated[Path | None, option("--out", "FOLDER", "Folder for the page and its numbers.")]


GoalPair = Annotated[
    str, option("--goal", "X/X", "Sensitivity/specificity that are to be reached, per patient and per image.")
]


@reads_predictions
def clinic(
    file: Annotated[Path, argument("FILE", "Predictions file or run folder.")],
    referral: Rate = 0.2,
    threshold: Threshold = "0.5",
    uncertainty: Uncertainty = "auto",
    prevalence: Prevalences = None,
    cost: Cost = 0.0,
    human: Human = "0.9/0.95",
    goal: GoalPair = "0.85/0.8",
    images_per_hour: ImagesPerHour = 60.0,
    population: Population = None,
    harm: Harm = None,
    subgroup: Columns = None,
    json: Json = None,
    out: Page = None,
    quiet: Silent = False,
    reader: FileReader = PLAIN,
) -> None:
    """Say whether a model's uncertainty can drive referral: what is missed, what it costs, for whom it fails."""
    from retinabench.metrics.clinical.screening import clinic as screen
    from retinabench.reports.clinic import clinic_summary

    reader_rates, wanted = _pair("--reader", human), _pair("--goal", goal)
    (predictions,) = replace(reader, ungradable=True).read([file])
    with progress_of(quiet).track("Screening", 1, unit="file") as advance:
        result = screen(
            predictions, threshold, referral_rate=referral, uncertainty=uncertainty,
            prevalences=prevalence or (0.05, 0.1, 0.2, 0.3), reader=reader_rates, referral_cost=cost, goal=wanted,
            images_per_hour=images_per_hour, subgroups=subgroup or None, population=population, harm=harm,
        )  # fmt: skip
        advance(1)
    print_result(clinic_summary(result), json, lambda: _json(result))
    print_notes(result.notes)
    if out is not None:
        from retinabench.metrics.clinical.screening_table import policy_grid
        from retinabench.reports.clinic import write_clinic

        with progress_of(quiet).track("Trying other thresholds", 1, unit="file") as advance:
            grid = policy_grid(predictions, result.stated)
            advance(1)
        write_clinic(result, out, grid)
        if not quiet:
            print_path(out / "index.html", json)


def _pair(option_name: str, text: str) -> tuple[float, float]:
    try:
        sensitivity, specificity = map(float, text.split("/"))
    except ValueError:
        problem = f"{option_name} {text} is not SENSITIVITY/SPECIFICITY"
        raise InputError(problem, hint="For example 0.9/0.95.") from None
    return sensitivity, specificity


def _json(result: ScreeningReport) -> dict[str, object]:
    from retinabench.reports.clinic import clinic_json  # draws figures, which the table does without

    return clinic_json(result)


Pilot = Annotated[Path | None, argument("FILE", "Predictions of a pilot, from which what is not stated is read.")]
Prevalence = Annotated[float | None, option("--prevalence", "X", "Share of referable images: 0.1.")]
Sensitivity = Annotated[float | None, option("--sensitivity", "X", "That is expected; default 0.9, or the pilot's.")]
Specificity = Annotated[float | None, option("--specificity", "X", "That is expected; default 0.9, or the pilot's.")]
Auroc = Annotated[float | None, option("--auroc", "X", "That is expected; default 0.95, or the pilot's.")]
HalfWidth = Annotated[float, option("--half-width", "X", "Of the intervals of sensitivity, specificity and AUROC.")]
AboveSensitivity = Annotated[
    float | None, option("--above-sensitivity", "X", "A goal that must be shown to be exceeded.")
]
AboveSpecificity = Annotated[
    float | None, option("--above-specificity", "X", "A goal that must be shown to be exceeded.")
]
Power = Annotated[float, option("--power", "X", "Probability of showing what must be shown.")]
ImagesPerPatient = Annotated[
    float | None, option("--images-per-patient", "X", "Mean number; default 2, or the pilot's.")
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
    power: Power = 0.8,
    images_per_patient: ImagesPerPatient = None,
    threshold: Threshold = "0.5",
    json: Json = None,
    reader: FileReader = PLAIN,
) -> None:
    """Say how many patients a study needs, from stated expectations or from a pilot."""
    from retinabench.metrics.planning import plan as plan_study
    from retinabench.reports.clinic import plan_table

    predictions = None if pilot is None else reader.read([pilot])[0]
    result = plan_study(
        predictions, prevalence=prevalence, sensitivity=sensitivity, specificity=specificity, auroc=auroc, half_width=half_width,
        above_sensitivity=above_sensitivity, above_specificity=above_specificity, power=power,
        images_per_patient=images_per_patient, threshold=threshold,
    )  # fmt: skip
    print_result(plan_table(result), json, result.to_dict)
    print_notes((*(() if predictions is None else predictions.notes), *result.notes))


Goals = Annotated[
    list[str] | None,
    option(
        "--goal",
        "GOAL",
        "What must be reached, such as sensitivity=.9; may be repeated. A number alone bounds selective_risk. Others: accuracy, "
        "missed_referable, severe_sensitivity, missed_severe, specificity, npv, ppv, referral_rate (workload).",
    ),
]

Confidence = Annotated[
    float | None, option("--confidence", "X", "Guarantee the goals with this confidence, or refuse: 0.95.")
]

PerWhat = Annotated[
    Literal["image", "patient-image", "patient"],
    typer.Option(
        "--per",
        metavar="WHAT",  # the names would take the width of the others
        help="image: every image has the same weight; patient-image: every patient has; patient: one decision for each patient (any eye).",
    ),
]

CertificateOut = Annotated[
    Path | None, option("--out", "FOLDER", "Folder for the certificate: transfer.json, a page, and a PDF to sign.")
]
MostImages = Annotated[
    int | None, option("--most-images", "N", "Images a new patient may have; default: as on validation.", min=1)
]

Zones = Annotated[
    bool,
    flag(
        "--zones",
        help="Three zones by two thresholds of P(referable): negative, read by the expert, positive. "
        "Goals: npv, sensitivity, missed_referable, missed_severe, severe_sensitivity; ppv, specificity.",
    ),
]

ZONES_HINT = "Zones are two thresholds of P(referable), chosen for named goals: --goal npv=.98 --goal ppv=.9."

Attach = Annotated[
    Path | None,
    option(
        "--attach",
        "MODEL",
        "An exported model, which then applies the threshold or the zones; the file must be predicted by its weights.",
    ),
]

Permutations = Annotated[
    int, option("--bootstrap", "N", "Permutations of the screen for shift.", min=1, max=MOST_REPLICATES)
]


@reads_predictions
def transfer(
    file: Annotated[Path, argument("FILE", "Predictions with a validation and a test split.")],
    goal: Goals = None,
    zones: Zones = False,
    confidence: Confidence = None,
    per: PerWhat = "image",
    most_images: MostImages = None,
    threshold: Threshold = "0.5",
    bootstrap: Permutations = 1000,
    uncertainty: Uncertainty = "auto",
    json: Json = None,
    out: CertificateOut = None,
    attach: Attach = None,
    within: Annotated[
        str | None,
        option("--within", "COLUMN", "A threshold of its own for every group of this column, such as camera."),
    ] = None,
    seed: Seed = 0,
    quiet: Silent = False,
    reader: FileReader = PLAIN,
) -> ExitCode:
    """Choose a referral threshold, or three zones, on the validation split, freeze it, and see what it does on the test sets.

    Exit code 3: no threshold satisfies the goals (of a zone), or none can be certified; 4: the labels of a test set refute the certificate.
    """
    from retinabench.metrics.guarantees.transfer import transfer as transfer_threshold
    from retinabench.metrics.guarantees.triage import triage
    from retinabench.metrics.guarantees.within import Within
    from retinabench.metrics.guarantees.within import within as within_groups
    from retinabench.predictions.io import find_files
    from retinabench.reports.guarantees import summary, write_certificate

    if confidence is not None and not 0 < confidence < 1:
        raise InputError(f"--confidence {confidence:g} is not between 0 and 1", hint="For example 0.95.")
    if within and attach is not None:
        raise InputError("--attach stores one rule, and --within makes several", hint="Leave one of them out.")
    if zones and (threshold, uncertainty) != ("0.5", "auto"):
        raise InputError("--zones takes no --threshold or --uncertainty", hint=ZONES_HINT)
    delta = None if confidence is None else round(1 - confidence, 12)
    try:
        (predictions,) = reader.read([file])
    except InputError:
        if not (sets := _without_labels(reader, file)):
            raise
        say(
            f"Refused: the {' and the '.join(sets)} test images have no labels, by which alone a threshold can be judged. "
            "Label a sample of them; `retinabench plan` says how many.",
            error=True,
        )
        return ExitCode.REFUSED

    def choose(part: Predictions, share: float | None) -> Transfer | Triage:
        if zones:
            return triage(
                part, goal or (), delta=share, per=per, most_images=most_images, bootstrap=bootstrap, seed=seed
            )
        return transfer_threshold(
            part, goals=goal or (), delta=share, per=per, most_images=most_images, uncertainty=uncertainty,
            threshold=threshold, bootstrap=bootstrap, seed=seed,
        )  # fmt: skip

    with progress_of(quiet).track("Choosing and testing thresholds", 1, unit="file") as advance:
        found = within_groups(predictions, within, delta, choose) if within else choose(predictions, delta)
        advance(1)
    print_result(summary(found), json, found.to_dict)
    rules = [*found.groups.values()] if isinstance(found, Within) else [found]
    print_notes(note for one in rules for note in one.notes)
    codes = [_code(one) for one in rules]
    code = ExitCode.REFUTED if ExitCode.REFUTED in codes else min(codes)
    if out is not None:
        print_path(write_certificate(found, find_files([file])[0], out), json)
    if attach is not None and code is not ExitCode.DONE:
        print_notes(("nothing is attached",))
    elif attach is not None and not isinstance(found, Within):
        from retinabench.experiments.exporting.frozen_rule import attach as attach_to

        print_notes((f"attached: {attach_to(found, predictions, attach)}",))
    return code


def _code(result: Transfer | Triage) -> ExitCode:
    from retinabench.metrics.guarantees.transfer import Transfer

    refused = result.threshold is None if isinstance(result, Transfer) else bool(result.refused)
    return ExitCode.REFUTED if result.broken else ExitCode.REFUSED if refused else ExitCode.DONE


def _without_labels(reader: FileReader, file: Path) -> list[str]:
    """Name the test sets without any label, of a file that has labels on its validation images."""
    from retinabench.metrics.image_sets import SET_LABELS
    from retinabench.predictions.columns import LABELLED

    try:
        (predictions,) = replace(reader, unlabelled=True).read([file])
        if predictions.select(domain="in_domain", split="validation") is None:
            return []
    except InputError:
        return []
    sets = {name: predictions.select(domain=name, split="test", unlabelled=True) for name in SET_LABELS}
    return [
        SET_LABELS[name].lower()
        for name, part in sets.items()
        if part is not None and (part.subgroups[LABELLED] == "no").all()
    ]


CertificateFile = Annotated[Path, option("--certificate", "FILE", "What `transfer --confidence … --json` wrote.")]


@reads_predictions
def apply(
    files: Annotated[list[Path], argument("FILE", "New predictions of any model, without labels.")],
    certificate: CertificateFile,
    out: Annotated[Path, option("--out", "FOLDER", "Folder of the lists of actions and of their log.")],
    json: Json = None,
    quiet: Silent = False,
    reader: FileReader = PLAIN,
) -> ExitCode:
    """Say what becomes of every new patient, by frozen thresholds, and whether the images are still those of the certificate.

    Exit code 4: the images have drifted; the lists are written all the same.
    """
    from retinabench.metrics.actions import read_rule
    from retinabench.predictions.io import find_files
    from retinabench.predictions.table import notes_of_files
    from retinabench.reports.actions import apply_files, apply_summary

    rule, paths = read_rule(certificate), find_files(files)
    predictions = replace(reader, unlabelled=True, ungradable=True).read(paths)
    found = apply_files(list(zip(paths, predictions, strict=True)), certificate, rule, out)
    print_result(apply_summary(found), json, found.to_dict)
    print_notes((*notes_of_files([str(file) for file in paths], [one.notes for one in predictions]), *found.notes))
    for line in () if quiet else found.new:
        print_path(out / line["list"], json)
    return ExitCode.DONE if found.alarm is None else ExitCode.REFUTED


@reads_predictions
def monitor(
    files: Annotated[
        list[Path],
        argument(
            "FILE", "Predictions with dates, labels may be empty; rows of the validation split are the reference."
        ),
    ],
    certificate: CertificateFile,
    date_column: Annotated[
        str, option("--date-column", "COLUMN", "Column with the date of each image, as 2026-03-31.")
    ] = "date",
    within: Annotated[
        str | None, option("--within", "COLUMN", "Watch every group of this column, too, such as site or camera.")
    ] = None,
    out: Annotated[Path | None, option("--out", "FOLDER", "Write a page and monitor.json into this folder.")] = None,
    json: Json = None,
    seed: Seed = 0,
    quiet: Silent = False,
    reader: FileReader = PLAIN,
) -> ExitCode:
    """Watch whether a certificate still holds on new patients: drift without labels, risk with them."""
    from retinabench.metrics.actions import read_rule
    from retinabench.metrics.monitoring import monitor as watch
    from retinabench.predictions.table import notes_of_files
    from retinabench.reports.monitoring import headline, monitor_tables

    certified = read_rule(certificate)
    predictions = replace(reader, unlabelled=True).read(files)
    try:
        with progress_of(quiet).track("Watching", 1, unit="follow-up") as advance:
            result = watch(predictions, certified, date_column=date_column, within=within, seed=seed)
            advance(1)
    except InputError as error:
        if error.file is not None:
            raise
        names = f"{files[0]} and {len(files) - 1} more" if len(files) > 1 else files[0]
        raise InputError(error.problem, file=names, row=error.row, column=error.column, hint=error.hint) from None
    about = {"certificate": sha256(certificate), "headline": headline(result)}
    print_result(monitor_tables(result), json, lambda: result.to_dict() | about)
    notes = notes_of_files([str(file) for file in files], [one.notes for one in predictions])
    print_notes((*notes, *result.notes))
    if out is not None:
        from retinabench.reports.monitoring import write_page

        write_json(out / "monitor.json", result.to_dict() | about)
        print_path(write_page(result, out), json)
    return ExitCode.REFUTED if result.alarm else ExitCode.DONE


def status(
    folder: Annotated[
        Path, argument("FOLDER", "Certificates, lists of actions and results of the monitor, at any depth.")
    ],
    json: Json = None,
) -> ExitCode:
    """Show the state of every certificate of a folder: made, applied, watched, refuted.

    Exit code 4: one is refuted, or there is an alarm.
    """
    from rich.console import Group

    from retinabench.reports.status import status_lines, status_of

    found = status_of(folder)
    print_result(Group(*status_lines(found)), json, lambda: [one.to_dict() for one in found])
    return ExitCode.REFUTED if any(one.alarm for one in found) else ExitCode.DONE
