"""The recipes of CONTRIBUTING.md, followed to the letter in a copy of the tree, which must then pass lint and tests."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "CONTRIBUTING.md"
RECIPES = ["a method", "a data set", "a model", "a score", "a fidelity target"]
# no __main__
LINT_IMPORTS = "import sys; from importlinter.cli import lint_imports_command as lint; sys.argv.pop(1); lint()"
STEP = re.compile(
    r"In\s+`(?P<path>[^`]+)`,\s+(?:below the line\s+(?P<quote>``?)(?P<line>.+?)(?P=quote)|at the end),\s+add[^:`]*:"
    r"\n\n```\w+\n(?P<text>.*?)```",
    re.DOTALL,
)
COPY = re.compile(r"`(?P<source>examples/[^`]+)`\s+to\s+`(?P<path>[^`]+)`")


def sections() -> dict[str, str]:
    parts = re.split(r"^## Recipe: (.*)$", GUIDE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def follow(text: str, tree: Path) -> list[Path]:
    touched = []
    for step in COPY.finditer(text):
        path = tree / step["path"]
        assert not path.exists(), f"{step['path']} exists already"
        touched.append(shutil.copy(tree / step["source"], path))
    for step in STEP.finditer(text):
        path = tree / step["path"]
        if step["line"] is None:
            path.write_text(path.read_text(encoding="utf-8") + step["text"], encoding="utf-8")
        else:
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            (place,) = (k for k, line in enumerate(lines) if line.strip() == step["line"])
            path.write_text("".join([*lines[: place + 1], step["text"], *lines[place + 1 :]]), encoding="utf-8")
        touched.append(path)
    return touched


def test_there_is_a_recipe_for_everything_that_can_be_added():
    assert list(sections()) == RECIPES
    for text in sections().values():
        assert COPY.search(text)
        assert STEP.search(text)
        assert "```sh" in text


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the tree in which every recipe was followed, and what runs a program in it."""
    tree = tmp_path_factory.mktemp("recipes") / "tree"
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in shown.stdout.splitlines():
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
    touched = [path for text in sections().values() for path in follow(text, tree)]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}

    def run(*command: str) -> str:
        start = ["-m"] if command[0] != "lint-imports" else ["-c", LINT_IMPORTS]
        words = [sys.executable, *start, *command]
        done = subprocess.run(words, cwd=tree, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return tree, [path.relative_to(tree).as_posix() for path in touched], run


@pytest.mark.recipes
@pytest.mark.parametrize("command", ["ruff check .", "ruff format --check .", "lint-imports --no-cache"])
def test_the_tree_keeps_the_rules(tree, command):
    _, _, run = tree
    run(*shlex.split(command))


@pytest.mark.recipes
def test_the_touched_modules_are_typed(tree):
    _, touched, run = tree
    modules = sorted({name for name in touched if name.startswith("src/") and name.endswith(".py")})
    run("mypy", *modules)
    # An entry raises the budget of lines, in a commit that says so.
    run("pytest", "-q", "-p", "no:cacheprovider", "tests/architecture", "-k", "not budget_of_lines")


@pytest.mark.recipes
@pytest.mark.parametrize("recipe", RECIPES)
def test_its_commands_run(tree, recipe):
    _, _, run = tree
    for block in re.findall(r"```sh\n(.*?)```", sections()[recipe], flags=re.DOTALL):
        for command in block.strip().splitlines():
            assert command.startswith(("pytest ", "retinabench "))
            run(*shlex.split(command))
