"""The command line `dragoman` of this checkout, and environments for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
# What tests/warm_start.py starts warm.
DRAGOMAN = [sys.executable, "-m", "dragoman.cli.main"]
# A server secret as if it were generated: nothing is derived from it slowly.
SECRET = "dk1_" + "s" * 43
_SECONDS = 60.0


def clean_environment(home: Path | str = os.devnull, **more: str) -> dict[str, str]:
    """An environment without any setting of the user, in which a warning is an error."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "PYTHONPATH": str(SOURCE),
        "PYTHONWARNINGS": "error",
        **more,
    }


def inherited_environment(**more: str) -> dict[str, str]:
    """The environment of the tests, with the package of this checkout."""
    return {**os.environ, "PYTHONPATH": str(SOURCE), **more}


def dragoman(
    folder: Path, *words: str | Path, environment: dict[str, str] | None = None, typed: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in a folder, in a clean environment by default. `typed` is what is on its stdin."""
    return subprocess.run(
        [*DRAGOMAN, *map(str, words)],
        cwd=folder,
        env=clean_environment() if environment is None else environment,
        input=typed,
        stdin=subprocess.DEVNULL if typed is None else None,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=_SECONDS,
        check=False,
    )
