"""`kill -9` at a chosen durable write of a fork."""

import os
import signal


def killing(how, target):
    """Return an `os.replace`, in which every durable write ends, that kills the process at its `target`-th call. It does so
    `before` the call, `after` it, or `torn`: before it, half-way through the temporary file."""
    replace = os.replace

    def replaced(source, destination):
        replaced.calls += 1
        now = replaced.calls == target
        if now and how == "torn":
            with open(source, "r+b") as handle:
                handle.truncate(os.path.getsize(source) // 2)
        if now and how in ("before", "torn"):
            os.kill(os.getpid(), signal.SIGKILL)
        replace(source, destination)
        if now and how == "after":
            os.kill(os.getpid(), signal.SIGKILL)

    replaced.calls = 0
    return replaced
