"""Tensors of an exported model, checked before memory is taken for them."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run
from retinabench.experiments.exporting.member_files import (
    leaf_runs,
    member_file,
    one_line,
    read_posterior,
    read_scale,
    read_tensors,
)
from retinabench.models.build import build_model

CPU = torch.device("cpu")


def run(*words):
    return load_run(None, ["model.name=lenet", *words], data="d")


def test_the_trained_members_of_pooled_runs_are_found():
    assert [one.seed for one in leaf_runs(run("method=map", "seed=4"))] == [4]
    assert [one.seed for one in leaf_runs(run("method=ensemble", "method.members=2"))] == [0, 1]
    for words, says in (
        (["method=temperature"], "is fitted to the predictions"),
        (["cross_validation.folds=2"], "is not a model"),
    ):
        with pytest.raises(InputError, match=says):
            list(leaf_runs(run(*words)))


def test_tensors_are_read_or_the_fault_is_named(tmp_path):
    path = tmp_path / member_file(0)
    with pytest.raises(InputError, match="is missing"):
        read_tensors(path)
    save_file({"w": torch.ones(2)}, path)
    assert torch.equal(read_tensors(path, ("w",))["w"], torch.ones(2))
    with pytest.raises(InputError, match="lacks the tensor 'v'"):
        read_tensors(path, ("v",))
    for bad in (torch.nan, torch.inf):
        save_file({"w": torch.tensor([1.0, bad])}, path)
        with pytest.raises(InputError, match="not finite"):
            read_tensors(path)
    path.write_bytes(b"\0" * 9)
    with pytest.raises(InputError, match="is damaged"):
        read_tensors(path)


@pytest.mark.parametrize(
    ("mean", "std", "says"),
    [
        (torch.zeros(3), torch.tensor([1.0, 0.0, 1.0]), "not all std are above 0"),
        (torch.zeros(2), torch.ones(3), "not 3 numbers each"),
        (torch.zeros(3), torch.ones(3, dtype=torch.float64), "not 3 numbers each"),
    ],
)
def test_a_scale_that_is_none_is_refused(tmp_path, mean, std, says):
    save_file({"mean": torch.zeros(3), "std": torch.full((3,), 2.0)}, tmp_path / "s")
    assert np.array_equal(read_scale(tmp_path / "s", run())[1], [2, 2, 2])
    save_file({"mean": mean, "std": std}, tmp_path / "s")
    with pytest.raises(InputError, match=says):
        read_scale(tmp_path / "s", run())


def test_a_posterior_needs_as_many_numbers_as_its_network_has(tmp_path):
    tensors = build_model(run().model, 3).state_dict()
    found = read_posterior(run(), tensors, CPU, tmp_path / "p")
    assert torch.equal(found.state()["conv1.weight"], tensors["conv1.weight"])
    fewer = dict(list(tensors.items())[:-1])
    with pytest.raises(InputError, match=r"another network .* parameters"):
        read_posterior(run(), fewer, CPU, tmp_path / "p")
    renamed = {f"x{name}": tensor for name, tensor in tensors.items()}
    with pytest.raises(InputError, match="the tensors of another network"):
        read_posterior(run(), renamed, CPU, tmp_path / "p")


def test_an_error_of_many_lines_becomes_one():
    assert one_line(ValueError("a\n  b " + "x" * 200)) == "a b " + "x" * 116
