"""Features of a pretrained trunk in place of images, for runs that train a head alone."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.core.progress import QUIET, Progress
from retinabench.data.dataset import Rows
from retinabench.data.feature_cache import cached_features
from retinabench.data.loader import ArraySource
from retinabench.data.memory import BatchLimits, with_less
from retinabench.data.prepared.folder import Prepared
from retinabench.models.build import build_trunk
from retinabench.models.last_layer import SplitNetwork
from retinabench.models.settings import SCALES, ModelConfig

TRUNK_SETTINGS = ("name", "width", "stem", "inputs", "pool", "weights", "weights_sha256")
LEAST_STD = 0.1  # of a feature, in units of the mean std of all features


def feature_source(
    config: ModelConfig, data: Prepared, train: Rows, device: torch.device, progress: Progress = QUIET
) -> ArraySource:
    """Return the features of all images, each with mean 0 and std 1 over the training rows, and their labels.

    Args:
        config: The network and its weights.
        data: The images.
        train: Training rows.
        device: Where the trunk is computed and the features are put.
        progress: Is told how far the work is.

    Returns:
        Features (N, D) and labels (N,), float32, on the device.

    Raises:
        InputError: The weights cannot be had or do not fit, or the cache is damaged.
    """
    features = trunk_features(config, data, device, progress)
    mean, std = feature_scale(features[train])
    labels = torch.from_numpy(data.label.astype(np.float32)).to(device)
    return ArraySource(torch.from_numpy((features - mean) / std).to(device), labels)


def trunk_features(
    config: ModelConfig, data: Prepared, device: torch.device, progress: Progress = QUIET
) -> NDArray[np.float32]:
    """Return the features (N, D) of all images, from the cache where they are there.

    Args:
        config: The network and its weights.
        data: The images.
        device: Where the trunk is computed.
        progress: Is told how far the work is.

    Raises:
        InputError: The weights cannot be had or do not fit, or the cache is damaged.
    """
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
    """Images (B, H, W, 3) -> features (B, D); the trunk is built when the first images come.

    Args:
        config: The network and its weights.
        device: Where it is computed.
        trunk: The trunk, where it is there already.
        progress: Is told which pretrained tensors the trunk has.
    """

    def __init__(
        self,
        config: ModelConfig,
        device: torch.device,
        trunk: SplitNetwork | None = None,
        progress: Progress = QUIET,
    ) -> None:
        self.config, self.device, self.trunk, self.progress = config, device, trunk, progress
        self.limits = BatchLimits(changed=lambda line: progress.say(f"note: {line}"))
        self.mean, self.std = (
            torch.tensor(values, device=device).reshape(1, 3, 1, 1)
            for values in SCALES.get(config.inputs, ((0.0,) * 3, (1.0,) * 3))
        )

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return features (B, D) of images (B, H, W, 3); `InputError` where they are not finite."""

        def attempt(most: int) -> NDArray[np.float32]:
            return np.concatenate([
                self._features(images[k : k + most]) for k in range(0, len(images), most)
            ])  # fmt: skip

        return with_less(attempt, lambda: None, self.limits, "prediction", len(images), self.device)

    @torch.inference_mode()
    def _features(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        if self.trunk is None:
            self.trunk = build_trunk(self.config, progress=self.progress).to(self.device)
        stored = torch.from_numpy(images).to(self.device).permute(0, 3, 1, 2)
        scaled = stored.to(torch.float32).div_(255).sub_(self.mean).div_(self.std)
        features = np.asarray(self.trunk.features(scaled).cpu())
        if not np.isfinite(features).all():  # before they are stored: a cache of them would count as damaged
            raise InputError(
                f"the weights give features of '{self.config.name}' that are not finite",
                file=self.config.weights,
                hint="Its values overflow in this network, or are not of it. Name another checkpoint in model.weights.",
            )
        return features
