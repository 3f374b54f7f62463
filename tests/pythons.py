"""Prints the other versions of Python that this machine has, one path on a line, for `make test-all` and `.ci/run`.

With names such as `python3.13`, it prints where those are: for `make PYTHON=python3.13 …`.

A version is other if it is not the one that runs this script, and if `pyproject.toml` allows it. The PATH is searched,
and the versions of pyenv.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# What the command of a Python prints: its version, and where it is; nothing if it cannot make environments.
PROBE = "import ensurepip, sys, venv; print(*sys.version_info[:3], sys.executable)"
NEWEST = 30  # the last minor version of Python 3 that is looked for


def candidates(name: str) -> Iterator[Path]:
    """Yield where a Python of this name may be."""
    for folder in os.get_exec_path():
        if found := shutil.which(name, path=folder):
            yield Path(found)
    if shutil.which("pyenv"):
        root = subprocess.run(["pyenv", "root"], capture_output=True, text=True, check=False).stdout.strip()
        yield from Path(root).glob(f"versions/3.*/bin/{name}")


def newest(name: str) -> Path | None:
    """Return the Python of this name with the highest patch version; None if there is none."""
    found: list[tuple[tuple[int, ...], Path]] = []
    for python in candidates(name):
        # What stands for a version of pyenv that is not activated prints an error.
        probe = subprocess.run([python, "-c", PROBE], capture_output=True, text=True, check=False)
        if probe.returncode == 0:
            *version, path = probe.stdout.split(maxsplit=3)
            found.append((tuple(map(int, version)), Path(path.strip())))
    return max(found)[1] if found else None


def others() -> Iterator[Path]:
    """Yield the newest Python of each other version."""
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    oldest = re.search(r'^requires-python = ">=3\.(\d+)"', text, re.MULTILINE)
    assert oldest is not None
    for minor in range(int(oldest[1]), NEWEST + 1):
        if (3, minor) != sys.version_info[:2] and (python := newest(f"python3.{minor}")):
            yield python


if __name__ == "__main__":
    print(*(filter(None, map(newest, sys.argv[1:])) if sys.argv[1:] else others()), sep="\n")
