"""Masks of lesions, from image files and from COCO annotations."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from retinabench.concepts.banks.definition import BankDefinition, CocoFile, MaskFiles
from retinabench.core.errors import QUIET, InputError, Progress
from retinabench.core.patterns import groups_of
from retinabench.core.random_streams import numpy_generator
from retinabench.core.results import JsonObject
from retinabench.data.archives import Files
from retinabench.data.dataset import ConceptImages
from retinabench.data.datasets.synthetic import MOST_IMAGES
from retinabench.data.preprocessing.graham import square_box, square_image, square_mask
from retinabench.data.preprocessing.preprocess import decode
from retinabench.data.synthetic.fundus import draw, truth


def matching(files: Files, pattern: str) -> list[tuple[str, str]]:
    """Return the files whose last parts fit a pattern, each with the folder that those parts begin in."""
    wanted = PurePosixPath(pattern).parts
    found = []
    for name in files.names():
        parts = PurePosixPath(name).parts
        last = parts[-len(wanted) :]
        if len(last) == len(wanted) and all(map(fnmatch.fnmatchcase, last, wanted)):
            base = "/".join(parts[: len(parts) - len(wanted)])
            found.append((name, f"{base}/" if base else ""))
    return found


def one_file(files: Files, pattern: str) -> tuple[str, str]:
    found = matching(files, pattern)
    if not found:
        raise InputError(f"holds no file '{pattern}'", file=files.root, hint="Point --source at the whole data set.")
    if len(found) > 1:
        hint = f"Point --source at the folder of one of them, such as {found[0][1] or found[0][0]}"
        raise InputError(f"holds {len(found)} files '{pattern}'", file=files.root, hint=hint)
    return found[0]


def collected(
    definition: BankDefinition,
    files: Files,
    names: Sequence[str],
    concepts: Sequence[str],
    truth: NDArray[np.int8],
    patients: Sequence[str] | None = None,
) -> ConceptImages:
    """Return a collection of image files without masks; shapes: `names` (N,), `truth` (N, C), `patients` (N,)."""
    if not names:
        raise InputError("holds no image of the bank", file=files.root)
    ids, whole = _ids(names), definition.crop == "whole"

    def image(row: int, size: int) -> NDArray[np.uint8]:
        return square_image(opened(files, names[row], 2 * size if whole else None), size, definition.crop)

    return ConceptImages(np.array(ids), tuple(concepts), truth, np.array(ids if patients is None else patients), image)


def opened(files: Files, name: str, at_least: int | None = None) -> Image.Image:
    return decode(files.read(name), files.where(name), at_least)


def patient_of(name: str, pattern: str | None) -> str:
    """Return the part of an image name that the pattern matches; without a pattern or a match, the whole name."""
    found = groups_of(pattern, name) if pattern else None
    return found["match"] if found else name


def _ids(names: Sequence[str]) -> list[str]:
    """Return the shortest names without endings that differ: file stems, or paths where stems repeat."""
    stems = [PurePosixPath(name).stem for name in names]
    if len(set(stems)) == len(stems):
        return stems
    paths = [str(PurePosixPath(name).with_suffix("")) for name in names]
    if len(set(paths)) < len(paths):
        twice = next(name for name in paths if paths.count(name) > 1)
        raise InputError(f"the image '{twice}' is named twice", hint="Name each image once.")
    return paths


def read_mask_files(
    definition: BankDefinition, layout: MaskFiles, files: Files, progress: Progress = QUIET
) -> ConceptImages:
    """Read the images, and look into every mask whether it is empty."""
    found = matching(files, layout.images)
    if not found:
        hint = "Point --source at the whole data set."
        raise InputError(f"holds no images '{layout.images}'", file=files.root, hint=hint)
    names = [name for name, _ in found]
    masks = [_places(definition, layout, files, name, base) for name, base in found]
    truth = np.zeros((len(names), len(definition.concepts)), np.int8)
    with progress.track("Reading masks", len(names), unit="images") as advance:
        for row, own in enumerate(masks):
            for column, concept in enumerate(definition.concepts):
                if concept in own:
                    truth[row, column] = mask_of(files, own[concept], layout.level).any()
            advance(1)
    patients = [patient_of(name, layout.patient_pattern) for name in names]
    images = collected(definition, files, names, list(definition.concepts), truth, patients)
    return replace(images, masks=lambda row: _square_masks(definition, layout, files, names[row], masks[row]))


def _places(definition: BankDefinition, layout: MaskFiles, files: Files, name: str, base: str) -> dict[str, str]:
    places = {}
    for concept, given in definition.words.items():
        place = base + layout.mask.replace("{image}", PurePosixPath(name).stem).replace("{concept}", given[0])
        if place in files:
            places[concept] = place
        elif layout.missing == "error":
            hint = 'Complete the download, or state missing = "absent" in the definition of the bank.'
            raise InputError(f"its mask '{place}' is missing", file=files.where(name), hint=hint)
    return places


def mask_of(files: Files, name: str, level: int) -> NDArray[np.bool_]:
    return np.asarray(np.asarray(opened(files, name)).max(axis=2) > level)


def _square_masks(
    definition: BankDefinition, layout: MaskFiles, files: Files, name: str, places: Mapping[str, str]
) -> NDArray[np.bool_]:
    rgb = opened(files, name)
    drawn = {concept: mask_of(files, place, layout.level) for concept, place in places.items()}
    for concept, mask in drawn.items():
        check_size(mask.shape, rgb.size, files.where(places[concept]))
    box, nothing = square_box(rgb, definition.crop), np.zeros((rgb.height, rgb.width), np.bool_)
    return np.stack([square_mask(drawn.get(concept, nothing), box) for concept in definition.concepts])


def check_size(shape: Sequence[int], size: Sequence[int], where: str) -> None:
    """Refuse a mask (H, W) that has another size than its image."""
    if tuple(shape) != (size[1], size[0]):
        problem = f"is a mask of {shape[1]} x {shape[0]} pixels for an image of {size[0]} x {size[1]}"
        raise InputError(problem, file=where)


# Concepts of the synthetic retinas, and the kinds of `synthetic.LESIONS` that each of them covers.
DRAWN: dict[str, tuple[str, ...]] = {
    "microaneurysm": ("microaneurysm",),
    "haemorrhage": ("blot_haemorrhage", "flame_haemorrhage", "preretinal_haemorrhage", "vitreous_haemorrhage"),
    "hard_exudate": ("hard_exudate",),
    "soft_exudate": ("cotton_wool_spot",),
    "new_vessels": ("new_vessels",),
}


def drawn(images: int, *, seed: int = 0, population: str = "in_domain", mask_size: int = 256) -> ConceptImages:
    """Return the first synthetic retinas of a population; they are rendered when they are asked for.

    The truth of an image is its lesion counts (`synthetic.truth`), that of a region the mask rendered at ``mask_size``.
    """
    if images < 10:
        raise InputError(f"{images} images are too few to train and question on", hint="Use --images 100.")
    if images > MOST_IMAGES:
        raise InputError(f"{images:,} images are more than are drawn ({MOST_IMAGES:,})", hint="Give fewer --images.")
    facts = [truth(index, seed=seed, population=population) for index in range(images)]

    def masks(row: int) -> NDArray[np.bool_]:
        found = draw(row, size=mask_size, seed=seed, population=population).masks
        nothing = np.zeros((mask_size, mask_size), np.bool_)
        covered = [[found.get(kind, nothing) for kind in kinds] for kinds in DRAWN.values()]
        return np.stack([np.logical_or.reduce(layers) for layers in covered])

    def without(row: int, size: int, concepts: Collection[str]) -> NDArray[np.uint8]:
        kinds = {kind for concept in concepts for kind in DRAWN[concept]}
        return draw(row, size=size, seed=seed, population=population, masks=False, without=kinds).image

    return ConceptImages(
        sample_id=np.array([f"{population}-{index:06d}" for index in range(images)]),
        concepts=tuple(DRAWN),
        truth=np.array([[any(t.lesions[k] for k in kinds) for kinds in DRAWN.values()] for t in facts], np.int8),
        patient_id=np.array([f"{population}-p{fact.patient:06d}" for fact in facts]),
        image=lambda row, size: draw(row, size=size, seed=seed, population=population, masks=False).image,
        masks=masks,
        without=without,
    )


def split(images: ConceptImages, seed: int, held_out: float) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows to train on and the rows to ask about, both sorted; patients are kept whole."""
    patients = numpy_generator(seed, "lesions", "split").permutation(np.unique(images.patient_id))
    place = {patient: number for number, patient in enumerate(patients)}
    order = np.array([place[patient] for patient in images.patient_id])
    last = np.sort(order)[round(held_out * len(images)) - 1]
    return np.flatnonzero(order > last), np.flatnonzero(order <= last)


