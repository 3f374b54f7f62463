"""The peers: where each of them lives, which wires it speaks, how its server and its client are started."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from support.server_process import ServerProcess

HERE = Path(__file__).parent
PROGRAMS = HERE / "peers"
INSTALLED = HERE.parents[1] / ".peers"
START_SECONDS = 60
STOP_SECONDS = 5
DRIVER_SECONDS = 120

Command = tuple[str | Path, ...]


@dataclass(frozen=True)
class Wire:
    """A transport and a version of the protocol."""

    transport: str  # as Client(transport=) has it
    protocol: str

    def __str__(self) -> str:
        return f"{self.transport}-{self.protocol}"

    @property
    def binding(self) -> str:
        return {"jsonrpc": "JSONRPC", "rest": "HTTP+JSON", "grpc": "GRPC"}[self.transport]


JSONRPC_10, REST_10 = Wire("jsonrpc", "1.0"), Wire("rest", "1.0")
JSONRPC_03, REST_03 = Wire("jsonrpc", "0.3"), Wire("rest", "0.3")
GRPC_10, GRPC_03 = Wire("grpc", "1.0"), Wire("grpc", "0.3")
ALL_WIRES = (JSONRPC_10, REST_10, GRPC_10, JSONRPC_03, REST_03, GRPC_03)


def smoke_wires(wires: tuple[Wire, ...]) -> tuple[Wire, ...]:
    """The wires of a peer that one case is played over when there is no time for more: one of HTTP, one of gRPC."""
    return (wires[0], *[wire for wire in wires if wire.transport == "grpc"][:1])


def with_flags(wire: Wire) -> Command:
    return "--transport", wire.transport, "--protocol", wire.protocol


def with_words(wire: Wire) -> Command:
    return wire.binding, wire.protocol


@dataclass(frozen=True)
class Peer:
    """A foreign SDK."""

    name: str
    folder: str
    """Its environment under .peers/, which is there when it has a file `ready`."""
    server: Command
    """The scripted agent of peers/script.py; a port comes last."""
    client: Command
    """The driver of our agent; the URL, the wire and perhaps a case come last."""
    pinned: tuple[str, str]
    """The file that names its version, and the pattern that finds it."""
    server_wires: tuple[Wire, ...] = ALL_WIRES
    client_wires: tuple[Wire, ...] = ALL_WIRES
    spelled: Callable[[Wire], Command] = field(default=with_flags)
    only: Command = ("--only",)

    def __str__(self) -> str:
        return self.folder

    @property
    def version(self) -> str:
        file, pattern = self.pinned
        found = re.search(pattern, (PROGRAMS / file).read_text(), re.MULTILINE)
        assert found, f"{file} names no version of {self.name}"
        return found[1]

    @property
    def missing(self) -> str:
        """Why it cannot be tried; empty when it can."""
        return "" if (INSTALLED / self.folder / "ready").exists() else f"no .peers/{self.folder}: run `make interop`"


def python(folder: str, server: str, client: str, package: str, **rest: Any) -> Peer:
    """A peer that is a Python package, in an environment of its own."""
    interpreter = INSTALLED / folder / "bin" / "python"
    pinned = f"{folder}.txt", rf"^{re.escape(package)}==(.+)$"
    return Peer(package, folder, (interpreter, PROGRAMS / server), (interpreter, PROGRAMS / client), pinned, **rest)


def golang(folder: str, module: str, wires: tuple[Wire, ...] = ALL_WIRES) -> Peer:
    """The programs of peers/go, built against the version of a2a-go that this module file names."""
    built = INSTALLED / folder
    pinned = module, r"github\.com/a2aproject/a2a-go/v2 v(\S+)"
    programs = (built / "server",), (built / "client",)
    return Peer("a2a-go", folder, *programs, pinned, wires, wires, with_words, ())


PEERS = (
    python("a2a-sdk", "a2a_sdk_server.py", "a2a_sdk_driver.py", "a2a-sdk"),
    python(
        "a2a-sdk-03",
        "a2a_sdk_server.py",
        "a2a_sdk_driver.py",
        "a2a-sdk",
        server_wires=(JSONRPC_03, REST_03, GRPC_03),
        client_wires=(JSONRPC_03, REST_03, GRPC_03),
    ),
    python(
        "fasta2a",
        "fasta2a_server.py",
        "fasta2a_driver.py",
        "fasta2a",
        server_wires=(JSONRPC_10,),
        client_wires=(JSONRPC_10,),
    ),
    Peer(
        "@a2a-js/sdk",
        "js",
        ("node", PROGRAMS / "js" / "server.mjs"),
        ("node", PROGRAMS / "js" / "client.mjs"),
        ("js/package.json", r'"@a2a-js/sdk": "(.+)"'),
        spelled=with_words,
        only=(),
    ),
    golang("go", "go/go.mod"),
    # What 2.3 calls REST 0.3 is neither: objects of JSON-RPC 0.3 with their keys in snake case, on the paths of 1.0.
    golang("go-23", "go/go-2.3.mod", (JSONRPC_10, REST_10, GRPC_10, JSONRPC_03, GRPC_03)),
    Peer(
        "a2a-rs",
        "rust",
        (INSTALLED / "rust" / "debug" / "server",),
        (INSTALLED / "rust" / "debug" / "client",),
        ("rust/Cargo.toml", r'a2a-server-lf", version = "=(\S+)"'),
        (JSONRPC_10, REST_10),
        (JSONRPC_10, REST_10),
        with_words,
        (),
    ),
)

# Its own bridges between ADK and A2A, as server and as client. They have a script of their own.
ADKS = tuple(
    python(folder, "adk_server.py", "adk_client.py", "google-adk") for folder in ("adk-1-31", "adk-1", "adk-2-5", "adk")
)
ADK = ADKS[-1]
ADK_SERVERS = {
    "legacy": "to_a2a as it is",
    "legacy-streaming": "to_a2a with tokens streamed",
    "v2": "to_a2a with force_new_version",
    "v2-streaming": "to_a2a with force_new_version and tokens streamed",
}
ADK_CLIENT = "RemoteA2aAgent"


def program(name: str) -> ModuleType:
    """A module of peers/, for a test that plays its script too. Programs import it by the same name."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, PROGRAMS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@dataclass(frozen=True)
