"""The Ray engine: jobs on a cluster that is running, or on a local one that ends with the command.

A job is idempotent, so Ray's own retries are not used: what a lost worker or node was computing is started again by
`scheduler.py`. Ray is given few more jobs than the cluster has room for. Results travel through the folder of the job, on a
file system that all nodes share, or through a `Storage` that fsspec reaches, where `done` is written last.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from retinabench.core.errors import QUIET, InputError, Progress, WorkError, open_in_place, printable, read_checksums
from retinabench.core.errors import check as check_file
from retinabench.core.files import atomic_write, settle, write_bytes
from retinabench.core.subprocesses import environment, sleeping_threads
from retinabench.experiments.engines.scheduler import Job, JobResult, Outcome, ScheduledJob, compute
from retinabench.experiments.engines.worker import JobRequest, execute_request, host, request_for, run_request

LEFT = "last.pt"  # the state from which a training is continued; a finished run needs none
DONE = "done"
MOST_LOG = 50_000  # bytes of a log that travel with a result: Ray sends as many in a message, without its object store


class Storage:
    """The folder behind a URL, such as s3://bucket/sweep; every call may raise what its file system raises."""

    def __init__(self, url: str) -> None:
        import fsspec  # of the extra `cluster`

        self._files, self._root = fsspec.core.url_to_fs(url)

    def has(self, name: str) -> bool:
        self._files.invalidate_cache()  # others store, too
        return bool(self._files.exists(self._path(name, DONE)))

    def put(self, folder: Path) -> None:
        if self.has(folder.name):
            return
        self._files.makedirs(self._path(folder.name), exist_ok=True)
        files = [path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")]
        for name in (*sorted(set(files) - {LEFT, DONE}), DONE):
            place = self._path(folder.name, name)
            with open(check_file(folder / name), "rb") as source, self._files.open(place, "wb") as sink:
                shutil.copyfileobj(source, sink, 2**20)

    def get(self, folder: Path) -> None:
        self._files.invalidate_cache()
        found = self._files.ls(self._path(folder.name), detail=False)
        for name in sorted({PurePosixPath(path).name for path in found} - {DONE}):
            with self._files.open(self._path(folder.name, name), "rb") as source, atomic_write(folder / name) as sink:
                shutil.copyfileobj(source, sink, 2**20)
        settle(folder)  # what was not stored needs no checksum
        for name in read_checksums(folder):
            check_file(folder / name)
        write_bytes(folder / DONE, b"")

    def try_out(self) -> str:
        """Write a small file and delete it again; return the URL with its scheme, and from the root."""
        path = self._path(f".{secrets.token_hex(4)}")
        self._files.makedirs(self._root, exist_ok=True)
        self._files.pipe_file(path, b"")
        self._files.rm_file(path)
        return str(self._files.unstrip_protocol(self._root))

    def _path(self, *parts: str) -> str:
        return "/".join((self._root.rstrip("/"), *parts))


def checked_url(url: str) -> str:
    """Return the URL in full, for use on other machines; raise `InputError` where it cannot be written to."""
    try:
        return Storage(url).try_out()
    except Exception as error:  # every file system has exceptions of its own
        hint = "Give a URL such as s3://bucket/folder, with its fsspec package installed and its credentials set."
        raise InputError(f"cannot be written to ({type(error).__name__}: {error})", file=url, hint=hint) from None


def end_of(log: Path) -> bytes:
    with open(check_file(log), "rb") as file:
        cut = file.seek(0, os.SEEK_END) > MOST_LOG
        file.seek(-MOST_LOG if cut else 0, os.SEEK_END if cut else os.SEEK_SET)
        content = file.read()
    return b"...\n" + content.partition(b"\n")[2] if cut else content


def run_on_local_disk(url: str, request: JobRequest, needs: Sequence[str]) -> tuple[JobResult, bytes]:
    """Compute a job on this machine's own disk, where a second start continues, and store its folder."""
    name = request.folder.name
    here = Path(tempfile.gettempdir()) / f"retinabench-{getpass.getuser()}" / name

    def work(request: JobRequest) -> None:
        storage = Storage(url)
        if storage.has(name):
            return
        for member in needs:
            storage.get(here / member)
        execute_request(request)
        storage.put(request.folder)

    moved = replace(request, folder=here / name, log=here / "log")
    ended = run_request(moved, work)
    log = end_of(moved.log) if ended.state != "done" else b""
    shutil.rmtree(here, ignore_errors=True)
    return ended, log


AHEAD = 2  # jobs given to Ray per job that the cluster has room for, so that its autoscaler sees demand
LOOK = 5.0  # seconds between two looks at the cluster
PATIENCE = 30.0  # seconds without an answer until it is given up; Ray itself would end this process after 60
SETTLES = 90.0  # seconds within which a shared file system shows what another node has written
OBJECTS = 100 * 2**20  # bytes for the object store of a local cluster; nothing goes through it


@dataclass(frozen=True)
class RayEngine:
    """Each run takes `cpus` and `gpus`, and computes with floor(cpus) threads, at least one, in a process for each whole GPU.

    address: of a cluster; None: a local one. parallel: runs at a time; None: as many as fit. storage: a URL through
    which results travel; None: the folder of the job is shared by all nodes.
    """

    address: str | None = None
    parallel: int | None = None
    cpus: float = 1.0
    gpus: float = 0.0
    device: str = "auto"
    storage: str | None = None
    attempts: int = 2
    progress: Progress = QUIET
    readers: int | None = None

    def compute(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        return compute(jobs, lambda: contextlib.closing(Cluster(self)), self.attempts, self.progress)


class Cluster:
    """A connection to Ray, and the jobs that it was given."""

    def __init__(self, engine: RayEngine) -> None:
        self._engine = engine
        self._ray = import_ray()
        self._ours = not self._ray.is_initialized()
        if self._ours:
            connect(self._ray, engine.address)
        self._given: dict[Any, tuple[ScheduledJob, float]] = {}
        self._storage = Storage(engine.storage) if engine.storage else None
        wants_gpu = engine.gpus == 0 and engine.device != "cpu" and "GPU" in self._ray.cluster_resources()
        self._gpus = 1.0 if wants_gpu else engine.gpus
        if engine.device == "cuda" and not self._gpus:
            raise InputError("the cluster has no GPU", hint="Give the GPUs of a run to come with --gpus 1.")
        function = run_on_local_disk if engine.storage else run_request
        self._remote = self._ray.remote(max_retries=0, num_cpus=engine.cpus, num_gpus=self._gpus)(function)
        self._heard, self._slots = time.monotonic(), self._count_slots()
        if not self._slots:
            engine.progress.say(f"no node has {engine.cpus:g} CPUs and {self._gpus:g} GPUs; waiting for one")
        self._closed = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def room(self) -> int:
        return (self._engine.parallel or max(1, AHEAD * self._slots)) - len(self._given)

    def start(self, job: ScheduledJob, number: int) -> None:
        engine = self._engine
        device = ("cuda" if self._gpus else "cpu") if engine.device == "auto" else engine.device
        threads, processes = max(1, int(engine.cpus)), max(1, int(self._gpus))
        arguments: tuple[Any, ...] = (request_for(job, number, device, threads, processes, engine.readers),)
        if engine.storage:
            arguments = (engine.storage, *arguments, [folder.name for folder in job.needs])
        given = self._remote.options(name=job.folder.name).remote(*arguments)
        self._given[given] = job, time.monotonic()

    def ended(self) -> list[tuple[ScheduledJob, JobResult]]:
        ready: list[Any] = []
        while not ready:
            given = list(self._given)
            ready, _ = self._ray.wait(given, num_returns=1, timeout=LOOK, fetch_local=False)
            if not ready and not self._alive():
                again = "Start one and repeat the command: it continues with what is not done."
                raise WorkError(f"the Ray cluster is gone. {again}")
        ready, _ = self._ray.wait(given, num_returns=len(given), timeout=0, fetch_local=False)
        return [self._end(one) for one in ready]

    def close(self) -> None:
        """Stop what is computed, and leave the cluster."""
        self._closed.set()
        self._watcher.join(timeout=LOOK)
        if self._alive():
            for given in self._given:
                self._ray.cancel(given, force=True)
        if self._ours:
            self._ray.shutdown()

    def _end(self, given: Any) -> tuple[ScheduledJob, JobResult]:
        job, began = self._given.pop(given)
        errors = self._ray.exceptions
        try:
            ended = self._ray.get(given)
        except (errors.NodeDiedError, errors.LocalRayletDiedError):
            return job, JobResult("failed", message="its node is gone", lost=True)
        except errors.RayError as error:
            scarce = isinstance(error, errors.OutOfMemoryError)
            message = f"{type(error).__name__}: {_first_line(error)}"
            return job, JobResult("out_of_memory" if scarce else "failed", time.monotonic() - began, message)
        return job, self._collect(self._storage, job, *ended) if self._storage else self._shared(job, ended)

    def _collect(self, storage: Storage, job: ScheduledJob, ended: JobResult, log: bytes) -> JobResult:
        if ended.state == "done":
            try:
                storage.get(job.folder)
            except Exception as error:  # every file system has exceptions of its own
                return JobResult("failed", ended.seconds, f"not fetched ({type(error).__name__}: {error})")
        else:
            job.log.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(open_in_place(job.log, os.O_WRONLY | os.O_APPEND), "ab") as file:
                file.write(log)
        return ended

    def _shared(self, job: ScheduledJob, ended: JobResult) -> JobResult:
        """Wait until the shared file system shows here what was written there."""
        began = time.monotonic()
        while ended.state == "done" and not job.done:
            if time.monotonic() - began > SETTLES:
                hint = "Choose an --out on a file system that all nodes share, or add --storage."
                raise InputError(f"a node has finished it, but it is not here on {host()}", file=job.folder, hint=hint)
            time.sleep(0.2)
        return ended

    def _alive(self) -> bool:
        return time.monotonic() - self._heard < PATIENCE

    def _watch(self) -> None:
        """Look at the cluster again and again, in a thread: where its head or this node is gone, Ray's calls never return, and in the end Ray ends the process without a message."""
        here = self._ray.get_runtime_context()
        while not self._closed.wait(LOOK):
            if listens(here.gcs_address):
                alive = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
                if here.get_node_id() in alive:
                    self._heard, self._slots = time.monotonic(), self._count_slots()

    def _count_slots(self) -> int:
        needs = {"CPU": self._engine.cpus, "GPU": self._gpus}
        alive = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        return sum(min(int(has.get(what, 0) / need + 1e-9) for what, need in needs.items() if need) for has in alive)


def ray_engine(**options: Any) -> RayEngine:
    """Return a `RayEngine` of these fields, its storage tried out."""
    import_ray()
    engine = RayEngine(**options)
    if engine.address and "://" in engine.address:
        hint = "Give HOST:PORT or auto on a node of the cluster, for example within `ray job submit`."
        raise InputError(f"'{engine.address}' is the address of Ray's remote client, which is not supported", hint=hint)
    if engine.device not in ("auto", "cpu", "cuda"):
        raise InputError(f"Ray chooses the GPU, not --device {engine.device}", hint="Valid: auto, cpu, cuda.")
    return engine if engine.storage is None else replace(engine, storage=checked_url(engine.storage))


def import_ray() -> ModuleType:
    try:
        import ray
    except ImportError:
        raise InputError("--engine ray needs Ray", hint="Install it with: pip install 'retinabench[cluster]'") from None
    return ray


def connect(ray: ModuleType, address: str | None) -> None:
    """Join the cluster at `address` or RAY_ADDRESS, or start one on this machine."""
    address = address or os.environ.get("RAY_ADDRESS")
    quiet = {"log_to_driver": False, "logging_level": "warning"}
    if address is None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
        with environment(sleeping_threads()):  # its workers inherit it
            try:
                ray.init("local", include_dashboard=False, object_store_memory=OBJECTS, **quiet)
            except Exception as error:  # Ray raises plain exceptions, such as after 30 s on a busy machine
                with contextlib.suppress(Exception):
                    ray.shutdown()
                problem = f"Ray does not start on this machine ({_first_line(error).rstrip('.')})"
                raise WorkError(f"{problem}. Repeat the command, or leave --engine ray out.") from None
        return
    try:
        if ":" in address and not listens(address):  # Ray would try for minutes
            raise ConnectionError("nothing listens there")
        ray.init(address, runtime_env={"env_vars": sleeping_threads()}, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        problem = f"no Ray cluster at '{address}' ({_first_line(error).rstrip('.')})"
        raise InputError(problem, hint="Start one with: ray start --head") from None


def _first_line(error: Exception) -> str:
    return printable(str(error).strip().partition("\n")[0], 300)


def listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=2).close()
    except (OSError, ValueError):
        return False
    return True
