"""The two sides that are compared: the official SDK's client, and Dragoman's client with an agent in between."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import mcp_types as mcp
from interop.mcp_results import Outcome, Question, of_error, of_question, of_result, of_task, of_waiting
from interop.mcp_servers.server import McpServer, listening
from interop.mcp_servers.step import Answer, Step
from mcp import Client as McpClient
from mcp import MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client

from dragoman import Agent, Client, Task
from dragoman.testing import served

# Those of `dragoman mcp`, in the order in which it lists them.
TOOLS = [
    *("resolve_agent_card", "validate_agent_card", "list_remote_agents", "send_message", "send_streaming_message"),
    *("get_task", "list_tasks", "cancel_task", "subscribe_to_task", "configure_push_notifications"),
    "get_extended_agent_card",
]


class Direct:
    """The official client, and nobody in between."""

    def __init__(self, client: McpClient, asker: Asker) -> None:
        self.client = client
        self._asker = asker

    async def tools(self) -> list[str]:
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def call(self, step: Step) -> Outcome:
        self._asker.begin(step.answers)
        try:
            result = await self.client.call_tool(step.tool, step.arguments)
            outcome = await of_result(result, self.client.read_resource)
        except MCPError as error:
            outcome = of_error(error)
        return replace(outcome, questions=self._asker.end())


class Asker:
    """Answers the questions of a server as a step says."""

    def __init__(self) -> None:
        self._answers: list[Answer] = []
        self._asked: list[Question] = []

    def begin(self, answers: tuple[Answer, ...]) -> None:
        self._answers, self._asked = list(answers), []

    def end(self) -> list[Question]:
        assert not self._answers, "the tool did not ask as often as expected"
        return self._asked

    async def __call__(self, context: Any, params: mcp.ElicitRequestParams) -> mcp.ElicitResult:
        self._asked.append(of_question(params))
        answer = self._answers.pop(0)
        return mcp.ElicitResult(action=answer.action, content=answer.content)


class Bridged:
    """Dragoman's client, an agent on a real port, and the server behind it."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def tools(self) -> list[str]:
        return [skill.id for skill in (await self.client.card()).skills]

    async def call(self, step: Step) -> Outcome:
        task = await self.client.send(tool=step.tool, arguments=step.arguments)
        questions: list[Question] = []
        for answer in step.answers:
            assert isinstance(task, Task)
            assert task.state.waiting, (task.state, task.error)
            questions.append(of_waiting(task))
            words = {"accept": "done", "decline": "decline", "cancel": "cancel"}[answer.action]
            content: dict[str, Any] = {"data": answer.content} if answer.content is not None else {"text": words}
            task = await self.client.send(**content, task=task)
        assert isinstance(task, Task)
        return replace(of_task(task), questions=questions)


@contextmanager
def target(server: McpServer, here: Path) -> Generator[Any, None, None]:
    """What a client is pointed at: a command, or the URL of a server that runs meanwhile."""
    server.make(here)
    if server.transport == "stdio":
        yield server.command(here)
    else:
        with listening(server.command(here)) as url:
            yield url


def transport_to(place: Any, env: dict[str, str] | None = None, errors: Any = sys.stderr) -> Any:
    """What the official client takes for a command or a URL."""
    if isinstance(place, str):
        return place
    program, *arguments = place
    return stdio_client(StdioServerParameters(command=program, args=arguments, env=env), errors)


@asynccontextmanager
async def direct(server: McpServer, here: Path) -> AsyncGenerator[Direct, None]:
    """The server, called by the official client."""
    asker = Asker()
    with target(server, here) as place, ExitStack() as files:
        quiet = files.enter_context(os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        place = transport_to(place, server.env(here), quiet)
        mode = "legacy" if server.revision else "auto"
        async with McpClient(place, elicitation_callback=asker, mode=mode) as client:
            yield Direct(client, asker)


@asynccontextmanager
async def bridged(server: McpServer, here: Path, **options: Any) -> AsyncGenerator[Bridged, None]:
    """The server as an agent, called by Dragoman's client with these options."""
    with target(server, here) as place:
        # A program gets variables of its own; a server that is reached by its address has got them already.
        env = server.env(here) if not isinstance(place, str) else None
        with served(Agent.from_mcp(place, env=env, revision=server.revision or None)) as url:
            async with Client(url, **options) as client:
                yield Bridged(client)


async def differences(server: McpServer, here: Path, **options: Any) -> list[str]:
    """Every step on both sides, each from the same beginning; what is not the same comes back."""
    steps = server.steps(here)
    async with direct(server, here) as side:
        tools = await side.tools()
        expected = [(await side.call(step)).seen(step.view) for step in steps]
    async with bridged(server, here, **options) as side:
        skills = await side.tools()
        received = [(await side.call(step)).seen(step.view) for step in steps]
    found = [f"tools\n  MCP: {tools}\n  A2A: {skills}"] if skills != tools else []
    found += [f"{tool}: there is no step that calls it" for tool in set(tools) - {step.tool for step in steps}]
    return found + [
        f"{step.tool} {step.arguments}\n  MCP: {one}\n  A2A: {other}"
        for step, one, other in zip(steps, expected, received, strict=True)
        if repr(one) != repr(other)  # as Python has it 1 == 1.0 == True
    ]
