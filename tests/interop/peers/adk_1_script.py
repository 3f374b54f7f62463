"""Dragoman's bridges on older versions of google-adk: prints a JSON line per thing that was seen."""

from __future__ import annotations

import asyncio
import json
import warnings
from typing import Any

warnings.simplefilter("ignore")

from google.adk import version  # noqa: E402
from google.adk.agents import BaseAgent, LlmAgent, SequentialAgent  # noqa: E402
from google.adk.events.event import Event  # noqa: E402
from google.adk.models.base_llm import BaseLlm  # noqa: E402
from google.adk.models.llm_response import LlmResponse  # noqa: E402
from google.adk.runners import InMemoryRunner  # noqa: E402
from google.adk.tools.long_running_tool import LongRunningFunctionTool  # noqa: E402
from google.genai import types  # noqa: E402

from dragoman import Agent, Client  # noqa: E402
from dragoman.adk import RemoteAgent  # noqa: E402


class Echo(BaseAgent):
    async def _run_async_impl(self, ctx: Any) -> Any:
        text = ctx.user_content.parts[0].text
        yield Event(author=self.name, content=types.Content(role="model", parts=[types.Part(text=f"heard {text}")]))


class Scripted(BaseLlm):
    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
        last = llm_request.contents[-1].parts[-1]
        if last.function_response is not None:
            for piece in ("The answer ", "is ", str(last.function_response.response["result"])):
                yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=piece)]), partial=True)
            whole = f"The answer is {last.function_response.response['result']}"
            yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=whole)]), partial=False)
        else:
            call = types.Part.from_function_call(name="approve", args={"sum": 5})
            yield LlmResponse(content=types.Content(role="model", parts=[call]))


def approve(sum: int) -> None:
    """Ask somebody."""


def show(**seen: Any) -> None:
    print(json.dumps(seen), flush=True)


async def main() -> None:
    show(version=version.__version__)
    async with Client(Agent.from_adk(Echo(name="echo"))) as client:
        task = await client.send("hello")
        show(served=task.text, state=str(task.state))
    buyer = LlmAgent(name="buyer", model=Scripted(model="scripted"), tools=[LongRunningFunctionTool(approve)])
    async with Client(Agent.from_adk(buyer)) as client:
        task = await client.send("buy")
        show(paused=str(task.state))
        chunks = [event.text async for event in client.stream("yes", task=task) if event.text]
        show(resumed=(await client.get_task(task)).text, chunks=len(chunks))
    far = RemoteAgent(name="far", url=Agent.from_adk(Echo(name="echo")), description="Repeats")
    team = SequentialAgent(name="team", sub_agents=[Echo(name="local"), far])
    runner = InMemoryRunner(agent=team, app_name="app")
    session = await runner.session_service.create_session(app_name="app", user_id="ada")
    message = types.Content(role="user", parts=[types.Part(text="hi")])
    async for event in runner.run_async(user_id="ada", session_id=session.id, new_message=message):
        if event.content and not event.partial:
            show(author=event.author, text=event.content.parts[0].text)


asyncio.run(main())
