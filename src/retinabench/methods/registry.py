"""The methods by name. A new method is one module (see `base.py`), and one line here or an entry point.

`ensemble` and `temperature` compose runs instead of training one: their members are computed first.
"""

from __future__ import annotations

from typing import Any

from retinabench.core.registry import Registry

METHODS: Registry[Any] = Registry(
    "retinabench.methods",
    "method",
    {
        "map": "retinabench.methods.map",
        "dropout": "retinabench.methods.dropout",
        "mfvi": "retinabench.methods.variational.mfvi",
        "radial": "retinabench.methods.variational.radial",
        "rank1": "retinabench.methods.variational.rank1",
        "fsvi": "retinabench.methods.variational.fsvi",
        "vbll": "retinabench.methods.variational.vbll",
        "laplace": "retinabench.methods.posthoc.laplace",
        "swag": "retinabench.methods.ensembles.swag",
        "ivon": "retinabench.methods.variational.ivon",
        "vogn": "retinabench.methods.variational.vogn",
        "gaussian_vi": "retinabench.methods.variational.gaussian_vi",
        "sgld": "retinabench.methods.mcmc.sgld",
        "sghmc": "retinabench.methods.mcmc.sghmc",
        "csghmc": "retinabench.methods.mcmc.csghmc",
        "multiswag": "retinabench.methods.ensembles.multiswag",
        "anchored": "retinabench.methods.ensembles.anchored",
        "sequential_anchored": "retinabench.methods.ensembles.sequential_anchored",
        "sngp": "retinabench.methods.posthoc.sngp",
        "ddu": "retinabench.methods.posthoc.ddu",
        "dropout_off": "retinabench.methods.posthoc.dropout_off",
        "tta": "retinabench.methods.posthoc.tta",
        "temperature": "retinabench.methods.posthoc.temperature",
        "batch_ensemble": "retinabench.methods.ensembles.batch_ensemble",
        "head_ensemble": "retinabench.methods.ensembles.head_ensemble",
        "lora_ensemble": "retinabench.methods.ensembles.lora_ensemble",
        "ensemble": "retinabench.methods.ensembles.ensemble",
    },
)
