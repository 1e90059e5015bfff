"""The file of a reference: its arrays, the verdict on them, and where those that come along are.

    classification   chain_probs (K, N, C) float64, the mean of each chain; samples (S, N, C) float16, equally many of each
                     chain, in chain order; pairwise_disagreement ()
    regression       chain_draws (K, N, m) float32: samples of y, noise included, in the standardised unit
    external         chain_probs or chain_draws of one "chain", and labels (N,) where they are known; of the others NaN
    both             states (T, K, N, O) and half_states float16, the predictions of the kept states and of those at half the
                     step, all or evenly thinned; history and half_history (T, 3, K): acceptance probability, acceptance and
                     energy error; start (K, N, O), the predictions before the first transition (files of version 0.1 lack
                     these five); rhat, ess_bulk, ess_tail, mcse (N, O) of class probabilities, or of mean and std;
                     epistemic (N,): mutual information in nats, or the std of the predicted mean; meta, JSON

The verdict comes from the arrays. A file that keeps the states of its chains is judged by them alone: every diagnostic is computed
again. Of earlier files R-hat is computed again from the means of chains and samples, and the worse of it and the stated one
counts; acceptance, energy errors and the comparison with half the step are taken from their metadata: such a reference is provisional
at best.

The chains come with `retinabench-references` (`packaged`). Of a classification the package itself has an extract: the
means of the chains and their errors, with the verdict on the whole file.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, StrictInt

from retinabench.core.errors import InputError, check, json_object
from retinabench.core.files import atomic_write
from retinabench.core.results import JsonObject
from retinabench.core.settings import Frozen
from retinabench.fidelity.reference import convergence
from retinabench.fidelity.reference.convergence import (
    THRESHOLDS,
    Diagnosis,
    EnergyErrors,
    HalfStep,
    Values,
    share_below,
)
from retinabench.fidelity.targets.target import Target
from retinabench.predictions.io import DAMAGED_ARRAYS, read_member

INSTALL = "pip install 'retinabench[references]'"
Floats = NDArray[np.floating]
Count = Annotated[int, Field(ge=0, lt=2**63)]


class ReferenceAbout(Frozen):
    """What a reference says of itself, as far as it does; entries of other names are kept."""

    model_config = ConfigDict(extra="allow")

    task: str
    target: str
    data: str
    chains: StrictInt
    kind: Literal["sampled", "quadrature", "external"] = "sampled"
    command: str | None = None
    passed: bool | None = None
    why: tuple[str, ...] | None = None
    seed: int | None = None
    burn_in: Count | None = None
    kept: Count | None = None
    step: float | None = None
    steps: Count | None = None
    prior_variance: float | None = None
    start: str | None = None
    acceptance: tuple[float, ...] | None = None
    energy_error: EnergyErrors | None = None
    half_step: HalfStep | None = None
    thresholds: Mapping[str, int | float | tuple[float, ...] | Mapping[str, float]] | None = None
    rhat: Mapping[str, float] = {}
    split_rhat: Mapping[str, float] = {}
    ess_bulk: Mapping[str, float] = {}
    ess_tail: Mapping[str, float] = {}
    mcse: Mapping[str, float] = {}
    rhat_below: Mapping[str, float] = {}
    weight_rhat: Mapping[str, float] = {}
    weight_split_rhat: Mapping[str, float] = {}
    gradients: Count | None = None
    ceiling: Mapping[str, Mapping[str, tuple[float, ...]]] = {}
    dtype: str | None = None
    threads: int | None = None
    seconds: float | None = None
    machine: str | None = None
    grids: tuple[int, int] | None = None
    error: float | None = None
    origin: str | None = None
    licence: str | None = None
    order: str | None = None
    published_ceiling: Mapping[str, float] | None = None
    accuracy: float | None = None

    @property
    def chain_gradients(self) -> float | None:
        """Gradient evaluations per training example of one chain, burn-in included; None where it has no such chains."""
        if self.burn_in is None or self.kept is None or self.steps is None:
            return None
        return float((self.burn_in + self.kept) * self.steps)

    def changed(self, **entries: Any) -> ReferenceAbout:
        """Return a copy with other entries."""
        return ReferenceAbout(**{**{name: value for name, value in self if name in self.model_fields_set}, **entries})

    def to_dict(self) -> JsonObject:
        """Return what is said, as JSON; what it does not say is left out."""
        return self.model_dump(mode="json", exclude_unset=True, exclude_none=True)


@dataclass(frozen=True, eq=False)
class Reference:
    """The predictions of a posterior with their accuracy, as the top of the file lists them, what it says of itself, and the verdict."""

    about: ReferenceAbout
    rhat: Floats
    ess_bulk: Floats
    ess_tail: Floats
    mcse: Floats
    epistemic: Floats
    chain_probs: Floats | None = None
    samples: Floats | None = None
    pairwise_disagreement: Floats | None = None
    chain_draws: Floats | None = None
    states: Floats | None = None
    half_states: Floats | None = None
    history: Floats | None = None
    half_history: Floats | None = None
    start: Floats | None = None
    labels: NDArray[Any] | None = None

    @property
    def external(self) -> bool:
        """Whether it was imported, without chains."""
        return self.about.kind == "external"

    @property
    def chains(self) -> int:
        return self.about.chains

    @cached_property
    def judgement(self) -> Judgement:
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
        return np.asarray(chains_of(self).mean(axis=0, dtype=np.float64))

    @property
    def draws(self) -> Floats:
        """Samples of y (N, K m) of all chains."""
        return np.concatenate(list(chains_of(self)), axis=1)


def chains_of(reference: Reference) -> Floats:
    """Return what each chain predicts: probabilities (K, N, C), or draws of y (K, N, m)."""
    chains = reference.chain_draws if reference.chain_probs is None else reference.chain_probs
    assert chains is not None
    return chains


def predictive(reference: Reference) -> Floats:
    """Return what all chains predict together: probabilities (N, C), or draws of y (N, K m)."""
    return reference.draws if reference.chain_probs is None else reference.probs


def later_verdict(likelihood: str, errors: EnergyErrors, found_change: float, width: float | None) -> list[str]:
    """Return the reasons by divergences, the power of the comparison with half the step, and the starts, in sentences."""
    limit, why = THRESHOLDS, []
    if not errors.diverged <= limit.diverged:
        why.append(
            f"{errors.diverged:.1%} of the trajectories diverge, more than {limit.diverged:.0%}: where the posterior is "
            "narrow the step is too large; use a smaller one"
        )
    if not found_change <= limit.detectable[likelihood]:
        why.append(
            f"the comparison with half the step would find a change of {found_change:.2g} four times in five, not one of "
            f"{limit.detectable[likelihood]:g}; keep more transitions"
        )
    if width is not None and not width >= limit.dispersion:
        why.append(
            f"the chains start {width:.2f} times as far apart as the posterior is wide; over-dispersed starts are needed"
        )
    return why


def verdict(
    likelihood: str, chains: int, found: Diagnosis, acceptance: Values, errors: EnergyErrors, half: HalfStep
) -> list[str]:
    """Return the reasons why a reference is not good enough, in sentences; an empty list where it is."""
    limit, why = THRESHOLDS, []
    if chains < limit.chains:
        why.append(f"{chains} chains; at least {limit.chains} are needed to tell whether they agree")
    share = share_below(found.rhat, limit.rank_rhat)
    if share < limit.rank_rhat_share:
        why.append(
            f"the chains disagree: R-hat is below {limit.rank_rhat} for {share:.1%} of the predictions, not for "
            f"{limit.rank_rhat_share:.0%}; keep more transitions"
        )
    low, high = limit.acceptance
    for chain, rate in enumerate(acceptance):
        if not low <= rate <= high:
            hint = "smaller" if rate < low else "larger"
            why.append(f"chain {chain} accepts {rate:.0%} of its proposals; a {hint} step is needed")
    if errors.gap > limit.energy:
        why.append(
            f"{errors.acceptance:.1%} of the proposals are accepted, though {errors.falling:.1%} lower the energy: a "
            f"chain in equilibrium accepts twice as many ({errors.gap:.1f} standard errors off); burn in longer"
        )
    known = found.mcse[~np.isnan(found.mcse)]  # NaN where no chain moves
    worst = float(np.quantile(known, 0.95)) if known.size else np.inf
    if worst > limit.mcse[likelihood]:
        why.append(
            f"the predictions are known to {worst:.3f} (95 % of their standard errors), not to {limit.mcse[likelihood]}"
        )
    if half.acceptance < half.acceptance_before - 0.05:
        why.append("half the step is accepted less often: the density is not smooth at this precision")
    if half.beyond > limit.half_step_share:
        why.append(
            f"at half the step {half.beyond:.1%} of the predictions move by more than {limit.half_step_z:.0f} "
            "standard errors: the step is too large"
        )
    return why


Verdict = Literal["passed", "provisional", "failed", "unverified"]

LACKING = (
    "it keeps too few states to compute its diagnostics again, so that acceptance, energy errors and the comparison with half the "
    "step stand on its metadata"
)

NO_STARTS = "its chains started from half a draw of the prior each, nearer together than the posterior is wide"
_GRIDS = 1e-5  # greatest difference of probabilities between two grids
_LEAST_VARIANCE = 1e-8  # of a chain's states, above the rounding of float16 samples
_STATED_ERRORS = 4.0  # largest ratio of the variance of the chains' mean to the one stated


@dataclass(frozen=True)
class Judgement:
    """Why a reference gives no ranking, and what else is to be known of it, in sentences."""

    why: tuple[str, ...] = ()
    reservations: tuple[str, ...] = ()
    external: bool = False

    @property
    def verdict(self) -> Verdict:
        if self.external:
            return "unverified"
        return "failed" if self.why else "provisional" if self.reservations else "passed"


def judge(reference: Reference) -> Judgement:
    if reference.external:
        return Judgement(reservations=("it was imported: its convergence was not checked",), external=True)
    if reference.about.kind == "quadrature":
        return _of_grids(reference)
    likelihood = "categorical" if reference.chain_probs is not None else "gaussian"
    if reference.states is not None:
        return Judgement(tuple(_of_states(reference, likelihood)))
    return _of_summaries(reference, likelihood)


def _of_grids(reference: Reference) -> Judgement:
    """Return whether the integrals on two grids agree."""
    if reference.chain_probs is None or len(reference.chain_probs) != 2:
        return Judgement(("it holds no integrals on two grids",))
    error = float(np.abs(np.diff(reference.chain_probs, axis=0)).max())
    why = f"the integrals on two grids differ by {error:.2g}, more than {_GRIDS:g}"
    return Judgement((why,) if error > _GRIDS else ())


def _of_states(reference: Reference, likelihood: str) -> list[str]:
    states, half, history, after, start = (getattr(reference, name) for name in EVIDENCE)
    found = convergence.diagnose(states)
    errors = convergence.energy(history.astype(np.float64))
    halved = convergence.half_step(states, history, half, after, found.mcse)
    why = verdict(likelihood, states.shape[1], found, history[:, 0].mean(axis=0), errors, halved)
    detectable = convergence.detectable(found.mcse, len(states) / len(half))
    return why + later_verdict(likelihood, errors, detectable, convergence.dispersion(start, states))


def _of_summaries(reference: Reference, likelihood: str) -> Judgement:
    """Judge an earlier file: its arrays where they suffice, else the numbers of its metadata."""
    about = reference.about
    if reference.samples is not None and len(reference.samples) < 2 * reference.chains:
        return Judgement(("it keeps fewer than two samples of each chain",))
    between, within = _variances(reference)
    rhat = np.sqrt(1 + between / np.maximum(within, _LEAST_VARIANCE))
    known = (np.fmax(reference.rhat, rhat), reference.rhat, reference.ess_bulk, reference.ess_tail, reference.mcse)
    diagnosis = convergence.Diagnosis(*(np.asarray(values, np.float64) for values in known))
    errors, halved = about.energy_error, about.half_step
    if about.acceptance is None or about.kept is None or errors is None or not (halved and halved.transitions):
        return Judgement(("it states no acceptance, energy errors or comparison with half the step",))
    why = verdict(likelihood, len(between), diagnosis, np.array(about.acceptance), errors, halved)
    if likelihood == "categorical":
        ratio = float((between.mean() / reference.chains) / np.mean(np.square(diagnosis.mcse)))
        if not ratio <= _STATED_ERRORS:
            why.append(f"the means of its chains vary {ratio:.0f} times as much as its standard errors allow")
    detectable = convergence.detectable(diagnosis.mcse, about.kept / halved.transitions)
    why += later_verdict(likelihood, errors, detectable, None)
    return Judgement(tuple(why), (LACKING, NO_STARTS))


def _variances(reference: Reference) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the variance of the chains' means, and the mean variance within chains: (N, O), or (N, 1) of y."""
    if reference.chain_probs is not None:
        assert reference.samples is not None
        chains, parts = reference.chain_probs, np.array_split(reference.samples, reference.chains)
        within = np.mean([part.var(axis=0, ddof=1, dtype=np.float64) for part in parts if len(part) > 1], axis=0)
        return chains.var(axis=0, ddof=1), within
    draws = chains_of(reference)
    means = draws.mean(axis=2, dtype=np.float64)
    return means.var(axis=0, ddof=1)[:, None], draws.var(axis=2, ddof=1, dtype=np.float64).mean(axis=0)[:, None]


