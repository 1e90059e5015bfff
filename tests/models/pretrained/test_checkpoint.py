"""Weights read from files that are damaged."""

from argparse import Namespace
from fractions import Fraction

import pytest
import torch

from retinabench.core.errors import InputError
from retinabench.models.pretrained.checkpoint import read_checkpoint


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_a_truncated_checkpoint_is_refused(tmp_path, suffix):
    state = {"weight": torch.ones(20, 30)}
    path = tmp_path / f"w.{suffix}"
    if suffix == "pt":
        torch.save(state, path)
    else:
        pytest.importorskip("safetensors.torch").save_file(state, path)
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(InputError, match=r"cannot be read as weights"):
        read_checkpoint(path)


def test_a_flipped_bit_of_a_weight_is_found_by_the_checksum_that_pytorch_does_not_read(tmp_path):
    path = tmp_path / "w.pt"
    torch.save({"weight": torch.ones(20, 30)}, path)
    content = path.read_bytes()
    at = content.index(torch.ones(600).numpy().tobytes()) + 100
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    with pytest.raises(InputError, match="does not match its CRC-32"):
        read_checkpoint(path)


def test_options_beside_the_weights_are_passed_over_and_other_objects_refused(tmp_path):
    path = tmp_path / "w.pth"
    torch.save({"model": {"weight": torch.ones(2)}, "args": Namespace(lr=1e-3, data=["a"])}, path)
    assert list(read_checkpoint(path)) == ["weight"]
    for other in (Fraction(1, 2), Namespace(lr=Fraction(1, 2))):
        torch.save({"model": {"weight": torch.ones(2)}, "args": other}, path)
        with pytest.raises(InputError, match="pickle with more than tensors"):
            read_checkpoint(path)


@pytest.mark.parametrize("wrap", [
    lambda state: {"params": state},
    lambda state: {"epoch": 3, "model_ema": state, "optimizer": {"step": torch.ones(1)}},
    lambda state: {"optimizer": {"state": {0: {"step": torch.ones(1)}}}, "net": state},
])  # fmt: skip
def test_weights_stand_below_a_key_of_any_name(tmp_path, wrap):
    torch.save(wrap({"a.weight": torch.ones(2), "a.bias": torch.ones(1)}), tmp_path / "w.pt")
    assert set(read_checkpoint(tmp_path / "w.pt")) == {"a.weight", "a.bias"}


def test_safetensors_are_known_by_their_beginning_too(tmp_path):
    pytest.importorskip("safetensors.torch").save_file({"weight": torch.ones(2)}, tmp_path / "w.bin")
    assert torch.equal(read_checkpoint(tmp_path / "w.bin")["weight"], torch.ones(2))


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
@pytest.mark.parametrize("text", ["version https://git-lfs.github.com/spec/v1\noid", "<!DOCTYPE html>"])
def test_text_in_place_of_a_file_is_no_pickle(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=f"is text, not a checkpoint; it begins with '{text[:9]}.*git-lfs"):
        read_checkpoint(tmp_path / name)
