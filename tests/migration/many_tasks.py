"""A SQLite store with very many tasks, made by a real engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from uuid import uuid4

from dragoman import Agent
from dragoman.engine.settings import EngineSettings
from dragoman.model.message import Message
from dragoman.model.operation import Operation, SendMessageRequest
from dragoman.model.part import Part
from dragoman.model.state import Role
from dragoman.server.agent.in_process import connect
from dragoman.stores.sqlite.store import SqliteStore

CALLERS = 100


def build_agent() -> Agent:
    agent = Agent("many", description="Answers in pieces")

    @agent.skill(default=True)
    async def answer(text: str) -> AsyncIterator[str]:
        """Answer in as many pieces as the text says, each of that size."""
        pieces, _, size = text.partition(" ")
        for piece in range(int(pieces)):
            yield f"{piece} ".ljust(int(size or 1))

    return agent


async def fill_many(path: Path, tasks: int) -> None:
    """Fill a file with tasks of four records each; every thousandth has 300, every five-thousandth one of 1.5 MB."""
    connection = connect(build_agent(), store=SqliteStore(path), settings=EngineSettings(drain=0))
    numbers = count(1)

    async def call() -> None:
        while (number := next(numbers)) <= tasks:
            text = "1 20"
            if number % 5000 == 0:
                text = "2 1500000"
            elif number % 1000 == 0:
                text = "300 400"
            message = Message(str(uuid4()), Role.USER, (Part(text=text),), context_id=f"context {number // 3}")
            await connection.perform(Operation.SEND, SendMessageRequest(message))

    await connection.open()
    try:
        await asyncio.gather(*(call() for _ in range(CALLERS)))
    finally:
        await connection.close()
