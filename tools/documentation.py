"""What mkdocs makes when the documentation is built: the tutorials from the notebooks, and the page of the commands.

A hook of mkdocs (`mkdocs.yml`): `examples/notebooks/*.py` are executed and become `tutorials/*.md` with their output and
figures; `commands.md` is the help of every command, `api.md` the list of all public names, `formulas.md` what modules say of the
statistics that they compute. Pages about what registries hold get
its entries: `methods.md` the card of every method, `data.md` that of every data set, `scores.md` the formula of every score and when
it misleads, `fidelity.md` the targets, `concept-banks.md` the banks. All of that exists in the built site only.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

if TYPE_CHECKING:
    from retinabench.metrics.score_spec import ScoreSpec

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "examples" / "notebooks"
METHOD_GROUPS = {
    "methods": "A network, and dropout",
    "variational": "Variational inference",
    "mcmc": "Markov chain Monte Carlo",
    "ensembles": "Ensembles and averages along a training",
    "posthoc": "After training",
}
"""Package of methods -> heading of their cards."""
FORMULAS = {
    "Certified thresholds": "metrics.guarantees.certificate",
    "Targets of a certificate": "metrics.guarantees.risks",
    "Tests by betting": "metrics.guarantees.betting",
    "Three zones": "metrics.guarantees.triage",
    "Labels of new patients": "metrics.guarantees.refutation",
    "Monitoring": "metrics.monitoring.monitor",
    "Evidence at any time": "metrics.monitoring.e_process",
    "Covariate shift": "metrics.guarantees.shift.weighted",
    "Label shift": "metrics.guarantees.shift.label_shift",
    "Differences of two models": "metrics.comparison.differences",
    "Ranks of methods": "metrics.comparison.standings",
    "Significance in the papers' tables": "reports.papers.comparison",
    "Subgroups": "metrics.clinical.subgroups",
    "Planning an AUROC": "metrics.planning.auroc",
    "Planning a validation": "metrics.planning.validation",
    "Confidence sequences": "concepts.inference.confidence_sequences",
    "Claims": "concepts.inference.claims",
    "Unpredictability": "concepts.inference.unpredictability",
    "Answers about new patients": "concepts.inference.patients",
    "AUROC of answers": "concepts.inference.ranking",
    "Rates of a concept": "concepts.inference.rates",
    "Questioning strategies": "concepts.questioning.strategies",
    "Equivalent exact draws": "fidelity.scoring.equivalent_draws",
    "Submissions nearer than possible": "fidelity.scoring.nearness",
    "Places on a fidelity board": "fidelity.scoring.resolution",
    "Damage": "data.preprocessing.corruption",
    "Criteria of a search": "experiments.search.criteria",
    "Search spaces": "experiments.search.space",
}
"""Heading -> module whose docstring states the formulas, assumptions and sources."""


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages to those of `docs/`."""
    from mkdocs.structure.files import File

    pages: dict[str, str | bytes] = {
        "api.md": interface(),
        "commands.md": commands(),
        "formulas.md": formulas(),
    }
    for name, entries in ENTRIES.items():
        files.remove(files.get_file_from_path(name))
        pages[name] = f"{(ROOT / 'docs' / name).read_text(encoding='utf-8')}\n{entries()}"
    for path in sorted(NOTEBOOKS.glob("*.py")):
        text, figures = tutorial(path)
        pages[f"tutorials/{path.stem}.md"] = text
        pages |= {f"tutorials/{name}": content for name, content in figures.items()}
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def tutorial(path: Path) -> tuple[str, dict[str, bytes]]:
    """Execute a notebook.

    Args:
        path: A percent script.

    Returns:
        The page, and its figures by name.
    """
    import tempfile

    import jupytext
    from nbconvert import MarkdownExporter
    from nbconvert.preprocessors import ExecutePreprocessor

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    notebook = jupytext.read(path)
    with tempfile.TemporaryDirectory() as folder:
        run = ExecutePreprocessor(timeout=300, kernel_name="python3")
        run.preprocess(notebook, {"metadata": {"path": folder}})
    text, resources = MarkdownExporter().from_notebook_node(
        notebook, {"unique_key": path.stem, "output_files_dir": path.stem}
    )
    head = f"*This page is [`examples/notebooks/{path.name}`]({_source(path)}), executed when the site was built.*\n"
    title, _, rest = text.strip().partition("\n")
    return f"{title}\n\n{head}\n{rest}", resources["outputs"]