def packaged(folder: str) -> Path | None:
    """Return a folder of the distribution `retinabench-references`, None where it is not installed."""
    spec = find_spec("retinabench_references")
    locations = spec.submodule_search_locations if spec else None
    return Path(locations[0]) / folder if locations else None


SCHEMA = "retinabench.fidelity-reference/1"
QUALITIES = ("rhat", "ess_bulk", "ess_tail", "mcse")
EVIDENCE = ("states", "half_states", "history", "half_history", "start")

ARRAYS = (
    *EVIDENCE, *QUALITIES, "epistemic", "chain_probs", "samples", "pairwise_disagreement", "chain_draws", "labels",
    "meta",
)  # fmt: skip

# Mean absolute difference of the means of thinned states from those of all, or of draws; in standard errors where these are larger.
_MEANS, _MEANS_ERRORS = 0.02, 2.0


@dataclass(frozen=True, eq=False)
class Extract(Reference):
    """A reference of the package without its chains: the verdict on them is stated."""

    stated: Judgement = Judgement()

    @property
    def note(self) -> str:
        """What scoring lacks without the chains."""
        return (
            f"the chains of '{self.about.task}' are not installed: no measures of epistemic uncertainty, no exact draws, no search for "
            f"their samples in submissions, no baselines. Install them by: {INSTALL}"
        )

    @cached_property
    def judgement(self) -> Judgement:
        return self.stated


