"""A known density for samplers of any framework: its functions and texts, and files of draws from it.

A file holds `draws` (K chains, T, P) or (T, P) of one chain, float32, and `meta`, a JSON text with density, method, seed and gradients,
as far as they are known; `submit` writes it.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from pydantic import ConfigDict, Field, ValidationError

from retinabench.core.errors import InputError, WorkError, printable
from retinabench.core.files import write_bytes
from retinabench.core.results import JsonObject
from retinabench.core.settings import Frozen
from retinabench.core.version import __version__
from retinabench.fidelity.densities.board import DensityBoard
from retinabench.fidelity.densities.density import find_density
from retinabench.fidelity.densities.functions import Array, Floats
from retinabench.fidelity.densities.moments import Moments, checked_draws, moments_of
from retinabench.fidelity.submissions.submission import MOST_GRADIENTS, read_npz
from retinabench.predictions.io import MAX_TITLE

SCHEMA = "retinabench.fidelity-draws/1"
FILE = "draws.npz"


class DrawsAbout(Frozen):
    """What a file of draws says of itself, as far as it does."""

    model_config = ConfigDict(extra="ignore")

    density: str | None = None
    method: str | None = None
    seed: int | None = None
    gradients: float | None = Field(None, ge=0, le=MOST_GRADIENTS, allow_inf_nan=False)


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
        >>> float(problem.log_density(np.zeros(10)))
        0.0
        >>> problem.gradient(np.zeros(10))[0]
        np.float64(-4.5)
    """

    def __init__(self, name: str) -> None:
        self.known = find_density(name)
        self.name, self.dimension, self.start, self.data = name, self.known.dimension, self.known.start, self.known.data
        self.stan: str = self.known.about["stan"].lstrip()
        self.python = self.known.python
        self.evaluations, self.limit, self.traced = 0, math.inf, False

    def log_density(self, weights: Array, xp: Any = np) -> Array:
        """Return the log density up to a constant of w (..., P), one or many; with `jax.numpy` as `xp` it can be traced."""
        weights = xp.asarray(weights)
        if xp is np:
            self._count(weights)
        self.traced |= xp is not np
        return self.known.log_density(weights, xp)

    def gradient(self, weights: ArrayLike) -> Floats:
        """Return the slope of `log_density` in closed form, (..., P) -> (..., P), in NumPy."""
        w = np.asarray(weights, np.float64)
        self._count(w)
        return self.known.gradient(w)

    def _count(self, weights: Floats) -> None:
        self.evaluations += weights.size // self.dimension
        if self.evaluations > self.limit:
            raise WorkError(f"the sampler took more than the {self.limit:g} evaluations of its budget")

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
        used = float(self.evaluations if gradients is None else gradients)
        about = DrawsAbout(density=self.name, method=printable(method, MAX_TITLE), seed=seed, gradients=used)
        path = write_draws(Path(out), checked_draws(draws, self.dimension), about)
        board = board_of_draws([path], self.name)
        (found,) = board.own.values()
        return SubmittedDraws(path, found[0], board)


def write_draws(folder: Path, draws: Floats, about: DrawsAbout) -> Path:
    """Write draws into a folder of their own below `folder`; return the path of the file."""
    meta = json.dumps({"schema": SCHEMA, **about.model_dump(), "version": __version__})
    sink, values = io.BytesIO(), draws.astype(np.float32)
    np.savez_compressed(sink, draws=values, meta=np.array(meta))
    digits = hashlib.sha256(meta.encode() + values.tobytes()).hexdigest()[:8]
    name = "".join(c if c.isalnum() else "-" for c in str(about.method)[:40])
    path = folder / f"{name}-{about.density}-{digits}" / FILE
    write_bytes(path, sink.getvalue())
    return path


def read_draws(path: Path) -> tuple[Floats | None, DrawsAbout]:
    """Return the draws of a file, None where it holds none, and what it says of itself."""
    path = path / FILE if path.is_dir() else path
    arrays, meta = read_npz(path)
    try:
        return arrays.get("draws"), DrawsAbout(**meta)
    except (ValidationError, TypeError) as error:
        raise InputError(f"has unreadable metadata: {str(error).splitlines()[0]}", file=path) from None


def board_of_draws(paths: list[Path], name: str, title: str | None = None) -> DensityBoard:
    """Compare the draws of some files with the truth of one density, by method."""
    known, own = find_density(name), dict[str, list[Moments]]()
    for path in paths:
        draws, about = read_draws(path)
        if about.density not in (None, name):
            raise InputError(f"is of '{about.density}', not of '{name}'", file=path, hint=f"--task {about.density}")
        try:
            found = moments_of(
                draws if draws is not None else [], known, math.nan if about.gradients is None else about.gradients
            )
        except InputError as error:
            raise InputError(str(error), file=path) from None
        own.setdefault(printable(title or about.method or path.stem, MAX_TITLE), []).append(found)
    return DensityBoard(known, own)
