"""`clinic`, `transfer`, `apply`, `monitor`, `status` and `plan`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from retinabench.cli import main as cli
from retinabench.core.errors import InputError, sha256
from retinabench.core.files import write_json

if TYPE_CHECKING:
    from retinabench.metrics.guarantees.transfer import Transfer
    from retinabench.metrics.guarantees.triage import Triage
    from retinabench.predictions.table import Predictions


Rate = Annotated[
    float,
    cli.option("--referral", "X", "Share of images that the expert reads, frozen on the validation split if any."),
]
Human = Annotated[str, cli.option("--reader", "X/X", "Sensitivity/specificity of the human who reads: 0.9/0.95.")]
Columns = Annotated[
    list[str] | None,
    cli.option("--subgroup", "COLUMN", "Column of subgroups; may be repeated. Default: all that make groups."),
]


@cli.reads_predictions
def clinic(
    file: Annotated[Path, cli.argument("FILE", "Predictions file or run folder.")],
    referral: Rate = 0.2,
    threshold: cli.Threshold = "0.5",
    uncertainty: cli.Uncertainty = "auto",
    prevalence: Annotated[
        list[float] | None,
        cli.option("--prevalence", "X", "At which PPV and NPV are stated; may be repeated. Default: 0.05 to 0.3."),
    ] = None,
    cost: Annotated[
        float,
        cli.option("--cost", "X", "Price of a reading in detected referable images; 0.02: 50 readings are worth one."),
    ] = 0.0,
    human: Human = "0.9/0.95",
    goal: Annotated[
        str, cli.option("--goal", "X/X", "Sensitivity/specificity that are to be reached, per patient and per image.")
    ] = "0.85/0.8",
    images_per_hour: Annotated[float, cli.option("--images-per-hour", "X", "What an expert reads in an hour.")] = 60.0,
    population: Annotated[
        float | None,
        cli.option(
            "--population", "X", "Share of referable images where the model will work, if the study has more or fewer."
        ),
    ] = None,
    harm: Annotated[
        float | None,
        cli.option(
            "--harm", "X", "False alarms that weigh as much as a missed image. Default: as the decision threshold says."
        ),
    ] = None,
    subgroup: Columns = None,
    json: cli.Json = None,
    out: Annotated[Path | None, cli.option("--out", "FOLDER", "Folder for the page and its numbers.")] = None,
    quiet: cli.Silent = False,
    reader: cli.FileReader = cli.PLAIN,
) -> None:
    """Say whether a model's uncertainty can drive referral: what is missed, what it costs, for whom it fails."""
    from retinabench.metrics.clinical.screening import clinic as screen
    from retinabench.metrics.clinical.screening_table import policy_grid
    from retinabench.reports.clinic import clinic_json, clinic_summary, write_clinic

    reader_rates, wanted = _pair("--reader", human), _pair("--goal", goal)
    (predictions,) = replace(reader, ungradable=True).read([file])
    with cli.progress_of(quiet).track("Screening", 1, unit="file") as advance:
        result = screen(
            predictions, threshold, referral_rate=referral, uncertainty=uncertainty,
            prevalences=prevalence or (0.05, 0.1, 0.2, 0.3), reader=reader_rates, referral_cost=cost, goal=wanted,
            images_per_hour=images_per_hour, subgroups=subgroup or None, population=population, harm=harm,
        )  # fmt: skip
        advance(1)
    cli.print_result(clinic_summary(result), json, lambda: clinic_json(result), result.notes)
    if out is not None:
        with cli.progress_of(quiet).track("Trying other thresholds", 1, unit="file") as advance:
            grid = policy_grid(predictions, result.stated)
            advance(1)
        write_clinic(result, out, grid)
        if not quiet:
            cli.print_path(out / "index.html", json)


def _pair(option_name: str, text: str) -> tuple[float, float]:
    try:
        sensitivity, specificity = map(float, text.split("/"))
    except ValueError:
        problem = f"{option_name} {text} is not SENSITIVITY/SPECIFICITY"
        raise InputError(problem, hint="For example 0.9/0.95.") from None
    return sensitivity, specificity


Pilot = Annotated[Path | None, cli.argument("FILE", "Predictions of a pilot, from which what is not stated is read.")]
Sensitivity = Annotated[
    float | None, cli.option("--sensitivity", "X", "That is expected; default 0.9, or the pilot's.")
]
Auroc = Annotated[float | None, cli.option("--auroc", "X", "That is expected; default 0.95, or the pilot's.")]
HalfWidth = Annotated[float, cli.option("--half-width", "X", "Of the intervals of sensitivity, specificity and AUROC.")]


