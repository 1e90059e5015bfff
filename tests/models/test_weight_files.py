import json
import os
import pickle
import zipfile
from argparse import Namespace
from fractions import Fraction

import pytest
import torch
from safetensors.torch import save_file

from retinabench.core.errors import InputError
from retinabench.methods.training.checkpoint import load_tensors, save_tensors
from retinabench.models.weight_files import load_archive, load_safetensors, read_checkpoint


class Harmful:
    def __reduce__(self):
        return os.mkdir, ("harm-was-done",)


def test_no_code_of_a_checkpoint_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"a": Harmful()}, "zip.pt")
    (tmp_path / "raw.pt").write_bytes(pickle.dumps(Harmful()))
    torch.save({"a": Harmful()}, "old.pt", _use_new_zipfile_serialization=False)
    for name in ("zip.pt", "raw.pt", "old.pt"):
        for read in (load_tensors, read_checkpoint):
            with pytest.raises(InputError):
                read(tmp_path / name)
    assert not (tmp_path / "harm-was-done").exists()


def test_a_compressed_archive_is_refused_before_it_unfolds(tmp_path):
    save_tensors(tmp_path / "a.pt", {"w": torch.zeros(1000)})
    packed = zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(tmp_path / "a.pt") as whole, packed as bomb:
        for entry in whole.infolist():
            bomb.writestr(entry.filename, whole.read(entry))
    with pytest.raises(ValueError, match="compressed"):
        load_archive(tmp_path / "b.pt")
    with pytest.raises(InputError, match="compressed"):
        load_tensors(tmp_path / "b.pt")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"w": torch.zeros(1).expand(10**12)}, "fewer numbers"),
        ({"w": torch.sparse_coo_tensor([[0]], [1.0], (10**12,), check_invariants=True)}, "kind"),
        ({"w": torch.zeros(3, device="meta")}, "kind"),
        ({f"w{k}": tensor for tensor in [torch.zeros(9999)] for k in range(9)}, "claim more bytes"),
    ],
)
def test_a_tensor_that_claims_more_than_its_file_holds_is_refused(tmp_path, content, says):
    torch.save(content, tmp_path / "a.pt")
    with pytest.raises((ValueError, InputError), match=says):
        load_archive(tmp_path / "a.pt")


def test_headers_of_safetensors_are_measured_first(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes((1 << 40).to_bytes(8, "little") + b"{}")
    with pytest.raises(ValueError, match="header of 1,099"):
        load_safetensors(path)
    header = json.dumps({"w": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 4]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"1234")
    with pytest.raises(InputError, match="cannot be read as weights"):
        read_checkpoint(path)
    save_file({"w": torch.zeros(4).to(torch.float8_e4m3fn)}, path)
    with pytest.raises(ValueError, match="float8"):
        load_safetensors(path)


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


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
@pytest.mark.parametrize("text", ["version https://git-lfs.github.com/spec/v1\noid", "<!DOCTYPE html>"])
def test_text_in_place_of_a_file_is_no_pickle(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=f"is text, not a checkpoint; it begins with '{text[:9]}.*git-lfs"):
        read_checkpoint(tmp_path / name)
