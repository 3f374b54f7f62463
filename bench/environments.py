"""Environments of the peers under .peers/, made from bench/peers/*.txt when they are not there."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / ".peers"
PINS = ROOT / "bench" / "peers"
INSTALL_SECONDS = 600


def own_python() -> Path:
    """The interpreter that runs this, in which Dragoman is installed."""
    return Path(sys.executable)


def peer_python(environment: str, pins: str) -> Path:
    """The interpreter of a peer's environment, which is made or renewed when its pins have changed.

    Raises:
        subprocess.SubprocessError: it cannot be installed.
    """
    folder = PEERS / environment
    python = folder / "bin" / "python"
    wanted = (PINS / f"{pins}.txt").read_text()
    installed = folder / "installed.txt"
    if python.exists() and installed.exists() and installed.read_text() == wanted:
        return python
    print(f"installing {pins} into {folder.relative_to(ROOT)}", file=sys.stderr)
    venv.create(folder, with_pip=True, clear=True, symlinks=True)
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", PINS / f"{pins}.txt"],
        check=True,
        timeout=INSTALL_SECONDS,
        env=os.environ,
    )
    installed.write_text(wanted)
    return python


def version_of(python: Path, package: str) -> str:
    """The version of a package in an environment."""
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False, timeout=30)
    return done.stdout.strip() or "?"
