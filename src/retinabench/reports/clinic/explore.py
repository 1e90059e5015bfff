"""The part of the clinic's page that one can play with: every text that its sliders show, computed here."""

from __future__ import annotations

import json
from collections.abc import Sequence

from markupsafe import Markup

from retinabench.metrics.clinical.referral_rule import ReferralRule
from retinabench.metrics.inference.interval import Interval
from retinabench.metrics.policies.grid import Outcome, PolicyGrid
from retinabench.metrics.sets import SET_LABELS
from retinabench.reports.toolkit.number_format import COUNT, DASH, PERCENT, NumberFormat, Quantity, plain

MOST_IMAGES = 1000
ROWS = (
    "Sensitivity", "Specificity", "PPV", "NPV", "Images read, per 1,000",
    "Referable images missed", "Severe images missed",
)  # fmt: skip


def explore_json(grid: PolicyGrid) -> Markup:
    """Return the texts of the sliders as JSON for a `script` element, in which no tag can end it.

    Args:
        grid: The outcomes.

    Returns:
        Texts of the thresholds (T), of the referrals (R), of the rows, the frozen places, and for every set its groups with
        (T, R, rows) texts, how many referable images each pair misses (T, R), and the `MOST_IMAGES` most severe of them: id,
        patient, grade, probability, at how many thresholds it is called, and for each threshold the first referral that
        sends it to the reader.
    """
    content = {
        "thresholds": [one.comparison for one in grid.thresholds],
        "referrals": [_referral(one) for one in grid.rules],
        "rows": ROWS,
        "frozen": grid.frozen,
        "sets": [
            {
                "key": name,
                "label": SET_LABELS[name],
                "groups": [
                    {"name": group or "all images", "cells": [[_cells(one) for one in row] for row in rows]}
                    for group, rows in groups.items()
                ],
                "missed": [[one.missed_images for one in row] for row in groups[""]],
                "images": [
                    [
                        one.image_id,
                        one.patient_id or "",
                        one.grade,
                        plain(one.prob, 3),
                        one.called,
                        one.referred_from,
                    ]
                    for one in grid.images[name][:MOST_IMAGES]
                ],
            }
            for name, groups in grid.outcomes.items()
        ],
    }
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # No character is left that HTML gives a meaning to.
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))  # noqa: S704


def _referral(rule: ReferralRule) -> str:
    if rule.rate is not None:
        return f"{PERCENT(rule.rate)} of the images"
    return "no image" if rule.extent == "none" else f"uncertainty above {rule.threshold:.3g}"


def _cells(one: Outcome) -> Sequence[str]:
    return [
        *(_text(value, PERCENT) for value in (one.sensitivity, one.specificity, one.ppv, one.npv)),
        _text(one.referred, NumberFormat(0, scale=1000)),
        _missed(one.missed_images, one.missed),
        _missed(one.missed_severe_images, one.missed_severe),
    ]


def _missed(images: int, share: Interval) -> str:
    shares = _text(share, PERCENT)
    return shares if shares == DASH else f"{COUNT(images)}: {shares}"


def _text(one: Interval, form: NumberFormat) -> str:
    quantity = Quantity(one.value, one.low, one.high)
    return str(quantity.whole_html(form).striptags()) if quantity.defined else DASH
