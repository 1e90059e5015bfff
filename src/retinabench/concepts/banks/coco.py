"""Images with annotations in the layout of COCO: polygons, run lengths (plain and compressed) or boxes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from retinabench.concepts.banks.definition import BankDefinition, CocoFile
from retinabench.concepts.banks.mask_files import check_size
from retinabench.concepts.banks.source_files import collected, one_file, opened, patient_of
from retinabench.core.errors import InputError
from retinabench.core.results import JsonObject
from retinabench.data.dataset import ConceptImages
from retinabench.data.ingest.archives import Files
from retinabench.data.preprocessing.squares import square_box, square_mask

Annotation = JsonObject


def read_coco(definition: BankDefinition, layout: CocoFile, files: Files) -> ConceptImages:
    """Read the images, categories and annotations of a COCO file."""
    name, base = one_file(files, layout.file)
    where = files.where(name)
    try:
        content = json.loads(files.read(name))
        categories = {int(one["id"]): str(one["name"]) for one in content["categories"]}
        entries = {int(one["id"]): one for one in content["images"]}
        annotations: dict[int, list[Annotation]] = {number: [] for number in entries}
        for one in content["annotations"]:
            annotations[int(one["image_id"])].append(one)
            categories[int(one["category_id"])]
        file_names = [str(one["file_name"]) for one in entries.values()]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        problem = f"is no COCO file ({type(error).__name__}: {error})"
        raise InputError(problem, file=where, hint="Needed are images, annotations and categories.") from None
    concepts = _concepts(definition, categories, where)
    names = [base + layout.path.replace("{image}", file) for file in file_names]
    for number, image in enumerate(names, start=1):
        if image not in files:
            raise InputError(f"the image '{image}' is missing", file=where, row=number, column="images")
    truth = np.zeros((len(names), len(concepts)), np.int8)
    own = list(annotations.values())
    for row, listed in enumerate(own):
        present = {int(one["category_id"]) for one in listed}
        truth[row] = [bool(present & numbers) for numbers in concepts.values()]
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
    """Return the numbers of the categories of each concept."""
    wanted = definition.concepts or {name: name for name in categories.values()}
    found = {}
    for concept, given in wanted.items():
        words = [given] if isinstance(given, str) else given
        found[concept] = {number for number, name in categories.items() if name in words}
        if not found[concept]:
            has = ", ".join(sorted(categories.values())[:12])
            raise InputError(f"has no category '{words[0]}'", file=where, hint=f"It has: {has}")
    return found


def annotation_mask(one: Annotation, size: tuple[int, int], where: str) -> NDArray[np.bool_]:
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
            f"annotation {one.get('id')} is no polygon, run length or box ({type(error).__name__}: {error})",
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
