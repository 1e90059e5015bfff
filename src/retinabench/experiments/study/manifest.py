"""What a study's folder was begun with: the protocol, the version and the data, which are never mixed silently.

`study.json` notes them. Other code or other data may give other numbers under the same names; a command that finds such a
difference refuses, naming both sides.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from retinabench.core.atomic_files import write_json
from retinabench.core.errors import InputError
from retinabench.core.version import __version__
from retinabench.experiments.config import PROTOCOL

SCHEMA = "retinabench.study/1"
FILE = "study.json"


def check_identity(out: Path, fingerprints: Mapping[str, str]) -> None:
    """Compare the folder with this code and these data (task label -> fingerprint); note what is new.

    Raises `InputError` naming both sides and the hint where they differ.
    """
    begun = read_identity(out)
    if begun is not None:
        _refuse(out, "protocol", begun["protocol"], PROTOCOL, "install the version that began it")
        _refuse(out, "version of retinabench", begun["version"], __version__, f"install {begun['version']}")
        for label, fingerprint in fingerprints.items():
            known = begun["data"].get(label, fingerprint)
            what = f"data for the task '{label}' (fingerprint)"
            _refuse(out, what, known[:12], fingerprint[:12], "put the earlier data back")
    known_data = {**(begun["data"] if begun else {}), **fingerprints}
    content = {
        "schema": SCHEMA,
        "protocol": PROTOCOL,
        "version": __version__,
        "data": known_data,
    }
    if content != begun:
        write_json(out / FILE, content)


def read_identity(out: Path) -> dict[str, Any] | None:
    """Return what a folder was begun with, None for a new one.

    Raises `InputError` where the folder holds anything else, or the note is damaged.
    """
    file = out / FILE
    if not file.is_file():
        strangers = [path for path in out.glob("*") if path.name not in ("turns", "data")]
        if strangers:
            raise InputError("is not empty and holds no study", file=out, hint="Choose another --out.")
        return None
    try:
        content: dict[str, Any] = json.loads(file.read_text())
    except ValueError as error:
        raise InputError(
            f"is damaged ({error})", file=file, hint="Restore it, or choose another --out."
        ) from None
    if content.get("schema") != SCHEMA:
        raise InputError(f"is no note of a study ({SCHEMA})", file=file, hint="Choose another --out.")
    return content


def _refuse(out: Path, what: str, then: Any, now: Any, hint: str) -> None:
    if then != now:
        raise InputError(
            f"was begun with another {what}: {then}, and this is {now}",
            file=out,
            hint=f"Results of both are not mixed: {hint}, or choose another --out.",
        )
