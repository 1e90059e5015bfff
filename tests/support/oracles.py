"""Libraries that tests compare with and whose import needs care."""

from __future__ import annotations

from types import ModuleType


def import_arviz() -> ModuleType:
    """Import ArviZ, which at the first import of a day replaces a file of its cache.

    Of two processes of a test run that do so at once one finds its temporary file gone; by then the other's file is there.
    """
    try:
        import arviz
    except FileNotFoundError:
        import arviz
    return arviz
