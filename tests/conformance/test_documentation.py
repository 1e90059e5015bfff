"""What README and docs tell a user to type: every command parses, every Python text compiles, and README's run."""

import doctest
import importlib
import re
import shlex
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
import typer

import documentation
import entries
import pictures
import retinabench as rb
from retinabench.cli.main import GROUPS, command_line, run
from retinabench.concepts.banks.definition import bank_names, find_definition
from retinabench.data.registry import DATASETS, TASKS
from retinabench.experiments.study.definition import read_study
from retinabench.fidelity.targets.target import TARGETS
from retinabench.methods.registry import METHODS
from retinabench.metrics.registry import SCORES
from retinabench.reports.leaderboard.submission import read_card

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page, language):
    """The fenced texts of a language, and with `sh` also those that are indented."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```", text, flags=re.MULTILINE | re.DOTALL)
    if language == "sh":
        plain = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
        found += re.findall(r"(?:^ {4}.*\n)+", plain, flags=re.MULTILINE)
    return [textwrap.dedent(one) for one in found]


def commands(page):
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            if line.strip().startswith("retinabench ") and "…" not in line:
                # In indented lists, three spaces separate a command from what is said of it.
                yield shlex.split(re.split(r" {3,}| && ", line.strip())[0], comments=True)


COMMANDS = [(page.stem, words[1:]) for page in PAGES for words in commands(page)]
COMMANDS = [pytest.param(words, id=f"{name}: {' '.join(words)}") for name, words in COMMANDS]
APPLICATION = typer.main.get_command(command_line())


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_parses(words):
    """Raises where a verb or option does not exist, or a value has the wrong type; nothing runs."""
    command = APPLICATION
    while hasattr(command, "commands"):
        verb, *words = words
        command = command.commands[verb]
    if words not in (["-h"], ["--help"]):
        command.make_context(command.name, list(words))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_compiles_and_names_what_exists(page):
    for block in blocks(page, "python"):
        if not block.rstrip().endswith(","):  # a line of a registry, by itself
            compile(block, page.name, "exec")
        assert not {name for name in re.findall(r"\brb\.(\w+)", block) if not hasattr(rb, name)}


def write_files(folder):
    """The files that README's commands read: a model that is mostly right, on 300 patients of a split each."""
    rng = np.random.default_rng(0)
    n = 1200
    label = rng.random(n) < 0.3
    prob = 1 / (1 + np.exp(-(5 * label - 2.5 + rng.normal(0, 1, n))))
    rows = zip(range(n), label.astype(int), prob, rng.permuted(prob), strict=True)
    ours, theirs, softmax, new = (["image_id,patient_id,label,prob,split"], [], ["image_id,y_true,prob_0,prob_1"], [])
    theirs, new = [ours[0]], ["image_id,patient_id,label,prob,date"]
    for k, y, p, q in rows:
        split = "validation" if k < n // 2 else "test"
        ours.append(f"i{k},p{k // 2},{y},{p:.4f},{split}")
        theirs.append(f"i{k},p{k // 2},{y},{q:.4f},{split}")
        softmax.append(f"i{k},{y},{1 - p:.4f},{p:.4f}")
        new.append(f"n{k},q{k // 2},{y},{p:.4f},2026-{k // 200 + 1:02d}-01")
    files = {"predictions": ours, "ours": ours, "theirs": theirs, "softmax": softmax, "new": new}
    files["today"] = [",".join(one.split(",")[k] for k in (0, 1, 3)) for one in new[:201]]
    for name, lines in files.items():
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("readme")
    write_files(folder)
    return folder


@pytest.mark.usefixtures("undrawn")
def test_the_commands_of_readme_run_in_their_order(scored, monkeypatch, capsys):
    monkeypatch.chdir(scored)
    (block,) = [one for one in blocks(ROOT / "README.md", "sh") if "retinabench score predictions.csv" in one]
    lines = [line for line in block.splitlines() if line.startswith("retinabench")]
    assert len(lines) >= 8
    for line in lines:
        words = shlex.split(line, comments=True)[1:]
        few = ["--bootstrap", "20"] if words[0] in ("score", "report", "compare", "transfer") else []
        assert run([*words, *few]) == 0, (line, capsys.readouterr().err)
    assert (scored / "clinic" / "index.html").is_file()


def test_the_python_of_readme_runs(scored, monkeypatch, capsys):
    monkeypatch.chdir(scored)
    (block,) = [one for one in blocks(ROOT / "README.md", "python") if "read_predictions" in one]
    exec(compile(block.replace("bootstrap=1000", "bootstrap=20"), "README.md", "exec"), {})
    assert "AUROC with half of the images referred" in capsys.readouterr().out


