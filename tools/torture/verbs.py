"""The commands that are killed and disturbed: every verb that writes, on inputs of seconds."""

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import safetensors.torch

from retinabench.fidelity.targets.data import load
from retinabench.fidelity.targets.target import TARGETS
from retinabench.models.build import build_model
from retinabench.models.settings import ModelConfig
from torture.running import start

TINY = ("model.name=mlp", "model.width=8", "optimizer.epochs=3", "optimizer.batch_size=32", "optimizer.lr=0.05")
STUDY = """title = "Tiny"
criteria = ["in_domain_auroc"]
trials = 1
seeds = 2
ensemble = 2
bootstrap = 20
[tasks.country_shift]
data = {data}
[base.model]
name = "mlp"
width = 8
[base.optimizer]
epochs = 2
batch_size = 32
[methods.map]
space = {space}
"""


@dataclass(frozen=True)
class Verb:
    """One command; in its words `{i}` is the folder of the inputs, and `{run}` the finished run there."""

    name: str
    words: str
    needs: tuple[str, ...] = ()
    given: str = ""

    def arguments(self, inputs: Path) -> list[str]:
        run = next((str(path) for path in sorted((inputs / "runs").glob("*/")) if path.is_dir()), "")
        return [word.format(i=inputs, run=run) for word in self.words.split()]


TRAIN = f"train --data {{i}}/data --quiet --out out --device cpu {' '.join(TINY)} method.name="
CACHE = "map model.trained=head optimizer.augment=none model.weights={i}/weights.safetensors"
TUNE = f"tune --data {{i}}/data --space {{i}}/space.toml --criterion in_domain_auroc --out out --quiet {' '.join(TINY)}"
CHAINS = "--chains 2 --burn-in 1 --keep 8 --step 0.5 --out out/r.npz --quiet"
VERBS = (
    Verb("train map", f"{TRAIN}map", ("data",)),
    Verb("train swag", f"{TRAIN}swag", ("data",)),
    Verb("train ensemble", f"{TRAIN}ensemble method.members=2", ("data",)),
    Verb("predict", "predict {run} --data {i}/other --out out/p.parquet", ("data", "other", "runs")),
    Verb("export", "export {run} --out out/model", ("data", "runs")),
    Verb("prepare", "prepare synthetic --images 40 --size 32 --out out --workers 1 --quiet"),
    Verb("tune", f"{TUNE} --trials 2 --workers 1", ("data",)),
    Verb("benchmark", "benchmark {i}/study.toml --out out --workers 1 --quiet", ("data",)),
    Verb("fidelity run", "fidelity run map --task fundus-small --budget 3 --out out --quiet optimizer.epochs=3"),
    Verb("fidelity reference", f"fidelity reference fundus-small {CHAINS}"),
    Verb("fidelity tune", "fidelity tune ivon --task fundus-small --trials 1 --budget 3 --out out --quiet"),
    Verb("examine", "examine --answers {i}/answers.csv --truth {i}/truth.csv --questions 15 --out out --quiet"),
    Verb("feature cache", f"{TRAIN.replace('{i}/data', 'out/data')}{CACHE}", ("data", "weights"), "data"),
    Verb("report", "report {i}/p.csv --out out --bootstrap 20 --quiet"),
    Verb("clinic", "clinic {i}/p.csv --out out --quiet"),
    Verb("apply", "apply {i}/p.csv --certificate {i}/zones.json --out out"),
    Verb("transfer", "transfer {i}/v.csv --goal sensitivity=.5 --within site --bootstrap 20 --json out/t.json"),
    Verb("recalibrate", "recalibrate {i}/v.csv --out out/m.csv --json out/m.json"),
    Verb("score", "score {i}/p.csv --json out/s.json --bootstrap 20"),
    Verb("inspect", "inspect {i}/data --out out --quiet", ("data",)),
    Verb("site", "site --out out --bootstrap 20 --quiet"),
)


def make_inputs(folder: Path, needs: Collection[str]) -> None:
    folder.mkdir(parents=True)
    for name, seed in (("data", "0"), ("other", "1")):
        if name in needs:
            drawn = f"prepare synthetic --images 40 --size 16 --seed {seed} --workers 1 --quiet --out"
            _make([*drawn.split(), str(folder / name)], folder)
    text = {name: json.dumps(str(folder / name)) for name in ("data", "space.toml")}
    (folder / "space.toml").write_text('optimizer.lr = { low = 0.01, high = 0.2, scale = "log" }\n')
    (folder / "study.toml").write_text(STUDY.format(data=text["data"], space=text["space.toml"]))
    rng = np.random.default_rng(0)
    truth = (rng.random((40, 3)) < 0.5).astype(int)
    answers = np.clip(0.3 + 0.4 * truth + rng.normal(0, 0.2, truth.shape), 0, 1)
    for name, values in (("truth", truth), ("answers", answers.round(4))):
        rows = [f"i{k},{','.join(map(str, row))}\n" for k, row in enumerate(values.tolist())]
        (folder / f"{name}.csv").write_text("image_id,a,b,c\n" + "".join(rows))
    labels = rng.random(200) < 0.3
    probs = np.clip(0.25 + 0.4 * labels + rng.normal(0, 0.2, 200), 0, 1).round(4)
    rows = [f"i{k},{int(label)},{prob}\n" for k, (label, prob) in enumerate(zip(labels, probs, strict=True))]
    (folder / "p.csv").write_text("image_id,label,prob\n" + "".join(rows))
    split = [f",{'validation' if k % 2 else 'test'},{'AB'[k % 3 > 0]}" for k in range(200)]
    table = "".join(row.strip() + more + "\n" for row, more in zip(rows, split, strict=True))
    (folder / "v.csv").write_text("image_id,label,prob,split,site\n" + table)
    zones = {"negative": {"threshold": 0.2}, "positive": {"threshold": 0.8}}
    content = {"schema": "retinabench.triage/1", "zones": zones, "reference": {"prob": sorted(probs.tolist())}}
    (folder / "zones.json").write_text(json.dumps(content))
    target = TARGETS.find("fundus-small")
    shape = (len(load(target).test), target.outputs)
    np.savetxt(folder / "submission.csv", rng.dirichlet(np.ones(shape[1]), shape[0]), delimiter=",")
    if "weights" in needs:
        network = build_model(ModelConfig(name="mlp", width=8), 0)
        (folder / "weights.safetensors").write_bytes(safetensors.torch.save(network.state_dict()))
    if "runs" in needs:
        _make(f"{TRAIN}dropout".replace("--out out", f"--out {folder}/runs").format(i=folder).split(), folder)


def _make(arguments: list[str], folder: Path) -> None:
    ended = start(arguments, folder, folder / "output").wait()
    if ended.code:
        raise RuntimeError(ended.error)
