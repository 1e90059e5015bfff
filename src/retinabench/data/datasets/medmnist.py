"""RetinaMNIST: small fundus images with five grades, for quick experiments on real retinas.

| | |
|---|---|
| input | 1,600 colour images, cropped to the centre, 28, 64, 128 or 224 pixels: one `.npz` each |
| label | retinopathy grade 0-4 |
| population | the DeepDRiD challenge: screening in Shanghai, China |
| camera | not stated per image; cropping and resizing were done by the publishers |
| splits | train 1,080 (486/128/206/194/66), validation 120 (54/12/28/20/6), test 400 (174/46/92/68/20) |
| patients | not published; DeepDRiD took several images of an eye, so one patient has several images, which may be \
on both sides of the train and validation split |
| licence | CC BY 4.0 |
| citation | Yang et al. 2023, MedMNIST v2, Scientific Data 10:41; Liu et al. 2022, DeepDRiD, Patterns 3:100512 |
| how to get it | `retinabench prepare retinamnist --download --source DIR --out DIR`, or by hand from \
https://zenodo.org/records/10519652 |

The arrays are read with NumPy alone, `train_images` (N, S, S, 3) uint8 and `train_labels` (N, 1) and so on, never a
pickle. The name of the file tells which published MD5 it must have.

DermaMNIST (7,007 training and 2,005 test images, 7 classes) comes in the same format. It is the MedMNIST task of the
approximate-inference competition of 2021, which scored the first 2,000 test images in an order that is not published;
all are read here.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from retinabench.core.errors import InputError
from retinabench.data.archives import Remote, stamp
from retinabench.data.dataset import ArrayDataset, Records, concatenate, join, make_records
from retinabench.data.image_dataset import Encoded, ImageDataset
from retinabench.data.labels import Survey, placed

SPLITS = {"train": "train", "val": "validation", "test": "test"}
MD5 = {
    28: "bd4c0672f1bba3e3a89f0e4e876791e4",
    64: "afda852cc34dcda56f86ad2b2457dbcc",
    128: "e48e916a24454daf90583d4e6efb1a18",
    224: "eae7e3b6f3fcbda4ae613ebdcbe35348",
}
STEPS = (
    "Download retinamnist_64.npz (or _128, _224) from https://zenodo.org/records/10519652, or use "
    "retinabench prepare retinamnist --download --source DIR --out data/retinamnist"
)


def file_name(size: int) -> str:
    return "retinamnist.npz" if size == 28 else f"retinamnist_{size}.npz"


def remote(size: int) -> Remote:
    """Return the smallest published file whose images are not smaller than `size`."""
    side = next((side for side in MD5 if side >= size), max(MD5))
    name = file_name(side)
    return Remote(f"https://zenodo.org/records/10519652/files/{name}?download=1", name, MD5[side])


def records(source: Path, *, survey: Survey | None = None, split: str | None = None) -> Records:
    """Read the labels of one `.npz`: that file, or the only one in a folder."""
    file = _file(source)
    known = {file_name(side): digest for side, digest in MD5.items()}
    with open(file, "rb") as handle:
        digest = hashlib.file_digest(handle, "md5").hexdigest()
    if known.get(file.name, digest) != digest:
        raise InputError(f"has the MD5 {digest}, published is {known[file.name]}", file=file, hint="Download it again.")
    if survey is not None and file.name not in known:
        survey.notes.append(f"{file.name} is not a published name, so its MD5 is not checked")
    return placed(join([_part(file, short, name) for short, name in SPLITS.items()]), split)


def encoded(source: str, root: Path | None) -> Encoded:
    """Return one image as a PNG file, by `<file>:<split>:<number>`."""
    file, short, number = _place(source, root)
    pixels = read_array(file, f"{short}_images")[int(number)]
    # Encoded without loss, so that every recipe is applied in the same way as to other files.
    sink = io.BytesIO()
    Image.fromarray(pixels).save(sink, "PNG", compress_level=0)
    return Encoded(sink.getvalue(), source)


def _place(source: str, root: Path | None) -> tuple[Path, str, str]:
    name, short, number = source.rsplit(":", 2)
    base = root or Path()
    return base if base.is_file() else base / name, short, number


def _file(source: Path) -> Path:
    if source.is_file():
        return source
    found = sorted(source.glob("retinamnist*.npz"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "no retinamnist*.npz"
        hint = "Name one file with --source." if found else f"Add --download. {STEPS}."
        raise InputError(f"holds {names}", file=source, hint=hint)
    return found[0]


def _read_small(name: str, classes: int, source: Path | None) -> ArrayDataset:
    """Read images of 28 px from a file, or the folder that holds it: the published splits ``train`` and ``test`` (group ``clean``)."""
    hint = f"Download {name} from https://zenodo.org/records/10519652 and name it by --data."
    if source is None:
        raise InputError(f"the data of '{name.removesuffix('.npz')}' do not come with the package", hint=hint)
    file = source / name if source.is_dir() else source
    parts = {}
    for split, group in (("train", "train"), ("test", "clean")):
        images, labels = _split_arrays(file, split, classes, side=28)
        parts[split] = ArrayDataset(images, labels.astype(np.int64), np.full(len(images), group))
    return concatenate(parts)


read_retinamnist = partial(_read_small, "retinamnist.npz", 5)
read_dermamnist = partial(_read_small, "dermamnist.npz", 7)


def _part(file: Path, short: str, split: str) -> Records:
    _, grades = _split_arrays(file, short, classes=5)
    ids, sources = zip(*((f"{split}-{k:04d}", f"{file.name}:{short}:{k}") for k in range(len(grades))), strict=True)
    return make_records(ids, grades.tolist(), source=sources, split=split)


def _split_arrays(
    file: Path, short: str, classes: int, side: int | None = None
) -> tuple[NDArray[np.uint8], NDArray[np.integer]]:
    """Return images (N, S, S, 3) and classes (N,) of a split, checked; S is `side` where that is given."""
    images, labels = read_array(file, f"{short}_images"), read_array(file, f"{short}_labels")
    square = images.ndim == 4 and images.shape[1:] == (side or images.shape[2], images.shape[1], 3)
    if not square or images.dtype != np.uint8:
        shown = "S, S" if side is None else f"{side}, {side}"
        raise InputError(f"{short}_images is {images.dtype} {images.shape}, not uint8 (N, {shown}, 3)", file=file)
    integers = np.issubdtype(labels.dtype, np.integer)
    if labels.size != len(images) or not integers or not np.isin(labels, np.arange(classes)).all():
        raise InputError(f"{short}_labels are not {len(images):,} classes from 0 to {classes - 1}", file=file)
    return images, labels.reshape(-1)


def read_array(file: Path, key: str) -> NDArray[np.uint8]:
    """Return one array of an `.npz`; a worker reads it once, and again when the file has changed."""
    return _array_at(file, key, stamp(file))


@lru_cache(maxsize=6)
def _array_at(file: Path, key: str, _stamp: str) -> NDArray[np.uint8]:
    if file.is_file() and not zipfile.is_zipfile(file):  # NumPy would advise to load it as a pickle
        raise InputError("is no .npz archive", file=file, hint="Download it again.")
    try:
        with np.load(file, allow_pickle=False) as arrays:
            found: NDArray[np.uint8] = arrays[key]
            return found
    except FileNotFoundError:
        raise InputError("does not exist", file=file) from None
    except KeyError:
        raise InputError(f"holds no array '{key}'", file=file, hint=STEPS) from None
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, AttributeError, MemoryError) as error:
        raise InputError(f"is not a valid .npz file ({error})", file=file, hint="Download it again.") from None


DATASET = ImageDataset(
    records,
    STEPS,
    encoded=encoded,
    remote=remote,
    stamp=lambda source, root: stamp(_place(source, root)[0]),
    counts={"train": (486, 128, 206, 194, 66), "validation": (54, 12, 28, 20, 6), "test": (174, 46, 92, 68, 20)},
)