def _source(path: Path) -> str:
    import tomllib

    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    return f"{urls['Repository']}/blob/main/{path.relative_to(ROOT).as_posix()}"


def interface() -> str:
    """Return the page of the Python interface: every public name, for mkdocstrings to fill in."""
    import retinabench

    modules = retinabench._MODULES
    names = [f"::: retinabench.{modules[name]}.{name}" for name in retinabench.__all__ if name in modules]
    lead = "Everything here is `retinabench.NAME`; `import retinabench as rb` loads neither PyTorch nor any data set."
    return "\n\n".join(
        ["# Python interface", lead, *names, "::: retinabench.predictions.adapters.Constructors"]
    )


def formulas() -> str:
    """Return the page of the formulas: docstrings of modules, for mkdocstrings to fill in."""
    lead = "Formulas, assumptions, proofs and sources, as the modules that compute them state them."
    options = (
        "    options:\n      members: []\n      show_root_heading: false\n      show_root_toc_entry: false"
    )
    parts = [f"## {title}\n\n::: retinabench.{module}\n{options}" for title, module in FORMULAS.items()]
    return "\n\n".join(["# Formulas and proofs", lead, *parts])


def methods() -> str:
    """Return the card of each method, for mkdocstrings to fill in."""
    from retinabench.methods.registry import METHODS

    parts = []
    options = "    options:\n      members: [Config]\n      show_root_heading: false\n      heading_level: 4"
    for folder, title in METHOD_GROUPS.items():
        parts.append(f"## {title}")
        for name, method in METHODS.items():
            if method.__name__.startswith("retinabench.") and method.__name__.split(".")[-2] == folder:
                parts.append(f"### {name}\n\n::: {method.__name__}\n{options}")
    return "\n\n".join(parts)


def scores() -> str:
    """Return tables of the scores that are given and of those on request, and the sources of all."""
    from retinabench.metrics.registry import SCORES
    from retinabench.metrics.score_spec import ON_REQUEST

    parts = []
    head = ["name", "score", "formula", "it misleads when"]
    for title, asked in (("Every score", False), ("On request", True)):
        alike: dict[tuple[str, str], list[str]] = {}
        for name, score in SCORES.items():
            if (score.sets == ON_REQUEST) == asked:
                alike.setdefault((score.formula, score.misleads), []).append(name)
        cells = [
            (_code(names), _heading([SCORES[name] for name in names]), *key) for key, names in alike.items()
        ]
        parts.append(f"## {title}\n\n{_table(head[:3] if asked else head, cells)}")
    sources: dict[str, list[str]] = {}
    for name, score in SCORES.items():
        sources.setdefault(_source_of(score.function), []).append(re.sub(r"_at_\d+$", "_at_…", name))
    listed = [f"- {source} {_code(dict.fromkeys(names))}" for source, names in sources.items() if source]
    return "\n\n".join([*parts, "## Sources", "\n".join(listed)])


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _heading(alike: list[ScoreSpec]) -> str:
    """Return the heading of scores with one definition; labels of several differ behind the last comma."""
    first = alike[0]
    return first.heading if len(alike) == 1 else replace(first, label=first.label.rpartition(", ")[0]).heading


def _source_of(function: Any) -> str:
    """Return the reference that the docstring of a score's function gives, on one line."""
    text = inspect.getdoc(getattr(function, "func", function)) or ""
    return " ".join(text.partition("References:\n")[2].split())


