"""The scripted agent on fasta2a, as near to the script as its API allows: JSON-RPC, 1.0.

A task is all that it can answer with, its store keeps no message with a status (what the agent says goes to the
history), and a further message starts a new task whatever task it names.

Runs in the environment of tests/interop/peers/fasta2a.txt:  fasta2a_server.py [PORT]
"""

import asyncio
import base64
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import script
from fasta2a import FastA2A, Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.schema import Artifact, Message, Part, TaskIdParams, TaskSendParams, TaskState
from fasta2a.storage import InMemoryStorage
from serving import serve


class Scripted(Worker[Any]):
    """Plays the script."""

    async def run_task(self, params: TaskSendParams) -> None:
        task_id, context_id = params["id"], params["context_id"]
        await self.storage.update_task(task_id, state="working")
        await self.publish_status(task_id, context_id, "working")
        word, rest = script.words("".join(part.get("text", "") for part in params["message"]["parts"]))
        match word:
            case "echo":
                await self._finish(task_id, context_id, {"text": rest})
            case "stream":
                await self._stream(task_id, context_id, int(rest))
            case "ask":
                await self._say(task_id, context_id, "input-required", script.QUESTION)
            case "slow":
                # To wait here would be in the way of the cancel: a worker does one operation at a time, so the
                # work goes on beside it, which for this script means not at all.
                return
            case "data":
                await self._finish(task_id, context_id, {"data": script.DATA})
            case "file":
                content = base64.b64encode(script.FILE).decode()
                part: Part = {"raw": content, "filename": script.FILE_NAME, "media_type": script.FILE_TYPE}
                await self._finish(task_id, context_id, part)
            case _:
                await self._say(task_id, context_id, "failed", script.FAILURE)

    async def cancel_task(self, params: TaskIdParams) -> None:
        task = await self.storage.load_task(params["id"])
        if task is not None and task["status"]["state"] == "working":
            await self.storage.update_task(params["id"], state="canceled")

    async def _finish(self, task_id: str, context_id: str, part: Part) -> None:
        artifact = Artifact(artifact_id="result", name="result", parts=[part])
        await self.publish_artifact(task_id, context_id, artifact)
        await self.storage.update_task(task_id, state="completed", new_artifacts=[artifact])

    async def _stream(self, task_id: str, context_id: str, count: int) -> None:
        parts: list[Part] = []
        for number, text in enumerate(script.chunks(count)):
            parts.append({"text": text})
            chunk = Artifact(artifact_id="stream", parts=parts[-1:])
            last = number == count - 1
            await self.publish_artifact(task_id, context_id, chunk, append=number > 0, last_chunk=last)
            await asyncio.sleep(script.PAUSE)
        whole = Artifact(artifact_id="stream", parts=parts)
        await self.storage.update_task(task_id, state="completed", new_artifacts=[whole])

    async def _say(self, task_id: str, context_id: str, state: TaskState, text: str) -> None:
        message = Message(role="agent", parts=[{"text": text}], message_id=str(uuid.uuid4()))
        await self.storage.update_task(task_id, state=state, new_messages=[message])
        await self.publish_status(task_id, context_id, state, message)

    def build_message_history(self, history: list[Message]) -> list[Any]:
        return history

    def build_artifacts(self, result: Any) -> list[Artifact]:
        return [result]


def app_at(url: str) -> Any:
    storage: InMemoryStorage[Any] = InMemoryStorage()
    broker = InMemoryBroker()
    worker = Scripted(broker=broker, storage=storage)

    @asynccontextmanager
    async def lifespan(app: FastA2A) -> AsyncIterator[None]:
        async with app.task_manager, worker.run():
            yield

    return FastA2A(
        storage=storage,
        broker=broker,
        name=script.NAME,
        description=script.DESCRIPTION,
        version=script.VERSION,
        url=url,
        lifespan=lifespan,
    )


if __name__ == "__main__":
    serve(app_at)
