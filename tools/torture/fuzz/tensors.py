"""Files of tensors: training checkpoints, posteriors, pretrained weights and exported models, forged and damaged."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from retinabench.core.errors import DivergedError
from retinabench.core.files import CHECKSUMS
from retinabench.data.prepare import prepare
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.experiments.config import Run, build_run
from retinabench.experiments.exporting.model import export_run, load_model
from retinabench.experiments.run import execute
from retinabench.experiments.run_folder import load_posterior
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.models.build import build_model
from retinabench.models.pretrained import load_pretrained
from retinabench.models.settings import ModelConfig
from retinabench.models.weight_files import read_checkpoint
from torture.fuzz.case import Case, Must
from torture.fuzz.damage import damages
from torture.fuzz.folders import JSON_VALUES

METHODS = ("map", "swag", "sgld")
STRANGE: tuple[Callable[[], Any], ...] = (
    lambda: None, lambda: "x", lambda: -1, lambda: 10**30, lambda: 2.5, lambda: float("nan"), list, dict, lambda: {"a": {}},
    lambda: True, lambda: "[" * 50_000, lambda: '{"a": NaN}', lambda: "\ud800", lambda: torch.zeros(0), lambda: torch.zeros(3, 3),
    lambda: torch.tensor(float("nan")), lambda: torch.full((5,), float("inf")), lambda: torch.zeros(1).expand(10**12), lambda: torch.zeros(2, 2).to_sparse(),
    lambda: torch.zeros(4, dtype=torch.complex64), lambda: torch.zeros(4, dtype=torch.int8), lambda: torch.zeros(2, device="meta"),
    lambda: torch.zeros((), dtype=torch.bool), lambda: torch.Size([3]),
    lambda: {1: 2}, lambda: {"state": {}, "param_groups": []}, lambda: [torch.zeros(2)] * 3, lambda: torch.nn.Parameter(torch.zeros(2)),
    lambda: torch.device("cuda"), lambda: torch.float16, lambda: (1, (2, (3,))), lambda: "../../x", lambda: b"\xff", lambda: 10**400,
)  # fmt: skip
CONFIG = ModelConfig(name="mlp", width=4)


@functools.cache
def made() -> dict[str, dict[str, bytes]]:
    """Small trees by name: ``data``, and of each method a begun run, a finished run and an exported model."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        prepare("synthetic", out=root / "data", recipe=Recipe(16), workers=1, images=40)
        for method in METHODS:
            run = settings(method, root / "data")
            save = Checkpoint.save

            def first(self: Checkpoint, state: dict[str, Any], save: Any = save) -> None:
                save(self, state)
                raise KeyboardInterrupt

            Checkpoint.save = first  # type: ignore[method-assign]
            try:
                with contextlib.suppress(KeyboardInterrupt):
                    execute(run, root / f"begun-{method}")
            finally:
                Checkpoint.save = save  # type: ignore[method-assign]
            done = execute(run, root / f"done-{method}")
            export_run(done, root / f"model-{method}", scores=False)
        return {tree.name: _files(tree) for tree in root.iterdir()}


def settings(method: str, data: Path) -> Run:
    """The run of a method; four weights a layer, two epochs."""
    content: dict[str, Any] = {
        "data": str(data),
        "task": "country_shift",
        "model": {"name": "mlp", "width": 4},
    }
    return build_run(
        content | {"method": {"name": method}, "optimizer": {"epochs": 2, "batch_size": 8}}, None
    )


def _files(tree: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(tree)): path.read_bytes() for path in sorted(tree.rglob("*")) if path.is_file()
    }


def _write(files: Mapping[str, bytes], folder: Path) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def forged(content: Any, draw: st.DrawFn, path: str = "") -> tuple[Any, str]:
    """Return nested containers with one strange, lost or added value, and where it is."""
    keys: list[Any] = [*content] if isinstance(content, dict) else [*range(len(content))]
    key: Any = draw(st.sampled_from(keys)) if keys else None
    inner = content[key] if keys else None
    if isinstance(inner, dict | list) and inner and draw(st.integers(0, 3)):
        value, said = forged(inner, draw, f"{path}/{key}")
    else:
        kind = draw(st.sampled_from(("value", "value", "value", "lost", "added")))
        number = draw(st.integers(0, len(STRANGE) - 1))
        value, said = STRANGE[number](), f"{path}/{key} is strange {number}"
        if kind == "added":
            key, said = (
                ("other" if isinstance(content, dict) else len(keys)),
                f"{path}/ has one more: strange {number}",
            )
        elif kind == "lost":
            left = [
                (k, v)
                for k, v in (content.items() if isinstance(content, dict) else enumerate(content))
                if k != key
            ]
            return (
                dict(left) if isinstance(content, dict) else [v for _, v in left]
            ), f"{path}/{key} is lost"
    if isinstance(content, dict):
        return {**content, key: value}, said
    return [*content[:key], value, *content[key + 1 :]] if keys else [value], said


