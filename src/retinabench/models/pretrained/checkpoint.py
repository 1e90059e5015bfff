"""Weights read from a file, without running code of it."""

from __future__ import annotations

import pickle
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.serialization import safe_globals

from retinabench.core.errors import InputError
from retinabench.models.tensor_files import is_safetensors, load_archive, load_safetensors

State = dict[str, Tensor]
NESTED = (
    "state_dict",
    "model",
    "model_state_dict",
    "module",
    "teacher",
    "student",
)  # keys that hold the weights
DEEPEST = 4


def read_checkpoint(path: Path) -> State:
    """Read the tensors of a safetensors file or of a PyTorch checkpoint, without running code of it.

    Args:
        path: The file.

    Returns:
        Name -> tensor, with the prefixes that wrappers add.

    Raises:
        InputError: The file is missing or damaged, or holds a pickle or no weights.
    """
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
    """Return what is wrong with a file that cannot be read."""
    with open(path, "rb") as handle:
        line = handle.read(40).decode(errors="replace").partition("\n")[0].strip()
    if line and line.isprintable() and "\N{REPLACEMENT CHARACTER}" not in line:
        return InputError(
            f"is text, not a checkpoint; it begins with '{line}'",
            file=path,
            hint="Fetch the file itself: git-lfs and web pages may leave a few lines in its place.",
        )
    if isinstance(error, pickle.UnpicklingError):
        return InputError(
            "holds a pickle with more than tensors, which is never loaded",
            file=path,
            hint="Save the state_dict alone, or convert it to safetensors.",
        )
    return InputError(f"cannot be read as weights ({str(error).partition(chr(10))[0]})", file=path)


def _tensors(content: Any, depth: int = 0) -> State:
    """Return the tensors of a checkpoint, which may stand below a key such as 'state_dict', at most `DEEPEST` keys deep.

    Of other keys, such as 'params' or 'model_ema', the one with most tensors is taken.
    """
    if not isinstance(content, Mapping) or depth > DEEPEST:
        return {}
    for key in NESTED:
        if isinstance(content.get(key), Mapping) and (inner := _tensors(content[key], depth + 1)):
            return inner
    here = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
    if here or depth:
        return here
    return max((_tensors(one, depth=DEEPEST) for one in content.values()), key=len, default={})
