"""The public interface: every exported name exists and has an example that runs."""

import doctest
import importlib
import inspect
import typing
from pathlib import Path

import pytest

import retinabench as rb

LITERALS = {"Metric", "Outputs", "Per", "Rules"}
NAMES = [name for name in rb.__all__ if name not in {"__version__", *LITERALS}]
PACKAGE = Path(rb.__file__).parent
WITH_EXAMPLES = sorted(
    "retinabench." + path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".")
    for folder in ("core", "predictions", "metrics")
    for path in (PACKAGE / folder).rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8") and path.name != "__init__.py"
)


@pytest.mark.parametrize("name", NAMES)
def test_every_exported_name_has_an_example_that_runs(name):
    exported = getattr(rb, name)
    assert "Examples:\n" in inspect.getdoc(exported)
    found = doctest.DocTestFinder(recurse=False).find(exported, name, globs={})
    assert any(test.examples for test in found)
    for test in found:
        assert doctest.DocTestRunner().run(test).failed == 0


@pytest.mark.parametrize("module", ["retinabench", *WITH_EXAMPLES])
def test_the_examples_of_a_module_run(module):
    assert doctest.testmod(importlib.import_module(module)).failed == 0


@pytest.mark.parametrize("name", sorted(LITERALS))
def test_a_literal_names_its_values(name):
    assert typing.get_args(getattr(rb, name))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing"):
        _ = rb.nothing
    assert set(rb.__all__) <= set(dir(rb))
