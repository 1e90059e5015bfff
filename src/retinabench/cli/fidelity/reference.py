"""`retinabench fidelity reference`: sample the posterior of a target by Hamiltonian Monte Carlo."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from retinabench.cli.application import argument, option, progress_of, say
from retinabench.cli.options import BurnIn, Chains, Device, Keep, Seed, Silent, TargetFolder
from retinabench.core.errors import InputError

if TYPE_CHECKING:
    from retinabench.fidelity.reference.reference_file import Reference

Step = Annotated[float | None, option("--step", "X", "First step size; default: searched for.", min=1e-9)]
Acceptance = Annotated[
    float,
    option(
        "--acceptance",
        "X",
        "Rate that burn-in adapts the step to; higher: a smaller step.",
        min=0.5,
        max=0.98,
    ),
]


def reference(
    task: Annotated[str, argument("TARGET", "A target: fundus, energy-gap, …")],
    out: Annotated[Path, option("--out", "FILE", "File to write, such as fundus.npz.")],
    data: TargetFolder = None,
    chains: Chains = 4,
    burn_in: BurnIn = 50,
    keep: Keep = 150,
    step: Step = None,
    acceptance: Acceptance = 0.7,
    seed: Seed = 0,
    dtype: Annotated[
        Literal["float32", "float64"], typer.Option("--dtype", help="Precision of the chains.")
    ] = "float32",
    device: Device = "auto",
    threads: Annotated[
        int, option("--threads", "N", "On processors; the chains do not depend on it.", min=1)
    ] = 1,
    quiet: Silent = False,
) -> None:
    """Sample a target's posterior by Hamiltonian Monte Carlo, check the chains, and write the reference.

    The chains are in OUT.chains. Repeat the command to continue a killed run, or with a larger --keep to lengthen the
    chains. A reference that misses a threshold is written and marked; it gives no ranking.
    """
    from retinabench.experiments.resources import Resources
    from retinabench.fidelity.reference import quadrature
    from retinabench.fidelity.reference.make_reference import make_reference
    from retinabench.fidelity.reference.reference_file import write_reference
    from retinabench.fidelity.targets.data import load
    from retinabench.fidelity.targets.registry import TARGETS

    if out.is_dir():
        raise InputError("is a folder", file=out, hint="Name the file to write, such as fundus.npz.")
    chosen = TARGETS.find(task)
    if quadrature.known(chosen):
        exact = quadrature.quadrature_reference(
            chosen, load(chosen, data), seed, shlex.join(["retinabench", *sys.argv[1:]])
        )
        write_reference(out, exact)
        say(f"{out}: by quadrature, two grids agree to {exact.about.error:.1g}")
        return
    found = make_reference(
        chosen,
        load(chosen, data),
        out.with_name(f"{out.name}.chains"),
        chains=chains,
        burn_in=burn_in,
        keep=keep,
        step=step,
        acceptance=acceptance,
        seed=seed,
        dtype=dtype,
        device=str(Resources(device).torch_device()),
        threads=threads,
        command=shlex.join(["retinabench", *sys.argv[1:]]),
        progress=progress_of(quiet),
    )
    write_reference(out, found)
    _print_summary(found, out, f"{task}: {chains} chains of {keep} after {burn_in}")


def _print_summary(found: Reference, out: Path, title: str) -> None:
    about = found.about
    assert about.energy_error is not None
    rates = ", ".join(f"{rate:.0%}" for rate in about.acceptance or ())
    say(f"{title}, {about.steps} steps of {about.step:.3g}")
    say(f"acceptance {rates}; mean energy error {about.energy_error.mean:.2f}")
    say(
        f"R-hat below 1.05 for {about.rhat_below['1.05']:.1%} of the predictions; effective draws {about.ess_bulk['median']:.0f} "
        f"(median); standard error {about.mcse['median']:.4f} (median), {about.mcse['q95']:.4f} (95 %)"
    )
    for kind, measures in about.ceiling.items():
        means = ", ".join(f"{name} {sum(v) / len(v):.4f}" for name, v in measures.items())
        if means:
            say(f"one chain against the others, {kind}: {means}")
    for reason in found.why:
        say(f"FAILED: {reason}")
    for reservation in found.judgement.reservations:
        say(f"reservation: {reservation}")
    say(f"{out}: {'passed' if found.passed else 'failed its own diagnostics and gives no ranking'}")
