"""The real timm, also where torchvision's compiled operators do not load."""

import importlib
import sys

import pytest
import torch

SIGNATURE = "nms(Tensor dets, Tensor scores, float iou) -> Tensor"
OPERATORS = (SIGNATURE, f"q{SIGNATURE}")
_declared = []


def real_timm():
    """Return timm, or skip the test where it is not installed. torchvision built for CUDA fails to import beside a PyTorch without
    it, since two operators are not declared."""
    try:
        importlib.import_module("torchvision")
    except ImportError:
        pass
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        for schema in OPERATORS:
            library.define(schema)
        _declared.append(library)  # the operators live as long as it
    return pytest.importorskip("timm", reason="timm is not installed")
