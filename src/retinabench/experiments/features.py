"""Features of a pretrained trunk in place of images, for runs that train a head alone.

They are computed once and stored: a prepared folder keeps one folder `features-KEY` for each network that was applied to it, with
one file (n, D) float32 per shard of images, a manifest that states the network and the fingerprint of the images, of which KEY
is a hash, and `SHA256SUMS`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from retinabench.core.errors import QUIET, InputError, Progress, check
from retinabench.core.files import atomic_write
from retinabench.core.results import JsonObject
from retinabench.core.workspace import Workspace, first_difference
from retinabench.data.dataset import Rows
from retinabench.data.loader import ArraySource, BatchLimits, with_less
from retinabench.data.prepared import Prepared, open_prepared
from retinabench.models.build import build_trunk, set_arithmetic
from retinabench.models.last_layer import SplitNetwork
from retinabench.models.settings import SCALES, ModelConfig

TRUNK_SETTINGS = ("name", "width", "stem", "inputs", "pool", "weights", "weights_sha256")
LEAST_STD = 0.1  # of a feature, in units of the mean std of all features
BATCH = 32  # images that are computed together: part of the bits of a result
Extract = Callable[[NDArray[np.uint8]], NDArray[np.float32]]


def feature_source(
    config: ModelConfig, data: Prepared, train: Rows, device: torch.device, progress: Progress = QUIET
) -> tuple[ArraySource, NDArray[np.float32], NDArray[np.float32]]:
    """Return the features (N, D) of all images, standardised over the training rows, with their labels; and mean and std (D,)."""
    features = trunk_features(config, data, device, progress)
    mean, std = feature_scale(features[train])
    labels = torch.from_numpy(data.label.astype(np.float32)).to(device)
    return ArraySource(torch.from_numpy((features - mean) / std).to(device), labels), mean, std


def trunk_features(
    config: ModelConfig, data: Prepared, device: torch.device, progress: Progress = QUIET
) -> NDArray[np.float32]:
    """Return the features (N, D) of all images, from the cache where they are there."""
    settings = config.model_dump(mode="json")
    trunk = {name: settings[name] for name in TRUNK_SETTINGS if name in settings}
    if config.weights_sha256 is not None:
        del trunk["weights"]  # where the file lies does not matter
    return cached_features(data, trunk, Extractor(config, device, progress=progress), progress)


def feature_scale(features: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return mean and std (D,) of the features (N, D) of the training images.

    No std is below a tenth of the mean std of all features. A feature that is 0 in (nearly) all training images, as one of a
    rectifier may be, would otherwise be a million standard deviations out in the first image where it is not, and every
    posterior that has drawn a weight for it would predict noise.
    """
    std = features.std(axis=0)
    return features.mean(axis=0), np.maximum(std, max(LEAST_STD * float(std.mean()), 1e-6)).astype(std.dtype)


class Extractor:
    """Images (B, H, W, 3) -> features (B, D); the trunk is built when the first images come."""

    def __init__(
        self, config: ModelConfig, device: torch.device, trunk: SplitNetwork | None = None, progress: Progress = QUIET
    ) -> None:
        set_arithmetic("float32", device)  # a cache must not depend on where it was computed
        self.config, self.device, self.trunk, self.progress = config, device, trunk, progress
        self.limits = BatchLimits(changed=lambda line: progress.say(f"note: {line}"))
        self.mean, self.std = (
            torch.tensor(values, device=device).reshape(1, 3, 1, 1)
            for values in SCALES.get(config.inputs, ((0.0,) * 3, (1.0,) * 3))
        )

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return features (B, D) of images (B, H, W, 3); `InputError` where they are not finite."""

        def attempt(most: int) -> NDArray[np.float32]:
            return np.concatenate([self._features(images[k : k + most]) for k in range(0, len(images), most)])

        return with_less(attempt, lambda: None, self.limits, "prediction", len(images), self.device)

    @torch.inference_mode()
    def _features(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        if self.trunk is None:
            self.trunk = build_trunk(self.config, progress=self.progress).to(self.device)
        stored = torch.from_numpy(images).to(self.device).permute(0, 3, 1, 2)
        scaled = stored.to(torch.float32).div_(255).sub_(self.mean).div_(self.std)
        features = np.asarray(self.trunk.features(scaled).cpu())
        if not np.isfinite(features).all():  # before they are stored: a cache of them would count as damaged
            problem = f"the weights give features of '{self.config.name}' that are not finite"
            hint = "Its values overflow in this network, or are not of it. Name another checkpoint in model.weights."
            raise InputError(problem, file=self.config.weights, hint=hint)
        return features


def cached_features(
    data: Prepared, network: Mapping[str, object], extract: Extract, progress: Progress = QUIET
) -> NDArray[np.float32]:
    """Return the features (N, D) of all images of a data set; shards that are not in the cache are computed."""
    folders = [data.folder] if data.shifted is None else [data.folder, data.shifted]
    return np.concatenate([_of_folder(open_prepared(one), dict(network), extract, progress) for one in folders])


def _of_folder(data: Prepared, network: JsonObject, extract: Extract, progress: Progress) -> NDArray[np.float32]:
    manifest = {"network": network, "images": data.fingerprint, "batch": BATCH}
    key = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()[:12]
    workspace = Workspace(data.folder / f"features-{key}", "feature cache")
    paths = [workspace.folder / f"{number:05}.npy" for number in range(len(data.shards))]
    if workspace.done:  # a folder of this name may have been replaced by another, whose content the name does not show
        if difference := first_difference(workspace.manifest() or {}, json.loads(json.dumps(manifest))):
            hint = "Delete the folder; the features are then computed again."
            raise InputError(f"holds features of another {difference[0]}", file=workspace.folder, hint=hint)
    else:
        with workspace.lock(wait=True, say=progress.say):
            workspace.begin(manifest, hint="Delete the folder.")
            with progress.track(f"Features of {data.name}", len(data), unit="images") as advance:
                for number, (path, shard) in enumerate(zip(paths, data.shards, strict=True)):
                    if not path.is_file():
                        data.check_shard(number)
                        starts = range(0, len(shard), BATCH)
                        features = [extract(np.array(shard[start : start + BATCH])) for start in starts]
                        with atomic_write(path, checked=True) as handle:
                            np.save(handle, np.concatenate(features), allow_pickle=False)
                    advance(len(shard))
            workspace.finish()
    return np.concatenate([_read(workspace, *pair) for pair in zip(paths, map(len, data.shards), strict=True)])


def _read(workspace: Workspace, path: Path, images: int) -> NDArray[np.float32]:
    hint = f"Delete {workspace.folder} and run the command again."
    try:
        features: NDArray[np.float32] = np.load(check(path, hint), allow_pickle=False)
        if features.ndim != 2 or len(features) != images:
            raise ValueError(f"has shape {features.shape}")
        if not np.isfinite(features).all():
            raise ValueError("holds values that are not finite")
    except InputError:
        raise
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"is damaged ({error})", file=path, hint=hint) from None
    return features
