import contextlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import fsspec
import pytest
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from retinabench.core.errors import InputError, WorkError
from retinabench.experiments.engines import ray_cluster
from retinabench.experiments.engines.engine import LocalEngine
from retinabench.experiments.engines.ray_cluster import RayEngine, Storage
from retinabench.experiments.engines.ray_cluster import checked_url as check
from retinabench.experiments.engines.scheduler import Job
from support.helpers import make_prepared
from support.sweeps import SLOW, bits, meanwhile, met, small, sweep


@pytest.fixture
def folder(tmp_path):
    """A finished run, with what must not travel: its checkpoint and the rest of a killed write."""
    run = tmp_path / "work" / "map-1"
    run.mkdir(parents=True)
    for name in ("run.json", "predictions.parquet", "last.pt", ".best.pt.0a1b.part", "done"):
        (run / name).write_bytes(name.encode() * (name != "done"))
    return run


@pytest.mark.parametrize("scheme", ["file", "memory"])
def test_a_run_comes_back_as_it_went(folder, tmp_path, scheme):
    url = check(f"{scheme}://{tmp_path}/store")
    storage = Storage(url)
    assert not storage.has("map-1")
    storage.put(folder)
    assert storage.has("map-1")
    storage.get(tmp_path / "back" / "map-1")
    assert {path.name: path.read_bytes() for path in (tmp_path / "back" / "map-1").iterdir()} == {
        "run.json": b"run.json", "predictions.parquet": b"predictions.parquet", "done": b"",
    }  # fmt: skip


def test_a_broken_transfer_leaves_nothing_that_counts_as_done(folder, tmp_path, monkeypatch):
    storage = Storage(check((tmp_path / "store").as_uri()))
    local = type(fsspec.filesystem("file"))
    opened = local.open

    def breaking(self, path, mode="rb", **given):
        if path.endswith("run.json"):
            raise ConnectionError("the network is gone")
        return opened(self, path, mode, **given)

    with monkeypatch.context() as patch:
        patch.setattr(local, "open", breaking)
        with pytest.raises(ConnectionError):
            storage.put(folder)
        assert not storage.has("map-1")
    storage.put(folder)
    with monkeypatch.context() as patch:
        patch.setattr(local, "open", breaking)
        with pytest.raises(ConnectionError):
            storage.get(tmp_path / "back" / "map-1")
    assert not (tmp_path / "back" / "map-1" / "done").exists()
    storage.get(tmp_path / "back" / "map-1")
    assert (tmp_path / "back" / "map-1" / "done").exists()


ray = pytest.importorskip("ray")

# Ray's own: processes and files of a cluster on this machine that nobody closes.
pytestmark = pytest.mark.filterwarnings(
    "ignore:subprocess .* is still running:ResourceWarning", "ignore:unclosed file .*/session_:ResourceWarning"
)

COMMAND = """
import sys
from pathlib import Path
from retinabench.core.errors import WorkError
from retinabench.experiments.engines import ray_cluster as cluster
from retinabench.experiments.engines.scheduler import Job
from support.sweeps import SLOW, small

cluster.LOOK, cluster.PATIENCE = 0.2, 2.0
run = small(Path(sys.argv[2]), f"optimizer.epochs={SLOW}")
try:
    list(cluster.RayEngine(sys.argv[1], device="cpu").compute([Job(run, Path(sys.argv[3]))]))
except WorkError as error:
    print(f"WorkError: {error}")
"""


@pytest.fixture(scope="module")
def nodes():
    """A head with room for one run; a test adds a node where it will lose one."""
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # the paths of sockets must be short
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_worker_niceness", "0")  # 15 otherwise: other tests would starve these
        patch.setenv("RAY_TMPDIR", folder)
        running = make_cluster()
        yield running
        running.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


def make_cluster():
    from ray.cluster_utils import Cluster

    # Two GPUs for Ray's accounting alone: nothing computes on them.
    return Cluster(initialize_head=True, head_node_args={**node(), "num_gpus": 2, "include_dashboard": False})


