import subprocess
import sys

import pytest

from retinabench.core.errors import InputError
from retinabench.data.image_dataset import ImageDataset
from retinabench.data.registry import DATASETS, TASKS
from retinabench.data.splits import Division

LISTING = """
import sys
from retinabench.data.registry import DATASETS, TASKS
assert list(DATASETS) and list(TASKS)
loaded = [name for name in sys.modules if name.startswith(("retinabench.data.", "PIL", "numpy", "torch"))]
print(loaded)
"""
OPENING = """
import sys
from retinabench.data.prepared import open_data
print([name for name in sys.modules if name.startswith(("retinabench.data.datasets", "retinabench.data.synth", "PIL", "torch"))])
"""


def test_every_entry_is_what_the_registry_says():
    assert all(isinstance(DATASETS[name], ImageDataset) for name in DATASETS)
    assert all(isinstance(TASKS[name], Division) for name in TASKS)


def test_listing_the_names_imports_nothing():
    ran = subprocess.run([sys.executable, "-c", LISTING], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "['retinabench.data.registry']"


def test_opening_a_prepared_folder_imports_no_data_set():
    ran = subprocess.run([sys.executable, "-c", OPENING], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "[]"


def test_unknown_names_raise_with_the_nearest():
    with pytest.raises(InputError, match="Did you mean 'severity_shift'"):
        TASKS.find("severty_shift")


def test_options_of_other_data_sets_are_refused(tmp_path):
    with pytest.raises(InputError, match="--column is not an option of the data set 'idrid'"):
        DATASETS["idrid"].check_options("idrid", tmp_path, {"columns": {}})
    with pytest.raises(InputError, match="Name them with --source"):
        DATASETS["idrid"].check_options("idrid", None, {})
    DATASETS["synthetic"].check_options("synthetic", None, {"images": 64, "seed": 1})
