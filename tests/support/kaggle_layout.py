"""Kaggle's files with the true number of labels by split and grade, and tiny drawn photographs. What is true of them: the counts by
grade; 44,351 patients with a left and a right eye; Public and Private share no patient with each other or with the training images;
of the 1,581 severe training images (grade 3 or 4) of 944 patients, 307 have a fellow eye of grade 0 to 2. Which patient has which
grades is drawn."""

import io
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

GRADES = {
    "train": (25_810, 2_443, 5_292, 873, 708),
    "Public": (8_130, 720, 1_579, 237, 240),
    "Private": (31_403, 3_042, 6_282, 977, 966),
}
APTOS = (1_805, 370, 999, 193, 295)
FELLOWS = 307  # severe training images whose fellow eye is not severe
Label = tuple[str, int, str]  # image, grade, part


def eyepacs_labels(seed: int = 0, share: float = 1.0) -> list[Label]:
    """All 88,702 labels, ordered by patient; `share` < 1 keeps the first patients of every part."""
    random = np.random.default_rng(seed)
    numbers = random.permutation(np.arange(1, 44_352))
    labels, begin = [], 0
    for part, counts in GRADES.items():
        pairs = _pairs(np.repeat(np.arange(5), counts), random, FELLOWS if part == "train" else 0)
        mine = numbers[begin : begin + len(pairs)]
        begin += len(pairs)
        order = np.argsort(mine)[: max(1, round(share * len(pairs)))]
        for patient, (left, right) in zip(mine[order].tolist(), pairs[order].tolist(), strict=True):
            labels += [(f"{patient}_left", left, part), (f"{patient}_right", right, part)]
    return labels


def _pairs(grades: np.ndarray, random: np.random.Generator, mixed: int) -> np.ndarray:
    """Pair eyes at random: severe with severe, but for `mixed` pairs of a severe and another eye; (patients, 2)."""
    severe, other = random.permutation(grades[grades > 2]), random.permutation(grades[grades <= 2])
    mixed += (len(severe) - mixed) % 2
    both = np.concatenate([severe[: len(severe) - mixed].reshape(-1, 2), other[mixed:].reshape(-1, 2)])
    pairs = np.concatenate([both, np.stack([severe[len(severe) - mixed :], other[:mixed]], axis=1)])
    return random.permuted(random.permutation(pairs), axis=1)


def write_eyepacs(folder: Path, form: str = "none", seed: int = 0, share: float = 1.0) -> Path:
    """Write the label files, and photographs as `folder`, `zip`, `parts` of a zip, or `none`."""
    folder.mkdir(parents=True, exist_ok=True)
    labels = eyepacs_labels(seed, share)
    train = [f"{image},{grade}" for image, grade, part in labels if part == "train"]
    test = [f"{image},{grade},{part}" for image, grade, part in labels if part != "train"]
    (folder / "trainLabels.csv").write_text("\n".join(["image,level", *train, ""]))
    (folder / "retinopathy_solution.csv").write_text("\n".join(["image,level,Usage", *test, ""]))
    if form != "folder" and form != "none":
        with zipfile.ZipFile(folder / "trainLabels.csv.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.write(folder / "trainLabels.csv", "trainLabels.csv")
        (folder / "trainLabels.csv").unlink()
    for name in ("train", "test"):
        mine = [(f"{name}/{i}.jpeg", g) for i, g, part in labels if (part == "train") == (name == "train")]
        write_pictures(folder, name, mine, form)
    return folder


def write_aptos(folder: Path, form: str = "none", seed: int = 0, rows: int = 3_662) -> Path:
    """Write `train.csv` and its photographs, and two test photographs without a label."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng([seed, 1])
    grades = random.permutation(np.repeat(np.arange(5), APTOS))[:rows].tolist()
    names = [f"{number:012x}" for number in random.choice(16**6, rows, replace=False).tolist()]
    lines = [f"{name},{grade}" for name, grade in zip(names, grades, strict=True)]
    (folder / "train.csv").write_text("\n".join(["id_code,diagnosis", *lines, ""]))
    pictures = [(f"train_images/{name}.png", grade) for name, grade in zip(names, grades, strict=True)]
    write_pictures(folder, "aptos2019", [*pictures, ("test_images/x.png", 0), ("test_images/y.png", 0)], form)
    return folder


def write_pictures(folder: Path, archive: str, pictures: Iterable[tuple[str, int]], form: str) -> None:
    """Write (name, grade) pictures; a zip in parts has parts of 5 MB."""
    if form == "none":
        return
    if form == "folder":
        for name, grade in pictures:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(drawn(name, grade))
        return
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as opened:
        for name, grade in pictures:
            opened.writestr(name, drawn(name, grade))
    data = sink.getvalue()
    if form == "zip":
        (folder / f"{archive}.zip").write_bytes(data)
    for number, piece in enumerate(_pieces(data) if form == "parts" else (), start=1):
        (folder / f"{archive}.zip.{number:03d}").write_bytes(piece)


def _pieces(data: bytes) -> Iterator[bytes]:
    size = max(1, -(-len(data) // 5))
    return (data[k : k + size] for k in range(0, len(data), size))


LOOKS = 8  # different pictures of each grade
_DRAWN: dict[tuple[str, int, int], bytes] = {}


def drawn(name: str, grade: int) -> bytes:
    """A disc on black, 48 x 36, with some noise; referable ones have a bright spot, which a network learns in seconds."""
    kind, look = name.rpartition(".")[2], zlib.crc32(name.encode()) % LOOKS
    if (kind, grade, look) not in _DRAWN:
        image = Image.new("RGB", (48, 36))
        draw = ImageDraw.Draw(image)
        draw.ellipse((6, 0, 41, 35), fill=(150, 70, 30))
        if grade >= 2:
            draw.ellipse((18, 10, 30, 22), fill=(250, 220, 140))
        noise = np.random.default_rng([grade, look]).normal(1, 0.2, (36, 48, 3))
        pixels = (np.asarray(image) * noise).clip(0, 255).astype(np.uint8)
        sink = io.BytesIO()
        Image.fromarray(pixels).save(sink, "PNG" if kind == "png" else "JPEG", quality=90)
        _DRAWN[kind, grade, look] = sink.getvalue()
    return _DRAWN[kind, grade, look]
