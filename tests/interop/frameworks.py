"""Other frameworks that speak A2A: who they are, the agent their clients talk with, and how these are started.

Their servers and Dragoman's agent play the same script, peers/framework_script.py.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from interop.field import DRIVER_SECONDS, Command, Peer, own_folder, program, python

from dragoman import Agent, Context, Failed, File
from dragoman.auth.inbound.passwords import key_digest, new_key
from dragoman.outputs import Ask
from dragoman.stores.sqlite.admin.users import SqliteUsers
from dragoman.testing import served

script = program("framework_script")

# No tracing, no telemetry, nothing that looks for an address outside.
QUIET = {
    "OTEL_SDK_DISABLED": "true",
    "LANGSMITH_TRACING": "false",
    "LANGGRAPH_NO_VERSION_CHECK": "true",
    "PYTHONWARNINGS": "ignore",
}


@dataclass(frozen=True)
class Framework:
    """One way to use a framework's bridge."""

    peer: Peer
    title: str
    path: str = ""
    """Where its server has this one, when it has several."""
    how: str = ""
    """How this one is made."""
    begins: str = ""
    """What the names of its client's cases begin with, when it has several clients."""
    before_ours: bool = False
    """Its server stands before Dragoman's agent, and is given its URL."""

    def __str__(self) -> str:
        return "-".join(filter(None, (str(self.peer), *self.path.split("/"), self.begins.rstrip("_"))))

    @property
    def row(self) -> str:
        """As the tables call it."""
        return ", ".join(filter(None, (f"{self.title} {self.peer.version}", self.how)))

    def at(self, path: str, how: str) -> Framework:
        """What its server has at this path, and how it is made there."""
        return replace(self, path=path, how=how)

    def by(self, begins: str, how: str) -> Framework:
        """What its client does in the cases whose names begin so, and how."""
        return replace(self, begins=begins, how=how)


MICROSOFT = Framework(
    python("agent-framework", "agent_framework_server.py", "agent_framework_client.py", "agent-framework-a2a"),
    "Microsoft Agent Framework",
)
AG2 = Framework(python("ag2", "ag2_server.py", "ag2_client.py", "ag2"), "AG2")
LANGGRAPH = Framework(python("langgraph-api", "langgraph_api_server.py", "", "langgraph-api"), "langgraph-api")
CREWAI = Framework(python("crewai", "crewai_server.py", "crewai_client.py", "crewai"), "CrewAI")
LITELLM = Framework(python("litellm", "litellm_server.py", "litellm_client.py", "litellm"), "LiteLLM", before_ours=True)

FRAMEWORKS = (MICROSOFT, AG2, LANGGRAPH, CREWAI, LITELLM)

SERVERS = (
    MICROSOFT.at("/default", "A2AExecutor as it is"),
    MICROSOFT.at("/stream", "A2AExecutor(stream=True)"),
    AG2,
    LANGGRAPH,
    CREWAI,
    LITELLM.at("/a2a/bridge", "a model behind its completion bridge"),
    LITELLM.at("/a2a/gateway-1.0", "its gateway in 1.0 before Dragoman's server"),
    LITELLM.at("/a2a/gateway-0.3", "its gateway in 0.3 before Dragoman's server"),
)
"""Whose server is called by Dragoman's client."""

CLIENTS = (
    MICROSOFT,
    AG2,
    replace(CREWAI, how="trust_remote_completion_status=True"),
    replace(LITELLM, how="asend_message"),
    LITELLM.by("completion_", "acompletion with the agent as its model"),
)
"""Whose client calls Dragoman's server."""


async def play(ctx: Context) -> AsyncIterator[str | dict[str, Any] | File | Ask]:
    """Play the script, for their clients."""
    if ctx.resume is not None:
        yield script.greeting(ctx.resume.text)
        return
    first, rest = script.words(ctx.text)
    match first:
        case "echo":
            yield rest
        case "stream":
            for piece in script.pieces(int(rest)):
                yield piece
                await asyncio.sleep(0)  # so that pieces are pieces
        case "progress":
            await ctx.progress(script.PROGRESS)
            yield rest
        case "ask":
            yield Ask(script.QUESTION)
        case "fail":
            raise Failed(script.FAILURE)
        case "file":
            yield File(script.FILE, name=script.FILE_NAME, media_type=script.FILE_TYPE)
        case "data":
            yield script.DATA
        case "take":
            files = [script.taken_file(file.raw, file.media_type, file.filename) for file in ctx.files]
            yield "\n".join([*files, *([] if ctx.data is None else [script.taken_data(ctx.data)])])
        case _:
            raise Failed(script.unknown(first))


def scripted() -> Agent:
    """A new agent that plays the script."""
    return Agent(script.NAME, description=script.DESCRIPTION, run=play)


@contextmanager
def guarded(folder: Path) -> Generator[str, None, None]:
    """The scripted agent for those with a key, and after its URL the key; users and tasks are kept in this folder."""
    key, path = new_key(), folder / "guarded.db"
    users = SqliteUsers(path)
    users.prepare()
    users.add(script.USER)
    users.add_key(script.USER, key_digest(key), key[-4:])
    with served(scripted(), auth="bearer", store=f"sqlite:///{path}") as url:
        yield f"{url} {key}"


def converse(framework: Framework, url: str, *cases: str, **environ: str) -> dict[str, dict[str, Any]]:
    """Let the framework's client talk with the agent at this URL; what it reported of each case.

    Raises:
        RuntimeError: it ended before all was played.
    """
    command: Command = (*framework.peer.client, url, *cases)
    with own_folder() as options:
        options["env"] |= {**QUIET, **environ}
        done = subprocess.run(command, capture_output=True, text=True, timeout=DRIVER_SECONDS, check=False, **options)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"case"')]
    if done.returncode != 0:
        raise RuntimeError(f"the client of {framework.title} ended with {done.returncode}:\n{done.stderr}")
    return {line["case"]: line for line in lines}
