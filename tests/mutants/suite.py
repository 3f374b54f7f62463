"""Runs pytest with a plugin of this folder: `python suite.py PLUGIN ARGUMENTS`.

`PYTHONPATH` must name the tree under test and nothing else: with another one, the tests start each command cold.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    sys.exit(pytest.main(["-p", *sys.argv[1:]]))