def data() -> str:
    """Return a table of the tasks, the card of every data set, and how to get its files."""
    from retinabench.data.registry import DATASETS, TASKS
    from retinabench.data.tasks import SPLITS

    names = ", ".join(split.replace("_", " ") for split in SPLITS)
    head = ["`--task`", "what it does", "referable from grade", f"released counts: {names}"]
    cells = [
        (
            f"`{name}`",
            " ".join((inspect.getdoc(one.divide) or "").split()),
            str(one.referable_from),
            " / ".join(f"{count:,}" for count in one.published or ()),
        )
        for name, one in TASKS.items()
    ]
    parts = ["## The tasks", _table(head, cells), "## The data sets"]
    for name, dataset in DATASETS.items():
        title, _, card = dataset.card.partition("\n")
        rows = [line for line in card.splitlines() if not line.startswith("| how to get it |")]
        parts += [f"### {name}", title, "\n".join(rows).strip(), f"**How to get it.** {dataset.steps}"]
    return "\n\n".join(parts)


def targets() -> str:
    """Return a table of the targets of the fidelity benchmark."""
    from retinabench.fidelity.targets.registry import TARGETS

    head = ["target", "data", "network", "weights", "training points", "test points"]
    cells = [
        (f"`{name}`", one.title, one.network, f"{one.parameters:,}", f"{one.train:,}", ", ".join(one.groups))
        for name, one in TARGETS.items()
    ]
    return f"## The targets\n\n{_table(head, cells)}"


def banks() -> str:
    """Return a table of the concept banks that come along."""
    from retinabench.concepts.banks.definition import bank_names, find_definition

    head = ["bank", "what", "where its files come from", "licence", "reference"]
    found = {name: find_definition(name) for name in bank_names()}
    cells = [
        (f"`{name}`", one.title, one.download, one.licence, one.reference) for name, one in found.items()
    ]
    return f"## The banks\n\n{_table(head, cells)}"


def commands() -> str:
    """Return the page of the commands: what each does, an example, arguments and options."""
    from retinabench.cli.fidelity.verbs import VERBS
    from retinabench.cli.main import GROUPS

    groups = {group: dict(verbs) for group, verbs in GROUPS.items()}
    groups["Approximate inference"].update({f"fidelity {verb}": entry for verb, entry in VERBS.items()})
    lines = ["# Commands", "", "`retinabench --help` and `retinabench VERB --help` say the same.", ""]
    for group, verbs in groups.items():
        lines += [f"## {group}", ""]
        for verb, (function, example) in verbs.items():
            lines += [f"### {verb}", "", (inspect.getdoc(function) or "").strip(), "", f"    {example}", ""]
            rows = [_row(one) for one in inspect.signature(function, eval_str=True).parameters.values()]
            if rows:
                lines += ["| argument or option | what it is | default |", "|---|---|---|", *rows, ""]
    return "\n".join(lines)


def _row(parameter: inspect.Parameter) -> str:
    """Return the line of an argument or option in the table of its command."""
    kind, info = get_args(parameter.annotation)[:2]
    # typer keeps the first name where a default stands in its older form.
    names = [str(name) for name in (info.default, *(info.param_decls or ())) if str(name).startswith("-")]
    option = bool(names)
    values = get_args(kind) if get_origin(kind) is Literal else ()
    value = info.metavar or (" or ".join(values) if option else "")
    shown = ", ".join(f"`{name}`" for name in names) or f"`{info.metavar or parameter.name.upper()}`"
    default = parameter.default
    if default is inspect.Parameter.empty:
        stated = "required"
    else:
        stated = "" if default is None or default is False else f"`{default}`"
    cells = (f"{shown} {value}" if option and value else shown, info.help or "", stated)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _table(head: list[str], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a Markdown table; of rows that are longer than the head the last cells are left out."""
    lines = [" | ".join(one.replace("|", "\\|") for one in row[: len(head)]) for row in rows]
    return "\n".join(
        [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {line} |" for line in lines)]
    )


ENTRIES = {
    "methods.md": methods,
    "scores.md": scores,
    "data.md": data,
    "fidelity.md": targets,
    "concept-banks.md": banks,
}
"""Page of `docs/` -> what is written below its text."""