def region_ids(sample_id: str, grid: int) -> list[str]:
    """Return the ids of the grid * grid regions of an image, row by row from the top left: `IDRiD_01/r1c1`, `IDRiD_01/r1c2`, …"""
    return [f"{sample_id}/r{row}c{column}" for row in range(1, grid + 1) for column in range(1, grid + 1)]


def region_truth(masks: NDArray[np.bool_], grid: int) -> NDArray[np.bool_]:
    """Return (grid * grid, C): whether a pixel of the masks (C, H, W) lies in each region, in the order of `region_ids`."""
    concepts, height, width = masks.shape
    rows, columns = (np.linspace(0, side, grid + 1).round().astype(int)[:-1] for side in (height, width))
    found = np.logical_or.reduceat(np.logical_or.reduceat(masks, rows, axis=1), columns, axis=2)
    return found.reshape(concepts, grid * grid).T


def region_images(image: NDArray[np.uint8], grid: int) -> NDArray[np.uint8]:
    """Cut an image (grid * size, grid * size, 3) into (grid * grid, size, size, 3), in the order of `region_ids`."""
    size = len(image) // grid
    return image.reshape(grid, size, grid, size, 3).swapaxes(1, 2).reshape(grid * grid, size, size, 3)


def read_coco(definition: BankDefinition, layout: CocoFile, files: Files) -> ConceptImages:
    name, base = one_file(files, layout.file)
    where = files.where(name)
    try:
        content = json.loads(files.read(name))
        categories = {int(one["id"]): str(one["name"]) for one in content["categories"]}
        entries = {int(one["id"]): one for one in content["images"]}
        annotations: dict[int, list[JsonObject]] = {number: [] for number in entries}
        for one in content["annotations"]:
            annotations[int(one["image_id"])].append(one)
            categories[int(one["category_id"])]
        file_names = [str(one["file_name"]) for one in entries.values()]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        problem = f"is not a COCO file ({type(error).__name__}: {error})"
        raise InputError(problem, file=where, hint="Needed are images, annotations and categories.") from None
    concepts = _concepts(definition, categories, where)
    names = [base + layout.path.replace("{image}", file) for file in file_names]
    for number, image in enumerate(names, start=1):
        if image not in files:
            raise InputError(f"the image '{image}' is missing", file=where, row=number, column="images")
    own = list(annotations.values())
    present = [{int(one["category_id"]) for one in listed} for listed in own]
    shown = [[bool(here & numbers) for numbers in concepts.values()] for here in present]
    truth = np.array(shown, np.int8).reshape(len(names), len(concepts))
    patients = [patient_of(image, layout.patient_pattern) for image in names]
    images = collected(definition, files, names, list(concepts), truth, patients)

    def masks(row: int) -> NDArray[np.bool_]:
        rgb = opened(files, names[row])
        box = square_box(rgb, definition.crop)
        drawn = []
        for numbers in concepts.values():
            layer = np.zeros((rgb.height, rgb.width), np.bool_)
            for one in own[row]:
                if int(one["category_id"]) in numbers:
                    layer |= annotation_mask(one, rgb.size, where)
            drawn.append(square_mask(layer, box))
        return np.stack(drawn)

    return replace(images, masks=masks)


