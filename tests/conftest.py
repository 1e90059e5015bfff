"""What all tests share: the folder of golden vectors and real photographs, where it is at hand."""

import gc
import os
import random
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from support.browsers import chromium
from support.legible import legible, undrawn  # noqa: F401

os.environ["RETINABENCH_CACHE"] = ""  # no test reads or writes the user's files
settings.load_profile("ci")  # the same examples in every run; --hypothesis-profile=default draws new ones
os.fsync = lambda _: None  # no test cuts the power: waiting for the disk took a fifth of the time
SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Give each test the same numbers of the global generators, whatever ran before."""
    random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


def pytest_collection_finish():
    """Spare every later collection of garbage what the imports have made: it was a fifth of the tests' time."""
    gc.collect()
    gc.freeze()


def shared_path(*parts: str) -> Path:
    """Return a path below the shared folder beside the checkout, or skip the test where it is absent."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"needs {'/'.join(('shared', *parts))} beside the checkout")
    return path


@pytest.fixture
def shared():
    return shared_path


@pytest.fixture(scope="session")
def browser():
    """A browser for all tests of a process: its start costs a second."""
    yield from chromium()