def archive(content: Any, old: bool = False) -> bytes:
    """A file of PyTorch, in its format of today or the one before."""
    sink = io.BytesIO()
    torch.save(content, sink, _use_new_zipfile_serialization=not old)
    return sink.getvalue()


def _changed(draw: st.DrawFn, content: bytes) -> tuple[bytes, str]:
    """A file of PyTorch with a forged value or damaged bytes."""
    if draw(st.booleans()):
        return draw(damages(content))
    value, said = forged(torch.load(io.BytesIO(content), weights_only=True), draw)
    try:
        return archive(value), said
    except Exception:  # not every strange value can be written
        return archive({}), "empty"


@st.composite
def checkpoints(draw: st.DrawFn) -> Case:
    """A begun run with a forged or damaged checkpoint: refused, or continued; with its checksums to the same posterior."""
    method = draw(st.sampled_from(METHODS))
    trees = made()
    files = dict(trees[f"begun-{method}"])
    name = draw(st.sampled_from([one for one in files if one.endswith((".pt", "run.json", "metrics.jsonl"))]))
    if name.endswith(".pt"):
        files[name], said = _changed(draw, files[name])
    else:
        files[name], said = draw(damages(files[name]))
    listed = draw(st.integers(0, 3)) == 0
    if not listed:
        files = {key: value for key, value in files.items() if not key.endswith(CHECKSUMS)}

    def function(folder: Path) -> str:
        _write(trees["data"], folder / "data")
        try:
            found = execute(settings(method, folder / "data"), folder / "runs")
        except DivergedError:  # a large number in place of a weight
            if listed:
                raise
            return ""
        if not listed:
            return ""
        wanted = next(
            value for key, value in trees[f"done-{method}"].items() if key.endswith("predictions.parquet")
        )
        return "" if (found / "predictions.parquet").read_bytes() == wanted else "the predictions are others"

    said = f"{method}, {Path(name).name}: {said}{'' if listed else ', without checksums'}"
    return Case(
        "training checkpoint",
        said,
        {f"runs/{key}": value for key, value in files.items()},
        (),
        function=function,
    )


@st.composite
def posteriors(draw: st.DrawFn) -> Case:
    """A finished run of which the posterior is forged or damaged."""
    method = draw(st.sampled_from(METHODS))
    files = dict(made()[f"done-{method}"])
    name = next(one for one in files if one.endswith("posterior.pt"))
    files[name], said = _changed(draw, files[name])
    listed = draw(st.integers(0, 3)) == 0
    if not listed:
        files = {key: value for key, value in files.items() if not key.endswith(CHECKSUMS)}

    def function(folder: Path) -> str:
        run, posterior = load_posterior(folder / Path(name).parts[0])
        generator = torch.Generator().manual_seed(0)
        probs = posterior.predict(torch.zeros(2, 3, 16, 16), 2, generator)
        return (
            ""
            if probs.shape[1:] == (2, 2) and run.method.name == method
            else f"it predicts shape {tuple(probs.shape)}"
        )

    said = f"{method}: {said}{'' if listed else ', without checksums'}"
    return Case("posterior of a run", said, files, (), function=function)


def _weights() -> dict[str, torch.Tensor]:
    return build_model(CONFIG, 7).state_dict()


def _plain_tensors(path: Path) -> dict[str, np.ndarray[Any, Any]] | None:
    """A second reading of float tensors: by the header of safetensors, or the members of an archive; None if it cannot be read."""
    content = path.read_bytes()
    if path.suffix == ".safetensors":
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length])
        body = content[8 + length :]
        return {
            key: np.frombuffer(body[slice(*entry["data_offsets"])], np.float32).reshape(entry["shape"])
            for key, entry in header.items()
            if key != "__metadata__" and entry["dtype"] == "F32"
        }
    with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as file:
        if file.testzip() is not None:
            return {}
    return None


