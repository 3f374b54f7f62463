"""The scripted agent on a2a-sdk: JSON-RPC and REST on one port, and gRPC on another.

Runs in the environment of tests/interop/peers/a2a-sdk.txt or a2a-sdk-03.txt:  a2a_sdk_server.py [PORT]
How each version of the SDK serves an executor is in a2a_sdk_app.py and a2a_sdk_app_03.py.
"""

import asyncio
from importlib import import_module
from typing import Any

import script
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import Message
from serving import serve

MODERN = hasattr(Message, "DESCRIPTOR")  # protobuf from 1.0 on, pydantic before
SDK: Any = import_module("a2a_sdk_app" if MODERN else "a2a_sdk_app_03")


class Scripted(AgentExecutor):
    """Plays the script."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        message = context.message
        assert message is not None
        text = context.get_user_input()
        if context.current_task is not None:
            task = context.current_task
            await _finish(TaskUpdater(event_queue, task.id, task.context_id), SDK.text_part(script.greeting(text)))
            return
        word, rest = script.words(text)
        if word == "message":
            await event_queue.enqueue_event(SDK.new_message(script.BARE, context_id=context.context_id))
            return
        task = SDK.new_task(message)
        await event_queue.enqueue_event(task)  # anything else first is an error of the agent
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        await _play(updater, word, rest)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id is not None
        assert context.context_id is not None
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


async def _play(updater: TaskUpdater, word: str, rest: str) -> None:
    match word:
        case "echo":
            await _finish(updater, SDK.text_part(rest))
        case "stream":
            await _stream(updater, int(rest))
        case "ask":
            await updater.requires_input(_says(updater, script.QUESTION), **SDK.ASKING)
        case "login":
            await updater.requires_auth(_says(updater, script.LOGIN))
            await SDK.LOGIN.wait()
            await _finish(updater, SDK.text_part(script.greeting(rest)))
        case "slow":
            await asyncio.Event().wait()
        case "data":
            await _finish(updater, SDK.data_part(script.DATA))
        case "file":
            await _finish(updater, SDK.file_part(script.FILE, script.FILE_TYPE, script.FILE_NAME))
        case _:
            await updater.failed(_says(updater, script.FAILURE))


def _says(updater: TaskUpdater, text: str) -> Message:
    return updater.new_agent_message([SDK.text_part(text)])


async def _finish(updater: TaskUpdater, part: Any) -> None:
    await updater.add_artifact([part], name="result")
    await updater.complete()


async def _stream(updater: TaskUpdater, count: int) -> None:
    for number, text in enumerate(script.chunks(count)):
        last = number == count - 1
        await updater.add_artifact([SDK.text_part(text)], "stream", append=number > 0, last_chunk=last)
        await asyncio.sleep(script.PAUSE)
    await updater.complete()


if __name__ == "__main__":
    serve(lambda url: SDK.app_of(Scripted(), url), in_loop=True)