def _concepts(definition: BankDefinition, categories: dict[int, str], where: str) -> dict[str, set[int]]:
    found = {}
    for concept, words in (definition.words or {name: [name] for name in categories.values()}).items():
        found[concept] = {number for number, name in categories.items() if name in words}
        if not found[concept]:
            has = ", ".join(sorted(categories.values())[:12])
            raise InputError(f"has no category '{words[0]}'", file=where, hint=f"It has: {has}")
    return found


def annotation_mask(one: JsonObject, size: tuple[int, int], where: str) -> NDArray[np.bool_]:
    """Return the pixels of an annotation: its segmentation, or its box where it has none."""
    shape = one.get("segmentation")
    try:
        if isinstance(shape, Mapping):
            height, width = (int(side) for side in shape["size"])
            check_size((height, width), size, where)
            counts = shape["counts"]
            return run_lengths(counts if isinstance(counts, list) else uncompressed(counts), height, width)
        canvas = Image.new("1", size)
        draw = ImageDraw.Draw(canvas)
        for polygon in shape or []:
            draw.polygon([float(value) for value in polygon], fill=1)
        if not shape:
            left, top, wide, high = (float(value) for value in one["bbox"])
            draw.rectangle((left, top, max(left, left + wide - 1), max(top, top + high - 1)), fill=1)
        return np.array(canvas)
    except InputError:
        raise
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise InputError(
            f"annotation {one.get('id')} is not a polygon, a run-length mask or a box ({type(error).__name__}: {error})",
            file=where,
        ) from None


def run_lengths(counts: Sequence[int], height: int, width: int) -> NDArray[np.bool_]:
    """Return the mask (height, width) of run lengths: pixels column by column, beginning with those outside."""
    values = np.repeat(np.arange(len(counts)) % 2 == 1, counts)
    if len(values) != height * width:
        raise ValueError(f"runs of {len(values)} pixels for {height * width}")
    return values.reshape(width, height).T


def uncompressed(text: str) -> list[int]:
    """Return the run lengths of COCO's compressed text.

    Each number is written in groups of five bits, lowest first, as characters from ``0`` on; the sixth bit says that
    another group follows, and the highest bit of the last group is the sign. From the fourth number on, the difference to the
    number two before it is written.
    """
    counts: list[int] = []
    place = 0
    while place < len(text):
        value, shift, more = 0, 0, True
        while more:
            group = ord(text[place]) - 48
            value |= (group & 0x1F) << shift
            more, shift, place = bool(group & 0x20), shift + 5, place + 1
            if not more and group & 0x10:
                value -= 1 << shift
        counts.append(value + counts[-2] if len(counts) > 2 else value)
    return counts
