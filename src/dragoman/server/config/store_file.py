"""Which file a server keeps its tasks in when nothing says so: by the name of its agent."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from dragoman.model.part import safe_filename

FOLDER = ".dragoman"
COMMON = "tasks"
DEFAULT_STORE = f"sqlite:///{FOLDER}/{COMMON}.db"
# Other files lie beside it, and have this name and an ending.
_MAX_BYTES = 100


def default_store(agents: Sequence[str], cwd: Path) -> str:
    """Return the URL of the store for a server of these agents that is started in the folder `cwd`.

    The first agent of a folder has `tasks.db`, and so has every agent that was served from that file before; another
    one has a file of its own. Several agents together have `tasks.db`. Neither the port nor who is running decides it:
    so an agent finds its tasks again, in whatever order the servers are started.
    """
    if len(agents) != 1:
        return DEFAULT_STORE
    # Imported here: commands that only read settings do not need it.
    from dragoman.stores.sqlite.file import read_agents

    (agent,) = agents
    own = f"{_file_name(agent)}.db"
    held = read_agents(cwd / FOLDER / f"{COMMON}.db")
    if agent in held or not (held or (cwd / FOLDER / own).exists()):
        return DEFAULT_STORE
    return f"sqlite:///{FOLDER}/{own}"


def _file_name(agent: str) -> str:
    """Return a file name for an agent: its own name, or that with a digest where it cannot be a file's name."""
    name = safe_filename(agent)
    if name == agent and "." not in name and len(name.encode()) <= _MAX_BYTES and name.casefold() != COMMON:
        return name
    # With a dot, which no name above has.
    stem = name.replace(".", "_").encode()[: _MAX_BYTES // 2].decode(errors="ignore")
    return f"{stem}.{hashlib.sha256(agent.encode()).hexdigest()[:8]}"
