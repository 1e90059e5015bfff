"""Images that cannot be graded, as an outcome of screening: how many there are, and what counting them does to the rates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.results import JsonObject, json_content, vars_of
from retinabench.metrics.bootstrap import cluster_codes
from retinabench.metrics.proportions import Interval, clustered_proportion


@dataclass(frozen=True)
class Ungradable:
    """Images without a usable prediction of the model, per image."""

    images: int
    imageability: Interval
    among_referable: Interval
    among_healthy: Interval
    excluded: tuple[Interval, Interval]
    as_referred: tuple[Interval, Interval]

    def to_dict(self) -> JsonObject:
        """Return the part of the JSON."""
        rates = {
            name: dict(zip(("sensitivity", "specificity"), getattr(self, name), strict=True))
            for name in ("excluded", "as_referred")
        }
        return {name: json_content(one) for name, one in {**vars_of(self), **rates}.items()}


def ungradable_images(
    label: NDArray[np.bool_], positive: NDArray[np.bool_], gradable: NDArray[np.bool_], cluster: ArrayLike
) -> Ungradable:
    """Return what ungradable images do to the rates.

    References:
        Abramoff et al., Pivotal trial of an autonomous AI-based diagnostic system, npj Digit. Med. 1:39 (2018), for imageability
        beside sensitivity and specificity.

    Shapes: `label` (N,), `positive` (N,), `gradable` (N,), `cluster` (N,).
    """
    codes, _ = cluster_codes(cluster)
    sent = positive | ~gradable
    return Ungradable(
        int((~gradable).sum()),
        clustered_proportion(gradable, np.ones(len(label)), codes),
        clustered_proportion(~gradable, label, codes),
        clustered_proportion(~gradable, ~label, codes),
        (
            clustered_proportion(positive, label & gradable, codes),
            clustered_proportion(~positive, ~label & gradable, codes),
        ),
        (clustered_proportion(sent, label, codes), clustered_proportion(~sent, ~label, codes)),
    )