def write_reference(path: Path, reference: Reference) -> None:
    known = ((one.name, getattr(reference, one.name)) for one in fields(Reference) if one.name != "about")
    arrays = {name: value for name, value in known if value is not None}
    meta = json.dumps({"schema": SCHEMA, **reference.about.to_dict()}, allow_nan=False)
    with atomic_write(path) as sink:
        np.savez_compressed(sink, meta=np.array(meta), **arrays)


def write_extract(path: Path, reference: Reference) -> None:
    """Write the arrays of a classification without its chains and samples, and the verdict on them."""
    judgement = {"why": reference.judgement.why, "reservations": reference.judgement.reservations}
    left_out: dict[str, Any] = dict.fromkeys(("samples", *EVIDENCE))
    write_reference(path, replace(reference, about=reference.about.changed(judgement=judgement), **left_out))


def read_reference(target: Target, data_sha256: str, path: str | Path | None = None) -> Reference:
    if path is None:
        return _read_packaged(target, data_sha256)
    name = Path(path)
    try:
        with check(name, named=True).open("rb") as stream:
            reference = _read(stream, name)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=name) from None
    _check(reference, target, data_sha256, name)
    _check_arrays(reference, target, name)
    return reference


def _read_packaged(target: Target, data_sha256: str) -> Reference:
    """Read the reference of `retinabench-references`, or the extract of it."""
    name = f"reference of '{target.name}'"
    if target.points:
        hint = f"Import the published predictions: retinabench fidelity import FILE --task {target.name} --out {target.name}.npz"
        raise InputError(f"no predictions of '{target.name}' come with the package", hint=hint)
    extract = Path(__file__).parent / "shipped" / f"{target.name}-means.npz"
    whole = (packaged("chains") or extract.parent) / f"{target.name}.npz"
    file = whole if whole.is_file() else extract
    if not file.is_file():
        made = f"retinabench fidelity reference {target.name} --out {target.name}.npz"
        hint = f"Those that come along: {INSTALL}. Others are made, and named: {made}"
        raise InputError(f"no reference of '{target.name}' is installed", hint=hint)
    with check(file).open("rb") as stream:
        reference = _read(stream, name, extract=file == extract)
    if file == whole:
        _check_arrays(reference, target, name)
    _check(reference, target, data_sha256, name)
    return reference


