"""Weights read from files that are damaged."""

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
