"""What a fresh interpreter has imported after some code."""

from __future__ import annotations

import subprocess
import sys

from support.command import inherited_environment


def modules_after(code: str) -> set[str]:
    """The full names of the modules that a fresh interpreter has loaded after running code."""
    script = f"{code}\nimport sys\nprint(*sys.modules)"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=inherited_environment(), capture_output=True, text=True, check=True, timeout=30)
    return set(done.stdout.split())


def packages_after(code: str) -> set[str]:
    """The same, of each only the name of its top-level package."""
    return {name.partition(".")[0] for name in modules_after(code)}