def _read(stream: BinaryIO, name: str | Path, *, extract: bool = False) -> Reference:
    """Read a file; the verdict that it states counts for an extract of the package alone."""
    try:
        with zipfile.ZipFile(stream) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            arrays = {key: read_member(name, archive, members[key], key) for key in ARRAYS if key in members}
        meta = json_object(str(arrays.pop("meta")))
        if meta.pop("schema", None) != SCHEMA:
            raise KeyError(SCHEMA)
        stated = meta.pop("judgement", None)
        about = ReferenceAbout.model_validate(meta)
        if not extract:
            return Reference(about, **arrays)
        return Extract(about, **arrays, stated=Judgement(tuple(stated["why"]), tuple(stated["reservations"])))
    except InputError:
        raise
    except (*DAMAGED_ARRAYS, OSError):
        hint = "`retinabench fidelity reference` writes one."
        raise InputError("is not a reference file", file=name, hint=hint) from None


def _check(reference: Reference, target: Target, data_sha256: str, name: str | Path) -> None:
    about = reference.about
    if about.task != target.name:
        raise InputError(f"is a reference of the target '{about.task}', not of '{target.name}'", file=name)
    if about.data != data_sha256:
        other = f"other data (SHA-256 {about.data[:12]}…, not {data_sha256[:12]}…)"
        raise InputError(f"was made from {other}, or from the same in another order", file=name)
    if about.target != target.fingerprint(data_sha256):
        hint = "Make it again by: retinabench fidelity reference"
        raise InputError(f"was made for another definition of the target '{target.name}'", file=name, hint=hint)


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
        shapes["samples"] = (0 if reference.samples is None else len(reference.samples), points, target.outputs)
    shapes |= _evidence_shapes(reference, target, chains, points, name)
    for column, shape in shapes.items():
        array = getattr(reference, column)
        if array is None or array.shape != shape or 0 in shape or array.dtype.kind != "f":
            raise InputError(f"is not an array of shape {shape} and numbers", file=name, column=column)
    if reference.states is not None:
        _check_means(reference, name)


