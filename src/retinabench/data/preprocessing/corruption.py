"""Corruption of fundus images as real cameras cause it: nine kinds at five strengths: `retinabench prepare … --corrupt dust:3`.

| kind | is | strengths 1 to 5 |
|---|---|---|
| `defocus` | blur by a disc, radius in field-of-view radii | .006, .012, .02, .03, .045 |
| `motion` | blur along a line, length in field-of-view radii | .03, .06, .1, .15, .22 |
| `dark` | too little light, stops | .5, 1, 1.6, 2.3, 3 |
| `bright` | too much light, stops; the bright parts saturate | .4, .8, 1.2, 1.6, 2 |
| `cast` | wrong white balance: std of the logarithms of the gains | .06, .12, .2, .3, .42 |
| `jpeg` | compression: quality | 50, 30, 18, 12, 8 |
| `vignette` | loss of light at the rim | .3, .5, .7, .85, .97 |
| `dust` | specks; smears on the lens | 4, 8, 16, 28, 44; 1, 2, 3, 4, 6 |
| `noise` | Gaussian, std in grey levels at a field of view of 512 px | 5, 10, 17, 26, 38 |

Strength 0 changes nothing. Only pixels inside the field of view change. What is random depends on the seed, the kind and the id
of the image, not on the strength: dust of strength 3 holds the specks of strength 2. Kinds and strengths follow the idea of
CIFAR-10-C; the numbers are ours, from barely visible to an image that a grader would refuse.

References:
    Hendrycks & Dietterich 2019, "Benchmarking neural network robustness to common corruptions and perturbations".
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from retinabench.core.errors import InputError, nearest
from retinabench.core.seeds import numpy_generator
from retinabench.data.preprocessing.graham import field_box, field_circle

Pixels = NDArray[np.uint8]
Floats = NDArray[np.float32]
STRENGTHS = (1, 2, 3, 4, 5)
GAMMA = 2.2  # light is the grey level to this power
RETINA = 0.98  # of the radius of the field of view; the fitted circle may be wider by a pixel or two
SPECKS, SMEARS = (4, 8, 16, 28, 44), (1, 2, 3, 4, 6)
HAZE = np.array([150, 125, 95], np.float32)  # colour of light that a smear scatters


@dataclass(frozen=True)
class Corruption:
    """One kind of damage."""

    kind: str
    strength: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"unknown corruption '{self.kind}'", hint=nearest(self.kind, KINDS))
        if self.strength not in (0, *STRENGTHS):
            raise InputError(f"strength {self.strength} of '{self.kind}' is not one of 0, 1, 2, 3, 4, 5")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``KIND:STRENGTH`` or ``KIND:STRENGTH:SEED``; raises `InputError` for another text."""
        kind, *numbers = text.split(":")
        if len(numbers) not in (1, 2) or not all(number.isdecimal() for number in numbers):
            raise InputError(f"'{text}' is not KIND:STRENGTH", hint="For example: --corrupt defocus:3")
        return cls(kind, *map(int, numbers))

    def __str__(self) -> str:
        return f"{self.kind}:{self.strength}" + (f":{self.seed}" if self.seed else "")


class Field(NamedTuple):
    """The field of view of an image (H, W): the place of each column and row in its radii, its radius in pixels, its mask."""

    x: Floats
    y: Floats
    radius: float
    mask: NDArray[np.bool_]


def corrupt(image: Pixels, corruption: Corruption | None, image_id: str) -> Pixels:
    """Return an image (H, W, 3), damaged inside its field of view; None changes nothing."""
    if corruption is None or corruption.strength == 0:
        return image
    field = _field(image)
    generator = numpy_generator(corruption.seed, "corruption", corruption.kind, image_id)
    damaged = KINDS[corruption.kind](image, field, corruption.strength - 1, generator)
    return np.where(field.mask[..., None], damaged, image)


def add_noise(image: Pixels, std: float, generator: np.random.Generator) -> Pixels:
    return to_bytes(image + generator.normal(0, std, image.shape))


def multiply(image: Pixels, gain: float | NDArray[np.floating]) -> Pixels:
    """Multiply grey levels; what exceeds 255 saturates."""
    return to_bytes(image.astype(np.float64) * gain)


def specks_shadow(x: Floats, y: Floats, place: Floats, sigma: Floats, depth: Floats) -> Floats:
    """Return the share of light (len(y), len(x)) that passes a lens with round, blurred specks on it."""
    across = np.exp(-0.5 * ((x - place[0]) / sigma) ** 2)
    down = np.exp(-0.5 * ((y - place[1]) / sigma) ** 2)
    light: Floats = np.maximum(1 - (depth * down).T @ across, np.float32(0.3))
    return light


def to_bytes(values: NDArray[np.floating]) -> Pixels:
    levels: Pixels = np.clip(np.rint(values), 0, 255).astype(np.uint8)
    return levels


def _field(image: Pixels) -> Field:
    circle = field_circle(Image.fromarray(image))
    left, top, right, bottom = field_box(image)
    height, width = image.shape[:2]
    x = ((np.arange(width) + 0.5 - circle.x) / circle.radius).astype(np.float32)
    y = ((np.arange(height) + 0.5 - circle.y) / circle.radius).astype(np.float32)
    mask = np.hypot(x, y[:, None]) <= 1
    mask[:top], mask[bottom:], mask[:, :left], mask[:, right:] = False, False, False, False
    return Field(x, y, circle.radius, mask)


