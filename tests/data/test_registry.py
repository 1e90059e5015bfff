import subprocess
import sys

from retinabench.data.image_dataset import ImageDataset
from retinabench.data.registry import DATASETS, TASKS
from retinabench.data.splits import Division

LOADED = """
import sys
from retinabench.data.registry import DATASETS, TASKS
assert list(DATASETS) and list(TASKS)
print([name for name in sys.modules if name.startswith(("retinabench.data.", "PIL", "numpy", "torch"))])
from retinabench.data.prepared import open_data
print([name for name in sys.modules if name.startswith(("retinabench.data.datasets", "retinabench.data.synth", "PIL", "torch"))])
"""


def test_every_entry_is_what_the_registry_says():
    assert all(isinstance(DATASETS[name], ImageDataset) for name in DATASETS)
    assert all(isinstance(TASKS[name], Division) for name in TASKS)


def test_listing_the_names_imports_nothing_and_opening_a_prepared_folder_no_data_set():
    ran = subprocess.run([sys.executable, "-c", LOADED], check=True, capture_output=True, text=True)
    assert ran.stdout.splitlines() == ["['retinabench.data.registry']", "[]"]
