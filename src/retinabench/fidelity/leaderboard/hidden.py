"""Hidden test points for an official ranking: their inputs are published, their labels and their reference are kept.

The owner of a board has points of their own. `make_hidden` samples the target's posterior at them and writes

    points.npz       to publish: inputs and groups in an order that a secret salt decides, and the commitment
    secret/          to keep: salt.json, labels.npz, reference.npz

The commitment is the SHA-256 of the salt with the hashes of the labels and of the reference: when all is opened, anyone can see that nothing was
changed after the submissions came. Participants predict the points by `retinabench fidelity run --points points.npz`. Who has the inputs can sample
the posterior himself; that is what the counted budget is for. What is hidden are the labels, and the reference that settings could be fitted to.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable
from pathlib import Path

import numpy as np

from retinabench.core.errors import InputError
from retinabench.core.files import atomic_write, sha256
from retinabench.core.results import JsonObject
from retinabench.core.untrusted import json_object
from retinabench.core.workspace import Workspace
from retinabench.data.dataset import ArrayDataset
from retinabench.fidelity.reference.reference_file import Reference, read_reference, write_reference
from retinabench.fidelity.scoring.grading import Evaluator
from retinabench.fidelity.targets.data import TargetData
from retinabench.fidelity.targets.published_points import members, read_points, with_points
from retinabench.fidelity.targets.target import Target

POINTS, SECRET, SALT = "points.npz", "secret", "salt.json"
Sampler = Callable[[TargetData], Reference]


def make_hidden(target: Target, data: TargetData, points: Path, out: Path, sampler: Sampler) -> Path:
    """Write the published and the secret files of an official ranking; return the path of the former.

    A call that was interrupted continues in the same folder, with the same salt.
    """
    if (out / POINTS).exists():
        raise InputError(
            "holds hidden points already", file=out, hint="Name another folder: hidden points are drawn once."
        )
    arrays = read_points(points, target, data, "targets")
    folder = out / SECRET
    begun = Workspace(folder, "set of hidden points", SALT).begin(
        {"salt": secrets.token_hex(32), "task": target.name, "points": sha256(points)},
        decisive=lambda found: {key: value for key, value in found.items() if key != "salt"},
    )
    salt = str(begun["salt"])
    order = np.argsort([hashlib.sha256(f"{salt} {k}".encode()).digest() for k in range(len(arrays["group"]))])
    arrays = {name: values[order] for name, values in arrays.items()}
    hidden = ArrayDataset(arrays["inputs"], arrays["targets"], arrays["group"])
    reference = sampler(TargetData(data.train, hidden, data.scaling))
    write_reference(folder / "reference.npz", reference)
    with atomic_write(folder / "labels.npz") as sink:
        np.savez_compressed(sink, targets=arrays["targets"])
    meta = json.dumps({"task": target.name, "commitment": commitment(folder)})
    with atomic_write(out / POINTS) as sink:
        np.savez_compressed(sink, inputs=arrays["inputs"], group=arrays["group"], meta=np.array(meta))
    return out / POINTS


def commitment(secret: Path) -> str:
    """Return the SHA-256 of the salt with those of labels and reference."""
    try:
        salt = json_object((secret / SALT).read_text("utf-8"))["salt"]
        parts = [str(salt), *(sha256(secret / name) for name in ("labels.npz", "reference.npz"))]
    except (OSError, KeyError, ValueError) as error:
        raise InputError(
            f"holds no salt, labels and reference ({type(error).__name__})", file=secret
        ) from None
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()


def hidden_evaluator(
    target: Target, data: TargetData, folder: Path, bootstrap: int = 1000, seed: int = 0
) -> tuple[Evaluator, str]:
    """Return the evaluator of the hidden points, and the hash of the published data that submissions name."""
    public, secret = folder / POINTS, folder / SECRET
    stated = _meta(public).get("commitment")
    if stated != commitment(secret):
        raise InputError("is not what was committed to when the points were published", file=secret)
    published = with_points(target, data, public)
    labels = members(secret / "labels.npz", ("targets",))["targets"]
    if labels.shape != (len(published.test),) or labels.dtype != data.train.targets.dtype:
        raise InputError(f"is not of {len(published.test)} points", file=secret / "labels.npz")
    known = ArrayDataset(published.test.inputs, labels, published.test.groups)
    opened = TargetData(data.train, known, data.scaling)
    reference = read_reference(target, opened.sha256, secret / "reference.npz")
    return Evaluator(target, opened, reference, bootstrap, seed), published.sha256


def _meta(path: Path) -> JsonObject:
    try:
        return json_object(str(members(path, ("meta",))["meta"]))
    except ValueError:
        raise InputError("has unreadable metadata", file=path) from None
