"""The choice of an engine and of its resources, from the options of a command."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Literal

import torch

from retinabench.core.errors import InputError
from retinabench.core.progress import Progress
from retinabench.core.subprocesses import cores
from retinabench.experiments.engines.jobs import JobEngine
from retinabench.experiments.engines.local import LocalEngine
from retinabench.experiments.engines.ray_cluster import ray_engine
from retinabench.experiments.resources import Resources


def make_engine(
    name: Literal["local", "ray"],
    *,
    parallel: int | None,
    device: str,
    address: str | None,
    cpus: float,
    gpus: float,
    storage: str | None,
    attempts: int,
    progress: Progress,
    readers: int | None = None,
) -> JobEngine:
    """Return an engine; nothing is started before it has jobs.

    Args:
        name: `local` or `ray`.
        parallel: Runs at a time; None for as many as there is room for.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        address: Of a Ray cluster; None starts one on this machine.
        cpus: CPUs of each run; a run computes with floor(cpus) threads, at least one, on which its bits depend.
        gpus: GPUs of each run: a part of one, or several that train it together; 0 with the device `auto` means one where there are any.
        storage: URL through which the results of a Ray cluster travel; None where all nodes share the folder.
        attempts: How often a run that fails is started.
        progress: Shows how far the work is.
        readers: Processes of each run that read images ahead; None: as `Resources` chooses.

    Returns:
        The engine.

    Raises:
        InputError: An option is impossible, or Ray is not installed.
    """
    if parallel is not None and parallel < 1:
        raise InputError(f"the number of parallel runs is {parallel}", hint="It is at least 1.")
    if attempts < 1:
        raise InputError(f"the number of attempts is {attempts}", hint="It is at least 1.")
    if not (cpus > 0 and gpus >= 0 and (gpus <= 1 or gpus == int(gpus))):
        raise InputError(
            f"a run cannot take {cpus:g} CPUs and {gpus:g} GPUs",
            hint="It takes more than 0 CPUs, and a part of a GPU or a whole number of them.",
        )
    if gpus > 0 and device == "cpu":
        raise InputError("a run on the CPU takes no GPU", hint="Leave out --gpus, or --device.")
    if name == "ray":
        return ray_engine(
            parallel=parallel,
            device=device,
            address=address,
            cpus=cpus,
            gpus=gpus,
            storage=storage,
            attempts=attempts,
            progress=progress,
            readers=readers,
        )
    if address is not None or storage is not None:
        option = "--address" if address is not None else "--storage"
        raise InputError(f"{option} is for --engine ray", hint=f"Leave out {option}, or add --engine ray.")
    return replace(_local(parallel, device, cpus, gpus, attempts, progress), readers=readers)


def precision_of(name: Literal["local", "ray"], device: str, gpus: float) -> Literal["bfloat16"] | None:
    """Return the precision of runs whose settings name none, which is that of the GPUs that compute them.

    Args:
        name: `local` or `ray`; the GPUs of a cluster are not asked, and taken to have bfloat16.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        gpus: GPUs of each run.
    """
    if name == "local":
        return Resources(device).precision()
    return "bfloat16" if gpus > 0 or device.startswith("cuda") else None


def _local(
    parallel: int | None, device: str, cpus: float, gpus: float, attempts: int, progress: Progress
) -> LocalEngine:
    present = visible_gpus() if device in ("auto", "cuda") else []
    if gpus > 0 and not present:
        raise InputError("no GPU here", hint="Leave out --gpus.")
    if gpus > len(present):
        raise InputError(
            f"a run of {gpus:g} GPUs does not fit: {len(present)} {'is' if len(present) == 1 else 'are'} here",
            hint=f"Give --gpus {len(present)}, or less.",
        )
    each = max(1, int(gpus))  # GPUs that train one run together
    groups = [",".join(present[first : first + each]) for first in range(0, len(present) - each + 1, each)]
    runs = int(1 / gpus + 1e-9) if 0 < gpus < 1 else 1  # that share one GPU
    assigned = [group for group in groups for _ in range(runs)]
    places = parallel or len(assigned) or max(1, int(cores() / cpus))
    if gpus > 0:  # otherwise more runs than GPUs share them where it was asked for
        places = min(places, len(assigned))
    assigned = [assigned[place % len(assigned)] for place in range(places)] if present else []
    return LocalEngine(places, max(1, int(cpus)), device, assigned, attempts, progress, each)


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return chosen.split(",")[:count] if chosen else [str(number) for number in range(count)]
