"""Three agents in sequence, run by ADK, without an API key or a network: `python -m dragoman.examples.team`.

The planner is an ADK agent in this process. The guide is an agent of Dragoman, the bookkeeper an MCP server as an
agent; both are behind HTTP, in a server that is started here. Each agent sees the output of those before it.
"""

# ruff: noqa: T201 - showing it is all this is for

from __future__ import annotations

import asyncio
import logging
import re
import subprocess
import sys
import warnings
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from typing import Any

from dragoman.installation import install_line
from dragoman.model.error import ConfigError
from dragoman.server.agent.frameworks import require

WISH = "A few days in Lisbon, please."
PLAN = "Let us stay 3 days. The hotel is 240 euros, the train 60 euros."
REMOTE = ("guide", "bookkeeper")


@contextmanager
def served() -> Generator[str]:
    """Serve the remote agents on a free port and yield the address."""
    command = [sys.executable, "-m", "dragoman.cli.main", "serve", "dragoman.examples.team_members:server"]
    options = ["--port", "0", "--store", "memory:"]
    server = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True)  # noqa: S603
    try:
        yield address_of(server)
    finally:
        server.terminate()
        server.communicate()


def address_of(server: subprocess.Popen[str]) -> str:
    """Read the server's address from its log. Raises SystemExit with the log if it does not start."""
    assert server.stderr is not None
    lines: list[str] = []
    for line in server.stderr:
        lines.append(line)
        if "http://127.0.0.1:" in line:
            return "http://" + line.split("http://")[1].split("/")[0].strip()
    raise SystemExit(f"the server did not start:\n{''.join(lines)}")


def planner() -> Any:
    """Return an ADK agent whose model always gives the same answer."""
    from google.adk.agents import LlmAgent
    from google.adk.models.base_llm import BaseLlm
    from google.adk.models.llm_request import LlmRequest
    from google.adk.models.llm_response import LlmResponse
    from google.genai import types

    class Script(BaseLlm):
        async def generate_content_async(
            self, llm_request: LlmRequest, stream: bool = False
        ) -> AsyncGenerator[LlmResponse, None]:
            for word in re.findall(r"\S+ ?", PLAN) if stream else ():
                yield response(word, partial=True)
                await asyncio.sleep(0.03)
            yield response(PLAN)

    def response(text: str, *, partial: bool = False) -> LlmResponse:
        return LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]), partial=partial)

    return LlmAgent(name="planner", description="Plans trips", model=Script(model="script"))


async def run(address: str) -> None:
    """Run the team on the request and print who says what, as it is streamed."""
    from google.adk.agents import SequentialAgent  # pyright: ignore[reportDeprecated] - 1.x has nothing newer
    from google.adk.agents.run_config import (
        RunConfig,
        StreamingMode,  # pyright: ignore[reportPrivateImportUsage]
    )
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    from dragoman.adk import RemoteAgent

    remote = [RemoteAgent(name=name, url=f"{address}/agents/{name}") for name in REMOTE]
    team = SequentialAgent(name="team", sub_agents=[planner(), *remote])  # pyright: ignore[reportDeprecated]
    runner = InMemoryRunner(agent=team, app_name="team")
    session = await runner.session_service.create_session(app_name="team", user_id="you")
    speaker = ""
    async for event in runner.run_async(
        user_id="you",
        session_id=session.id,
        new_message=types.Content(role="user", parts=[types.Part(text=WISH)]),
        run_config=RunConfig(streaming_mode=StreamingMode.SSE),
    ):
        if event.error_message:
            raise SystemExit(f"\n{event.author}: {event.error_message}")
        text = "".join(part.text or "" for part in (event.content.parts if event.content else None) or ())
        # ADK repeats streamed text as a whole event.
        if text and (event.partial or event.author != speaker):
            print(text if event.author == speaker else f"\n\n{event.author}: {text}", end="", flush=True)
            speaker = event.author
    print()
    for member in remote:
        await member.close()
    await runner.close()


def main() -> None:
    """Run the demo. Exits with 2 if a dependency is not installed."""
    try:
        require("google.adk", "adk")
        require("mcp", "mcp")
    except ConfigError:
        print(f"the team needs ADK and MCP: {install_line('adk', 'mcp')}", file=sys.stderr)
        raise SystemExit(2) from None
    # ADK 2 deprecates SequentialAgent in favor of Workflow, and warns that the scripted model reports no token usage.
    warnings.filterwarnings("ignore", "SequentialAgent is deprecated", DeprecationWarning)
    logging.getLogger("google_adk").setLevel(logging.ERROR)
    with served() as address:
        print("planner     an agent of Google's ADK, here")
        print(f"guide       an agent of Dragoman, {address}/agents/guide")
        print(f"bookkeeper  an MCP server as an agent, {address}/agents/bookkeeper")
        print(f"\nyou: {WISH}", end="")
        asyncio.run(run(address))


if __name__ == "__main__":
    main()
