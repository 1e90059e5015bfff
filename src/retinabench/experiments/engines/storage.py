"""Run folders in an object store, or in any other place that fsspec reaches; `done` is written last.

A run is stored under its folder's name, which holds its hash, so that every search may take it from there.
"""

from __future__ import annotations

import getpass
import os
import secrets
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from retinabench.core.atomic_files import atomic_write, settle, write_bytes
from retinabench.core.checksums import check as check_file
from retinabench.core.checksums import read_checksums
from retinabench.core.errors import InputError
from retinabench.experiments.engines.scheduler import JobResult
from retinabench.experiments.engines.worker import JobRequest, execute_request, run_request

LEFT = "last.pt"  # the state from which a training is continued; a finished run needs none
DONE = "done"
MOST_LOG = 50_000  # bytes of a log that travel with a result: what Ray sends in a message, and not through its object store


class Storage:
    """The folder behind a URL, such as s3://bucket/sweep; every call may raise what its file system raises."""

    def __init__(self, url: str) -> None:
        import fsspec  # of the extra `cluster`

        self._files, self._root = fsspec.core.url_to_fs(url)

    def has(self, name: str) -> bool:
        """Say whether the run `name` is there, whole."""
        self._files.invalidate_cache()  # others store, too
        return bool(self._files.exists(self._path(name, DONE)))

    def put(self, folder: Path) -> None:
        """Store a finished run, unless it is there."""
        if self.has(folder.name):
            return
        self._files.makedirs(self._path(folder.name), exist_ok=True)
        files = [path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")]
        for name in (*sorted(set(files) - {LEFT, DONE}), DONE):
            with (
                open(folder / name, "rb") as source,
                self._files.open(self._path(folder.name, name), "wb") as sink,
            ):
                shutil.copyfileobj(source, sink, 2**20)

    def get(self, folder: Path) -> None:
        """Bring the run of that name into `folder`."""
        self._files.invalidate_cache()
        found = self._files.ls(self._path(folder.name), detail=False)
        for name in sorted({PurePosixPath(path).name for path in found} - {DONE}):
            with (
                self._files.open(self._path(folder.name, name), "rb") as source,
                atomic_write(folder / name) as sink,
            ):
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


def check(url: str) -> str:
    """Return the URL in full, for use on other machines; raise `InputError` where it cannot be written to."""
    try:
        return Storage(url).try_out()
    except Exception as error:  # every file system has exceptions of its own
        raise InputError(
            f"cannot be written to ({type(error).__name__}: {error})",
            file=url,
            hint="Give a URL such as s3://bucket/folder, with its fsspec package installed and its credentials set.",
        ) from None


def end_of(log: Path) -> bytes:
    """Return the last `MOST_LOG` bytes of a log, from the beginning of a line."""
    with open(log, "rb") as file:
        cut = file.seek(0, os.SEEK_END) > MOST_LOG
        file.seek(-MOST_LOG if cut else 0, os.SEEK_END if cut else os.SEEK_SET)
        content = file.read()
    return b"...\n" + content.partition(b"\n")[2] if cut else content


def run_on_local_disk(url: str, request: JobRequest, needs: Sequence[str]) -> tuple[JobResult, bytes]:
    """Compute a job on this machine's own disk, and store its folder.

    A second start on this machine continues where one that was killed stopped.

    Args:
        url: Of the storage.
        request: The job.
        needs: Names of the folders of its members, which are fetched from the storage.

    Returns:
        The result, and the end of the log where the job failed.
    """
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
