"""Referral thresholds that hold on new patients: `transfer`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from retinabench.cli.application import (
    ExitCode,
    argument,
    flag,
    option,
    print_notes,
    print_result,
    progress_of,
)
from retinabench.cli.options import (
    MOST_REPLICATES,
    PLAIN,
    FileReader,
    Json,
    Seed,
    Silent,
    Threshold,
    Uncertainty,
    reads_predictions,
)  # fmt: skip
from retinabench.core.errors import InputError

if TYPE_CHECKING:
    from retinabench.metrics.guarantees.transfer import Transfer
    from retinabench.metrics.guarantees.triage import Triage
    from retinabench.predictions.table import Predictions

Target = Annotated[
    str,
    option(
        "--target",
        "TARGET",
        "What a goal without a name is for: selective_risk, accuracy, sensitivity, missed_referable, "
        "severe_sensitivity, missed_severe, specificity, npv, ppv or referral_rate.",
    ),
]
Goals = Annotated[
    list[str] | None,
    option(
        "--goal",
        "GOAL",
        "What the target must reach; or several: --goal sensitivity=.9 --goal npv=.99 --goal workload=.5.",
    ),
]
Confidence = Annotated[
    float | None, option("--confidence", "X", "Guarantee the goals with this confidence, or refuse: 0.95.")
]
PerWhat = Annotated[
    Literal["image", "patient-image"],
    typer.Option("--per", help="image: every image has the same weight; patient-image: every patient has."),
]
MostImages = Annotated[
    int | None,
    option("--most-images", "N", "Images a new patient may have; default: as on validation.", min=1),
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
    target: Target = "selective_risk",
    goal: Goals = None,
    zones: Zones = False,
    confidence: Confidence = None,
    per: PerWhat = "image",
    most_images: MostImages = None,
    threshold: Threshold = "0.5",
    bootstrap: Permutations = 1000,
    uncertainty: Uncertainty = "auto",
    json: Json = None,
    attach: Attach = None,
    seed: Seed = 0,
    quiet: Silent = False,
    reader: FileReader = PLAIN,
) -> ExitCode:
    """Choose a referral threshold, or three zones, on the validation split, freeze it, and see what it does on the test sets.

    Exit code 3: no threshold satisfies the goals (of a zone), or none can be certified; 4: the labels of a test set refute the certificate.
    """
    from retinabench.metrics.guarantees.transfer import transfer as transfer_threshold
    from retinabench.reports.guarantees.terminal import transfer_summary

    if confidence is not None and not 0 < confidence < 1:
        raise InputError(f"--confidence {confidence:g} is not between 0 and 1", hint="For example 0.95.")
    delta = None if confidence is None else round(1 - confidence, 12)
    if zones:
        if (target, threshold, uncertainty) != ("selective_risk", "0.5", "auto"):
            raise InputError("--zones takes no --target, --threshold or --uncertainty", hint=ZONES_HINT)
        (predictions,) = reader.read([file])
        zoned = _zones(predictions, goal or (), delta, per, most_images, bootstrap, json, seed, quiet=quiet)
        return _attach(*zoned, predictions, attach)
    (predictions,) = reader.read([file])
    with progress_of(quiet).track("Choosing and testing a threshold", 1, unit="file") as advance:
        found = transfer_threshold(
            predictions, target, goals=goal or (), delta=delta, per=per, most_images=most_images,
            uncertainty=uncertainty, threshold=threshold, bootstrap=bootstrap, seed=seed,
        )  # fmt: skip
        advance(1)
    print_result(transfer_summary(found), json, found.to_dict)
    print_notes(found.notes)
    code = ExitCode.REFUTED if found.broken else ExitCode.DONE
    return _attach(found, ExitCode.REFUSED if found.threshold is None else code, predictions, attach)


def _zones(
    predictions: Predictions,
    goals: Sequence[str],
    delta: float | None,
    per: Literal["image", "patient-image"],
    most_images: int | None,
    bootstrap: int,
    json: Path | None,
    seed: int,
    *,
    quiet: bool,
) -> tuple[Triage, ExitCode]:
    """Triage into three zones."""
    from retinabench.metrics.guarantees.triage import triage
    from retinabench.reports.guarantees.terminal import triage_summary

    with progress_of(quiet).track("Choosing and testing zones", 1, unit="file") as advance:
        found = triage(
            predictions, goals, delta=delta, per=per, most_images=most_images, bootstrap=bootstrap, seed=seed
        )
        advance(1)
    print_result(triage_summary(found), json, found.to_dict)
    print_notes(found.notes)
    if found.broken:
        return found, ExitCode.REFUTED
    return found, ExitCode.REFUSED if found.refused else ExitCode.DONE


def _attach(
    found: Transfer | Triage, code: ExitCode, predictions: Predictions, model: Path | None
) -> ExitCode:
    """Attach what was found to an exported model, unless it was refused or refuted."""
    if model is None:
        return code
    if code is not ExitCode.DONE:
        print_notes(("nothing is attached",))
        return code
    from retinabench.experiments.exporting.frozen_rule import attach

    print_notes((f"attached: {attach(found, predictions, model)}",))
    return code
