"""One run of an agent: from its outputs to the task's events."""

from __future__ import annotations

import asyncio
import logging
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from dragoman.engine.context import agent_message
from dragoman.engine.outputs import Ask, Replace, Reply
from dragoman.engine.response import Response
from dragoman.engine.values import json_of, parts_of
from dragoman.model.error import Failed, InvalidAgentResponse, Rejected
from dragoman.model.part import Part
from dragoman.model.state import State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dragoman.engine.context import Context
    from dragoman.engine.live import LiveTask
    from dragoman.engine.ports import Runnable

logger = logging.getLogger("dragoman.engine")


class Run:
    """Drives an agent's generator. Its end is completed, an exception is failed, a cancel arrives at the yield."""

    def __init__(self, agent: Runnable, live: LiveTask, ctx: Context, *, show_errors: bool) -> None:
        self._agent = agent
        self._live = live
        self._ctx = ctx
        self._show_errors = show_errors
        self._state_before = msgspec.json.encode(ctx.state)

    async def go(self) -> None:
        """Run to the end or to a pause. Never raises, except when it is itself cancelled from outside."""
        live = self._live
        if live.ended:
            return
        outputs: AsyncIterator[Any] | None = None
        try:
            if not live.draft and live.state is not State.WORKING:
                live.status(State.WORKING)
            outputs = self._agent.run(self._ctx)
            await self._take(outputs)
        except asyncio.CancelledError:
            if not live.ended:  # the server stops: recovery decides what becomes of the task
                raise
        except Rejected as error:
            self._end(State.REJECTED, str(error))
        except Failed as error:
            self._end(State.FAILED, str(error))
        except Exception as error:  # noqa: BLE001 - whatever an agent raises ends its task, never the server
            self._end(State.FAILED, self._hidden(error))
        finally:
            await _close(outputs)

    async def _take(self, outputs: AsyncIterator[Any]) -> None:
        live = self._live
        response: Response | None = None
        async for value in outputs:
            if live.ended:
                return
            if isinstance(value, Reply):
                self._reply(value)
                return
            if live.draft:
                live.status(State.WORKING)
            if response is None:
                name = f"{self._ctx.skill or self._agent.name}-result"
                response = Response(live, name, self._agent.closing, afresh=self._ctx.restarted)
            if isinstance(value, Ask):
                response.pause()
                self._pause(value)
                return
            self._output(response, value)
            if live.crowded:
                await live.room()
        if live.ended:
            return
        if live.draft:
            live.status(State.WORKING)
        if response is not None:
            response.close()
        self._end(State.COMPLETED)

    def _output(self, response: Response, value: Any) -> None:
        if isinstance(value, str):
            response.chunk(value)
        elif isinstance(value, Replace):
            response.replace(parts_of(value.value))
        elif value is not None:
            response.whole(parts_of(value))

    def _reply(self, reply: Reply) -> None:
        live = self._live
        message = agent_message(live, parts_of(reply.value))
        if live.draft:
            live.answer(msgspec.structs.replace(message, task_id=None))
        elif live.folding.artifact_count():
            raise InvalidAgentResponse("a Reply must be the only output")
        else:
            live.status(State.COMPLETED, message, context_state=self._changed_state())

    def _pause(self, ask: Ask) -> None:
        details = tuple(part for value in ask.details for part in parts_of(value))
        message = agent_message(self._live, (Part(text=ask.question), *details))
        state = State.AUTH_REQUIRED if ask.auth else State.INPUT_REQUIRED
        body = msgspec.json.encode({"question": ask.question, "ref": json_of(ask.ref)})
        self._live.status(state, message, notes=(("ask", body),), context_state=self._changed_state())

    def _end(self, state: State, text: str | None = None) -> None:
        live = self._live
        if live.ended:
            return
        message = None if text is None else agent_message(live, (Part(text=text),))
        if live.draft:
            live.status(State.WORKING)
        live.status(state, message, context_state=self._changed_state())

    def _changed_state(self) -> bytes | None:
        try:
            after = msgspec.json.encode(json_of(self._ctx.state))
        except TypeError as error:
            self._ctx.log.warning("ctx.state is not JSON and was not saved: %s", error)
            return None
        return after if after != self._state_before else None

    def _hidden(self, error: Exception) -> str:
        reference = secrets.token_hex(3)
        logger.error("task %s failed, reference %s", self._live.id, reference, exc_info=error)
        if self._show_errors:
            return f"execution failed: {type(error).__name__}: {error} (reference {reference})"
        return f"execution failed: Internal error, reference {reference}"


async def _close(outputs: AsyncIterator[Any] | None) -> None:
    close = getattr(outputs, "aclose", None)
    if close is not None:
        with suppress(Exception):
            await close()
