"""`occlude`: cover the lesions of a bank, ask a network again, and write a page."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from retinabench.concepts.banks.definition import find_definition
from retinabench.concepts.banks.tables import read_images
from retinabench.concepts.occlusion.effects import (
    ALL,
    CONTROLS,
    Effect,
    Floats,
    OccludedImage,
    Occlusion,
    Variants,
    effect_of,
    variants,
)
from retinabench.concepts.report.figures import RateMark, interval_panel
from retinabench.core.errors import QUIET, InputError, Progress, csv_text
from retinabench.core.files import write_bytes, write_json
from retinabench.data.dataset import ConceptImages
from retinabench.data.loader import chunks
from retinabench.data.preprocessing.preprocess import Recipe, preprocess
from retinabench.experiments.exporting.model import ExportedModel, export_run, load_model
from retinabench.experiments.run_folder import finished_run
from retinabench.metrics.image_sets import decompose
from retinabench.metrics.intervals import Interval
from retinabench.reports.toolkit import pages
from retinabench.reports.toolkit.figures import HUES, Panel, data_uri, drawing, to_svg
from retinabench.reports.toolkit.tables import Cell, Column, NumberFormat, Quantity, Row, Table, plain

PACKAGE = "retinabench.concepts.occlusion"
TITLE = "Do the lesions drive the referral?"
Measure = Literal["probability", "uncertainty", "epistemic"]
SHOWN = {"occluded": 0, "control": 1, "rendered": 2}  # Changes that are drawn -> their hue.
SIGNED = NumberFormat(3, signed=True)
SHARE = NumberFormat(1, scale=100, suffix=" %")


@dataclass(frozen=True)
class Example:
    """An image with and without a concept; shapes: `versions` (S, S, 3)."""

    concept: str
    image_id: str
    change: float
    versions: Sequence[tuple[str, NDArray[np.uint8], float]]


def write_page(found: Occlusion, examples: Sequence[Example], out: Path) -> Path:
    effects = found.effects
    signs = {one.concept: _quantity(one.probability["difference"]).sign() for one in effects}
    context = {
        "title": TITLE,
        "found": found,
        "falls": [name for name, sign in signs.items() if sign < 0],
        "rises": [name for name, sign in signs.items() if sign > 0],
        "open": [name for name, sign in signs.items() if sign == 0],
        "together": next((one for one in effects if one.concept == "all concepts"), None),
        "figure": _figure(effects),
        "colors": [(f"c{SHOWN[kind]}", name) for kind, name in _names(found).items()],
        "probability": _table(effects, "probability", found.drawn),
        "uncertainty": _table(effects, "uncertainty", found.drawn),
        "epistemic": _table(effects, "epistemic", found.drawn) if found.samples > 1 else None,
        "counts": _counts(effects),
        "examples": [(one, [_version(*version) for version in one.versions]) for one in examples],
    }
    write_bytes(out / "index.html", pages.render("occlusion.html.j2", context, package=PACKAGE).encode())
    return out / "index.html"


def _names(found: Occlusion) -> dict[str, str]:
    names = {"occluded": "lesion filled", "control": "control filled"}
    return names | ({"rendered": "drawn without the lesion"} if found.drawn else {})


def _version(name: str, pixels: NDArray[np.uint8], probability: float) -> dict[str, str | int]:
    source, width, height = data_uri(pixels)
    return {"name": name, "source": source, "width": width, "height": height, "p": plain(probability, 3)}


def _quantity(change: Interval) -> Quantity:
    return Quantity(change.value, change.low, change.high)


@drawing()
def _figure(effects: Sequence[Effect]) -> Panel:
    rows = [
        (one.concept, [RateMark(HUES[hue], _quantity(one.probability[kind])) for kind, hue in SHOWN.items()])
        for one in effects
    ]
    figure = interval_panel(rows, label="change of P(referable)", middle=0, limits=None)
    said = "; ".join(
        f"{one.concept}: {plain(change, 3, signed=True)}"
        for one in effects
        if np.isfinite(change := one.probability["occluded"].value)
    )
    svg = to_svg(figure, "changes", title="Mean change of P(referable) by concept", description=said)
    return Panel("Mean change of P(referable), with 95 % intervals over patients", svg)


def _table(effects: Sequence[Effect], measure: Measure, drawn: bool) -> Table:
    heads = {"occluded": "Lesion filled", "control": "Control filled", "difference": "Effect of the lesion"}
    if drawn:
        heads |= {"rendered": "Drawn without it", "error": "Filled minus drawn"}
    rows = []
    for one in effects:
        changes = getattr(one, measure) or dict.fromkeys(heads, Interval(np.nan))
        rows.append(Row(one.concept, [Cell.of(changes[kind], SIGNED) for kind in heads]))
    units = {"probability": "P(referable)", "uncertainty": "total uncertainty, nats"}
    unit = units.get(measure, "epistemic uncertainty, nats")
    title = f"Mean change of {unit}, with 95 % intervals over patients"
    return Table.of(title, [Column(head) for head in heads.values()], rows, row_header="Concept")


def _counts(effects: Sequence[Effect]) -> Table:
    heads = ("Images", "Patients", "Area filled", "P as it is", "Referred", "No longer, filled", "No longer, control")
    rows = []
    for one in effects:
        numbers = (one.images, one.patients, one.referred, one.reversed_occluded)
        images, patients, referred, filled = (Cell(f"{number:,}") for number in numbers)
        area, control = Cell.number(one.area, form=SHARE), Cell(plain(one.reversed_control, 1))
        rows.append(Row(one.concept, [images, patients, area, Cell.number(one.before), referred, filled, control]))
    caption, columns = "Images, and decisions at one half that change", [Column(head) for head in heads]
    return Table.of(caption, columns, rows, row_header="Concept")


AT_ONCE = 16  # images whose versions are in memory at a time
REFERENCE = 100  # images without any concept, whose P(referable) is stated for comparison
Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class OcclusionOptions:
    """Options of an occlusion."""

    images: int | None = None
    replicates: int = 2000
    seed: int = 0
    device: str = "auto"
    network: str | None = None
    progress: Progress = field(default=QUIET)


def occlude(folder: Path, bank: str, source: Path | None, out: Path, options: OcclusionOptions) -> Occlusion:
    definition = find_definition(bank)
    drawn = options.images if definition.synthetic else None
    images = read_images(definition, source, images=drawn, seed=options.seed, progress=options.progress)
    if images.masks is None:
        raise InputError(f"the bank '{bank}' says what is in an image, not where", hint="Occlusion needs masks.")
    model = _model(folder, out, options)
    rows = np.flatnonzero((images.truth == 1).any(axis=1))[: options.images]
    if not len(rows):
        raise InputError(f"no image of the bank '{bank}' shows any of its concepts")
    learnt = _learnt(folder, images, rows, model.recipe, options)
    answered, examples = _answered(images, rows, model, options)
    reference = np.flatnonzero((images.truth == 0).all(axis=1))[:REFERENCE]
    of_concept = {name: [one for one in answered if one.concept == name] for name in (*images.concepts, ALL)}
    many = {"replicates": options.replicates, "seed": options.seed}
    effects = [effect_of(name, own, **many) for name, own in of_concept.items() if own]
    found = Occlusion(
        bank=definition.title, drawn=definition.synthetic is not None, model=model.run.method.describe(),
        weights=model.weights, size=model.recipe.size, samples=int(model.run.method.samples), images=len(rows),
        patients=len(set(images.patient_id[rows].tolist())), controls=CONTROLS, replicates=options.replicates,
        seed=options.seed, reference=_reference(images, reference, model), effects=effects,
        notes=_notes(answered, learnt),
    )  # fmt: skip
    write_json(out / "occlusion.json", found.to_dict(), checked=True)
    write_bytes(out / "effects.csv", _occlude_table(answered).encode(), checked=True)
    write_page(found, examples, out)
    return found


def _model(folder: Path, out: Path, options: OcclusionOptions) -> ExportedModel:
    if (folder / "run.json").is_file():
        made = out / "model"
        if not (made / "model.json").is_file():
            export_run(folder, made, network=options.network, scores=False)
        folder = made
    model = load_model(folder, options.device, model=options.network)
    if model.features:
        raise InputError("was trained on a table, and has no images to occlude", file=folder)
    return model


def _answered(
    images: ConceptImages, rows: NDArray[np.intp], model: ExportedModel, options: OcclusionOptions
) -> tuple[list[OccludedImage], list[Example]]:
    """Ask about every version of every image; the examples show each concept at its strongest change."""
    answered: list[OccludedImage] = []
    best: dict[str, Example] = {}
    side = _side(model.recipe)
    with options.progress.track("Occluding", len(rows), unit="images") as advance:
        for start in range(0, len(rows), AT_ONCE):
            some = rows[start : start + AT_ONCE].tolist()
            made = [variants(images, row, side, seed=options.seed) for row in some]
            original = _ask(model, [one.original for one in made])
            for concept in (*images.concepts, ALL):
                asked = _versions(model, made, concept)
                for place, (row, one) in enumerate(zip(some, made, strict=True)):
                    if concept not in one.filled:
                        continue
                    controls = [asked[f"control {k}"][place] for k in range(len(one.controls[concept]))]
                    answer = OccludedImage(
                        str(images.sample_id[row]), str(images.patient_id[row]), concept, one.area[concept],
                        original[place], asked["occluded"][place], np.reshape(controls, (-1, 3)),
                        asked["rendered"][place] if concept in one.rendered else None,
                    )  # fmt: skip
                    answered.append(answer)
                    best[concept] = _stronger(best.get(concept), answer, one)
            advance(len(some))
    return answered, [best[concept] for concept in (*images.concepts, ALL) if concept in best]


def _versions(model: ExportedModel, made: list[Variants], concept: str) -> dict[str, Floats]:
    """Ask about one version of all images after the other; an image without the version is shown as it is."""
    versions = {"occluded": [one.filled.get(concept, one.original) for one in made]}
    for k in range(CONTROLS):
        drawn = [one.controls.get(concept, []) for one in made]
        versions[f"control {k}"] = [
            own[k] if k < len(own) else one.original for own, one in zip(drawn, made, strict=True)
        ]
    if any(concept in one.rendered for one in made):
        versions["rendered"] = [one.rendered.get(concept, one.original) for one in made]
    if not any(concept in one.filled for one in made):
        return {}
    return {name: _ask(model, pixels) for name, pixels in versions.items()}


def _ask(model: ExportedModel, pixels: list[Pixels]) -> Floats:
    """Return (N, 3): P(referable), total and epistemic uncertainty (NaN for one sample)."""
    probs = model.predict(_read(pixels, model.recipe))
    parts = decompose(probs)
    epistemic = parts.epistemic if probs.shape[1] > 1 else np.full(len(probs), np.nan)
    return np.stack([parts.mean, parts.total, epistemic], axis=1)


def _read(pixels: list[Pixels], recipe: Recipe) -> Pixels:
    """Return images (N, size, size, 3) as a model of this recipe reads them."""
    size = recipe.size
    return np.stack([image if len(image) == size else preprocess(Image.fromarray(image), recipe) for image in pixels])


ALIKE = 2.0  # levels of 255 by which thumbnails of the same image differ at most, on average; other retinas differ by 5 or more


def _learnt(
    folder: Path, images: ConceptImages, rows: NDArray[np.intp], recipe: Recipe, options: OcclusionOptions
) -> int | None:
    """Count the images that the run was trained on, by their content; None where its training images are not at hand."""
    task = None
    with suppress(InputError):
        task = finished_run(folder, options.network).training_data()
    if task is None:
        return None
    known = [_thumbnails(task.data.images(some)) for some in chunks(task.splits["train"], AT_ONCE)]
    trained, count = np.concatenate(known), 0
    for part in chunks(rows, AT_ONCE):
        some = [images.image(int(row), _side(recipe)) for row in part]
        count += sum(bool(np.abs(trained - one).mean(axis=1).min() < ALIKE) for one in _thumbnails(_read(some, recipe)))
    return count


def _thumbnails(pixels: Pixels) -> NDArray[np.float32]:
    grey = [Image.fromarray(image).convert("L").resize((32, 32), Image.Resampling.BOX) for image in pixels]
    return np.stack([np.asarray(image, np.float32).ravel() for image in grey])


def _side(recipe: Recipe) -> int:
    """Return the side at which images are filled: that of the model, or twice that where it preprocesses them further."""
    return recipe.size if recipe.preprocess != "graham" else min(2 * recipe.size, 2048)


def _stronger(before: Example | None, answer: OccludedImage, one: Variants) -> Example:
    change = float(answer.occluded[0] - answer.original[0])
    if before is not None and abs(before.change) >= abs(change):
        return before
    filled = ("filled", one.filled[answer.concept], float(answer.occluded[0]))
    shown = [("as it is", one.original, float(answer.original[0])), filled]
    if one.controls[answer.concept]:
        shown.append(("control", one.controls[answer.concept][0], float(answer.controls[0, 0])))
    if answer.rendered is not None:
        shown.append(("drawn without", one.rendered[answer.concept], float(answer.rendered[0])))
    return Example(answer.concept, answer.image_id, change, tuple(shown))


def _reference(images: ConceptImages, rows: NDArray[np.intp], model: ExportedModel) -> dict[str, float | None]:
    side, starts = _side(model.recipe), range(0, len(rows), AT_ONCE)
    parts = ([images.image(int(row), side) for row in rows[start : start + AT_ONCE]] for start in starts)
    probs = [_ask(model, some)[:, 0] for some in parts]
    return {"images": len(rows), "probability": float(np.concatenate(probs).mean()) if probs else None}


def _notes(answered: list[OccludedImage], learnt: int | None) -> list[str]:
    lost = sum(not len(one.controls) for one in answered)
    notes = []
    if learnt is None:
        notes.append(
            "It is not known whether the model was trained on these images: name the folder of its run, and keep its training data at hand."
        )
    elif learnt:
        notes.append(
            f"The run was trained on {learnt} of the images (they have the same content, whatever their names). What it "
            "has memorised may hide an effect of the lesions, or look like one. Use other images."
        )
    if lost:
        notes.append(
            f"{lost} pairs of an image and a concept have no control, because the shape fits nowhere else in the field of "
            "view; they are left out of every average."
        )
    return notes


def _occlude_table(answered: list[OccludedImage]) -> str:
    header = ["image_id", "patient_id", "concept", "area", "probability", "occluded", "control", "rendered"]
    rows = []
    for one in answered:
        control = one.controls[:, 0].mean() if len(one.controls) else ""
        rendered = "" if one.rendered is None else one.rendered[0]
        values = (one.area, one.original[0], one.occluded[0], control, rendered)
        rows.append([one.image_id, one.patient_id, one.concept, *("" if v == "" else float(v) for v in values)])
    return csv_text([header, *rows])
