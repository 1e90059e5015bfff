"""Every option that a help text, a message or a document names belongs to a command that the reader can have in mind. An option
behind a verb (`retinabench transfer --goal 0.05`, `transfer --goal`) belongs to that verb. Any other belongs to the command whose
help it is, to a command that runs the code of the message, or to one that the page names."""

import ast
import gc
import inspect
import re

import pytest
import typer

from conformance.test_documentation import PAGES, ROOT, commands
from retinabench.cli.main import command_line

SOURCE = ROOT / "src"
# Of a benchmark, of sha256sum, of Ray and of torchrun.
ELSEWHERE = {"--adversarial", "--check", "--head", "--nproc-per-node"}
OTHER_PROGRAMS = re.compile(r"(python|ray|sha256sum|tensorboard|torchrun) ")


def every_command(group, before=""):
    for verb, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from every_command(command, f"{verb} ")
        else:
            yield before + verb, command


COMMANDS = dict(every_command(typer.main.get_command(command_line())))
OPTIONS = {
    verb: {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"--help"} | ELSEWHERE
    for verb, command in COMMANDS.items()
}
ANY = {"--version"}.union(*OPTIONS.values())
VERB = "|".join(sorted(OPTIONS, key=len, reverse=True))
# A verb behind `retinabench`, at the beginning of code, or in front of an option; an option; the end of code or of a sentence.
TOKENS = re.compile(
    rf"(?:retinabench |`)(?P<verb>{VERB})(?![\w-])|\b(?P<bare>{VERB})(?= --)|(?<![\w-])(?P<option>--[a-z][a-z-]+)|(?P<end>`|[;.] |\n\n)"
)


def misplaced(text, own):
    """The options of a text with the verb in front of them, if neither it nor, without a verb, `own` has them."""
    verb = None
    for token in TOKENS.finditer(text):
        if token["end"]:
            verb = None
        elif token["option"] and token["option"] not in (OPTIONS[verb] if verb else own):
            yield verb, token["option"]
        else:
            verb = token["verb"] or verb or token["bare"]


def strings(node):
    """The texts of a piece of source, with X for what an f-string fills in."""
    nodes = [one for one in ast.walk(node) if type(one) in (ast.JoinedStr, ast.Constant)]
    parts = {id(value) for one in nodes if isinstance(one, ast.JoinedStr) for value in one.values}
    for one in nodes:
        if isinstance(one, ast.JoinedStr):
            yield "".join(value.value if isinstance(value, ast.Constant) else "X" for value in one.values)
        elif isinstance(one, ast.Constant) and isinstance(one.value, str) and id(one) not in parts:
            yield one.value


@pytest.fixture
def trees():
    gc.disable()  # the collector would go through the nodes again and again
    modules = {".".join(path.relative_to(SOURCE).with_suffix("").parts): path for path in SOURCE.rglob("*.py")}
    yield {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in modules.items()}
    gc.enable()


def modules_of(node):
    """The modules that a piece of source imports or, in a registry, names."""
    for one in (one for one in ast.walk(node) if type(one) in (ast.ImportFrom, ast.Constant)):
        if isinstance(one, ast.ImportFrom):
            yield from (one.module, *(f"{one.module}.{name.name}" for name in one.names))
        elif isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.value.partition(":")[0]


def parts_of_commands(trees):
    """Piece of source -> the options of the commands that run it: a module, or a definition of a module of `cli/`."""
    imports = {name: {one for one in modules_of(tree) if one in trees} for name, tree in trees.items()}
    targets = (SOURCE / "retinabench/fidelity/targets/targets.toml").read_text(encoding="utf-8")
    imports["retinabench.fidelity.targets.target"].update(name for name in trees if f'"{name}:' in targets)
    owners = {}
    for verb, command in COMMANDS.items():
        function = inspect.unwrap(command.callback)
        module = function.__module__
        pieces = {one.name: one for one in trees[module].body if isinstance(one, ast.FunctionDef | ast.ClassDef)}
        top = [one for one in trees[module].body if isinstance(one, ast.ImportFrom)]
        seen, todo = set(), [function.__name__]
        while todo:
            if (name := todo.pop()) in pieces and name not in seen:
                seen.add(name)
                todo += [one.id for one in ast.walk(pieces[name]) if isinstance(one, ast.Name)]
        reached, todo = set(), [one for node in (*top, *(pieces[name] for name in seen)) for one in modules_of(node)]
        while todo:
            if (name := todo.pop()) in trees and name not in reached and not name.startswith("retinabench.cli"):
                reached.add(name)
                todo += imports[name]
        for piece in (*reached, *((module, name) for name in seen)):
            owners.setdefault(piece, set()).update(OPTIONS[verb])
    return owners


def pieces_of(name, tree):
    if name.startswith("retinabench.cli"):
        yield from (((name, one.name), one) for one in tree.body if isinstance(one, ast.FunctionDef | ast.ClassDef))
    else:
        yield name, tree


def test_the_help_of_a_command_names_its_own_options():
    texts = [(verb, command.help or "") for verb, command in COMMANDS.items()]
    texts += [(verb, getattr(one, "help", None) or "") for verb, command in COMMANDS.items() for one in command.params]
    assert len(texts) > 300
    assert [(verb, text, wrong) for verb, text in texts for wrong in misplaced(text, OPTIONS[verb])] == []


def test_a_message_names_options_of_the_commands_that_show_it(trees):
    owners = parts_of_commands(trees)
    found = [
        (piece, text, wrong)
        for name, tree in trees.items()
        for piece, node in pieces_of(name, tree)
        for text in strings(node)
        for wrong in misplaced(text, owners.get(piece, ANY))
    ]
    assert found == []
    assert "--images" not in owners["retinabench.metrics.planning"]  # so that a foreign option is not taken for its own


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_names_options_of_the_commands_that_it_shows(page):
    """Blocks are parsed by `test_documentation`; these are the options in sentences and tables."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    code = [f"`{one}`" for one in re.findall(r"`([^`]+)`", text) if not OTHER_PROGRAMS.match(one)]
    shown = [" ".join(words[1:3]) if words[1] == "fidelity" else words[1] for words in commands(page)]
    shown += [token["verb"] for one in code for token in TOKENS.finditer(one) if token["verb"]]
    own = ELSEWHERE.union(*(OPTIONS[verb] for verb in shown if verb in OPTIONS))
    assert [(one, wrong) for one in code for wrong in misplaced(one, own)] == []