def _check_external(reference: Reference, target: Target, name: str | Path) -> None:
    """Refuse an imported reference whose points, classes or labels are not those of the target."""
    values, points, labels = chains_of(reference), sum(target.points.values()), reference.labels
    if not target.points:
        raise InputError(f"was imported, and '{target.name}' has data of its own", file=name)
    classes = (target.outputs,) if target.likelihood == "categorical" else values.shape[2:]
    if values.shape != (1, points, *classes) or reference.chains != 1:
        raise InputError(f"is not of {points:,} points and {target.outputs} outputs", file=name)
    if labels is not None and (labels.shape != (points,) or labels.dtype.kind not in "if"):
        raise InputError(f"is not an array of {points:,} numbers", file=name, column="labels")


def _evidence_shapes(
    reference: Reference, target: Target, chains: int, points: int, name: str | Path
) -> dict[str, tuple[int, ...]]:
    """Return the shapes that states and histories must have; nothing of a file without states."""
    present = {column: array for column in EVIDENCE if (array := getattr(reference, column)) is not None}
    if not present:
        return {}
    if missing := [column for column in EVIDENCE if column not in present]:
        raise InputError(f"holds {next(iter(present))} and not {missing[0]}", file=name, column=missing[0])
    tail = (chains, points, target.outputs)
    lengths = {column: len(array) for column, array in present.items() if array.ndim}
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
        draws = chains_of(reference).astype(np.float64)
        difference = np.abs(means[..., 0] - draws.mean(axis=2)).mean()
        variances = variances[..., 0] + draws.var(axis=2) / draws.shape[2]
    if difference > max(_MEANS, _MEANS_ERRORS * np.sqrt(variances).mean()):
        raise InputError(f"holds states whose means are {difference:.2g} from those of the predictions", file=name)
