"""A folder in which something is computed that can be killed and continued.

Everything that trains, samples, prepares or searches works in such a folder, under the same rules:

- a manifest (JSON) notes what decides the results; the same command continues, another one is refused;
- a lock lets one process at a time work in the folder, and ends with the process, however that ends;
- files that are read again have a checksum (`core/files.py`);
- an empty file ``done`` is written last.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from retinabench.core import files
from retinabench.core.errors import CHECKSUMS, Checked, InputError, WorkError, check, described
from retinabench.core.results import JsonObject
from retinabench.core.settings import read_checked
from retinabench.core.subprocesses import refuse_import

DONE, LOCK, HOLDER = "done", ".lock", ".lock.json"
BRIEFLY = 0.5  # seconds for which a lock is tried; `holder` takes it for a moment
WITHOUT_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP)


@dataclass(frozen=True)
class Holder:
    """The process that works in a folder: its number, its machine, and the time at which it began."""

    process: int
    host: str
    since: float


@dataclass(frozen=True)
class Workspace:
    """One folder and what it is for."""

    folder: Path
    kind: str
    file: str = "manifest.json"

    @property
    def manifest_path(self) -> Path:
        return self.folder / self.file

    @property
    def done(self) -> bool:
        return (self.folder / DONE).is_file()

    def finish(self) -> None:
        """Mark the work as complete; call it after everything else has been written."""
        self.confirm()
        files.settle(self.folder)
        files.write_bytes(self.folder / DONE, b"")

    def confirm(self, error: type[Exception] = WorkError, *, content: bool = True) -> None:
        """Raise an error where a file of the folder's list is missing or, if `content`, damaged."""
        broken = files.first_broken(self.folder, content=content)
        if broken is None and self.done and not self.manifest_path.is_file():
            broken = Checked(self.manifest_path, "missing")
        if broken is not None:
            raise error(described(broken))

    def manifest(self) -> JsonObject | None:
        """Return the manifest, or None for a new folder."""
        if self.folder.is_file():
            raise InputError("is a file, and a folder is needed", file=self.folder, hint="Choose another --out.")

        def validated(content: Any) -> JsonObject:
            if isinstance(content, dict):
                return content
            problem = f"is not the manifest of a {self.kind}"
            raise InputError(problem, file=self.manifest_path, hint="Choose another --out.")

        return read_checked(self.manifest_path, validated, "Restore it, or choose another --out.")

    def begin(
        self,
        manifest: JsonObject,
        *,
        decisive: Callable[[JsonObject], JsonObject] = dict,
        empty: bool = False,
        hint: str = "Choose another --out.",
    ) -> JsonObject:
        """Write the manifest of a new folder, or compare it with the one that is there."""
        files.sweep(self.folder)
        if empty:
            self.check_empty(hint=hint)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise files.explain(error, self.folder) from None
        mine = json.loads(json.dumps(manifest, allow_nan=False))
        files.claim(self.manifest_path, mine)
        begun = self.manifest()
        assert begun is not None
        if difference := first_difference(decisive(begun), decisive(mine)):
            key, then, now = difference
            problem = f"holds a {self.kind} with another {key}: {_short(then)} there, {_short(now)} here"
            raise InputError(problem, file=self.folder, hint=hint)
        return begun

    def check_empty(self, allowed: Collection[str] = (), hint: str = "Choose another --out.") -> None:
        """Refuse a folder that has no manifest and holds files of something else; nothing is written."""
        # Files of a write that another process does now, or that was killed.
        temporary = (f"{HOLDER.lstrip('.')}.", f"{self.file}.", CHECKSUMS)
        found = [path.name for path in self.folder.glob("*")]  # first: another process may begin the folder meanwhile
        strangers = [
            name
            for name in found
            if not name.startswith(LOCK) and not name.lstrip(".").startswith(temporary) and name not in allowed
        ]
        if strangers and not self.manifest_path.is_file():
            raise InputError(f"is not empty and holds no {self.kind}", file=self.folder, hint=hint)

    def update(self, manifest: Mapping[str, object]) -> None:
        """Replace the manifest, such as one to which data sets have been added; hold the lock when calling it."""
        files.write_json(self.manifest_path, manifest, checked=True)

    @contextlib.contextmanager
    def lock(self, *, wait: bool = False, say: Callable[[str], None] = lambda line: None) -> Iterator[None]:
        """Hold the folder while the block runs; on a file system without locks the block runs unguarded."""
        refuse_import()
        lock = FileLock(self.folder / LOCK)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            held = self._acquire(lock, wait, say)
        except OSError as error:
            raise files.explain(error, self.folder) from error
        if not held:
            yield
            return
        try:
            files.write_json(
                self.folder / HOLDER, {"process": os.getpid(), "host": socket.gethostname(), "since": time.time()}
            )
            files.settle(self.folder, interrupted=True)
            yield
            self.confirm()
            files.settle(self.folder)
        finally:
            with contextlib.suppress(OSError):  # on a disk that has failed, the lock ends all the same
                (self.folder / HOLDER).unlink(missing_ok=True)
            lock.release()

    def _acquire(self, lock: FileLock, wait: bool, say: Callable[[str], None]) -> bool:
        """Return whether the lock is held; False on a file system without locks."""
        try:
            try:
                lock.acquire(timeout=BRIEFLY, poll_interval=0.05)
            except Timeout:
                if not wait:
                    raise self._refusal() from None
                say(f"waiting for another process that works in {self.folder}")
                lock.acquire(timeout=-1, poll_interval=0.2)
        except NotImplementedError:
            return False
        except OSError as error:
            if error.errno in WITHOUT_LOCKS:
                return False
            raise
        return True

    def holder(self) -> Holder | None:
        """Return the process that holds the folder, or None if no process does."""
        if not (self.folder / LOCK).is_file():
            return None
        lock = FileLock(self.folder / LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            with contextlib.suppress(OSError, ValueError, TypeError):
                return Holder(**json.loads(check(self.folder / HOLDER).read_text()))
            return Holder(process=0, host="", since=time.time())  # it has not yet written who it is
        except (NotImplementedError, OSError):
            return None
        lock.release()
        return None

    def _refusal(self) -> InputError:
        found = self.holder()
        who = ""
        if found and found.process:
            since = time.strftime("%Y-%m-%d %H:%M", time.localtime(found.since))
            who = f" since {since} (process {found.process} on {found.host})"
        return InputError(
            f"another {self.kind} command is at work in this folder{who}",
            file=self.folder,
            hint="Wait until it ends, stop it, or choose another --out.",
        )


def first_difference(
    then: Mapping[str, object], now: Mapping[str, object], prefix: str = ""
) -> tuple[str, Any, Any] | None:
    """Return the dotted key of the first difference of two nested mappings, in any order, with both values; None if they agree."""
    for key in dict.fromkeys([*then, *now]):
        ours, theirs = now.get(key), then.get(key)
        if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
            if inner := first_difference(theirs, ours, f"{prefix}{key}."):
                return inner
        elif ours != theirs or (key in now) != (key in then):
            return f"{prefix}{key}", theirs, ours
    return None


def _short(value: Any) -> str:
    text = "absent" if value is None else json.dumps(value)
    return text if len(text) <= 80 else f"{text[:12]}…"
