"""The shape of the package: imports and words. The layers themselves are import-linter's task."""

import ast
import gc
import inspect
import re
from functools import cache
from pathlib import Path

import pytest

import retinabench as rb

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "retinabench"
Function = ast.FunctionDef | ast.AsyncFunctionDef

# Words that have a standard term, which is used instead; the tuples name places where the word is the right one.
FORBIDDEN_WORDS: dict[str, tuple[str, ...]] = {
    "picture": (), "photograph": (), "examiner": (), "journal": (), "book": (), "cure": (), "spread": (), "heights": (),
    "elsewhere": (),
    "deviation": ("methods/swag.py",),  # SWAG's deviation matrix
    "answers": ("concepts", "cli/concepts.py", "reports/concepts"),
    "disc": ("data/synthetic",),  # the optic disc
}  # fmt: skip


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def named(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


KINDS = {ast.FunctionDef, ast.AsyncFunctionDef, ast.Import, ast.ImportFrom, ast.Call, ast.ClassDef, ast.arg}


@cache
def nodes_of_modules() -> list[tuple[str, list[ast.AST]]]:
    """All nodes of `KINDS`, by module: one walk through each serves all checks."""
    gc.disable()  # a tree is freed with its last reference
    walks = ((named(path), ast.walk(ast.parse(path.read_text(encoding="utf-8")))) for path in modules())
    found = [(name, [node for node in walk if type(node) in KINDS]) for name, walk in walks]
    gc.enable()
    return found


def functions(nodes: list[ast.AST]) -> list[tuple[Function, list[ast.AST]]]:
    """Every function with the nodes in its lines."""
    found = [node for node in nodes if isinstance(node, Function)]
    return [(one, [node for node in nodes if one.lineno <= node.lineno <= one.end_lineno]) for one in found]


def called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def imports_inside_functions() -> list[str]:
    """Imports of the package's own modules inside functions outside `cli/`, and dynamic imports outside the registry."""
    found = []
    for name, nodes in nodes_of_modules():
        if name.startswith("cli/") or name in {"__init__.py", "core/registry.py"}:
            continue
        for function, inside in functions(nodes):
            for node in inside:
                if isinstance(node, ast.ImportFrom):
                    imported = [node.module or ""]
                elif isinstance(node, ast.Import):
                    imported = [alias.name for alias in node.names]
                elif isinstance(node, ast.Call) and called(node) in {"import_module", "__import__"}:
                    literal = isinstance(node.args[0], ast.Constant)
                    imported = [str(node.args[0].value) if literal else "retinabench"]
                else:
                    continue
                found += [f"{name}:{node.lineno} {function.name}" for i in imported if i.split(".")[0] == "retinabench"]
    return sorted(set(found))


def imports_of_the_root() -> list[str]:
    return [
        f"{name}:{node.lineno}"
        for name, nodes in nodes_of_modules()
        for node in nodes
        if (isinstance(node, ast.ImportFrom) and node.module == "retinabench")
        or (isinstance(node, ast.Import) and any(alias.name == "retinabench" for alias in node.names))
    ]


def forbidden_names() -> list[str]:
    """Modules, classes, functions and parameters whose name holds a word that has a standard term."""
    found = []
    for name, nodes in nodes_of_modules():
        identifiers = [(1, part) for part in re.split(r"[/.]", name.removesuffix(".py"))]
        for node in nodes:
            if isinstance(node, Function | ast.ClassDef):
                identifiers.append((node.lineno, node.name))
            elif isinstance(node, ast.arg):
                identifiers.append((node.lineno, node.arg))
        for line, identifier in identifiers:
            tokens = re.findall(r"[a-z0-9]+|[A-Z][a-z0-9]*", identifier)
            for token in {token.lower() for token in tokens}:
                for word, folders in FORBIDDEN_WORDS.items():
                    optic = word == "disc" and "optic" in identifier.lower()
                    right = optic or name.startswith(folders or ("\0",))
                    if token in {word, word.rstrip("s") + "s"} and not right:
                        found.append(f"{name}:{line} {identifier}")
    return sorted(set(found))


# Modules that may read files without `core.errors.check`: they read what comes with the package, what the user names himself, or
# what the operating system writes. Everything else lies in working folders, which a stranger may have sent.
READ_UNCHECKED = (
    # of the package
    "core/registry.py", "core/version.py", "data/frozen/definition.py", "data/label_tables.py", "fidelity/leaderboard/shipped.py",
    "fidelity/targets/", "metrics/registry.py", "reports/toolkit/",
    # named by the user: tables, images, archives, settings, checkpoints, his own code
    "core/settings.py", "data/archives.py", "data/datasets/", "data/preprocessing/", "experiments/config.py", "models/foreign.py",
    "models/weight_files.py", "predictions/io.py", "reports/papers/",
    # the door itself, and the operating system
    "core/files.py", "core/errors.py", "experiments/engines/engine.py",
)  # fmt: skip
DOORS = ("check", "check_file", "inside", "kept_inside")  # the last two where a checksum is compared in another way


def opened(call: ast.Call) -> str | None:
    """The file that a call reads, as the source writes it; None for other calls and for files that are only written."""
    if called(call) not in {"read_text", "read_bytes", "open", "load"}:
        return None
    modes = [str(one.value) for one in call.args if isinstance(one, ast.Constant)]
    if isinstance(call.func, ast.Attribute) and call.func.attr in {"read_text", "read_bytes"}:
        return ast.unparse(call.func.value)
    if ast.unparse(call.func) in {"open", "np.load", "torch.load"} and not {"wb", "ab", "w", "a"} & set(modes):
        return ast.unparse(call.args[0])
    if isinstance(call.func, ast.Attribute) and call.func.attr == "open" and ast.unparse(call.args[0]) == "'rb'":
        return ast.unparse(call.func.value)
    return None


def bare_reads() -> list[str]:
    """Places that read a file of a working folder, and do not ask the one door for it."""
    found = []
    for name, nodes in nodes_of_modules():
        for _, inside in [] if name.startswith(READ_UNCHECKED) else functions(nodes):
            calls = [node for node in inside if isinstance(node, ast.Call)]
            doors = [one for one in calls if isinstance(one.func, ast.Name) and one.func.id in DOORS]
            checked = {ast.unparse(call.args[0]) for call in doors}
            for call in calls:
                read = opened(call)
                if read is not None and read.partition("(")[0] not in DOORS and read not in checked:
                    found.append(f"{name}:{call.lineno} {read}")
    return sorted(set(found))


CHECKS = [bare_reads, imports_inside_functions, imports_of_the_root, forbidden_names]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_package_keeps_its_shape(check):
    assert check() == []


# Lines of Python by package. A number falls when code goes, and rises only in a commit that says why.
BUDGET = {
    "cli": 2_870, "concepts": 5_470, "core": 1_670, "data": 6_404, "experiments": 6_804, "fidelity": 7_707, "inspection": 1_161,
    "integrations": 707, "methods": 7_450, "metrics": 12_419, "models": 2_678, "predictions": 2_840, "reports": 7_647,
}  # fmt: skip
TESTS, TOOLS = 40_000, 8_000


def lines(*folders: Path) -> int:
    return sum(path.read_text(encoding="utf-8").count("\n") for folder in folders for path in folder.rglob("*.py"))


def test_every_package_keeps_its_budget_of_lines():
    sizes = {path.name: lines(path) for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert set(sizes) == set(BUDGET)
    assert {name: size for name, size in sizes.items() if size > BUDGET[name]} == {}
    assert lines(ROOT / "tests") <= TESTS
    assert lines(ROOT / "tools", ROOT / "benchmarks") <= TOOLS


def test_public_functions_document_their_arguments_and_result():
    missing = []
    for name in set(rb.__all__) - {"__version__"}:
        function = getattr(rb, name)
        if not inspect.isfunction(function):
            continue
        documented = function.__doc__ or ""
        wanted = [f"{argument}:" for argument in inspect.signature(function).parameters]
        wanted += ["Returns:"] if function.__annotations__.get("return") != "None" else []
        missing += [f"{name} {one}" for one in wanted if one not in documented]
    assert missing == []
