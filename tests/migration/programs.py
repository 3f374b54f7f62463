"""What runs beside a test: a receiver of webhooks, and commands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

SRC = Path(__file__).resolve().parents[2] / "src"
SECRET = "dk1_" + "s" * 43  # as if it were generated: no slow derivation


class Command(NamedTuple):
    """How a command has ended."""

    code: int
    out: str
    err: str


class Dragoman:
    """Runs commands in a folder, with a secret."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.environment = {**os.environ, "PYTHONPATH": str(SRC), "DRAGOMAN_SECRET": SECRET}

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command."""
        return subprocess.Popen(
            [sys.executable, "-m", "dragoman.cli.main", *words],
            cwd=self._folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *words: str) -> Command:
        process = self.start(*words)
        out, err = process.communicate(timeout=60)
        return Command(process.returncode, out, err)
