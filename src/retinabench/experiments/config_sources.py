"""Where the settings of a run come from: a TOML file or a preset of the package, and `key=value` arguments.

Presets are TOML files below `presets/`, and the rows of one table of published values, `presets/published.toml`.
"""

from __future__ import annotations

import tomllib
from copy import deepcopy
from functools import cache
from pathlib import Path

from retinabench.core.errors import InputError, nearest
from retinabench.core.results import JsonObject
from retinabench.methods.settings import Optimizer

HERE = Path(__file__).parent / "presets"
TABLE = HERE / "published.toml"


def find(source: str | Path) -> tuple[Path, JsonObject]:
    """Return the file that holds a configuration, and its content, which the caller may change.

    Args:
        source: A path ending in .toml, or the name of a preset.

    Returns:
        The file, and its content as nested tables.

    Raises:
        InputError: There is none, or the file is not TOML.
    """
    if Path(source).suffix == ".toml":
        return Path(source), read_toml(Path(source))
    known = _preset_files()
    name = canonical(str(source))
    if name not in known and Path(source).is_file():
        raise InputError(
            "is not named .toml", file=source, hint="Rename a file of settings, or name a preset."
        )
    if name not in known:
        raise InputError(f"unknown preset '{source}'", hint=f"{nearest(name, known)} Or name a .toml file.")
    file, content = known[name]
    return file, deepcopy(content)


def override(tree: JsonObject, word: str) -> None:
    """Set `a.b=value` in the tree; the value is read as TOML, or taken as text.

    Raises `InputError` where `word` is nothing of the kind.
    """
    path, equals, text = word.partition("=")
    if not equals or not path:
        raise InputError(f"'{word}' is not key=value", hint="For example: optimizer.lr=0.01")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    except (ValueError, RecursionError):  # a number of thousands of digits, lists in lists in lists
        raise InputError(
            f"'{word[:60]}…' holds no usable value", hint="For example: optimizer.lr=0.01"
        ) from None
    *tables, key = path.split(".")
    for table in tables:
        inner = tree.setdefault(table, {})
        # `method = "map"` is short for a table with that name.
        tree[table] = inner if isinstance(inner, dict) else {"name": inner}
        tree = tree[table]
    tree[key] = value


def read_toml(file: Path) -> JsonObject:
    """Return the content of a TOML file; raises `InputError` where it is absent, unreadable or not TOML."""
    try:
        return tomllib.loads(file.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        raise InputError("does not exist", file=file) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=file) from None
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", file=file, hint="Save it as UTF-8.") from None
    except ValueError as error:  # also of numbers of thousands of digits
        raise InputError(f"is not TOML: {error}", file=file) from None
    except RecursionError:
        raise InputError(
            "is not TOML of settings: its tables or lists are nested too deep", file=file
        ) from None


def presets() -> dict[str, JsonObject]:
    """Return the content of the configurations that come with the package, by name: `demo/map`, `published/mfvi/country/joint`."""
    return {name: content for name, (_, content) in _preset_files().items()}


def _preset_files() -> dict[str, tuple[Path, JsonObject]]:
    """Return every preset's file and its content, by name."""
    files = {
        str(path.relative_to(HERE).with_suffix("")): (path, _read(path))
        for path in sorted(HERE.glob("*/*.toml"))
    }
    table = dict(_read(TABLE))
    shared = table.pop("shared")
    rows = {
        f"{kind}/{method}/{task}/{criterion}": (
            TABLE,
            {"task": name, **_run(method, {**block[behaviour], **values}, shared)},
        )
        for kind, behaviour in (("published", "released"), ("corrected", "corrected"))
        for method, block in table.items()
        for task, name in shared[f"{behaviour}_task"].items()
        for criterion, values in block[task].items()
    }
    return files | rows


def canonical(name: str) -> str:
    """Return the name that `presets` knows for an earlier one: `published/map-country-joint` and its like."""
    return name.replace("-", "/") if name.startswith("published/") else name


def _run(method: str, row: JsonObject, shared: JsonObject) -> JsonObject:
    """Put one row of the table into the shape of a Run's tables."""
    optimizer_keys = Optimizer.model_fields
    optimizer = dict(shared["optimizer"]) | {key: row[key] for key in row if key in optimizer_keys}
    # Published as 1 - momentum; rounded to what was printed.
    optimizer["momentum"] = round(1 - row["one_minus_momentum"], 10)
    own = {key: row[key] for key in row if key not in optimizer_keys and key != "one_minus_momentum"}
    return {
        "model": dict(shared["model"]),
        "method": {"name": method, **own},
        "optimizer": optimizer,
    }


@cache
def _read(path: Path) -> JsonObject:
    return tomllib.loads(path.read_text(encoding="utf-8"))