def node():
    return {"num_cpus": 1, "object_store_memory": 80 * 2**20}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return make_prepared(tmp_path_factory.mktemp("prepared") / "data", size=8)


@contextlib.contextmanager
def connected(address):
    """A process with PyTorch waits on every node: the first runs begin on all of them at once."""
    ray.init(address, log_to_driver=False)

    def warm():
        for module in ("retinabench.experiments.run", "torch._dynamo"):  # an optimiser imports the second
            importlib.import_module(module)

    try:
        warm = ray.remote(num_cpus=1)(warm)
        everywhere = [NodeAffinitySchedulingStrategy(one["NodeID"], soft=False) for one in ray.nodes() if one["Alive"]]
        ray.get([warm.options(scheduling_strategy=there).remote() for there in everywhere])
        yield
    finally:
        ray.shutdown()


@pytest.mark.slow
def test_losing_a_worker_and_a_node_loses_no_trial(nodes, prepared, tmp_path):
    """Kill a whole node, then one worker, each in the middle of a run; the bits are the local engine's."""
    slow = [small(prepared, f"seed={seed}", f"optimizer.epochs={SLOW}") for seed in (90, 91)]
    runs = [*slow, *sweep(prepared, seeds=3)]
    out, doomed, victims = tmp_path / "ray", nodes.add_node(**node()), []
    (raylet,) = doomed.all_processes["raylet"]

    def on_doomed(process):
        with contextlib.suppress(OSError):
            return int(Path(f"/proc/{process}/stat").read_text().split()[3]) == raylet.process.pid
        return False

    def strike():
        victims.append(met(out, "map-mlp-seed-9", on_doomed))
        raylet.process.kill()
        os.kill(victims[0], signal.SIGKILL)
        nodes.remove_node(doomed, allow_graceful=False)
        victims.append(met(out, "map-mlp-seed-9", lambda process: process != victims[0]))
        os.kill(victims[1], signal.SIGKILL)

    jobs = [Job(run, out) for run in runs]
    with connected(nodes.address), meanwhile(strike):
        outcomes = list(RayEngine(device="cpu", attempts=3).compute(jobs))
    assert len(victims) == 2
    # Each trial ended once.
    assert Counter(jobs.index(outcome.job) for outcome in outcomes) == Counter(range(len(jobs)))
    assert {outcome.state for outcome in outcomes} == {"done"}
    assert sum(outcome.attempts for outcome in outcomes) >= len(jobs) + 2
    for outcome in outcomes:
        epochs = outcome.folder / "metrics.jsonl"
        if epochs.exists():
            assert len(epochs.read_text().splitlines()) == outcome.job.run.optimizer.epochs

    list(LocalEngine(places=1, device="cpu").compute([Job(run, tmp_path / "local") for run in runs]))
    assert len(bits(out)) == 2 * 6 + 2  # three short, three slow; compositions have no posterior
    assert bits(out) == bits(tmp_path / "local")


@pytest.mark.slow
def test_a_run_takes_several_gpus_or_a_part_of_one(nodes, prepared, tmp_path):
    """Two processes (gloo, on the CPU) train one run in a task that holds two GPUs; two runs hold halves of one."""
    for gpus, processes in ((2.0, 2), (0.5, 1)):
        engine = RayEngine(nodes.address, device="cpu", cpus=0.25, gpus=gpus, attempts=1)
        jobs = [Job(small(prepared, f"seed={seed}"), tmp_path / str(gpus)) for seed in range(3 - processes)]
        outcomes = list(engine.compute(jobs))
        assert [outcome.state for outcome in outcomes] == ["done"] * len(jobs), outcomes[0].message
        begun = [json.loads((outcome.folder / "run.json").read_text()) for outcome in outcomes]
        assert {one["processes"] for one in begun} == {processes}
    ray.init(nodes.address, log_to_driver=False)
    try:
        slots = {}
        for gpus in (2.0, 1.0, 0.5):
            cluster = ray_cluster.Cluster(RayEngine(device="cpu", cpus=0.25, gpus=gpus))
            slots[gpus] = cluster._count_slots()
            cluster.close()
        assert slots == {2.0: 1, 1.0: 2, 0.5: 4}
    finally:
        ray.shutdown()


