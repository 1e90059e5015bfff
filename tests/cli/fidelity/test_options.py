"""The verbs that sample a target's posterior take the same options."""

import inspect

import pytest

from retinabench.cli.fidelity import hidden, options, reference, verbs


@pytest.mark.parametrize(
    ("name", "declared", "of"),
    [
        ("task", options.Task, (hidden.make, hidden.score, verbs.run)),
        ("data", options.Source, (hidden.make, hidden.score, verbs.run, reference.reference)),
        ("chains", options.Chains, (hidden.make, reference.reference)),
        ("burn_in", options.BurnIn, (hidden.make, reference.reference)),
        ("keep", options.Keep, (hidden.make, reference.reference)),
    ],
)
def test_an_option_is_declared_once(name, declared, of):
    for verb in of:
        assert inspect.signature(verb, eval_str=True).parameters[name].annotation is declared
