"""One spelling per option: the same name takes the same kind of value in every verb, and every option says what it is."""

import dataclasses
import inspect
from collections import defaultdict

import pytest
import typer

from retinabench.cli import options
from retinabench.cli.banks import Asked, asks_about_images
from retinabench.cli.fidelity import hidden, reference, verbs
from retinabench.cli.main import app, run
from retinabench.cli.options import MOST_REPLICATES, FileReader, reads_predictions

HOMONYMS = {
    "--data": {"FOLDER", "BENCHMARK=FOLDER", "TASK=FOLDER"},
    "--images": {"N", "PATH"},
    "--keep": {"N", "FOLDER"},
    "--model": {"NETWORK", "FUNCTION"},
    "--out": {"FOLDER", "FILE"},
    "--reference": {"FILE", "TASK=FILE", "TRUTH"},
    "--rules": {"RULES", ""},
    "--threshold": {"THRESHOLD", "RULE"},
}
"""Options whose value is of several kinds; an empty metavar stands for listed choices."""


def parameters(command, path=()):
    """Yield verb and parameter of every command."""
    for name, one in getattr(command, "commands", {}).items():
        yield from parameters(one, (*path, name))
    if not hasattr(command, "commands"):
        for one in command.params:
            yield " ".join(path), one


FOUND = list(parameters(typer.main.get_command(app)))


def test_an_option_takes_the_same_kind_of_value_everywhere():
    kinds = defaultdict(set)
    for _, one in FOUND:
        for name in one.opts:
            if name.startswith("-") and not one.hidden:
                kinds[name].add(one.metavar or "")
    several = {name: found for name, found in kinds.items() if len(found) > 1}
    assert several == HOMONYMS


def test_every_option_and_argument_is_described_in_a_sentence():
    assert len(FOUND) > 200
    for verb, one in FOUND:
        text = one.help or ""
        assert text, (verb, one.name)
        assert text[-1] in ".…" or one.metavar, (verb, one.name, text)


def test_options_of_all_verbs_have_one_description():
    """Those that mean one thing: what is said of them is said once."""
    said = defaultdict(set)
    for _, one in FOUND:
        for name in one.opts:
            said[name].add(one.help)
    for name in (
        "--json",
        "--quiet",
        "-q",
        "--device",
        "--softmax",
        "--grades",
        "--uncertainty",
        "--readers",
        "--engine",
    ):
        assert len(said[name]) == 1, name


@pytest.mark.parametrize(("give", "settings"), [(reads_predictions, FileReader), (asks_about_images, Asked)])
def test_the_shared_options_are_fields_of_their_dataclass(give, settings):
    name = "reader" if settings is FileReader else "asked"
    scope: dict[str, object] = {}
    exec(f"def verb({name}):\n    return {name}", scope)
    verb = give(scope["verb"])
    added = inspect.signature(verb).parameters
    own = [field.name for field in dataclasses.fields(settings)]
    assert list(added) == [one for one in own if one not in ("unlabelled", "ungradable")]
    assert verb(**{key: one.default for key, one in added.items()}) == settings()


@pytest.mark.parametrize(
    ("name", "declared", "of"),
    [
        ("task", options.Target, (hidden.make, hidden.score, verbs.run)),
        ("data", options.TargetFolder, (hidden.make, hidden.score, verbs.run, reference.reference)),
        ("chains", options.Chains, (hidden.make, reference.reference)),
        ("burn_in", options.BurnIn, (hidden.make, reference.reference)),
        ("keep", options.Keep, (hidden.make, reference.reference)),
    ],
)
def test_an_option_is_declared_once(name, declared, of):
    for verb in of:
        assert inspect.signature(verb, eval_str=True).parameters[name].annotation is declared


@pytest.mark.parametrize("words", [["score", "f"], ["compare", "f", "f"], ["report", "f"], ["leaderboard"], ["transfer", "f"], ["occlude", "f"]])  # fmt: skip
def test_a_number_of_replicates_that_never_ends_is_refused(words, capsys):
    assert run([*words, "--bootstrap", str(MOST_REPLICATES + 1)]) == 2
    assert "'--bootstrap': Input should be less than or equal to 1000000" in capsys.readouterr().err
