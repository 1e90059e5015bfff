"""The shape of the package: imports, sizes, words and docstrings. The layers themselves are import-linter's task."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer import Typer

from retinabench.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "retinabench"
MOST_MODULES, MOST_LINES, MOST_LINES_OF_A_MODULE = 12, 60, 300
# Folders that grow by a module with each entry of a registry; the recipes add two data sets.
ONE_MODULE_PER_ENTRY = ("data/datasets", "models/networks")
# Functions that a contract asks for, by where the entries are: documented once, in `methods/base.py`,
# `methods/training/posterior.py`, `data/image_dataset.py` and at the top of the named module.
CONTRACT = {
    "methods/": ("build", "fit", "predict"),
    "data/datasets/": ("read", "records"),
    "metrics/intervals.py": ("ends",),
}
# Modules without a test file of their own: one constant, which `tests/test_init.py` reads.
WITHOUT_TESTS = ("core/version.py",)
Function = ast.FunctionDef | ast.AsyncFunctionDef

# Words that have a standard term, which is used instead; the tuples name places where the word is the right one.
FORBIDDEN_WORDS: dict[str, tuple[str, ...]] = {
    "picture": (),
    "photograph": (),
    "deviation": ("methods/ensembles",),  # SWAG's deviation matrix
    "answers": ("concepts", "cli/concepts.py", "reports/concepts"),
    "examiner": (),
    "journal": (),
    "book": (),
    "cure": (),
    "spread": (),
    "heights": (),
    "elsewhere": (),
    "disc": ("data/synthetic",),  # the optic disc
}


def modules() -> list[Path]:
    """Every module of the package, in a stable order."""
    return sorted(PACKAGE.rglob("*.py"))


def named(path: Path) -> str:
    """The path of a module below the package."""
    return path.relative_to(PACKAGE).as_posix()


def trees() -> Iterator[tuple[str, ast.Module]]:
    """Name and syntax tree of every module."""
    for path in modules():
        yield named(path), ast.parse(path.read_text(encoding="utf-8"))


def imports_inside_functions() -> list[str]:
    """Imports of the package's own modules inside functions outside `cli/`, and dynamic imports outside the registry."""
    found = []
    for name, tree in trees():
        if name.startswith("cli/") or name in {"__init__.py", "core/registry.py"}:
            continue
        for function in ast.walk(tree):
            if not isinstance(function, Function):
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.ImportFrom):
                    imported = [node.module or ""]
                elif isinstance(node, ast.Import):
                    imported = [alias.name for alias in node.names]
                elif isinstance(node, ast.Call) and ast.unparse(node.func) in {
                    "importlib.import_module",
                    "import_module",
                    "__import__",
                }:
                    literal = isinstance(node.args[0], ast.Constant)
                    imported = [str(node.args[0].value) if literal else "retinabench"]
                else:
                    continue
                found += [
                    f"{name}:{node.lineno} {function.name}"
                    for one in imported
                    if one.partition(".")[0] == "retinabench"
                ]
    return sorted(set(found))


def imports_of_the_root() -> list[str]:
    """Modules of the package that import the public interface, which stands above every layer."""
    return [
        f"{name}:{node.lineno}"
        for name, tree in trees()
        for node in ast.walk(tree)
        if (isinstance(node, ast.ImportFrom) and node.module == "retinabench")
        or (isinstance(node, ast.Import) and any(alias.name == "retinabench" for alias in node.names))
    ]


def crowded_folders() -> list[str]:
    """Folders with more modules than a reader can survey.

    `__init__.py` does not count, nor do folders in which every registered entry has a module of its own.
    """
    folders = [PACKAGE, *(path for path in PACKAGE.rglob("*") if path.is_dir())]
    counts = {folder: len([p for p in folder.glob("*.py") if p.name != "__init__.py"]) for folder in folders}
    return [
        f"{named(folder)}/ {count} modules"
        for folder, count in sorted(counts.items())
        if count > MOST_MODULES and named(folder) not in ONE_MODULE_PER_ENTRY
    ]


def long_modules() -> list[str]:
    """Modules over the limit, which one does not read from top to bottom."""
    counts = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in modules()}
    return [
        f"{named(path)} ({count} lines)" for path, count in counts.items() if count > MOST_LINES_OF_A_MODULE
    ]


def long_functions() -> list[str]:
    """Functions over the limit, docstring and signature included."""
    return [
        f"{name}:{node.lineno} {node.name} ({node.end_lineno - node.lineno + 1} lines)"
        for name, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, Function) and (node.end_lineno or 0) - node.lineno + 1 > MOST_LINES
    ]


def packages_with_code() -> list[str]:
    """`__init__.py` files of packages that hold more than a docstring; only the root has a lazy public interface."""
    found = []
    for name, tree in trees():
        if name.endswith("/__init__.py") and (len(tree.body) != 1 or ast.get_docstring(tree) is None):
            found.append(name)
    return found


