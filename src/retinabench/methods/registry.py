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
        "dropout": "retinabench.methods.dropout:McDropout",
        "mfvi": "retinabench.methods.layer_posteriors:Mfvi",
        "radial": "retinabench.methods.layer_posteriors:Radial",
        "rank1": "retinabench.methods.layer_posteriors:Rank1",
        "fsvi": "retinabench.methods.last_layer_variational:Fsvi",
        "vbll": "retinabench.methods.last_layer_variational:Vbll",
        "laplace": "retinabench.methods.laplace",
        "swag": "retinabench.methods.swag:Swag",
        "ivon": "retinabench.methods.natural_gradients:Ivon",
        "vogn": "retinabench.methods.natural_gradients:Vogn",
        "gaussian_vi": "retinabench.methods.gaussian_vi",
        "sgld": "retinabench.methods.sgmcmc:Sgld",
        "sghmc": "retinabench.methods.sgmcmc:Sghmc",
        "csghmc": "retinabench.methods.sgmcmc:CyclicalSghmc",
        "hmc": "retinabench.methods.samplers:Hmc",
        "nuts": "retinabench.methods.samplers:Nuts",
        "mclmc": "retinabench.methods.samplers:Mclmc",
        "mile": "retinabench.methods.samplers:Mile",
        "pathfinder": "retinabench.methods.samplers:Pathfinder",
        "multiswag": "retinabench.methods.swag:MultiSwag",
        "anchored": "retinabench.methods.anchored:Anchored",
        "sequential_anchored": "retinabench.methods.anchored:SequentialAnchored",
        "sngp": "retinabench.methods.distance_aware:Sngp",
        "ddu": "retinabench.methods.distance_aware:Ddu",
        "feature_scores": "retinabench.methods.feature_scores:FeatureScores",
        "dropout_off": "retinabench.methods.dropout:DropoutOff",
        "tta": "retinabench.methods.tta",
        "temperature": "retinabench.methods.composed:Temperature",
        "batch_ensemble": "retinabench.methods.shared_members:BatchEnsemble",
        "head_ensemble": "retinabench.methods.shared_members:HeadEnsemble",
        "lora_ensemble": "retinabench.methods.shared_members:LoraEnsemble",
        "ensemble": "retinabench.methods.composed:Ensemble",
    },
)
