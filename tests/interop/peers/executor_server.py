"""The executor of a2a_sdk_server.py as it is, served by Dragoman instead of a2a-sdk.

Runs in Dragoman's own environment, with a2a-sdk from an environment under .peers/ behind it:
executor_server.py SITE_PACKAGES [PORT]
"""

import asyncio
import json
import site
import sys
from importlib import import_module
from typing import Any

# Last on the path: what both environments have is Dragoman's.
site.addsitedir(sys.argv.pop(1))

import script
from a2a.server.agent_execution import RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from serving import serve

from dragoman import Agent, User

TYPES: Any = import_module("a2a.types")
PEER: Any = import_module("a2a_sdk_server")


class Probing(PEER.Scripted):
    """Plays the script, and some things more that only Dragoman's own tests ask for."""

    def __init__(self) -> None:
        self.canceled: list[str] = []

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        word, _ = script.words(context.get_user_input())
        ids = str(context.task_id), str(context.context_id)
        updater = TaskUpdater(event_queue, *ids)
        match word:
            case "facts":
                await updater.complete(updater.new_agent_message([part(json.dumps(facts(context, event_queue)))]))
            case "raise":
                raise ValueError("the password is swordfish")
            case "refuse":
                raise refusal("say please")
            case "auth":
                await updater.requires_auth(updater.new_agent_message([part("Sign in")]))
            case "again":
                # A common beginning: the task that was given, or else a new one.
                await event_queue.enqueue_event(context.current_task or new_task(context.message))
                if context.current_task is None:
                    await updater.add_artifact([part("once")], "a")
                    await updater.requires_input(updater.new_agent_message([part("Again?")]))
            case "canceled":
                await updater.complete(updater.new_agent_message([part(json.dumps(self.canceled))]))
            case "hang":
                await updater.start_work()
                try:
                    await asyncio.Event().wait()
                finally:
                    self.canceled.append("execute")
            case _:
                await super().execute(context, event_queue)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.current_task is not None
        assert context.current_task.id == context.task_id
        self.canceled.append("cancel")
        await super().cancel(context, event_queue)


def facts(context: RequestContext, event_queue: EventQueue) -> dict[str, Any]:
    """What an executor finds in its context, and of whose types it is."""
    message, call = context.message, context.call_context
    assert message is not None
    assert call is not None
    return {
        "context": isinstance(context, RequestContext),
        "queue": isinstance(event_queue, EventQueue),
        "message": isinstance(message, TYPES.Message),
        "ids": [message.task_id, message.context_id] == [context.task_id, context.context_id],
        "configuration": context.configuration is not None,
        "metadata": context.metadata,
        "user": [call.user.is_authenticated, call.user.user_name],
        "extensions": sorted(context.requested_extensions),
        "current_task": context.current_task is not None,
        "related": list(context.related_tasks),
        "parts": len(message.parts),
    }


def part(text: str) -> Any:
    """A part of text."""
    return PEER.SDK.text_part(text)


def new_task(message: Any) -> Any:
    """A task that begins with a message."""
    return PEER.SDK.new_task(message)


def refusal(text: str) -> Exception:
    """An error that is meant for the caller."""
    errors: Any = import_module("a2a.utils.errors")
    if PEER.MODERN:
        return errors.InvalidParamsError(text)
    return errors.ServerError(TYPES.InvalidParamsError(message=text))


async def caller(request: Any) -> User | None:
    """Who calls is taken at his word."""
    name = request.headers.get("authorization", "").removeprefix("Bearer ")
    return User(name) if name else None


if __name__ == "__main__":
    agent = Agent.from_executor(Probing(), name=script.NAME)
    serve(lambda _: agent.app(store="memory:", drain=1, auth=caller))
