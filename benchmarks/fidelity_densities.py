"""The runs of the package's samplers on the known densities: python benchmarks/fidelity_densities.py [BUDGET] > src/retinabench/fidelity/targets/samplers.toml, some minutes."""

import json
import sys
from dataclasses import asdict

from retinabench.fidelity.densities.density import density_names, find_density
from retinabench.fidelity.densities.moments import moments_of
from retinabench.fidelity.densities.run import SAMPLERS, sampled
from retinabench.fidelity.submissions.entries import entry

budget = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
print(f"# Written by benchmarks/fidelity_densities.py {budget}: seeds 0, 1 and 2 of each sampler.")
for name in density_names():
    print(f"\n[{name}]")
    for method in SAMPLERS:
        runs = []
        for seed in range(3):
            draws, used = sampled(method, find_density(name), budget, seed)
            found = asdict(moments_of(draws, find_density(name), used)).items()
            rounded = {key: float(f"{value:.4g}") if isinstance(value, float) else value for key, value in found}
            runs.append("{ " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in rounded.items()) + " }")
        print(f"{json.dumps(entry(method).title)} = [\n  " + ",\n  ".join(runs) + ",\n]", flush=True)
