"""Options that several verbs of `retinabench fidelity` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from retinabench.cli.application import option

Task = Annotated[str, option("--task", "TASK", "A target: a name of `retinabench fidelity tasks`.")]
Source = Annotated[
    Path | None, option("--data", "FOLDER", "The target's data, where they do not come with the package.")
]
Chains = Annotated[int, option("--chains", "N", "Number of chains; fewer than 4 cannot pass.", min=1)]
BurnIn = Annotated[int, option("--burn-in", "N", "Transitions that adapt the step and are dropped.", min=1)]
Keep = Annotated[int, option("--keep", "N", "Transitions of each chain that count.", min=8)]
