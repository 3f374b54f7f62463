"""Commands that run beside a test."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.command import DRAGOMAN, SECRET, dragoman, inherited_environment


class Dragoman:
    """Runs commands in a folder, with a secret."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.environment = inherited_environment(DRAGOMAN_SECRET=SECRET)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command."""
        return subprocess.Popen(
            [*DRAGOMAN, *words],
            cwd=self._folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return dragoman(self._folder, *words, environment=self.environment)
