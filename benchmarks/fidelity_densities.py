"""The rows of the package's samplers on the known densities: python benchmarks/fidelity_densities.py [BUDGET], some minutes."""

import json
import sys

from retinabench.fidelity.densities.board import SamplerRow
from retinabench.fidelity.densities.density import density_names, find_density
from retinabench.fidelity.densities.moments import moments_of
from retinabench.fidelity.densities.run import SAMPLERS, sampled
from retinabench.fidelity.submissions.entries import UNTRAINED_TITLES

budget = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
print(f"# Written by benchmarks/fidelity_densities.py {budget}: seeds 0, 1 and 2. Biases: worst and mean coordinate.")
for name in density_names():
    print(f"\n[{name}]")
    for method in SAMPLERS:
        runs = [
            moments_of(*sampled_pair)
            for sampled_pair in (
                (draws, find_density(name), used)
                for draws, used in (sampled(method, find_density(name), budget, seed) for seed in range(3))
            )
        ]
        row = SamplerRow.of(UNTRAINED_TITLES[method], runs).to_dict()
        del row["here"]
        row |= {part: list(row[part].values()) for part in ("mean", "variance")}
        cells = (f"{key} = {json.dumps(value)}" for key, value in row.items() if key != "verdicts")
        verdicts = ", ".join(f'"{key}" = {value}' for key, value in row["verdicts"].items())
        print(f"{method} = {{ {', '.join(cells)}, verdicts = {{ {verdicts} }} }}", flush=True)