def _defocus(image: Pixels, field: Field, level: int, generator: np.random.Generator) -> Pixels:
    radius = (0.006, 0.012, 0.02, 0.03, 0.045)[level] * field.radius
    side = 2 * int(np.ceil(radius)) + 1
    steps = (np.arange(side * 8) + 0.5) / 8 - side / 2  # eight points per pixel and axis
    disc = np.hypot(steps, steps[:, None]) <= max(radius, 0.5)
    return _convolved(image, field, disc.reshape(side, 8, side, 8).mean(axis=(1, 3)))


def _motion(image: Pixels, field: Field, level: int, generator: np.random.Generator) -> Pixels:
    angle = generator.uniform(0, np.pi)
    length = (0.03, 0.06, 0.1, 0.15, 0.22)[level] * field.radius
    side = 2 * int(np.ceil(length / 2)) + 3
    along = np.linspace(-length / 2, length / 2, 8 * side)
    places = np.stack([along * np.sin(angle), along * np.cos(angle)]) + side // 2
    line = np.zeros((side, side))
    row, column = np.floor(places).astype(int)
    for rows, columns in np.ndindex(2, 2):  # each point is shared by the four pixels around it
        share = np.abs((1 - rows - (places[0] - row)) * (1 - columns - (places[1] - column)))
        np.add.at(line, (row + rows, column + columns), share)
    return _convolved(image, field, line)


def _dark(image: Pixels, field: Field, level: int, generator: np.random.Generator) -> Pixels:
    return multiply(image, 2 ** (-(0.5, 1.0, 1.6, 2.3, 3.0)[level] / GAMMA))


def _bright(image: Pixels, field: Field, level: int, generator: np.random.Generator) -> Pixels:
    return multiply(image, 2 ** ((0.4, 0.8, 1.2, 1.6, 2.0)[level] / GAMMA))


def _cast(image: Pixels, field: Field, level: int, generator: np.random.Generator) -> Pixels:
    direction = generator.standard_normal(3)
    direction -= direction.mean()
    return multiply(image, np.exp((0.06, 0.12, 0.2, 0.3, 0.42)[level] * direction / direction.std()))


def _jpeg(image: Pixels, field: Field, level: int, generator: np.random.Generator) -> Pixels:
    sink = io.BytesIO()
    Image.fromarray(image).save(sink, "JPEG", quality=(50, 30, 18, 12, 8)[level])
    return np.asarray(Image.open(sink))


def _vignette(image: Pixels, field: Field, level: int, generator: np.random.Generator) -> Pixels:
    x, y = generator.uniform(-0.25, 0.25, 2)
    distance = (field.x - x) ** 2 + (field.y[:, None] - y) ** 2
    light = np.maximum(1 - (0.3, 0.5, 0.7, 0.85, 0.97)[level] * distance, 0.02)
    return multiply(image, light[..., None] ** (1 / GAMMA))


def _dust(image: Pixels, field: Field, level: int, generator: np.random.Generator) -> Pixels:
    # All are drawn, whatever the strength, so that the weaker damage is part of the stronger one.
    specks = generator.random((4, SPECKS[-1], 1), dtype=np.float32)[:, : SPECKS[level]]
    smears = generator.random((4, SMEARS[-1], 1), dtype=np.float32)[:, : SMEARS[level]]
    place, sigma = 1.8 * (specks[:2] - 0.5), 0.006 + 0.024 * specks[2] ** 2
    light = specks_shadow(field.x, field.y, place, sigma, 0.3 + 0.5 * specks[3])
    place, sigma = 1.8 * (smears[:2] - 0.5), 0.1 + 0.2 * smears[2]
    clear = specks_shadow(field.x, field.y, place, sigma, 0.2 + 0.3 * smears[3])[..., None]
    return to_bytes((image * clear + HAZE * (1 - clear)) * light[..., None])


def _noise(image: Pixels, field: Field, level: int, generator: np.random.Generator) -> Pixels:
    return add_noise(image, (5, 10, 17, 26, 38)[level] * 2 * field.radius / 512, generator)


def _convolved(image: Pixels, field: Field, kernel: NDArray[np.floating]) -> Pixels:
    """Mean of the retina under a kernel (odd, odd); the dark surround is left out of it."""
    from scipy.signal import fftconvolve  # which training does without

    kernel = kernel[..., None].astype(np.float32)
    retina = (field.mask & (np.hypot(field.x, field.y[:, None]) < RETINA))[..., None]
    weight = fftconvolve(retina.astype(np.float32), kernel, mode="same", axes=(0, 1))
    blurred = fftconvolve((image * retina).astype(np.float32), kernel, mode="same", axes=(0, 1))
    return np.where(retina, to_bytes(blurred / np.maximum(weight, 1e-3 * kernel.sum())), image)


KINDS: dict[str, Callable[[Pixels, Field, int, np.random.Generator], Pixels]] = {
    "defocus": _defocus, "motion": _motion, "dark": _dark, "bright": _bright, "cast": _cast, "jpeg": _jpeg,
    "vignette": _vignette, "dust": _dust, "noise": _noise,
}  # fmt: skip
