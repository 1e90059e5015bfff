"""The images of a file in the order in which they are referred, for the reader who looks at them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.core.untrusted.text import csv_text
from retinabench.metrics.uncertainty import referral_uncertainty
from retinabench.predictions.table import Predictions

COLUMNS = ("rank", "image_id", "patient_id", "domain", "prob", "uncertainty", "referred")


@dataclass(frozen=True, eq=False)
class ReferralList:
    """Test images, the most uncertain first; equally uncertain ones by their id.

    Args:
        images: The N images in that order.
        uncertainty: (N,) what orders them.
        referred: (N,) whether each is referred; None where neither a share nor a limit was given.
        notes: What a reader of the list must know.
    """

    images: Predictions
    uncertainty: NDArray[np.float64]
    referred: NDArray[np.bool_] | None = None
    notes: tuple[str, ...] = ()

    def to_csv(self) -> bytes:
        """Return one row per image with `COLUMNS`, as UTF-8 text; numbers read back bit by bit."""
        one = self.images
        n = len(one)
        columns = (
            range(1, n + 1),
            one.image_id.tolist(),
            [""] * n if one.patient_id is None else one.patient_id.tolist(),
            one.domain.tolist(),
            one.prob.tolist(),
            self.uncertainty.tolist(),
            [""] * n if self.referred is None else ["yes" if yes else "no" for yes in self.referred],
        )
        return csv_text([COLUMNS, *zip(*columns, strict=True)]).encode()


def referral_list(
    predictions: Predictions,
    uncertainty: str = "auto",
    *,
    share: float | None = None,
    above: float | None = None,
    threshold: float = 0.5,
) -> ReferralList:
    """Return the test images in the order in which they are referred.

    Args:
        predictions: The file; its test split is listed, all domains together.
        uncertainty: What orders the referral, as in `score`.
        share: Share of the images that is referred: the first round(share * N).
        above: Limit of the uncertainty above which images are referred, such as one that `transfer` chose.
        threshold: The decision threshold, which `margin` is centred on.

    Returns:
        The list.

    Raises:
        InputError: There is no test split, both `share` and `above` are given, or the share is not in [0, 1].
    """
    if share is not None and above is not None:
        raise InputError("both a share and a limit of referral are given", hint="Give one of them.")
    if share is not None and not 0 <= share <= 1:
        raise InputError(f"a share of {share:g} cannot be referred", hint="Give a number from 0 to 1.")
    test = predictions.select(split="test", unlabelled=True)
    if test is None:
        raise InputError("holds no image of the test split", file=predictions.source)
    values, _ = referral_uncertainty(test, uncertainty, threshold=threshold)
    order = np.lexsort((test.image_id, -values))
    values = values[order]
    n, notes = len(order), []
    referred = None if above is None else values > above
    if share is not None:
        many = round(share * n)
        referred = np.arange(n) < many
        if 0 < many < n and values[many - 1] == values[many]:
            tied = values == values[many]
            notes.append(
                f"{int((tied & referred).sum())} of {int(tied.sum())} equally uncertain images are referred: "
                "those whose ids come first"
            )
    if referred is not None:
        notes.append(f"{int(referred.sum())} of {n} images are referred")
    return ReferralList(test.take(order), values, referred, tuple(notes))