@cli.reads_predictions
def plan(
    pilot: Pilot = None,
    prevalence: Annotated[float | None, cli.option("--prevalence", "X", "Share of referable images: 0.1.")] = None,
    sensitivity: Sensitivity = None,
    specificity: Annotated[
        float | None, cli.option("--specificity", "X", "That is expected; default 0.9, or the pilot's.")
    ] = None,
    auroc: Auroc = None,
    half_width: HalfWidth = 0.05,
    above_sensitivity: Annotated[
        float | None, cli.option("--above-sensitivity", "X", "A goal that must be shown to be exceeded.")
    ] = None,
    above_specificity: Annotated[
        float | None, cli.option("--above-specificity", "X", "A goal that must be shown to be exceeded.")
    ] = None,
    power: Annotated[float, cli.option("--power", "X", "Probability of showing what must be shown.")] = 0.8,
    images_per_patient: Annotated[
        float | None, cli.option("--images-per-patient", "X", "Mean number; default 2, or the pilot's.")
    ] = None,
    threshold: cli.Threshold = "0.5",
    json: cli.Json = None,
    reader: cli.FileReader = cli.PLAIN,
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
    notes = (*(() if predictions is None else predictions.notes), *result.notes)
    cli.print_result(plan_table(result), json, result.to_dict, notes)


Goals = Annotated[
    list[str] | None,
    cli.option(
        "--goal",
        "GOAL",
        "What must be reached, such as sensitivity=.9; may be repeated. A number alone bounds selective_risk. Others: accuracy, "
        "missed_referable, severe_sensitivity, missed_severe, specificity, npv, ppv, referral_rate (workload).",
    ),
]

Confidence = Annotated[
    float | None, cli.option("--confidence", "X", "Guarantee the goals with this confidence, or refuse: 0.95.")
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
    Path | None, cli.option("--out", "FOLDER", "Folder for the certificate: transfer.json, a page, and a PDF to sign.")
]

Zones = Annotated[
    bool,
    cli.flag(
        "--zones",
        help="Three zones by two thresholds of P(referable): negative, read by the expert, positive. "
        "Goals: npv, sensitivity, missed_referable, missed_severe, severe_sensitivity; ppv, specificity.",
    ),
]

ZONES_HINT = "Zones are two thresholds of P(referable), chosen for named goals: --goal npv=.98 --goal ppv=.9."


Permutations = Annotated[
    int, cli.option("--bootstrap", "N", "Permutations of the screen for shift.", min=1, max=cli.MOST_REPLICATES)
]


@cli.reads_predictions
def transfer(
    file: Annotated[Path, cli.argument("FILE", "Predictions with a validation and a test split.")],
    goal: Goals = None,
    zones: Zones = False,
    confidence: Confidence = None,
    per: PerWhat = "image",
    most_images: Annotated[
        int | None, cli.option("--most-images", "N", "Images a new patient may have; default: as on validation.", min=1)
    ] = None,
    threshold: cli.Threshold = "0.5",
    bootstrap: Permutations = 1000,
    uncertainty: cli.Uncertainty = "auto",
    json: cli.Json = None,
    out: CertificateOut = None,
    attach: Annotated[
        Path | None,
        cli.option(
            "--attach",
            "MODEL",
            "An exported model, which then applies the threshold or the zones; the file must be predicted by its weights.",
        ),
    ] = None,
    within: Annotated[
        str | None,
        cli.option("--within", "COLUMN", "A threshold of its own for every group of this column, such as camera."),
    ] = None,
    seed: cli.Seed = 0,
    quiet: cli.Silent = False,
    reader: cli.FileReader = cli.PLAIN,
) -> cli.ExitCode:
    """Choose a referral threshold, or three zones, on the validation split, freeze it, and see what it does on the test sets.

    Exit code 3: no threshold satisfies the goals (of a zone), or none can be certified; 4: the labels of a test set refute the certificate.
    """
    from retinabench.metrics.guarantees.transfer import transfer as transfer_threshold
    from retinabench.metrics.guarantees.triage import Within, triage
    from retinabench.metrics.guarantees.triage import within as within_groups
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
        cli.say(
            f"Refused: the {' and the '.join(sets)} test images have no labels, by which alone a threshold can be judged. "
            "Label a sample of them; `retinabench plan` says how many.",
            error=True,
        )
        return cli.ExitCode.REFUSED

    def choose(part: Predictions, share: float | None) -> Transfer | Triage:
        if zones:
            return triage(
                part, goal or (), delta=share, per=per, most_images=most_images, bootstrap=bootstrap, seed=seed
            )
        return transfer_threshold(
            part, goals=goal or (), delta=share, per=per, most_images=most_images, uncertainty=uncertainty,
            threshold=threshold, bootstrap=bootstrap, seed=seed,
        )  # fmt: skip

    with cli.progress_of(quiet).track("Choosing and testing thresholds", 1, unit="file") as advance:
        found = within_groups(predictions, within, delta, choose) if within else choose(predictions, delta)
        advance(1)
    rules = [*found.groups.values()] if isinstance(found, Within) else [found]
    cli.print_result(summary(found), json, found.to_dict, (note for one in rules for note in one.notes))
    codes = [_code(one) for one in rules]
    code = cli.ExitCode.REFUTED if cli.ExitCode.REFUTED in codes else min(codes)
    if out is not None:
        cli.print_path(write_certificate(found, find_files([file])[0], out), json)
    if attach is not None and code is not cli.ExitCode.DONE:
        cli.print_notes(("nothing is attached",))
    elif attach is not None and not isinstance(found, Within):
        from retinabench.experiments.exporting.frozen_rule import attach as attach_to

        cli.print_notes((f"attached: {attach_to(found, predictions, attach)}",))
    return code


def _code(result: Transfer | Triage) -> cli.ExitCode:
    from retinabench.metrics.guarantees.transfer import Transfer

    refused = result.threshold is None if isinstance(result, Transfer) else bool(result.refused)
    return cli.ExitCode.REFUTED if result.broken else cli.ExitCode.REFUSED if refused else cli.ExitCode.DONE


def _without_labels(reader: cli.FileReader, file: Path) -> list[str]:
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


CertificateFile = Annotated[Path, cli.option("--certificate", "FILE", "What `transfer --confidence … --json` wrote.")]


@cli.reads_predictions
def apply(
    files: Annotated[list[Path], cli.argument("FILE", "New predictions of any model, without labels.")],
    certificate: CertificateFile,
    out: Annotated[Path, cli.option("--out", "FOLDER", "Folder of the lists of actions and of their log.")],
    json: cli.Json = None,
    quiet: cli.Silent = False,
    reader: cli.FileReader = cli.PLAIN,
) -> cli.ExitCode:
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
    notes = (*notes_of_files([str(file) for file in paths], [one.notes for one in predictions]), *found.notes)
    cli.print_result(apply_summary(found), json, found.to_dict, notes)
    for line in () if quiet else found.new:
        cli.print_path(out / line["list"], json)
    return cli.ExitCode.DONE if found.alarm is None else cli.ExitCode.REFUTED


@cli.reads_predictions
def monitor(
    files: Annotated[
        list[Path],
        cli.argument(
            "FILE", "Predictions with dates, labels may be empty; rows of the validation split are the reference."
        ),
    ],
    certificate: CertificateFile,
    date_column: Annotated[
        str, cli.option("--date-column", "COLUMN", "Column with the date of each image, as 2026-03-31.")
    ] = "date",
    within: Annotated[
        str | None, cli.option("--within", "COLUMN", "Watch every group of this column, too, such as site or camera.")
    ] = None,
    out: Annotated[
        Path | None, cli.option("--out", "FOLDER", "Write a page and monitor.json into this folder.")
    ] = None,
    json: cli.Json = None,
    seed: cli.Seed = 0,
    quiet: cli.Silent = False,
    reader: cli.FileReader = cli.PLAIN,
) -> cli.ExitCode:
    """Watch whether a certificate still holds on new patients: drift without labels, risk with them.

    Exit code 4: an alarm; 3: the labels cannot judge the certificate, because they depend on how sure the model is.
    """
    from retinabench.metrics.actions import read_rule
    from retinabench.metrics.monitoring import monitor as watch
    from retinabench.predictions.table import notes_of_files
    from retinabench.reports.monitoring import headline, monitor_tables, write_page

    certified = read_rule(certificate)
    predictions = replace(reader, unlabelled=True).read(files)
    try:
        with cli.progress_of(quiet).track("Watching", 1, unit="follow-up") as advance:
            result = watch(predictions, certified, date_column=date_column, within=within, seed=seed)
            advance(1)
    except InputError as error:
        if error.file is not None:
            raise
        names = f"{files[0]} and {len(files) - 1} more" if len(files) > 1 else files[0]
        raise error.again(file=names) from None
    about = {"certificate": sha256(certificate), "headline": headline(result)}
    notes = (*notes_of_files([str(file) for file in files], [one.notes for one in predictions]), *result.notes)
    cli.print_result(monitor_tables(result), json, lambda: result.to_dict() | about, notes)
    if out is not None:
        write_json(out / "monitor.json", result.to_dict() | about)
        cli.print_path(write_page(result, out), json)
    refused = cli.ExitCode.REFUSED if result.selection else cli.ExitCode.DONE
    return cli.ExitCode.REFUTED if result.alarm else refused


def status(
    folder: Annotated[
        Path, cli.argument("FOLDER", "Certificates, lists of actions and results of the monitor, at any depth.")
    ],
    json: cli.Json = None,
) -> cli.ExitCode:
    """Show the state of every certificate of a folder: made, applied, watched, refuted.

    Exit code 4: one is refuted, or there is an alarm.
    """
    from rich.console import Group

    from retinabench.reports.status import status_lines, status_of

    found = status_of(folder)
    cli.print_result(Group(*status_lines(found)), json, lambda: [one.to_dict() for one in found])
    return cli.ExitCode.REFUTED if any(one.alarm for one in found) else cli.ExitCode.DONE