@st.composite
def weights(draw: st.DrawFn) -> Case:
    """Weights that `model.weights` may name: flat, nested, with prefixes, of other tools, forged and damaged."""
    state: Any = _weights()
    form = draw(st.sampled_from(("safetensors", "safetensors", "pt", "pt", "old")))
    kind = draw(st.sampled_from(("valid", "forged", "forged", "damage", "damage")))
    said, must, wanted = kind, "", {key: value.clone() for key, value in state.items()}
    if kind == "forged":
        state, said = forged(dict(state), draw)
    prefix = draw(st.sampled_from(("", "module.", "model.", "_orig_mod.module.")))
    nested = draw(st.sampled_from(("", "state_dict", "model", "teacher")))
    state = {f"{prefix}{key}" if isinstance(key, str) else key: value for key, value in state.items()}
    if form == "safetensors":
        content = _safetensors(state)
    else:
        try:
            content = archive({nested: state, "epoch": 3} if nested else state, form == "old")
        except Exception:
            content, said = archive({}), "empty"
    if kind == "damage":
        content, said = draw(damages(content))
    name = f"weights.{'safetensors' if form == 'safetensors' else 'pth'}"
    if kind == "valid":
        must = "accept"

    def function(folder: Path) -> str:
        path = folder / name
        network = build_model(CONFIG, 1)
        load_pretrained(network, CONFIG.model_copy(update={"weights": str(path)}))
        found = read_checkpoint(path)
        plain = _plain_tensors(path)
        if plain is not None and kind == "damage":
            for key, value in found.items():
                same = [one for other, one in plain.items() if other.endswith(key)]
                if not any(one.tobytes() == value.numpy().tobytes() for one in same):
                    return f"'{key}' has other values than the file, or its checksum is wrong"
        if kind == "valid":
            inside = network.state_dict()
            other = [
                key
                for key in inside
                if not key.startswith("head") and not torch.equal(inside[key], wanted[key])
            ]
            last = list(inside)[-2:]
            return f"{other} are others" if set(other) - set(last) else ""
        return ""

    checked: Must = must  # type: ignore[assignment]
    said = f"{form}, {prefix or 'no prefix'}, {nested or 'flat'}: {said}"
    return Case("pretrained weights", said, {name: content}, (), must=checked, function=function)


def _safetensors(state: Mapping[Any, Any]) -> bytes:
    """A file of safetensors, written by hand, so that it can hold what the library would not write."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for key, value in state.items():
        data, dtype, shape = b"", "F32", [0]
        if (
            isinstance(value, torch.Tensor)
            and value.layout == torch.strided
            and value.dtype == torch.float32
            and value.numel() < 10**6
        ):
            with contextlib.suppress(Exception):
                data, shape = value.detach().numpy().tobytes(), list(value.shape)
        else:
            dtype, shape = (
                ("F64", [3]) if value is None else ("I8", [2**40]) if isinstance(value, int) else ("X9", [-1])
            )
        header[str(key).encode("utf-8", "replace").decode()] = {
            "dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]
        }  # fmt: skip
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + body


@st.composite
def exported(draw: st.DrawFn) -> Case:
    """An exported model with a strange value, forged tensors, or damaged bytes: refused, or with the same predictions."""
    method = draw(st.sampled_from(METHODS))
    files = dict(made()[f"model-{method}"])
    listed = draw(st.integers(0, 3)) == 0
    if not listed:
        files.pop(CHECKSUMS, None)
    name = draw(st.sampled_from(sorted(one for one in files if one.endswith((".json", ".safetensors")))))
    kind = draw(st.sampled_from(("damage", "damage", "value", "value", "lost", "whole")))
    must: Must = ""
    if kind == "whole":
        said, must = "whole", "accept"
    elif kind == "damage":
        files[name], said = draw(damages(files[name]))
    elif kind == "lost":
        del files[name]
        said = "lost"
    elif name.endswith(".json"):
        content = json.loads(files[name])
        parts = [
            content,
            *(content[key] for key in content if isinstance(content[key], dict) and content[key]),
        ]
        parts += [one for part in parts[1:] for one in part.values() if isinstance(one, dict) and one]
        part, value = draw(st.sampled_from(parts)), draw(st.sampled_from(JSON_VALUES))
        key = draw(st.sampled_from(sorted(part)))
        part[key], said = "@value@", f"{key} = {value[:20]}"
        files[name] = json.dumps(content).replace('"@value@"', value).encode()
    else:
        state, said = forged(_tensors(files[name]), draw)
        files[name] = _safetensors(state)
    whole = listed or kind == "whole"

    def function(folder: Path) -> str:
        found = load_model(folder / "model")
        images = np.full((2, 16, 16, 3), 90, np.uint8)
        probs = found.predict(images)
        if not np.isfinite(probs).all():
            return "its probabilities are not finite"
        return "" if not whole or np.array_equal(probs, _expected(method)) else "its probabilities are others"

    said = f"{method}, {name}: {said}{'' if listed else ', without checksums'}"
    found = {f"model/{key}": value for key, value in files.items()}
    return Case("exported model", said, found, (), must=must, function=function)


def _tensors(content: bytes) -> dict[str, torch.Tensor]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.safetensors"
        path.write_bytes(content)
        return {key: torch.from_numpy(value.copy()) for key, value in (_plain_tensors(path) or {}).items()}


@functools.cache
def _expected(method: str) -> Any:
    folder = Path(tempfile.mkdtemp())
    try:
        _write(made()[f"model-{method}"], folder)
        return load_model(folder).predict(np.full((2, 16, 16, 3), 90, np.uint8))
    finally:
        shutil.rmtree(folder)
