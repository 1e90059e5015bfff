"""A known density for samplers of any framework: its functions and texts, and files of draws from it.

A file holds `draws` (K chains, T, P) or (T, P) of one chain, and `meta`, the JSON text of a submission's `About`, as far as it is known.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from retinabench.core.errors import InputError, printable
from retinabench.core.files import write_bytes
from retinabench.core.results import JsonObject
from retinabench.core.version import __version__
from retinabench.fidelity.densities.board import DensityBoard
from retinabench.fidelity.densities.density import find_density
from retinabench.fidelity.densities.functions import Array, Floats
from retinabench.fidelity.densities.moments import Moments, checked_draws, moments_of
from retinabench.fidelity.submissions.submission import About, Budget, folder_of, read_npz
from retinabench.predictions.table import MAX_TITLE

SCHEMA = "retinabench.fidelity-draws/1"
FILE = "draws.npz"


@dataclass(frozen=True, eq=False)
class SubmittedDraws:
    """Draws that were written: their file, what they say, and the board, which is what it prints."""

    path: Path
    moments: Moments
    board: DensityBoard

    @property
    def row(self) -> JsonObject:
        """Biases, z, effective draws per gradient, the verdict and the conclusion, by name."""
        return self.moments.to_dict()

    def __str__(self) -> str:
        return self.board.text


class DensityProblem:
    """A density whose moments are known, for a sampler of any framework; `rb.fidelity.problem(NAME)` returns it.

    Attributes:
        name: Its name, such as "funnel".
        dimension: Number of coordinates P.
        start: Std of the Gaussian about 0 from which the package's samplers start.
        data: The data of `stan` and `python`, as JSON.
        stan: The density as a program of Stan; its unconstrained parameters, in their order, are the coordinates.
        python: The density as a function of NumPy or JAX, `f(w, numpy, **data)`.
        evaluations: How often the density was evaluated by `log_density` and `gradient` in NumPy, per w.

    Examples:
        >>> import numpy as np
        >>> import retinabench as rb
        >>> problem = rb.fidelity.problem("funnel")
        >>> problem.dimension
        10
        >>> float(problem.gradient(np.zeros(10))[0])
        -4.5
    """

    def __init__(self, name: str) -> None:
        self.known = find_density(name)
        self.name, self.dimension, self.start, self.data = name, self.known.dimension, self.known.start, self.known.data
        self.stan: str = self.known.about["stan"].lstrip()
        self.python = self.known.python
        self.evaluations = 0

    def log_density(self, weights: Array, xp: Any = np) -> Array:
        """Return the log density up to a constant of w (..., P), one or many; with `jax.numpy` as `xp` it can be traced."""
        weights = xp.asarray(weights)
        self.evaluations += 0 if xp is not np else weights.size // self.dimension
        return self.known.log_density(weights, xp)

    def gradient(self, weights: ArrayLike) -> Floats:
        """Return the slope of `log_density` in closed form, (..., P) -> (..., P), in NumPy."""
        w = np.asarray(weights, np.float64)
        self.evaluations += w.size // self.dimension
        return self.known.gradient(w)

    def submit(
        self,
        draws: ArrayLike,
        *,
        method: str,
        gradients: float | None = None,
        seed: int = 0,
        out: str | Path = "fidelity-runs",
    ) -> SubmittedDraws:
        """Write draws, and compare their moments with the truth, beside the samplers that come with the package.

        Args:
            draws: (K, T, P) of K chains after burn-in, in order; or (T, P) of one.
            method: What to call the sampler.
            gradients: Evaluations of the density, with a gradient or without, of all chains and burn-in; default: `evaluations`.
            seed: Which of its runs it is, 0, 1, 2 ...
            out: Folder for files of draws, which `retinabench fidelity board` shows.

        Returns:
            The file, the row of the sampler, and, printed, its board with the conclusion.

        Raises:
            InputError: The draws are not finite numbers of these shapes.
        """
        used = self.evaluations if gradients is None else gradients
        found = moments_of(draws, self.known, used)
        path = write_draws(Path(out), checked_draws(draws, self.dimension), self.name, method, seed, used)
        return SubmittedDraws(path, found, DensityBoard(self.known, {printable(method, MAX_TITLE): [found]}))


def write_draws(out: Path, draws: Floats, density: str, method: str, seed: int, gradients: float) -> Path:
    """Write draws into a folder of their own below `out`; return the path of the file."""
    about = About(
        task=density, method=method, title=method, seed=seed, budget=Budget(used=gradients), version=__version__
    )
    meta = json.dumps({"schema": SCHEMA, **about.to_dict()})
    sink, values = io.BytesIO(), draws.astype(np.float32)
    np.savez_compressed(sink, draws=values, meta=np.array(meta))
    path = folder_of(out, method, density, meta.encode() + values.tobytes()) / FILE
    write_bytes(path, sink.getvalue())
    return path


def board_of_draws(paths: Sequence[Path], name: str, title: str | None = None) -> DensityBoard:
    """Compare the draws of some files, or of their folders, with the truth of one density, by method."""
    known, own = find_density(name), dict[str, list[Moments]]()
    for path in (path / FILE if path.is_dir() else path for path in paths):
        arrays, meta = read_npz(path)
        about = About.read(path, meta)
        if about.task not in (None, name):
            raise InputError(f"is of '{about.task}', not of '{name}'", file=path, hint=f"--task {about.task}")
        try:
            found = moments_of(arrays.get("draws", []), known, math.nan if about.budget is None else about.budget.used)
        except InputError as error:
            raise InputError(str(error), file=path) from None
        label = title or about.title or (path.parent.name if path.name == FILE else path.stem)
        own.setdefault(printable(label, MAX_TITLE), []).append(found)
    return DensityBoard(known, own)
