"""An executor written for a2a-sdk, where there is no a2a-sdk."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Awaitable
from typing import Any, Protocol

from contract.bridges.bridge import IMAGE, REASON, SECRET, TRIP, Bridge, Place
from contract.bridges.checkpoints import wait_at
from opentelemetry import trace

from dragoman import Agent, Part, State, Task
from dragoman.model.message import Message

TRACER = trace.get_tracer("contract")


class EventQueue(Protocol):
    """The part of a2a-sdk's EventQueue that executors use."""

    def enqueue_event(self, event: Any) -> Awaitable[None]: ...


class RequestContext(Protocol):
    """The part of a2a-sdk's RequestContext that this executor uses."""

    task_id: str
    context_id: str
    message: Message | None
    current_task: Task | None
    call_context: Any


class Updater:
    """Enqueues events as the TaskUpdater of a2a-sdk does."""

    def __init__(self, context: RequestContext, queue: EventQueue) -> None:
        self._ids = {"taskId": context.task_id, "contextId": context.context_id}
        self._queue = queue

    async def status(self, state: str, text: str | None = None) -> None:
        message = None if text is None else {"messageId": "m", "role": "agent", "parts": [{"text": text}]}
        await self._queue.enqueue_event({**self._ids, "status": {"state": state, "message": message}})

    async def artifact(self, part: dict[str, Any], *, append: bool = False, last: bool = True) -> None:
        artifact = {"artifactId": "answer", "parts": [part]}
        await self._queue.enqueue_event({**self._ids, "artifact": artifact, "append": append, "lastChunk": last})


class Executor:
    def __init__(self, port: int) -> None:
        self._port = port

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        updater, parts = Updater(context, event_queue), context.message.parts
        if context.current_task is not None and context.current_task.state is State.INPUT_REQUIRED:
            await self._answer(context.message.text, updater)
        else:
            await self._work(parts, updater, context)

    async def _answer(self, answer: str, updater: Updater) -> None:
        if not answer.isdigit():
            await updater.status("input-required", "How many days? Please answer with a whole number.")
            return
        await updater.artifact({"text": f"{answer} days."}, append=True)
        await updater.status("completed")

    async def _work(self, parts: tuple[Part, ...], updater: Updater, context: RequestContext) -> None:
        match (parts[0].text or "").split()[0]:
            case "tell":
                await updater.artifact({"text": "one "}, last=False)
                await wait_at(self._port, "tell")
                await updater.artifact({"text": "two"}, append=True)
            case "ask":
                await updater.artifact({"text": "Well. "}, last=False)
                await updater.status("input-required", "How many days?")
            case "wait":
                await wait_at(self._port, "wait")
            case "fail":
                raise ValueError(SECRET)
            case "refuse":
                await updater.status("failed", REASON)
            case "exit":
                sys.exit(3)
            case "step":
                await updater.status("working", "looking")
                await updater.artifact({"text": "found"})
            case "login":
                await updater.status("auth-required", "Log in, please")
            case "span":
                with TRACER.start_as_current_span("in the work"):
                    await updater.artifact({"text": "done"})
            case order:
                await updater.artifact(self._part(order, parts, context))

    def _part(self, order: str, parts: tuple[Part, ...], context: RequestContext) -> dict[str, Any]:
        match order:
            case "look":
                content = base64.b64encode(parts[1].raw or b"").decode()
                return {"text": json.dumps([parts[1].media_type, content])}
            case "draw":
                return {"raw": base64.b64encode(IMAGE).decode(), "mediaType": "image/png", "filename": "dot.png"}
            case "read":
                return {"text": json.dumps(parts[1].data)}
            case "plan":
                return {"data": TRIP}
            case "who":
                return {"text": context.call_context.user.user_name}
            case _:
                raise AssertionError(f"an unknown order: {order}")

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError("cancel not supported")


OWN_MEMORY = "an executor keeps its conversations itself"


def make(place: Place) -> Agent:
    return Agent.from_executor(Executor(place.port), name="worker")


BRIDGES = [
    Bridge(
        name="executor",
        make=make,
        lacks={
            "memory": OWN_MEMORY,
            "memory after a restart": OWN_MEMORY,
            "memory beside a question": OWN_MEMORY,
            "run again": "an executor may have had effects: there is no option to run it twice",
        },
    )
]
