"""Folders of raw image files, and a prepared folder made from them, for tests of models that travel."""

import numpy as np
from PIL import Image

from retinabench.data.prepare import prepare
from retinabench.data.preprocessing.preprocess import Recipe

SIZE = 32


def raw_folder(folder, images=60, seed=0):
    """Write PNG files of bright discs on black, half of which are referable and redder, and labels.csv."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:48, :48]
    disc = ((rows - 23.5) ** 2 + (columns - 23.5) ** 2 < 22**2)[..., None]
    lines = ["image,grade,patient,split"]
    for number in range(images):
        grade = 3 * (number % 2)
        colour = np.array([120 + 30 * (grade > 0), 90, 60]) + rng.normal(0, 12, (48, 48, 3))
        pixels = np.where(disc, colour, 0).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"eye{number:03}.png")
        lines.append(f"eye{number:03}.png,{grade},p{number},{'test' if number >= images * 2 // 3 else 'train'}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder


def prepared_from(raw, folder):
    prepare("folder", source=raw, out=folder, recipe=Recipe(SIZE))
    return folder