class Driven:
    """What a driver reported: its cases, and whatever else it had to say."""

    cases: list[dict[str, Any]]
    code: int
    rest: str


def drive(peer: Peer, url: str, wire: Wire, only: str | None = None) -> Driven:
    """Let the peer's client drive the agent at this URL.

    Raises:
        TimeoutError: it does not end.
    """
    chosen = (*peer.only, only) if only else ()
    command = [*peer.client, url, *peer.spelled(wire), *chosen]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DRIVER_SECONDS, check=False)
    except subprocess.TimeoutExpired as late:
        raise TimeoutError(f"the driver did not end:\n{late.stdout!r}\n{late.stderr!r}") from late
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return Driven([json.loads(line) for line in lines], done.returncode, done.stderr)


@contextmanager
def own_folder() -> Generator[dict[str, Any], None, None]:
    """Where a foreign program may leave what it likes, as options of its process."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        yield {"cwd": folder, "env": {**os.environ, "TMPDIR": folder}}


@contextmanager
def serving(peer: Peer) -> Generator[str, None, None]:
    """The peer's server in a process of its own, and its base URL.

    Raises:
        AssertionError: it does not start.
    """
    with own_folder() as options:
        server = ServerProcess(
            [*peer.server, "0"],
            Path(options["cwd"]),
            environment=options["env"],
            address=r'"url": ?"([^"]+)"',
            merged=True,
            seconds=START_SECONDS,
        )
        with server:
            yield server.url
            server.stop()
            with suppress(subprocess.TimeoutExpired):
                server.process.wait(STOP_SECONDS)
