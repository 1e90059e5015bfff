"""Registries of named entries: those of the package and those that installed plug-ins add.

An entry is given as ``"package.module"`` or ``"package.module:attribute"`` and imported on first use, so that listing
the names of a registry imports nothing; or as a TOML file below the folder of `definitions`, whose function reads it. A plug-in adds entries without changes to this package, by declaring entry
points in its own ``pyproject.toml``::

    [project.entry-points."retinabench.methods"]
    mirrored = "my_package.mirrored"

Entry points are found in every process in which the plug-in is installed, including workers.
"""

from __future__ import annotations

import ast
import importlib
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from retinabench.core.errors import InputError, nearest

Entry = TypeVar("Entry")


class Registry(Mapping[str, Entry], Generic[Entry]):
    """A read-only mapping from names to entries, which are imported on first use.

    Examples:
        >>> modules = Registry("retinabench.examples", "module", {"json": "json", "dumps": "json:dumps"})
        >>> sorted(modules)
        ['dumps', 'json']
        >>> modules["dumps"]([1])
        '[1]'
    """

    def __init__(
        self, group: str, kind: str, builtin: Mapping[str, str | Entry], definitions: tuple[Path, str] | None = None
    ) -> None:
        self.group, self.kind, self.definitions = group, kind, definitions
        self._builtin = dict(builtin)
        self._loaded: dict[str, Entry] = {}

    @cached_property
    def _plugins(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in _installed(tuple(sys.path)).select(group=self.group)}

    def __getitem__(self, name: str) -> Entry:
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._builtin
        yield from (name for name in self._plugins if name not in self._builtin)
        yield from (name for name in self._loaded if name not in self._builtin and name not in self._plugins)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return name in self._builtin or name in self._plugins or name in self._loaded

    def find(self, name: str) -> Entry:
        if name not in self:
            raise InputError(f"unknown {self.kind} '{name}'", hint=nearest(name, list(self)))
        return self[name]

    def summary(self, name: str) -> str:
        """Return the first line of an entry's docstring, without importing it."""
        location = self._builtin.get(name) or (self._plugins[name].value if name in self._plugins else "")
        if isinstance(location, str) and location.endswith(".toml") and self.definitions:
            card = tomllib.loads((self.definitions[0] / location).read_text("utf-8"))["card"]
            return str(card).partition("\n")[0]
        return docstring(location).partition("\n")[0] if isinstance(location, str) else ""

    def is_builtin(self, name: str) -> bool:
        """Return whether the package itself has an entry of that name."""
        return name in self._builtin

    def add(self, name: str, entry: Entry, *, instead: bool = False) -> None:
        """Add an entry for this process only, such as a method that is defined in a notebook."""
        if name in self and (self.is_builtin(name) or not instead):
            raise ValueError(f"the {self.kind} '{name}' exists already")
        self._loaded[name] = entry

    def remove(self, name: str) -> None:
        """Remove an entry that `add` added."""
        del self._loaded[name]

    def _load(self, name: str) -> Any:
        if name in self._builtin:
            if name in self._plugins:  # it is not known which of the two is meant
                raise InputError(
                    f"the plug-in '{_distribution(self._plugins[name])}' adds the {self.kind} '{name}', "
                    "which exists already",
                    hint="Rename its entry point or uninstall it.",
                )
            entry = self._builtin[name]
            if isinstance(entry, str) and entry.endswith(".toml") and self.definitions:
                folder, function = self.definitions
                return _import(function)(folder / entry)
            return _import(entry) if isinstance(entry, str) else entry
        point = self._plugins[name]
        try:
            return point.load()
        except Exception as error:  # a plug-in may raise anything
            raise InputError(
                f"the {self.kind} '{name}' of the plug-in '{_distribution(point)}' cannot be imported "
                f"({type(error).__name__}: {error})",
                hint="Mend or uninstall the plug-in.",
            ) from error


@cache
def _installed(_: tuple[str, ...]) -> Any:
    """Return the entry points of all packages on the path. Reading them takes as long as scoring a small file."""
    return entry_points()


def import_location(location: str) -> Any:
    """Import ``package.module``, ``package.module:attribute`` or the file ``path/to/module.py``, as if its folder were on the path."""
    try:
        return _import_file(Path(location)) if location.endswith(".py") else _import(location)
    except (Exception, SystemExit) as error:  # foreign code raises what it likes
        raise InputError(f"cannot be imported ({type(error).__name__}: {error})", file=location) from error


def docstring(location: str) -> str:
    """Return the docstring at ``package.module:attribute`` as it is written in the source; empty where there is none."""
    module, _, attribute = location.partition(":")
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return ""
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return ""
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    documented = [
        node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == attribute
    ]
    return ast.get_docstring(documented[0] if documented else tree) or ""


def _import(location: str) -> Any:
    module, _, attribute = location.partition(":")
    found = importlib.import_module(module)
    return getattr(found, attribute) if attribute else found


def _import_file(path: Path) -> ModuleType:
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None  # the suffix is .py
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
    return module


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value
