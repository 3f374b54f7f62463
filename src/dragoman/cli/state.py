"""The folder in which commands keep what later commands of the same user need."""

from __future__ import annotations

import os
from pathlib import Path


def state_folder() -> Path:
    """Return the folder for the state of the commands: `$XDG_STATE_HOME/dragoman`, by default in `~/.local/state`."""
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    # The XDG specification ignores a relative path.
    if base.is_absolute():
        return base / "dragoman"
    try:
        return Path.home() / ".local" / "state" / "dragoman"
    except RuntimeError:  # a user without a home: nothing can be written there
        return Path(os.devnull) / "dragoman"


def open_privately(path: str, flags: int) -> int:
    """Open a file that only its owner can read; an opener for `open`."""
    return os.open(path, flags, 0o600)
