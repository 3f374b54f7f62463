"""Who is compared."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from bench import environments

Store = Literal["memory", "sqlite", "postgres"]


class Contestant(Struct, frozen=True):
    """A server: an agent's module, the interpreter it runs in, and where it keeps its tasks.

    One that is not written in Python has a `command` instead. It listens on a free port of 127.0.0.1, prints
    `{"port": PORT}`, and ends when its standard input does.
    """

    name: str
    module: str
    python: Path
    store: Store = "memory"
    # SendMessage answers when the work is done.
    blocks: bool = True
    # Events carry their number.
    numbered: bool = False
    # It is called over gRPC; its module has `serving(store)` in place of `app(store)`.
    grpc: bool = False
    command: tuple[str, ...] = ()
    # Seconds of warm-up that it needs at least: compilers at run time take a while.
    warmup: float = 0.0
    # Of the SDK, where pip does not know it.
    version: str = ""

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
    go: Contestant | None = None
    js: Contestant | None = None
    dragoman_postgres: Contestant | None = None
    sdk_postgres: Contestant | None = None
    sdk_cluster: Contestant | None = None
    # Over gRPC: those that could be installed.
    grpc: tuple[Contestant, ...] = ()

    def absent(self) -> list[str]:
        """Peers that could not be installed, as notes."""
        peers = {"a2a-sdk": self.sdk_memory, "fasta2a": self.fasta2a, "a2a-go": self.go, "@a2a-js/sdk": self.js}
        return [f"{name} could not be installed and is left out" for name, one in peers.items() if one is None]

    def versions(self) -> dict[str, str]:
        """What was compared, by package."""
        asked: list[tuple[Contestant | None, tuple[str, ...]]] = [
            (self.floor, ("dragoman", "uvicorn", "uvloop", "httptools", "msgspec")),
            (self.sdk_memory, ("a2a-sdk", "SQLAlchemy", "aiosqlite", "asyncpg", "grpcio")),
            (self.fasta2a, ("fasta2a",)),
            (self.adk, ("google-adk",)),
        ]
        found = {
            name: environments.version_of(one.python, name) for one, names in asked if one is not None for name in names
        }
        return {**found, **{one.name: one.version for one in (self.go, self.js) if one is not None}}


def gather() -> Field:
    """Find or install everybody."""
    own = environments.own_python()
    sdk = _peer("a2a-sdk-bench", "a2a-sdk")
    fasta2a = _peer("fasta2a", "fasta2a")
    adk = _peer("adk", "adk")
    ours = "bench.agents.dragoman_echo"
    theirs = "bench.agents.a2a_sdk_echo"
    go, js = _go(), _js()
    return Field(
        dragoman_memory=Contestant("dragoman", ours, own, numbered=True),
        dragoman_sqlite=Contestant("dragoman", ours, own, "sqlite", numbered=True),
        dragoman_postgres=Contestant("dragoman", ours, own, "postgres", numbered=True),
        floor=Contestant("floor", "bench.agents.floor", own, numbered=True),
        sdk_memory=Contestant("a2a-sdk", theirs, sdk) if sdk else None,
        sdk_sqlite=Contestant("a2a-sdk", theirs, sdk, "sqlite") if sdk else None,
        # Its first requests are slow: each of them opens a connection.
        sdk_postgres=Contestant("a2a-sdk", theirs, sdk, "postgres", warmup=2.0) if sdk else None,
        sdk_cluster=Contestant("a2a-sdk", "bench.agents.a2a_sdk_cluster", sdk, "postgres") if sdk else None,
        fasta2a=Contestant("fasta2a", "bench.agents.fasta2a_echo", fasta2a, blocks=False) if fasta2a else None,
        adk=Contestant("to_a2a", "bench.agents.adk_to_a2a", adk) if adk else None,
        go=go,
        js=js,
        grpc=tuple(_over_grpc(own, sdk, go, js)),
    )


def _over_grpc(own: Path, sdk: Path | None, go: Contestant | None, js: Contestant | None) -> Iterator[Contestant]:
    stores: tuple[Store, ...] = ("memory", "sqlite")
    for store in stores:
        yield Contestant("dragoman gRPC", "bench.agents.dragoman_grpc", own, store, numbered=True, grpc=True)
    if sdk is not None:
        for store in stores:
            yield Contestant("a2a-sdk gRPC", "bench.agents.a2a_sdk_grpc", sdk, store, grpc=True)
    for one in (go, js):
        if one is not None:
            yield msgspec.structs.replace(one, name=f"{one.name} gRPC", command=(*one.command, "grpc"), grpc=True)


def _peer(environment: str, pins: str) -> Path | None:
    try:
        return environments.peer_python(environment, pins)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"{pins} cannot be installed and is left out: {error}", file=sys.stderr)
        return None


def _go() -> Contestant | None:
    server = environments.PEERS / "go-bench" / "server"
    if not server.exists():
        return _left_out("a2a-go", "go")
    pinned = (environments.PINS / "go" / "go.mod").read_text()
    found = re.search(r"a2a-go/v2 v(\S+)", pinned)
    version = found.group(1) if found else "?"
    return Contestant("a2a-go", "", environments.own_python(), command=(str(server),), version=version)


def _js() -> Contestant | None:
    package = environments.PEERS / "js" / "node_modules" / "@a2a-js" / "sdk" / "package.json"
    node = shutil.which("node")
    if node is None or not package.exists():
        return _left_out("@a2a-js/sdk", "npm")
    command = (node, str(environments.PINS / "js" / "server.mjs"))
    version = json.loads(package.read_text())["version"]
    return Contestant("@a2a-js/sdk", "", environments.own_python(), command=command, warmup=4.0, version=version)


def _left_out(name: str, tool: str) -> None:
    print(f"{name} is left out: it is not in .peers, where `make bench` puts it if {tool} is there", file=sys.stderr)