@pytest.fixture
def joined(nodes):
    """Engines leave a connection that they find, and with it the processes that have PyTorch."""
    ray_cluster.connect(ray, nodes.address)
    yield
    ray.shutdown()


def test_results_travel_through_a_storage_without_which_nodes_share_the_folder(joined, prepared, tmp_path, monkeypatch):
    url = ray_cluster.checked_url((tmp_path / "store").as_uri())
    diverging = small(prepared, "seed=7", "optimizer.lr=1e30")
    runs = [small(prepared, 'method={name="ensemble",members=2}'), diverging]
    engine = RayEngine(device="cpu", storage=url)
    jobs = [Job(run, tmp_path / "here") for run in runs]
    done, diverged = sorted(engine.compute(jobs), key=lambda outcome: outcome.state != "done")
    assert (done.state, diverged.state) == ("done", "diverged")
    assert "DivergedError" in diverged.log.read_text()
    stored = [folder for folder in (tmp_path / "store").iterdir() if (folder / "done").exists()]
    assert len(stored) == 3
    assert bits(tmp_path / "store") == bits(tmp_path / "here")
    assert not list(Path(tempfile.gettempdir()).glob(f"retinabench-*/{done.folder.name}"))
    # Another sweep that needs the same runs finds them there: no node trains them again.
    (found,) = engine.compute([Job(runs[0], tmp_path / "there")])
    assert found.state == "done"
    assert bits(tmp_path / "there") == bits(tmp_path / "here")

    monkeypatch.setattr(ray_cluster, "SETTLES", 0.1)
    # as where the nodes' /out is not ours
    monkeypatch.setattr("retinabench.experiments.engines.scheduler.ScheduledJob.done", False)
    with pytest.raises(InputError, match=r"is not here on .* that all nodes share, or add --storage"):
        list(RayEngine(device="cpu").compute([Job(small(prepared), tmp_path)]))


@pytest.mark.slow
def test_a_cluster_that_is_gone_is_told_and_the_same_command_continues(nodes, prepared, tmp_path):
    other, run = make_cluster(), small(prepared, f"optimizer.epochs={SLOW}")

    def strike():
        process = met(tmp_path, "map-mlp")
        for processes in other.head_node.all_processes.values():
            for one in processes:
                one.process.kill()
        os.kill(process, signal.SIGKILL)

    paths = os.pathsep.join(entry for entry in sys.path if entry)
    command = [sys.executable, "-c", COMMAND, other.address, str(prepared), str(tmp_path)]
    try:
        with meanwhile(strike):
            env = {**os.environ, "PYTHONPATH": paths}
            told = subprocess.run(command, env=env, capture_output=True, text=True, timeout=200)
    finally:
        other.shutdown()
    assert told.stdout.startswith("WorkError: the Ray cluster is gone. Start one and repeat the command"), told.stderr
    (metrics,) = tmp_path.glob("*/metrics.jsonl")
    assert 0 < len(metrics.read_text().splitlines()) < SLOW
    (outcome,) = RayEngine(nodes.address, device="cpu").compute([Job(run, tmp_path)])
    assert outcome.state == "done"
    assert len(metrics.read_text().splitlines()) == SLOW


def test_a_cluster_that_does_not_start_is_one_line(monkeypatch):
    def init(*_arguments, **_options):
        raise Exception("The current node timed out during startup.\nTraceback")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    shut: list[int] = []
    module = SimpleNamespace(init=init, shutdown=lambda: shut.append(1))
    says = r"Ray does not start on this machine \(The current node timed out during startup\)\. Repeat"
    with pytest.raises(WorkError, match=says):
        ray_cluster.connect(module, None)
    assert shut == [1]


def test_no_cluster_at_an_address_is_one_line(prepared, tmp_path):
    with pytest.raises(InputError, match=r"no Ray cluster at '127\.0\.0\.1:1'"):
        list(RayEngine("127.0.0.1:1", device="cpu").compute([Job(small(prepared), tmp_path)]))
