"""Run pydoclint (settings in pyproject.toml) on folders, and print what it finds in docstrings with arguments.

A function with three or more parameters needs `Args:` (tests/architecture). Where a docstring has that section, it
names every argument in order, and what is returned or yielded: in a section, or, as Google's style guide allows, in
the first paragraph.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

FIRST_PARAGRAPH = {"DOC201": "return", "DOC402": "yield"}


def docstrings(path: Path) -> dict[int, str]:
    """The docstring of each function of a module, by the line of its `def` and of each of its decorators."""
    found = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = [node.lineno, *(decorator.lineno for decorator in node.decorator_list)]
            found |= dict.fromkeys(lines, ast.get_docstring(node) or "")
    return found


def main() -> int:
    """Print what is left of pydoclint's report; return 1 where anything is."""
    command = [sys.executable, "-m", "pydoclint.main", "--quiet", *sys.argv[1:]]
    report = subprocess.run(command, capture_output=True, text=True)
    path, texts, problems = Path(), {}, []
    for line in (report.stdout + report.stderr).splitlines():
        if line.endswith(".py"):
            path = Path(line.strip())
            texts = docstrings(path)
        elif match := re.match(r"\s+(\d+): (DOC\d+): (.*)", line):
            number, code, message = int(match[1]), match[2], match[3]
            text = texts.get(number, "Args:")
            stated = FIRST_PARAGRAPH.get(code, "\0") in text.partition("\n\n")[0].lower()
            if "Args:" in text and not stated:
                problems.append(f"{path}:{number} {code} {message.partition(' (Or could be')[0]}")
        elif line.strip():
            problems.append(line)
    print("\n".join(problems), end="\n" * bool(problems))
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
