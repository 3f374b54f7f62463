"""Who is compared."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Literal

from msgspec import Struct

from bench import environments

Store = Literal["memory", "sqlite"]


class Contestant(Struct, frozen=True):
    """A server: an agent's module, the interpreter it runs in, and where it keeps its tasks."""

    name: str
    module: str
    python: Path
    store: Store = "memory"
    # SendMessage answers when the work is done.
    blocks: bool = True
    # Events carry their number.
    numbered: bool = False

    @property
    def label(self) -> str:
        """As tables call it."""
        return self.name if self.name == "floor" else f"{self.name}, {self.store}"


class Field(Struct, frozen=True):
    """All contestants. A peer that could not be installed is missing."""

    dragoman_memory: Contestant
    dragoman_sqlite: Contestant
    floor: Contestant
    sdk_memory: Contestant | None
    sdk_sqlite: Contestant | None
    fasta2a: Contestant | None
    adk: Contestant | None

    def versions(self) -> dict[str, str]:
        """What was compared, by package."""
        asked: list[tuple[Contestant | None, tuple[str, ...]]] = [
            (self.floor, ("dragoman", "uvicorn", "uvloop", "httptools", "msgspec")),
            (self.sdk_memory, ("a2a-sdk", "SQLAlchemy", "aiosqlite")),
            (self.fasta2a, ("fasta2a",)),
            (self.adk, ("google-adk",)),
        ]
        return {
            name: environments.version_of(one.python, name) for one, names in asked if one is not None for name in names
        }


def gather() -> Field:
    """Find or install everybody."""
    own = environments.own_python()
    sdk = _peer("a2a-sdk-bench", "a2a-sdk")
    fasta2a = _peer("fasta2a", "fasta2a")
    adk = _peer("adk", "adk")
    ours = "bench.agents.dragoman_echo"
    theirs = "bench.agents.a2a_sdk_echo"
    return Field(
        dragoman_memory=Contestant("dragoman", ours, own, numbered=True),
        dragoman_sqlite=Contestant("dragoman", ours, own, "sqlite", numbered=True),
        floor=Contestant("floor", "bench.agents.floor", own, numbered=True),
        sdk_memory=Contestant("a2a-sdk", theirs, sdk) if sdk else None,
        sdk_sqlite=Contestant("a2a-sdk", theirs, sdk, "sqlite") if sdk else None,
        fasta2a=Contestant("fasta2a", "bench.agents.fasta2a_echo", fasta2a, blocks=False) if fasta2a else None,
        adk=Contestant("to_a2a", "bench.agents.adk_to_a2a", adk) if adk else None,
    )


def _peer(environment: str, pins: str) -> Path | None:
    try:
        return environments.peer_python(environment, pins)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"{pins} cannot be installed and is left out: {error}", file=sys.stderr)
        return None
