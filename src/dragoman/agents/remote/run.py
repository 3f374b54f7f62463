"""A foreign agent as an agent of ours: durable, resumable, readable in every version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

import msgspec

from dragoman.agents.remote.errand import GOODBYE, STATE, Errand
from dragoman.client.connection import Backoff
from dragoman.client.follow import DEFAULT_LIMIT
from dragoman.model.error import (
    A2AError,
    AuthError,
    CannotConnect,
    DragomanError,
    Failed,
    Overloaded,
    Rejected,
    ResponseTooLarge,
    TaskNotFound,
)
from dragoman.model.operation import CancelTaskRequest, Operation
from dragoman.net.exchange import size_in_words

if TYPE_CHECKING:
    from dragoman.client.connection import Connection
    from dragoman.engine.execute.context import Context
    from dragoman.model.card import AgentCard


class RemoteAgent:
    """The `run` of an agent that stands in front of another. `connect` makes the connection when it is first needed.

    A run in which the agent behind sends more than `limit` bytes fails, and the task behind is canceled: nobody would
    hear of it any more.
    """

    def __init__(
        self, connect: Callable[[], Connection], *, retries: int = 5, limit: int | None = DEFAULT_LIMIT
    ) -> None:
        self._connect = connect
        self._retries = retries
        self._limit = limit
        self._connection: Connection | None = None
        self._opening: asyncio.Task[Connection] | None = None

    async def connection(self) -> Connection:
        """The way to the agent behind.

        Raises:
            CannotConnect: nobody answers.
            BadCard: it has no card any more.
        """
        if self._connection is None:
            opening = self._opening
            if opening is None or opening.done() or opening.get_loop() is not asyncio.get_running_loop():
                opening = self._opening = asyncio.ensure_future(self._open())
                # Whoever waits may have been canceled: then nobody is there to hear what went wrong.
                opening.add_done_callback(lambda done: done.cancelled() or done.exception())
            connection = await asyncio.shield(opening)
            self._connection = connection
            return connection
        return self._connection

    async def _open(self) -> Connection:
        connection = self._connect()
        try:
            await connection.open()
            backoff = Backoff(self._retries, connection.clock)
            while True:
                try:
                    await connection.card()
                except CannotConnect as error:
                    # It was there when the agent in front was made: it is away, and may come back.
                    await backoff.pause(error)
                else:
                    return connection
        except BaseException:
            await connection.close()
            raise

    async def close(self) -> None:
        """Let go of the agent behind; its tasks go on."""
        connection, opening = self._connection, self._opening
        self._connection = self._opening = None
        if connection is not None:
            await connection.close()
        elif opening is not None and opening.get_loop() is asyncio.get_running_loop():
            opening.cancel()
            await asyncio.wait((opening,))
            if not opening.cancelled() and opening.exception() is None:
                await opening.result().close()

    async def canceled(self, ref: Any) -> None:
        """Cancel the task behind, which waits for an answer that will not come. Raises DragomanError."""
        task_id = cast("dict[str, Any]", ref).get("task") if isinstance(ref, dict) else None
        if task_id is not None:
            async with asyncio.timeout(GOODBYE):
                await (await self.connection()).perform(Operation.CANCEL, CancelTaskRequest(task_id))

    async def run(self, ctx: Context) -> AsyncGenerator[Any, None]:
        """Pass a message on, and everything that comes back."""
        # The engine closes a text that has the name of the skill. None of those that come from behind is its own.
        ctx.skill = STATE
        errand: Errand | None = None
        try:
            errand = Errand(await self.connection(), self._retries, ctx, self._limit)
            async with aclosing(errand.outputs()) as outputs:
                async for output in outputs:
                    yield output
        except (Failed, Rejected):
            raise
        except (asyncio.CancelledError, DragomanError) as error:
            # Canceled by its caller, the work behind is canceled too; when the server stops, it goes on.
            if errand is not None and (ctx.cancelled or isinstance(error, ResponseTooLarge)):
                await errand.cancel()
            if ctx.cancelled or isinstance(error, asyncio.CancelledError):
                raise
            ctx.log.warning("the agent behind: %s: %s", type(error).__name__, error)
            raise Failed(_plain(error, begun=errand is not None and errand.task_id is not None)) from error
        finally:
            if errand is not None:
                await errand.close()


def _plain(error: DragomanError, *, begun: bool) -> str:
    """What callers may read of an error: the words of the agent behind, and nothing of where it is."""
    if isinstance(error, CannotConnect):
        return "the agent behind this one cannot be reached"
    if isinstance(error, AuthError):
        return "the agent behind this one does not accept the credentials of this server"
    if isinstance(error, Overloaded):
        return "the agent behind this one is busy: try again later"
    if isinstance(error, TaskNotFound) and begun:
        return "the agent behind this one does not know the task any more"
    if isinstance(error, ResponseTooLarge):
        return f"the agent behind this one sends more than {size_in_words(error.limit)}, the limit of this server"
    if not isinstance(error, A2AError):
        return "the agent behind this one cannot be understood"
    return f"the agent behind this one says: {error.reason if '://' in error.message else error.message}"


def card_of_remote(card: AgentCard) -> dict[str, Any]:
    """What an agent in front says on its card like the one behind."""
    modern: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(card))
    kept = ("skills", "defaultInputModes", "defaultOutputModes", "provider", "documentationUrl", "iconUrl")
    shown = {key: modern[key] for key in kept if key in modern}
    for skill in shown.get("skills", ()):
        # Who may use a skill over there is between that agent and us.
        skill.pop("securityRequirements", None)
    return shown
