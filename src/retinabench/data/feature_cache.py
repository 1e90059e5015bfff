"""Features of prepared images, computed once by a fixed network and stored beside the images.

A prepared folder keeps one folder `features-KEY` for each network that was applied to it: one file (n, D) float32 per shard of
images, a manifest that states the network and the fingerprint of the images, of which KEY is a hash, and `SHA256SUMS`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retinabench.core.atomic_files import atomic_write
from retinabench.core.checksums import check
from retinabench.core.errors import InputError
from retinabench.core.progress import QUIET, Progress
from retinabench.core.workspace import Workspace, first_difference
from retinabench.data.prepared.folder import Prepared, open_prepared

Extract = Callable[[NDArray[np.uint8]], NDArray[np.float32]]
BATCH = 32  # images that are computed together: part of the bits of a result


def cached_features(
    data: Prepared, network: Mapping[str, object], extract: Extract, progress: Progress = QUIET
) -> NDArray[np.float32]:
    """Return the features of all images of a data set; what is not in the cache is computed.

    A killed computation continues with the first shard that is missing.

    Args:
        data: A prepared folder, or two that are merged.
        network: All that decides the features besides the images; JSON-compatible.
        extract: Images (B, size, size, 3) -> features (B, D).
        progress: Is told how far the work is.

    Returns:
        (N, D) float32, in the order of the images.

    Raises:
        InputError: The cache is damaged, or the folder cannot be written.
    """
    folders = [data.folder] if data.shifted is None else [data.folder, data.shifted]
    return np.concatenate([_of_folder(open_prepared(one), network, extract, progress) for one in folders])


def _of_folder(
    data: Prepared, network: Mapping[str, object], extract: Extract, progress: Progress
) -> NDArray[np.float32]:
    manifest = {"network": dict(network), "images": data.fingerprint, "batch": BATCH}
    key = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()[:12]
    workspace = Workspace(data.folder / f"features-{key}", "feature cache")
    paths = [workspace.folder / f"{number:05}.npy" for number in range(len(data.shards))]
    if workspace.done:
        _check_origin(workspace, manifest)
    else:
        with workspace.lock(wait=True, say=progress.say):
            workspace.begin(manifest, hint="Delete the folder.")
            with progress.track(f"Features of {data.name}", len(data), unit="images") as advance:
                for number, (path, shard) in enumerate(zip(paths, data.shards, strict=True)):
                    if not path.is_file():
                        data.check_shard(number)
                        features = [
                            extract(np.array(shard[start : start + BATCH]))
                            for start in range(0, len(shard), BATCH)
                        ]
                        with atomic_write(path, checked=True) as handle:
                            np.save(handle, np.concatenate(features), allow_pickle=False)
                    advance(len(shard))
            workspace.finish()
    return np.concatenate([
        _read(workspace, path, len(shard))
        for path, shard in zip(paths, data.shards, strict=True)
    ])  # fmt: skip


def _check_origin(workspace: Workspace, manifest: Mapping[str, object]) -> None:
    """Refuse a complete cache that was put here in place of this one: the name of its folder says nothing of its content."""
    begun = workspace.manifest() or {}
    if difference := first_difference(begun, json.loads(json.dumps(manifest))):
        raise InputError(
            f"holds features of another {difference[0]}",
            file=workspace.folder,
            hint="Delete the folder; the features are then computed again.",
        )


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
