"""Tensors from an untrusted file: no code of it runs, and nothing unfolds to more than the file holds.

`torch.load(weights_only=True)` and safetensors construct tensors and plain containers alone. Beyond that, an archive may be
compressed a thousandfold, a tensor of one number may claim a shape of terabytes (stride 0), and a header may list millions of
tensors; all three are refused before memory is asked for.
"""

from __future__ import annotations

import importlib
import pickle
import warnings
import zipfile
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.serialization import safe_globals

from retinabench.core.errors import InputError

MAX_HEADER = 1 << 24
"""Bytes of a safetensors header, or of the list of tensors in a PyTorch archive: some 100,000 tensors."""

SHARED = 4
"""All tensors together may claim so many times the bytes of their file: a tensor may be stored once and named twice."""

KINDS = (
    torch.float64, torch.float32, torch.float16, torch.bfloat16,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
)  # fmt: skip


def load_archive(path: Path, *, mapped: bool = False, checked: bool = False) -> Any:
    """Return the content of a file of `torch.save`; `checked` compares its parts with their CRC-32, which PyTorch does not read."""
    size = path.stat().st_size
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
                raise ValueError("compressed, which PyTorch does not write")
            if sum(entry.file_size for entry in entries) > size:
                raise ValueError("claims more bytes than it holds")
            if checked and (damaged := archive.testzip()) is not None:
                raise ValueError(f"is damaged: {damaged!r} does not match its CRC-32")
        if any(entry.filename.endswith("data.pkl") and entry.file_size > MAX_HEADER for entry in entries):
            raise ValueError(f"lists its tensors in more than {MAX_HEADER:,} bytes")
    with warnings.catch_warnings():  # of damaged files that it then refuses
        warnings.simplefilter("ignore")
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    _check(_tensors_in(content), size)
    return content


def is_safetensors(path: Path) -> bool:
    """Return whether a file has the suffix of safetensors, or begins as they do: the length of a header, and the header in JSON."""
    with open(path, "rb") as handle:
        return handle.read(9)[5:] == b"\0\0\0{" or path.suffix == ".safetensors"


def load_safetensors(path: Path) -> dict[str, Tensor]:
    with open(path, "rb") as handle:
        length = int.from_bytes(handle.read(8), "little")
    if length > MAX_HEADER:
        raise ValueError(f"has a header of {length:,} bytes, more than {MAX_HEADER:,}")
    tensors: dict[str, Tensor] = importlib.import_module("safetensors.torch").load_file(path)
    _check(tensors.values(), path.stat().st_size)
    return tensors


def _check(tensors: Any, size: int) -> None:
    claimed = 0
    for tensor in tensors:
        if tensor.layout != torch.strided or tensor.device.type != "cpu" or tensor.dtype not in KINDS:
            raise ValueError(f"holds a tensor of kind {tensor.layout}, {tensor.dtype} on {tensor.device}")
        needed = tensor.numel() * tensor.element_size()
        if needed > tensor.untyped_storage().nbytes():
            raise ValueError(f"a tensor of shape {tuple(tensor.shape)} holds fewer numbers")
        claimed += needed
    if claimed > SHARED * size:
        raise ValueError("its tensors claim more bytes than it holds")


def _tensors_in(content: Any) -> Iterator[Tensor]:
    """Yield every tensor; a container that holds itself is entered once."""
    open_ones, seen = [content], set[int]()
    while open_ones:
        one = open_ones.pop()
        if isinstance(one, Tensor):
            yield one
        elif isinstance(one, Mapping | list | tuple | set) and id(one) not in seen:
            seen.add(id(one))
            open_ones.extend(one.values() if isinstance(one, Mapping) else one)


State = dict[str, Tensor]
NESTED = ("state_dict", "model", "model_state_dict", "module", "teacher", "student")  # keys that hold the weights
DEEPEST = 4


def read_checkpoint(path: Path) -> State:
    """Read the tensors of a safetensors file or of a PyTorch checkpoint, without running code of it."""
    try:
        if is_safetensors(path):
            content: Any = load_safetensors(path)
        else:
            # Training scripts of timm and MAE keep their parsed options beside the weights: attributes without code.
            with safe_globals([Namespace]):
                content = load_archive(path, checked=True)
    except FileNotFoundError:
        raise InputError("does not exist", file=path) from None
    except Exception as error:  # damaged archives and headers raise errors of many kinds
        raise _refused(path, error) from None
    state = _tensors(content)
    if not state:
        raise InputError("holds no tensors", file=path, hint="Save the state_dict of the network.")
    return state


def _refused(path: Path, error: Exception) -> InputError:
    with open(path, "rb") as handle:
        line = handle.read(40).decode(errors="replace").partition("\n")[0].strip()
    if line and line.isprintable() and "\N{REPLACEMENT CHARACTER}" not in line:
        hint = "Fetch the file itself: git-lfs and web pages may leave a few lines in its place."
        return InputError(f"is text, not a checkpoint; it begins with '{line}'", file=path, hint=hint)
    if isinstance(error, pickle.UnpicklingError):
        hint = "Save the state_dict alone, or convert it to safetensors."
        return InputError("holds a pickle with more than tensors, which is never loaded", file=path, hint=hint)
    return InputError(f"cannot be read as weights ({str(error).partition(chr(10))[0]})", file=path)


def _tensors(content: Any, depth: int = 0) -> State:
    """Return the tensors of a checkpoint, at most `DEEPEST` keys deep: below a key of `NESTED`, or below the key with most of them, such as 'params' or 'model_ema'."""
    if not isinstance(content, Mapping) or depth > DEEPEST:
        return {}
    for key in NESTED:
        if isinstance(content.get(key), Mapping) and (inner := _tensors(content[key], depth + 1)):
            return inner
    here = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
    if here or depth:
        return here
    return max((_tensors(one, depth=DEEPEST) for one in content.values()), key=len, default={})
