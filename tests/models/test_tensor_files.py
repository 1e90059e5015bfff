"""Files of tensors that were made to do harm; each is refused with little memory."""

import json
import os
import pickle
import zipfile

import pytest
import torch
from safetensors.torch import save_file

from retinabench.core.errors import InputError
from retinabench.methods.training.checkpoint import load_tensors, save_tensors
from retinabench.models.pretrained.checkpoint import read_checkpoint
from retinabench.models.tensor_files import load_archive, load_safetensors


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
    with (
        zipfile.ZipFile(tmp_path / "a.pt") as whole,
        zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED) as bomb,
    ):
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


def test_a_checkpoint_that_holds_itself_ends(tmp_path):
    loop = {"w": torch.zeros(2)}
    loop["model"] = loop
    torch.save(loop, tmp_path / "a.pt")
    assert set(read_checkpoint(tmp_path / "a.pt")) == {"w"}


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