def test_the_pytorch_of_readme_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    label = torch.arange(60) % 2
    model = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(8, 2))
    test_loader = [(label[:, None] + torch.randn(60, 1), label)]
    (block,) = [one for one in blocks(ROOT / "README.md", "python") if "evaluate_torch" in one]
    exec(compile(block, "README.md", "exec"), {"model": model, "test_loader": test_loader})
    assert len(capsys.readouterr().out.split()) == 2
    assert rb.read_predictions("dropout.parquet").samples == 20


LINKED = [*PAGES, *(ROOT / name for name in ("ARCHITECTURE.md", "SECURITY.md", "benchmarks/README.md"))]


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_relative_links_lead_to_files_of_this_repository(page):
    links = re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", page.read_text(encoding="utf-8"))
    targets = {"".join(link).partition("#")[0] for link in links if not re.match("https?:|mailto:|#", "".join(link))}
    assert [one for one in targets if not page.parent.joinpath(one).exists()] == []


MADE = {"commands.md", "formulas.md", "tutorials"}
PROSE = [page for page in PAGES if not {page.name, page.parent.name} & MADE]


def paragraphs(page):
    """The paragraphs and list entries of a page with their first lines; no code, tables, headings, pictures."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"^ *```.*?^ *```", lambda block: "\n" * block[0].count("\n"), text, flags=re.M | re.S)
    first, words = 0, []
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        body = line.strip()
        prose = bool(body) and not body.startswith(("|", "#", "!", "<")) and not line.startswith("    ")
        if words and (not prose or re.match(r"[-*>] |\d+\. ", body)):
            yield first, " ".join(words)
            words = []
        if prose:
            first, words = first if words else number, [*words, re.sub(r"^\d+\. ", "", body)]


def numbers(paragraph):
    """The numbers that a reader has to hold in mind: no code, links, bracketed intervals, dates, or years of citations."""
    text = re.sub(r"`[^`]*`|\[[^\]]*\](\([^)]*\))?|\d{4}-\d\d-\d\d|\b(19|20)\d\d\b", "", paragraph)
    return re.findall(r"(?<![\w.])(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?!\w)", text)


@pytest.mark.parametrize("page", PROSE, ids=lambda page: page.stem)
def test_a_paragraph_has_at_most_five_numbers(page):
    found = [(f"{page.relative_to(ROOT)}:{line}", numbers(text)) for line, text in paragraphs(page)]
    assert [(place, some) for place, some in found if len(some) > 5] == []


def test_the_made_pages_are_those_of_this_version():
    """`make pages` writes them; of the tutorials only the code is compared."""
    assert (ROOT / "docs" / "commands.md").read_text(encoding="utf-8") == documentation.commands()
    assert (ROOT / "docs" / "formulas.md").read_text(encoding="utf-8") == documentation.formulas()
    for notebook in documentation.NOTEBOOKS.glob("*.py"):
        page = (ROOT / "docs" / "tutorials" / f"{notebook.stem}.md").read_text(encoding="utf-8")
        code = [line for line in notebook.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
        assert len(code) > 20
        assert [line for line in code if line not in page] == []


def test_the_site_s_generated_pages_name_every_command_and_every_public_name():
    found = documentation.commands()
    for verb in [*(verb for verbs in GROUPS.values() for verb in verbs), "fidelity board"]:
        assert f"### {verb}\n" in found
    assert "| `--out` FOLDER |" in found
    assert "| `FILE` |" in found
    listed = re.findall(r"^::: (retinabench\.\S+)\.(\w+)$", entries.interface(), flags=re.MULTILINE)
    assert {name for _, name in listed} >= {*rb.__all__, "problem", "examine", "Bank", "Method"} - {"__version__"}
    assert [name for module, name in listed if not hasattr(importlib.import_module(module), name)] == []


def test_the_examples_of_the_python_reference_run():
    assert doctest.testfile(str(ROOT / "docs" / "api.md"), module_relative=False) == (0, 28)


def test_every_section_of_the_gallery_has_a_small_picture():
    text = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    found = [ROOT / "docs" / one.picture for one in pictures.sections(text)]
    assert len(found) == text.count("\n## ") > 10
    assert [file.name for file in found if not 5_000 < file.stat().st_size < pictures.MOST_BYTES] == []


def test_the_site_s_lists_name_every_entry():
    pages = (
        (entries.scores, SCORES), (entries.data, [*DATASETS, *TASKS]), (entries.targets, TARGETS),
        (entries.banks, bank_names()), (entries.posteriors, METHODS), (entries.methods, METHODS),
    )  # fmt: skip
    for page, registry in pages:
        found = page()
        assert [name for name in registry if name not in found] == []


def test_every_page_is_in_the_navigation():
    listed = set(re.findall(r"(\S+\.md)\s*$", (ROOT / "mkdocs.yml").read_text(), flags=re.MULTILINE))
    docs = ROOT / "docs"
    assert {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")} <= listed


def test_the_example_files_are_read():
    examples = ROOT / "examples"
    assert find_definition(str(examples / "bank.toml")).title == "My images"
    assert read_study(examples / "study.toml").seeds == 6
    assert read_card(examples).name == "my-method"
