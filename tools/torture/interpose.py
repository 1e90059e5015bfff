"""Kills and faults at a chosen operation on files: compiles `interpose.c`, loads it into this process, and sets its plan.

Children that this process forks or starts share the plan, and count their operations together.
"""

import atexit
import mmap
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from enum import IntEnum
from pathlib import Path

SOURCE = Path(__file__).with_name("interpose.c")
VARIABLE, SIZE = "TORTURE_PLAN", 4 * 8 + 4096


class What(IntEnum):
    """What happens at the chosen operation, as in `interpose.c`."""

    COUNT = 0
    KILL_BEFORE = 1
    KILL_TORN = 2  # a write is done by half first
    FAIL_ONCE = 3
    FAIL_FROM = 4  # and at every later one
    SHORT = 5  # a write is done by half, and says so
    DELAY = 6


class Plan:
    """The plan of this process and its children."""

    def __init__(self, path: Path) -> None:
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), SIZE)

    def set(self, folder: Path | None, at: int = 0, what: What = What.COUNT, number: int = 0) -> None:
        """Count operations below `folder` from 0 on; None counts nothing."""
        self._map[32:SIZE] = bytes(4096)
        self._map[:32] = struct.pack("4q", 0, at, what, number)
        name = b"" if folder is None else os.fsencode(folder)
        self._map[32 : 32 + len(name)] = name

    @property
    def done(self) -> int:
        return int(struct.unpack("q", self._map[:8])[0])


def interposed() -> Plan | None:
    """Return the plan; start this process again with the library where it lacks it. None where there is no C compiler."""
    path = os.environ.get(VARIABLE)
    if path and Path(path).is_file():
        atexit.register(shutil.rmtree, Path(path).parent, ignore_errors=True)
        return Plan(Path(path))
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        return None
    folder = Path(tempfile.mkdtemp(prefix="torture-interpose-"))
    library, plan = folder / "interpose.so", folder / "plan"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    plan.write_bytes(bytes(SIZE))
    environment = {**os.environ, "LD_PRELOAD": str(library), VARIABLE: str(plan)}
    return os.execve(sys.executable, [sys.executable, "-m", "torture", *sys.argv[1:]], environment)
