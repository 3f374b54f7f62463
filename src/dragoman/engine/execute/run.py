"""One run of an agent: from its outputs to the task's events."""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING, Any

import msgspec

from dragoman.engine.execute.context import agent_message
from dragoman.engine.execute.outputs import Ask, Conclude, Replace, Reply, json_of, parts_of, plain_text
from dragoman.engine.execute.response import Response
from dragoman.model.error import Failed, InvalidAgentResponse, Rejected
from dragoman.model.part import Part
from dragoman.model.state import State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from dragoman.engine.execute.context import Context
    from dragoman.engine.journal.live import LiveTask
    from dragoman.engine.ports import Runnable

logger = logging.getLogger("dragoman.engine")
# The skills that have been named in a warning: once each is enough.
_UNDECLARED: set[str] = set()


class Run:
    """Drives an agent's generator. Its end is completed, an exception is failed, a cancel arrives at the yield."""

    def __init__(
        self,
        agent: Runnable,
        live: LiveTask,
        ctx: Context,
        *,
        show_errors: bool,
        prepare: Callable[[], Awaitable[None]] | None = None,
        once: bool = False,
    ) -> None:
        self._agent = agent
        self._live = live
        self._ctx = ctx
        self._show_errors = show_errors
        self._prepare = prepare
        self._once = once
        self._state_before: bytes | None = None

    async def go(self, load_state: Callable[[], Awaitable[dict[str, Any]]] | None) -> None:
        """Run to the end or to a pause, with the state of the conversation if it may have one.

        Never raises, except when it is itself cancelled from outside.
        """
        live = self._live
        if live.ended:
            return
        outputs: AsyncIterator[Any] | None = None
        try:
            if load_state is not None:
                self._ctx.state.update(await load_state())
            self._state_before = msgspec.json.encode(self._ctx.state) if self._ctx.state else b"{}"
            if self._prepare is not None:
                await self._prepare()
                if live.ended:
                    return
            live.begin()
            if self._once:
                # Whoever finds this task after a crash knows that its code may have begun.
                await live.durable()
                if live.ended:
                    return
            outputs = self._agent.run(self._ctx)
            await self._take(outputs)
        except Rejected as error:
            self._end(State.REJECTED, str(error))
        except Failed as error:
            self._end(State.FAILED, str(error))
        except BaseException as error:
            # Whatever an agent raises ends its task, never the server, and a cancel that nobody asked for is no
            # exception. One that somebody did, while the task goes on, means that the server stops: recovery decides.
            if isinstance(error, asyncio.CancelledError) and not live.ended and _is_being_cancelled():
                raise
            if isinstance(error, GeneratorExit) and _current_task() is not live.worker:  # the loop is gone: no agent's
                raise
            self._end(State.FAILED, None if live.ended else self._hidden(error))
        finally:
            await _close(outputs)

    async def _take(self, outputs: AsyncIterator[Any]) -> None:
        live = self._live
        response: Response | None = None
        async for value in outputs:
            if live.ended:
                return
            if isinstance(value, Reply):
                self._reply(value, alone=response is None or not response.holds)
                return
            if live.draft:
                live.open()
            response = response or self._response()
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
            live.open()
        # A run without output may still have to close a text that was begun before a pause.
        (response or self._response()).close()
        self._end(State.COMPLETED)

    def _response(self) -> Response:
        name = f"{self._ctx.skill or self._agent.name}-result"
        return Response(self._live, name, self._agent.closing, afresh=self._ctx.restarted)

    def _output(self, response: Response, value: Any) -> None:
        if isinstance(value, str):
            response.chunk(plain_text(value))
        elif isinstance(value, Replace):
            response.replace(parts_of(value.value))
        elif value is not None:
            response.whole(parts_of(value))

    def _reply(self, reply: Reply, *, alone: bool) -> None:
        live = self._live
        concludes = isinstance(reply, Conclude)
        if concludes:
            live.open()
        message = agent_message(live, parts_of(reply.value))
        if live.draft:
            live.answer(msgspec.structs.replace(message, task_id=None))
        elif live.folding.artifact_count() or not alone:
            raise InvalidAgentResponse("a Reply must be the only output")
        else:
            if not concludes and not self._agent.may_reply(self._ctx):
                self._warn_of_reply()
            live.status(State.COMPLETED, message, context_state=self._changed_state())

    def _warn_of_reply(self) -> None:
        who = self._ctx.skill or self._agent.name
        if who not in _UNDECLARED:
            _UNDECLARED.add(who)
            self._ctx.log.warning(
                "`%s` answered with a Reply without saying that it may: its callers get a task. "
                "Say `@agent.skill(replies=True)`, `-> Reply`, or `Agent(run=..., replies=True)`",
                who,
            )

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
        # Texts of exceptions may hold what has no place in JSON, such as the bytes of a file's name.
        message = None if text is None else agent_message(live, (Part(text=text.encode(errors="replace").decode()),))
        if live.draft:
            live.open()
        live.status(state, message, context_state=self._changed_state())

    def _changed_state(self) -> bytes | None:
        if self._state_before is None:
            return None
        try:
            after = msgspec.json.encode(json_of(self._ctx.state))
        except (TypeError, ValueError, RecursionError) as error:
            self._ctx.log.warning("ctx.state is not JSON and was not saved: %s", error)
            return None
        return after if after != self._state_before else None

    def _hidden(self, error: BaseException) -> str:
        reference = secrets.token_hex(3)
        logger.error("task %s failed, reference %s", self._live.id, reference, exc_info=error)
        if self._show_errors:
            return f"execution failed: {type(error).__name__}: {error} (reference {reference})"
        return f"execution failed: Internal error, reference {reference}"


def _is_being_cancelled() -> bool:
    worker = asyncio.current_task()
    return worker is not None and worker.cancelling() > 0


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # there is no loop any more
        return None


async def _close(outputs: AsyncIterator[Any] | None) -> None:
    close = getattr(outputs, "aclose", None)
    if close is not None:
        try:
            await close()
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException:
            logger.exception("an agent failed while it was closed")
