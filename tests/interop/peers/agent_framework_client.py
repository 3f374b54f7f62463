"""Microsoft Agent Framework's own A2AAgent calls a server.

Runs in the environment of tests/interop/peers/agent-framework.txt:  agent_framework_client.py URL [CASE …]
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import framework_script as script
import httpx
from a2a.client import A2ACardResolver
from agent_framework import AgentSession, Content, Message
from agent_framework_a2a import A2AAgent
from conversing import case, converse


@asynccontextmanager
async def agent_at(url: str) -> AsyncIterator[A2AAgent]:
    """The agent, by its card."""
    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, url).get_agent_card()
    async with A2AAgent(agent_card=card) as agent:
        yield agent


@case
async def text(url: str) -> str:
    async with agent_at(url) as agent:
        return (await agent.run(f"echo {script.ECHO}")).text


@case
async def stream(url: str) -> dict[str, Any]:
    async with agent_at(url) as agent:
        run = agent.run(f"stream {script.PIECES}", stream=True)
        pieces = [update.text async for update in run]
        return {"answer": (await run.get_final_response()).text, "pieces": pieces}


@case
async def talk(url: str) -> list[str]:
    async with agent_at(url) as agent:
        session = AgentSession()
        return [(await agent.run(f"echo {word}", session=session)).text for word in script.WORDS]


@case
async def ask(url: str) -> dict[str, Any]:
    async with agent_at(url) as agent:
        session = AgentSession()
        asked = await agent.run("ask", session=session)
        [request] = asked.user_input_requests
        answered = await agent.run(script.USER, session=session)
        return {"question": request.text, "answer": answered.text}


@case
async def failure(url: str) -> dict[str, str]:
    async with agent_at(url) as agent:
        streamed = await agent.run("fail", stream=True).get_final_response()
        return {"streamed": streamed.text, "polled": (await agent.run("fail")).text}


@case
async def file(url: str) -> dict[str, Any]:
    async with agent_at(url) as agent:
        answer = await agent.run("file")
        [found] = [each for message in answer.messages for each in message.contents if each.type == "data"]
        encoded = (found.uri or "").partition(",")[2]
        content = Content.from_data(script.FILE, script.FILE_TYPE)
        sent = await agent.run(Message(role="user", contents=["take", content]))
        part: Any = found.raw_representation
        return {"sent": sent.text, "received": [encoded, found.media_type, part.filename]}


@case
async def data(url: str) -> dict[str, Any]:
    async with agent_at(url) as agent:
        return {"received": json.loads((await agent.run("data")).text)}


converse()
