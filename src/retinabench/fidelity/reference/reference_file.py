"""The reference file: the predictions of the posterior, their accuracy, and how they were made.

classification   chain_probs (K, N, C) float64, the mean of each chain; samples (S, N, C) float16, equally many of each
                 chain, in chain order; pairwise_disagreement ()
regression       chain_draws (K, N, m) float32: samples of y, noise included, in the standardised unit
external         chain_probs or chain_draws of one "chain", and labels (N,) where they are known; of the others NaN alone
both             states (T, K, N, O) and half_states float16, the predictions of the kept states and of those at half the step, all or evenly
                 thinned; history and half_history (T, 3, K): acceptance probability, acceptance and energy error; start (K, N, O), the
                 predictions before the first transition (files of version 0.1 lack these five)
                 rhat, ess_bulk, ess_tail, mcse (N, O) of class probabilities, or of mean and std;
                 epistemic (N,): mutual information in nats, or the std of the predicted mean; meta, JSON
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass, fields, replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.core.files import atomic_write, check
from retinabench.core.untrusted import json_object
from retinabench.fidelity.reference.arrays import ReferenceAbout, ReferenceArrays
from retinabench.fidelity.reference.judgement import Judgement, judge
from retinabench.fidelity.targets.target import Target
from retinabench.predictions.formats.npz_format import DAMAGED_ARRAYS, read_member

SCHEMA = "retinabench.fidelity-reference/1"
QUALITIES = ("rhat", "ess_bulk", "ess_tail", "mcse")
EVIDENCE = ("states", "half_states", "history", "half_history", "start")
ARRAYS = (
    *EVIDENCE,
    *QUALITIES,
    "epistemic",
    "chain_probs",
    "samples",
    "pairwise_disagreement",
    "chain_draws",
    "labels",
    "meta",
)

# Mean absolute difference of the means of thinned states from those of all, or of draws; in standard errors where these are larger.
_MEANS, _MEANS_ERRORS = 0.02, 2.0

Floats = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class Reference(ReferenceArrays):
    """The predictions of a posterior with their accuracy, and the verdict on them."""

    @cached_property
    def judgement(self) -> Judgement:
        """The verdict, computed from the arrays."""
        return judge(self)

    @property
    def passed(self) -> bool:
        """Whether it misses no threshold; one that does gives no ranking."""
        return not self.judgement.why

    @property
    def why(self) -> list[str]:
        """The thresholds that it missed, in sentences."""
        return list(self.judgement.why)

    def with_verdict(self) -> Reference:
        """Return a copy that states its verdict, for readers of the file; `read_reference` computes it again."""
        return replace(self, about=self.about.changed(passed=self.passed, why=self.why))

    @property
    def probs(self) -> NDArray[np.float64]:
        """Class probabilities (N, C), the mean over all chains."""
        assert self.chain_probs is not None
        return np.asarray(self.chain_probs.mean(axis=0, dtype=np.float64))

    @property
    def draws(self) -> Floats:
        """Samples of y (N, K m) of all chains."""
        assert self.chain_draws is not None
        return np.concatenate(list(self.chain_draws), axis=1)


def write_reference(path: Path, reference: Reference) -> None:
    """Write a reference file atomically."""
    known = {one.name: getattr(reference, one.name) for one in fields(reference) if one.name != "about"}
    arrays = {name: value for name, value in known.items() if value is not None}
    meta = json.dumps({"schema": SCHEMA, **reference.about.to_dict()}, allow_nan=False)
    with atomic_write(path) as sink:
        np.savez_compressed(sink, meta=np.array(meta), **arrays)


def read_reference(target: Target, data_sha256: str, path: str | Path | None = None) -> Reference:
    """Read a reference."""
    if path is None:
        shipped = resources.files("retinabench.fidelity.reference").joinpath("shipped", f"{target.name}.npz")
        name: str | Path = f"reference of '{target.name}'"
        if target.points:
            hint = f"Import the published predictions: retinabench fidelity import FILE --task {target.name} --out {target.name}.npz"
            raise InputError(f"no predictions of '{target.name}' come with the package", hint=hint)
        if not shipped.is_file():
            raise InputError(
                f"no reference of '{target.name}' comes with the package",
                hint=f"Make one, and name it: retinabench fidelity reference {target.name} --out {target.name}.npz",
            )
        with shipped.open("rb") as stream:
            reference = _read(cast(BinaryIO, stream), name)
    else:
        name = Path(path)
        try:
            with check(name).open("rb") as stream:
                reference = _read(stream, name)
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", file=name) from None
    _check(reference, target, data_sha256, name)
    return reference


def _read(stream: BinaryIO, name: str | Path) -> Reference:
    try:
        with zipfile.ZipFile(stream) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            arrays = {key: read_member(name, archive, members[key], key) for key in ARRAYS if key in members}
        meta = json_object(str(arrays.pop("meta")))
        if meta.pop("schema", None) != SCHEMA:
            raise KeyError(SCHEMA)
        return Reference(ReferenceAbout.model_validate(meta), **arrays)
    except InputError:
        raise
    except (*DAMAGED_ARRAYS, OSError):
        raise InputError(
            "is no reference file",
            file=name,
            hint="`retinabench fidelity reference` writes one.",
        ) from None


def _check(reference: Reference, target: Target, data_sha256: str, name: str | Path) -> None:
    about = reference.about
    if about.task != target.name:
        raise InputError(f"is a reference of the target '{about.task}', not of '{target.name}'", file=name)
    if about.data != data_sha256:
        raise InputError(
            f"was made from other data (SHA-256 {about.data[:12]}…, not {data_sha256[:12]}…), or from the same in "
            "another order",
            file=name,
        )
    if about.target != target.fingerprint(data_sha256):
        raise InputError(
            f"was made for another definition of the target '{target.name}'",
            file=name,
            hint="Make it again by: retinabench fidelity reference",
        )
    _check_arrays(reference, target, name)


def _check_arrays(reference: Reference, target: Target, name: str | Path) -> None:
    """Refuse arrays that are absent, not finite, or not of one number of chains, points and outputs."""
    wanted = "chain_probs" if target.likelihood == "categorical" else "chain_draws"
    values = getattr(reference, wanted)
    if values is None or values.ndim != 3 or values.dtype.kind != "f" or not np.isfinite(values).all():
        raise InputError(f"holds no finite array '{wanted}'", file=name)
    if reference.external:
        _check_external(reference, target, name)
        return
    if len(values) < 2:
        hint = "Make it again with --chains 4."
        raise InputError("holds a single chain, whose own error is not known", file=name, hint=hint)
    chains, points, _ = values.shape
    if reference.chains != chains:
        raise InputError(f"holds {chains} chains, and its metadata say {reference.chains}", file=name)
    shapes = {"epistemic": (points,), **dict.fromkeys(QUALITIES, (points, target.outputs))}
    if target.likelihood == "categorical":
        samples = 0 if reference.samples is None else len(reference.samples)
        shapes["samples"] = (samples, points, target.outputs)
    shapes |= _evidence_shapes(reference, target, chains, points, name)
    for column, shape in shapes.items():
        array = getattr(reference, column)
        if array is None or array.shape != shape or 0 in shape or array.dtype.kind != "f":
            raise InputError(f"is not an array of shape {shape} and numbers", file=name, column=column)
    if reference.states is not None:
        _check_means(reference, name)


def _check_external(reference: Reference, target: Target, name: str | Path) -> None:
    """Refuse an imported reference whose points, classes or labels are not those of the target."""
    values = reference.chain_probs if reference.chain_probs is not None else reference.chain_draws
    assert values is not None
    points = sum(target.points.values())
    if not target.points:
        raise InputError(f"was imported, and '{target.name}' has data of its own", file=name)
    classes = (target.outputs,) if target.likelihood == "categorical" else values.shape[2:]
    if values.shape != (1, points, *classes) or reference.chains != 1:
        raise InputError(f"is not of {points:,} points and {target.outputs} outputs", file=name)
    labels = reference.labels
    if labels is not None and (labels.shape != (points,) or labels.dtype.kind not in "if"):
        raise InputError(f"is not an array of {points:,} numbers", file=name, column="labels")


def _evidence_shapes(
    reference: Reference, target: Target, chains: int, points: int, name: str | Path
) -> dict[str, tuple[int, ...]]:
    """Return the shapes that states and histories must have; nothing of a file without states."""
    present = [column for column in EVIDENCE if getattr(reference, column) is not None]
    if not present:
        return {}
    if len(present) < len(EVIDENCE):
        missing = next(column for column in EVIDENCE if column not in present)
        raise InputError(f"holds {present[0]} and not {missing}", file=name, column=missing)
    tail = (chains, points, target.outputs)
    lengths = {
        column: len(getattr(reference, column)) for column in EVIDENCE if getattr(reference, column).ndim
    }
    if any(lengths.get(column, 0) < 8 for column in ("states", "half_states", "history", "half_history")):
        raise InputError("holds fewer than 8 states of a chain", file=name, column="states")
    return {
        "states": (lengths["states"], *tail), "half_states": (lengths["half_states"], *tail), "start": tail,
        "history": (lengths["history"], 3, chains), "half_history": (lengths["half_history"], 3, chains),
    }  # fmt: skip


def _check_means(reference: Reference, name: str | Path) -> None:
    """Refuse probabilities, or draws, that are not those of the states."""
    assert reference.states is not None
    states = reference.states.astype(np.float64)  # (T, K, N, O)
    means, variances = states.mean(axis=0), states.var(axis=0) / len(states)
    if reference.chain_probs is not None:
        difference = np.abs(means - reference.chain_probs).mean()
    else:
        assert reference.chain_draws is not None
        draws = reference.chain_draws.astype(np.float64)
        difference = np.abs(means[..., 0] - draws.mean(axis=2)).mean()
        variances = variances[..., 0] + draws.var(axis=2) / draws.shape[2]
    if difference > max(_MEANS, _MEANS_ERRORS * np.sqrt(variances).mean()):
        raise InputError(
            f"holds states whose means are {difference:.2g} from those of the predictions", file=name
        )
