"""The page on a package index is README, whose links lead into the repository there."""

import re
from pathlib import Path

from setuptools import setup

REPOSITORY = "https://github.com/retinabench/retinabench"
readme = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
readme = re.sub(r"\]\((?!https?:)", f"]({REPOSITORY}/blob/main/", readme)
readme = re.sub(r'src="(?!https?:)', f'src="{REPOSITORY}/raw/main/', readme)
setup(long_description=readme, long_description_content_type="text/markdown")
