"""Images that differ from the others of their domain: too dark, blurred, or of another size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retinabench.data.records import Records
from retinabench.inspection.files import OriginalFiles
from retinabench.inspection.pixels import Pixels

LIMIT = 3.5  # Iglewicz and Hoaglin 1993
NAMES = {
    "brightness": ("dark", "bright"),
    "sharpness": ("blurred", "grainy or over-sharpened"),
    "original size": ("few pixels", "many pixels"),
    "file size": ("few bytes per pixel", "many bytes per pixel"),
}
"""Measure -> description of its low and of its high outliers."""


@dataclass(frozen=True)
class Outlier:
    """A row of the records, the measure in which it is an outlier, its robust z-score and a description."""

    row: int
    measure: str
    z: float
    what: str


def robust_z(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return 0.6745 (x - median) / MAD of values (N,), the modified z-score of Iglewicz and Hoaglin.

    Where more than half of the values are equal (MAD = 0), 1.2533 times the mean absolute deviation replaces
    MAD / 0.6745; where all are equal every score is 0.

    References:
        Iglewicz and Hoaglin, How to detect and handle outliers, ASQC (1993).
    """
    distance = np.asarray(values, np.float64) - np.median(values)
    scale = np.median(np.abs(distance)) / 0.6745 or np.abs(distance).mean() * 1.2533
    return distance / scale if scale > 0 else np.zeros(len(distance))


def outliers(records: Records, files: OriginalFiles | None, pixels: Pixels | None) -> list[Outlier]:
    """Return the images whose robust z-score within their domain is beyond ± 3.5 in any measure."""
    found = []
    for domain in np.unique(records.domain):
        rows = np.flatnonzero(records.domain == domain)
        for measure, values, known in _measures(files, pixels):
            mine = rows[known[rows]]
            if len(mine) > 1:
                z = robust_z(values[mine])
                low, high = NAMES[measure]
                for k in np.flatnonzero(np.abs(z) > LIMIT):
                    found.append(Outlier(int(mine[k]), measure, float(z[k]), high if z[k] > 0 else low))
    return sorted(found, key=lambda outlier: (-abs(outlier.z), outlier.row))


Measure = tuple[str, NDArray[np.floating], NDArray[np.bool_]]


def _measures(files: OriginalFiles | None, pixels: Pixels | None) -> Iterator[Measure]:
    """Yield each measure's name, its values (N,), and where they are known; sizes on a logarithmic scale."""
    if pixels is not None:
        everywhere = np.ones(len(pixels.brightness), bool)
        yield "brightness", pixels.brightness, everywhere
        yield "sharpness", np.log(np.maximum(pixels.sharpness, 1e-6)), everywhere
    if files is not None:
        area = files.width * files.height
        yield "original size", np.log(np.maximum(area, 1)), area > 0
        density = np.maximum(files.bytes, 1) / np.maximum(area, 1)
        yield "file size", np.log(density), (area > 0) & (files.bytes > 0)