def forbidden_names() -> list[str]:
    """Modules, classes, functions and parameters whose name holds a word that has a standard term."""
    found = []
    for name, tree in trees():
        identifiers = [(1, part) for part in re.split(r"[/.]", name.removesuffix(".py"))]
        for node in ast.walk(tree):
            if isinstance(node, Function | ast.ClassDef):
                identifiers.append((node.lineno, node.name))
            elif isinstance(node, ast.arg):
                identifiers.append((node.lineno, node.arg))
        for line, identifier in identifiers:
            tokens = re.findall(r"[a-z0-9]+|[A-Z][a-z0-9]*", identifier)
            for token in {token.lower() for token in tokens}:
                for word, folders in FORBIDDEN_WORDS.items():
                    optic = word == "disc" and "optic" in identifier.lower()
                    if (
                        token in {word, word.rstrip("s") + "s"}
                        and not name.startswith(folders or ("\0",))
                        and not optic
                    ):
                        found.append(f"{name}:{line} {identifier}")
    return sorted(set(found))


def _parameters(function: Function) -> list[str]:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    names = [argument.arg for argument in every if argument.arg not in {"self", "cls", "ctx"}]
    return names + [star.arg for star in (arguments.vararg, arguments.kwarg) if star]


def undocumented_arguments() -> list[str]:
    """Public functions and methods with three or more parameters whose docstring has no `Args:` section.

    The parameters of verbs are documented by the help of each option. The functions of an entry that a contract asks for
    (`CONTRACT`) are documented there.
    """
    found = []
    known = set(verbs(app))

    def visit(body: list[ast.stmt], name: str, owner: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                visit(node.body, name, f"{node.name}.")
            elif isinstance(node, Function) and not node.name.startswith("_"):
                if any(ast.unparse(decorator).endswith("override") for decorator in node.decorator_list):
                    continue
                if (name, node.name) in known or any(
                    name.startswith(where) and node.name in names for where, names in CONTRACT.items()
                ):
                    continue
                if len(_parameters(node)) >= 3 and "Args:" not in (ast.get_docstring(node) or ""):
                    found.append(f"{name}:{node.lineno} {owner}{node.name}")

    for name, tree in trees():
        visit(tree.body, name, "")
    return found


def verbs(commands: Typer) -> Iterator[tuple[str, str]]:
    """Module and name of the function of every verb."""
    for command in commands.registered_commands:
        assert command.callback is not None
        yield (
            command.callback.__module__.removeprefix("retinabench.").replace(".", "/") + ".py",
            command.callback.__name__,
        )
    for group in commands.registered_groups:
        assert group.typer_instance is not None
        yield from verbs(group.typer_instance)


def modules_without_tests() -> list[str]:
    """Modules `a/b.py` without a file `tests/a/test_b.py`."""
    return [
        name
        for name in map(named, modules())
        if not Path(name).name.startswith("__")
        and not name.startswith(WITHOUT_TESTS)
        and not (ROOT / "tests" / Path(name).parent / f"test_{Path(name).name}").is_file()
    ]


def shared_class_names() -> list[str]:
    """Public classes of one name in several modules; `Config` is the settings of every method."""
    found: dict[str, list[str]] = {}
    for name, tree in trees():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and node.name != "Config":
                found.setdefault(node.name, []).append(name)
    return [f"{one}: {', '.join(places)}" for one, places in sorted(found.items()) if len(places) > 1]


CHECKS = [
    imports_inside_functions,
    imports_of_the_root,
    crowded_folders,
    long_modules,
    long_functions,
    packages_with_code,
    forbidden_names,
    undocumented_arguments,
    modules_without_tests,
    shared_class_names,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_package_keeps_its_shape(check):
    assert check() == []


def test_scoring_a_csv_imports_no_heavy_library_and_no_entry(tmp_path):
    """A fresh interpreter scores a file; what it then holds is the scoring path and nothing else."""
    table = tmp_path / "predictions.csv"
    rows = [f"image-{k},{k % 2},{(k * 37 % 100) / 100}" for k in range(60)]
    table.write_text("\n".join(["image_id,label,prob", *rows]) + "\n")
    code = (
        "import sys\n"
        "from retinabench.cli.main import run\n"
        f"assert run(['score', {str(table)!r}, '--bootstrap', '20', '--quiet']) == 0\n"
        "print('\\n'.join(sys.modules))\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    loaded = set(shown.stdout.splitlines())
    assert "retinabench.metrics.scoring" in loaded
    assert not loaded & {"torch", "PIL", "matplotlib", "ray"}
    entries = tuple(
        f"retinabench.{package}."
        for package in (
            "data.datasets",
            "data.synthetic",
            "data.preprocessing",
            "methods",
            "models",
            "fidelity",
        )
    )
    names = (name for name in sorted(loaded) if not name.endswith(".registry"))  # registries import no entry
    assert [name for name in names if name.startswith(entries)] == []
