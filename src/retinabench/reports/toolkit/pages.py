"""The page builder, a Jinja template and its facts in, one self-contained HTML page out; and the sliders on a page.

A page extends `templates/base.html.j2`. The style sheet is inside. The page runs one script, `SCRIPTS`, which its content security policy
names by its hash; without it the page is complete.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

from markupsafe import Markup

from retinabench.core.errors import visible
from retinabench.core.results import JsonObject
from retinabench.core.version import __version__
from retinabench.metrics.clinical.screening_table import PolicyGrid, PolicyOutcome
from retinabench.metrics.image_sets import SET_LABELS, ReferralRule
from retinabench.metrics.intervals import Interval
from retinabench.reports.toolkit import tables
from retinabench.reports.toolkit.tables import COUNT, PERCENT, TOOLKIT, NumberFormat, plain, template_source, templates

SCRIPTS = ("tables.js", "folds.js", "explore.js", "choices.js")  # The parts of the one script of all pages.
MOST_IMAGES = 500  # Missed images of each set that the page can list.
SHOWN_IMAGES = 6  # Missed images of a pair of thresholds that are shown as thumbnails, where there are any.
MOST_THUMBNAILS = 60  # Thumbnails in the page, of all sets and models.
MOST_THUMBNAIL_BYTES = 600_000  # All thumbnails together: the page of any data set stays below 3 MB.
ROWS = (
    "Sensitivity", "Specificity", "PPV, at the prevalence of these images", "NPV, at the same", "Images read, per 1,000 images", "Patients read, per 1,000 patients",
    "Referable images called healthy and not read", "Severe ones",
)  # fmt: skip
THOUSAND = NumberFormat(0, scale=1000)
Thumbnails = Callable[[str], str]  # image_id -> data URI; empty without a thumbnail


@dataclass(frozen=True)
class Finding:
    """A paragraph of results: a lead of a few words, its sentences, and "good", "bad" or "" (neither)."""

    lead: str
    text: str
    mood: str = ""


@dataclass(frozen=True)
class Fact:
    """A term and what there is to say about it: a line of a list."""

    term: str
    text: str


def render(template: str, context: Mapping[str, object], *, package: str = TOOLKIT) -> str:
    style = Markup(template_source(TOOLKIT, "style.css") or "")  # noqa: S704 - a file of this package
    script, script_hash = _script()
    known = {"style": style, "script": script, "script_hash": script_hash, "version": __version__}
    page = visible(templates(package).get_template(template).render({**context, **known}))
    return re.sub(r"(?<=\d) %", "\N{NO-BREAK SPACE}%", page) if template.endswith(".html.j2") else page


@cache
def _script() -> tuple[Markup, str]:
    """Return the script of all pages, and its hash as a content security policy writes it."""
    text = "\n" + "".join(template_source(TOOLKIT, name) or "" for name in SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return Markup(text), digest  # noqa: S704 - files of this package


def script_json(content: object) -> Markup:
    """Return data as JSON for a `script` element of type `application/json`, in which no tag can end it."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # No character is left that HTML gives a meaning to.
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))  # noqa: S704


def explorer(
    grids: Mapping[str, PolicyGrid], reader: tuple[float, float], thumbnails: Thumbnails | None = None
) -> dict[str, Any]:
    """Return what a page's sliders show: JSON for its script, the rates of the reader, and whether shares became thresholds on the test images themselves."""
    same = any(rule.same_images for grid in grids.values() for rule in grid.rules)
    return {"data": script_json(_content(grids, thumbnails)), "reader": reader, "same_images": same}


def _content(grids: Mapping[str, PolicyGrid], thumbnails: Thumbnails | None) -> JsonObject:
    """Return the data of the sliders.

    `texts` holds every text once, and `cells` their places: per model, set and group (T, R, rows). `missed` says how many
    referable images a pair misses, `images` holds the `MOST_IMAGES` most severe of them: id, patient, grade, probability, at
    how many thresholds it is called, for each threshold the first referral that sends it to the reader (one where all are
    equal), and its groups.
    """
    texts: dict[str, int] = {}  # each stands in the page once and is named by its place
    models = [
        {
            "name": name,
            "thresholds": [one.comparison for one in grid.thresholds],
            "referrals": [_referral(one) for one in grid.rules],
            "cuts": [one.value for one in grid.thresholds],
            "shares": [one.rate for one in grid.rules],
            "frozen": grid.frozen,
            "sets": [_set(key, grid, texts) for key in grid.outcomes],
        }
        for name, grid in grids.items()
    ]
    shown = {} if thumbnails is None else _thumbnails(grids, thumbnails)
    return {"rows": ROWS, "models": models, "texts": list(texts), "thumbnails": shown}


def _set(key: str, grid: PolicyGrid, texts: dict[str, int]) -> JsonObject:
    images = []
    for one in grid.images[key][:MOST_IMAGES]:
        first = one.referred_from[:1] if len(set(one.referred_from)) == 1 else one.referred_from
        known = [one.image_id, one.patient_id or "", one.grade, plain(one.prob, 3), one.called]
        images.append([*known, first, one.groups])
    return {
        "key": key,
        "label": SET_LABELS[key],
        "groups": [
            {
                "name": group or "all images",
                "cells": [[[texts.setdefault(text, len(texts)) for text in cells(one)] for one in row] for row in rows],
                "missed": [[one.missed_images for one in row] for row in rows],
            }
            for group, rows in grid.outcomes[key].items()
        ],
        "images": images,
    }


def _thumbnails(grids: Mapping[str, PolicyGrid], thumbnails: Thumbnails) -> dict[str, str]:
    wanted: Counter[str] = Counter()
    for grid in grids.values():
        for images in grid.images.values():
            for i in range(len(grid.thresholds)):
                for j in range(len(grid.rules)):
                    missed = (one.image_id for one in images[:MOST_IMAGES] if one.missed(i, j))
                    wanted.update(islice(missed, SHOWN_IMAGES))
    found: dict[str, str] = {}
    left = MOST_THUMBNAIL_BYTES
    for image_id in sorted(wanted, key=lambda one: (-wanted[one], one)):
        if len(found) == MOST_THUMBNAILS:
            break
        if thumbnail := thumbnails(image_id):
            left -= len(thumbnail)
            if left < 0:
                break
            found[image_id] = thumbnail
    return found


def _referral(rule: ReferralRule) -> str:
    if rule.rate is not None:
        return f"{PERCENT(rule.rate)} of the images"
    return "no image" if rule.extent == "none" else f"uncertainty above {rule.threshold:.3g}"


def cells(one: PolicyOutcome) -> Sequence[str]:
    return [
        *(_text(value, PERCENT) for value in (one.sensitivity, one.specificity, one.ppv, one.npv)),
        _text(one.referred, THOUSAND),
        _text(one.referred_patients, THOUSAND),
        _missed(one.missed_images, one.missed),
        _missed(one.missed_severe_images, one.missed_severe),
    ]


def _missed(images: int, share: Interval) -> str:
    value, _, interval = _text(share, PERCENT).partition(" [")
    return value if value == tables.DASH else f"{COUNT(images)} ({value})" + (f" [{interval}" if interval else "")


def _text(one: Interval, form: NumberFormat) -> str:
    if not math.isfinite(one.value):
        return tables.DASH
    fitted = form.fitted(one.high - one.low)
    return f"{fitted(one.value)} {fitted.interval(one.low, one.high)}".rstrip()
