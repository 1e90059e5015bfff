"""Files of the distribution `retinabench-references`, where it is installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

PACKAGE = "retinabench_references"
INSTALL = "pip install 'retinabench[references]'"


def packaged(folder: str) -> Path | None:
    """Return a folder of the distribution, None where it is not installed."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / folder
