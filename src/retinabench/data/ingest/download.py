"""Download published files: over one connection, by https alone, resumed after interruptions, and verified."""

from __future__ import annotations

import hashlib
import http.client
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retinabench.core.errors import InputError, WorkError
from retinabench.core.files import explain
from retinabench.core.progress import QUIET, Advance, Progress
from retinabench.core.version import __version__

BLOCK = 1 << 18
TIMEOUT = 60  # seconds without a byte
ATTEMPTS = 6
TRANSIENT = {408, 425, 429, 500, 502, 503, 504}  # HTTP status codes after which a retry may succeed
OWN_MACHINE = ("127.0.0.1", "localhost")
AGENT = f"retinabench/{__version__} (Python urllib)"


def _check_address(url: str) -> None:
    """Raise `WorkError` unless an address is of https, or of http on this machine: other answers can be replaced on the way."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in OWN_MACHINE):
        raise WorkError(f"{url}: is no https address, and is not fetched.")


class _Encrypted(urllib.request.HTTPRedirectHandler):
    """Follows redirections to addresses that `_check_address` accepts."""

    def redirect_request(self, *arguments: Any) -> urllib.request.Request | None:
        """Return the request of the new address, the last argument; `WorkError` where that is not encrypted."""
        _check_address(arguments[-1])
        return super().redirect_request(*arguments)


OPENER = urllib.request.build_opener(_Encrypted)


@dataclass(frozen=True)
class Remote:
    """A published file.

    Attributes:
        url: Its address.
        name: Its name on the disk.
        md5: Its MD5, where its publisher states one.
        most: Bytes after which a download is given up, so that a server cannot fill the disk.
    """

    url: str
    name: str
    md5: str | None = None
    most: int = 1 << 32


def fetch(
    remote: Remote, folder: Path, progress: Progress = QUIET, wait: Callable[[float], None] = time.sleep
) -> Path:
    """Download a file into a folder, or continue a download that was interrupted.

    Bytes are collected in `NAME.part`, which is renamed to NAME when length and MD5 are correct.
    """
    _check_address(remote.url)
    path, part = folder / remote.name, folder / f"{remote.name}.part"
    if path.is_file():
        _check(path, remote)
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Progress in steps of 1 MB: the length is known only when the server has answered.
        for attempt in range(ATTEMPTS):
            try:
                if _continue(remote, part, progress):
                    break
                reason = "the connection broke"
            except urllib.error.HTTPError as error:
                error.close()
                if error.code == 416:  # the part is longer than the file: it belongs to another version
                    part.unlink(missing_ok=True)
                elif error.code not in TRANSIENT:
                    raise WorkError(f"{remote.url}: the server says {error.code} {error.reason}.") from None
                reason = f"the server says {error.code} {error.reason}"
            except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
                reason = str(getattr(error, "reason", None) or error or type(error).__name__)
            if attempt + 1 == ATTEMPTS:
                raise WorkError(
                    f"{remote.url}: {reason}, {ATTEMPTS} times. Repeat the command later; it continues at "
                    f"{part.stat().st_size if part.is_file() else 0:,} bytes."
                )
            progress.say(f"{remote.name}: {reason}; trying again")
            wait(2.0**attempt)
        _check(part, remote)
        part.replace(path)
    except OSError as error:
        raise explain(error, path) from error
    return path


def _continue(remote: Remote, part: Path, progress: Progress) -> bool:
    """Request the missing bytes and append them; return whether the file is complete."""
    have = part.stat().st_size if part.is_file() else 0
    request = urllib.request.Request(remote.url, headers={"User-Agent": AGENT, "Accept-Encoding": "identity"})  # noqa: S310 - checked by `fetch`
    if have:
        request.add_header("Range", f"bytes={have}-")
    with OPENER.open(request, timeout=TIMEOUT) as answer:
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", answer.headers.get("Content-Range") or "")
        if answer.status == 206 and match and int(match[1]) == have:
            total: int | None = int(match[2])
        else:  # the server sends the whole file
            have = 0
            length = answer.headers.get("Content-Length")
            total = int(length) if length else None
        with (
            progress.track(f"Downloading {remote.name}", -(-(total or 0) >> 20), "MB") as advance,
            open(part, "r+b" if have else "wb") as handle,
        ):
            handle.seek(have)
            done = _copy(answer, handle.write, have, advance, remote)
    return total is None or done == total


def _copy(
    answer: http.client.HTTPResponse,
    write: Callable[[bytes], int],
    have: int,
    advance: Advance,
    remote: Remote,
) -> int:
    advance(have >> 20)
    while True:
        try:
            block = answer.read(BLOCK)
        except http.client.IncompleteRead as error:
            block = error.partial
        if not block:
            return have
        write(block)
        advance(((have + len(block)) >> 20) - (have >> 20))
        have += len(block)
        if have > remote.most:
            raise WorkError(
                f"{remote.url}: the server sends more than {remote.most:,} bytes. Nothing of it is used."
            )


def _check(path: Path, remote: Remote) -> None:
    """Verify the MD5; delete a wrong partial download, but never a file that the user may have put there."""
    if remote.md5 is None:
        return
    with open(path, "rb") as handle:
        digest = hashlib.file_digest(handle, "md5").hexdigest()
    if digest == remote.md5:
        return
    if path.name == remote.name:
        raise InputError(
            f"has the MD5 {digest}, published is {remote.md5}", file=path, hint="Move it away and repeat."
        )
    path.unlink()
    raise WorkError(
        f"{remote.url}: what arrived has the MD5 {digest}, published is {remote.md5}. It is deleted; repeat the command."
    )
