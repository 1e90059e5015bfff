"""What of the documentation is made: tutorials from the notebooks, and what commands, modules and registries say of themselves.

`make pages` writes `docs/commands.md` (the help of every command), `docs/formulas.md` (docstrings of modules) and
`docs/tutorials/` (`examples/notebooks/*.py`, executed, with their output and figures), so that they are read in any clone. As a
hook of mkdocs (`mkdocs.yml`) this file adds the ends of pages (`entries.py`), some of which need its plugins.
"""

import inspect
import os
import shutil
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from entries import ENTRIES, formulas

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "examples" / "notebooks"


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for name, entries in ENTRIES.items():
        files.remove(files.get_file_from_path(name))
        content = f"{(ROOT / 'docs' / name).read_text(encoding='utf-8')}\n{entries()}"
        files.append(File.generated(config, name, content=content))
    return files


def main() -> None:
    pages: dict[str, str | bytes] = {"commands.md": commands(), "formulas.md": formulas()}
    for path in sorted(NOTEBOOKS.glob("*.py")):
        text, figures = tutorial(path)
        pages |= {f"tutorials/{path.stem}.md": text, **{f"tutorials/{name}": one for name, one in figures.items()}}
    shutil.rmtree(ROOT / "docs" / "tutorials", ignore_errors=True)
    for name, content in pages.items():
        (path := ROOT / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def tutorial(path: Path) -> tuple[str, dict[str, bytes]]:
    import tempfile

    import jupytext
    from nbconvert import MarkdownExporter
    from nbconvert.preprocessors import ExecutePreprocessor

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    notebook = jupytext.read(path)
    with tempfile.TemporaryDirectory() as folder:
        ExecutePreprocessor(timeout=300, kernel_name="python3").preprocess(notebook, {"metadata": {"path": folder}})
    names = {"unique_key": path.stem, "output_files_dir": path.stem}
    text, resources = MarkdownExporter().from_notebook_node(notebook, names)
    source = f"examples/notebooks/{path.name}"
    head = f"*This page is [`{source}`](https://github.com/retinabench/retinabench/blob/main/{source}), executed by `make pages`.*\n"
    title, _, rest = text.strip().partition("\n")
    return f"{title}\n\n{head}\n{rest}", resources["outputs"]


def commands() -> str:
    from retinabench.cli.fidelity import VERBS
    from retinabench.cli.main import GROUPS, verbs_of

    groups = {group: dict(verbs_of(group)) for group in GROUPS}
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


if __name__ == "__main__":
    main()
