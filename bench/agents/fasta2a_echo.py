"""The agent on fasta2a, as near as its API allows: SendMessage answers before the work is done.

Runs in .peers/fasta2a.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fasta2a import FastA2A, Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.schema import Artifact, Message, TaskIdParams, TaskSendParams
from fasta2a.storage import InMemoryStorage

from bench.agents.words import CARD_NAME, chunk_text


class Echo(Worker[Any]):
    """Does one task at a time: fasta2a has no other way."""

    async def run_task(self, params: TaskSendParams) -> None:
        """Working, artifact, completed; the task itself is made by fasta2a."""
        task_id, context_id = params["id"], params["context_id"]
        await self.storage.update_task(task_id, state="working")
        await self.publish_status(task_id, context_id, "working")
        part: Any = params["message"]["parts"][0]
        if "data" in part:
            result = await self._count(task_id, context_id, int(part["data"]["arguments"]["n"]))
        else:
            result = Artifact(artifact_id="echo", name="echo", parts=[{"text": part["text"]}])
            await self.publish_artifact(task_id, context_id, result)
        await self.storage.update_task(task_id, state="completed", new_artifacts=[result])

    async def _count(self, task_id: str, context_id: str, chunks: int) -> Artifact:
        parts: list[Any] = []
        for number in range(chunks):
            parts.append({"text": chunk_text(number)})
            chunk = Artifact(artifact_id="count", name="count", parts=parts[-1:])
            last = number == chunks - 1
            await self.publish_artifact(task_id, context_id, chunk, append=number > 0, last_chunk=last)
            await asyncio.sleep(0)
        return Artifact(artifact_id="count", name="count", parts=parts)

    async def cancel_task(self, params: TaskIdParams) -> None:
        """Nothing is ever canceled here."""

    def build_message_history(self, history: list[Message]) -> list[Any]:
        """Not used."""
        return history

    def build_artifacts(self, result: Any) -> list[Artifact]:
        """Not used."""
        return [result]


def app(store: str) -> Any:
    """The ASGI app; fasta2a has no store but memory."""
    assert store == "memory", "fasta2a keeps tasks in memory only"
    storage: InMemoryStorage[Any] = InMemoryStorage()
    broker = InMemoryBroker()
    worker = Echo(broker=broker, storage=storage)

    @asynccontextmanager
    async def lifespan(served: FastA2A) -> AsyncIterator[None]:
        async with served.task_manager, worker.run():
            yield

    return FastA2A(storage=storage, broker=broker, name=CARD_NAME, lifespan=lifespan)
