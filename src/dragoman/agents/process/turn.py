"""One turn of a session: sends a message to the program and yields its output until it ends or asks."""

from __future__ import annotations

import asyncio
import base64
import inspect
from collections.abc import AsyncGenerator, Collection, Mapping
from typing import TYPE_CHECKING, Any, cast

from dragoman.agents.process import events, folders
from dragoman.agents.process.manager import interactive_manager, stop
from dragoman.engine.execute.outputs import Ask, Replace
from dragoman.model.error import Failed, Rejected
from dragoman.model.part import File, Part

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from dragoman.agents.process.events import Event
    from dragoman.agents.process.manager import ProcessManager, ProgramManager
    from dragoman.agents.process.session import ProgramSession
    from dragoman.engine.execute.context import Context

PROGRAM_ENDED = "the program that asked has ended meanwhile"


class ProgramTurn:
    """Sends one message to the program of a session, and converts its events to outputs until it ends or asks.

    Afterwards, `conversation_id` is the program's own id of the conversation, if it has reported one, and `first_error`
    the error of a program that failed before any other event.
    """

    def __init__(
        self,
        ctx: Context,
        manager: ProcessManager,
        session: ProgramSession,
        *,
        attached: Collection[str] = (),
        max_bytes: int = 0,
    ) -> None:
        self._ctx = ctx
        self._manager = manager
        self._session = session
        # Stamps of the attached files: a file that the caller has sent is no result, unless it has changed.
        self._attached = {} if session.folder is None else folders.file_stamps(session.folder, attached)
        self._max_bytes = max_bytes
        self._loop = asyncio.get_running_loop()
        self._backlog = events.Backlog()
        self._arrived = asyncio.Event()
        self._texts: list[str] = []
        # After a question, text continues the answer so far.
        self._streamed = ctx.resume is not None
        self._continues_program = False
        self._finished = False
        self.remembers: str | None = None
        self.first_error: Event | None = None
        self._has_events = False

    async def outputs(self, prompt: str, facts: Mapping[str, str], remembered: Any) -> AsyncGenerator[Any, None]:
        """Yield the outputs of the agent until its program ends or asks.

        Raises:
            Failed: the program failed, or the one that asked has ended.
            Rejected: the program cannot take the message.
        """
        await self._stop_waiting_program()
        unsubscribe = self._manager.subscribe(self._session.id, self._on_event)
        try:
            await self._begin(prompt, facts, remembered)
            while not self._finished:
                for output in await self._handle(await self._next_event()):
                    yield output
        finally:
            if unsubscribe is not None:
                unsubscribe()
            unread = self._backlog.take()
            interactive = interactive_manager(self._manager)
            if not self._finished:
                await stop(self._manager, self._session.id, "the task has ended")
            elif interactive is not None and unread:
                interactive.put_back(self._session.id, unread)

    async def _stop_waiting_program(self) -> None:
        """Stop a program that waits for the answer to another task and takes no other input.

        Done before subscribing, because its end is not part of this task.
        """
        interactive, session_id = interactive_manager(self._manager), self._session.id
        if (
            interactive is not None
            and self._ctx.resume is None
            and interactive.pid(session_id) is not None
            and not interactive.goes_on(session_id)
        ):
            await stop(self._manager, session_id, "another message came")

    async def _begin(self, prompt: str, facts: Mapping[str, str], remembered: Any) -> None:
        interactive = interactive_manager(self._manager)
        answer = self._ctx.resume
        if interactive is not None and answer is not None:
            question = cast("dict[str, Any]", answer.ref) if isinstance(answer.ref, dict) else {}
            if question.get("pid") is None or question["pid"] != interactive.pid(self._session.id):
                self._finished = True
                how = interactive.end_reason(self._session.id)
                raise Failed(f"{PROGRAM_ENDED}: {how}" if how else PROGRAM_ENDED)
            self._say(interactive, prompt)
            return
        if interactive is not None and interactive.goes_on(self._session.id):
            # The program is still open from an earlier message of this conversation.
            self._say(interactive, prompt)
            return
        started = self._manager.start_process(
            self._session,
            prompt,
            scheduler_mode=True,
            facts=facts,
            remembered=remembered if isinstance(remembered, str) else None,
        )
        if inspect.isawaitable(started):
            await started

    def _say(self, interactive: ProgramManager, prompt: str) -> None:
        self._continues_program = True
        interactive.say(self._session, prompt)

    # -- events --------------------------------------------------------------------------------------------------------

    def _on_event(self, _: str, event: Event) -> Awaitable[object] | None:
        """Buffer an event; return a future if the program has to wait."""
        try:
            on_loop = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            on_loop = False
        if not on_loop:  # a third-party process manager may call from any thread
            self._backlog.append(event)
            self._loop.call_soon_threadsafe(self._arrived.set)
            return None
        self._arrived.set()
        return self._backlog.add(event)

    async def _next_event(self) -> Event:
        while not self._backlog:
            self._arrived.clear()
            await self._arrived.wait()
        event = self._backlog.next()
        kind = event.get("type")
        if kind == "error" and not self._has_events:
            self.first_error = event
        self._has_events = self._has_events or kind != "session_started"
        return event

    async def _handle(self, event: Event) -> list[Any]:
        """Return the outputs for an event; report progress and artifacts at once.

        Raises:
            Failed: the program failed, was stopped, or asks a caller who cannot be asked.
            Rejected: the program cannot take the message.
        """
        kind = event.get("type")
        if kind == "text":
            return self._text(event.get("text"))
        elif kind == "assistant":
            text = events.content_of(event)
            if text:
                self._texts = [text]
                await self._ctx.artifact(text)
        elif kind in ("thinking", "tool_status"):
            text = event.get("text") if kind == "thinking" else event.get("statusMessage")
            if isinstance(text, str) and text:
                await self._ctx.progress(text)
        elif kind == "artifact":
            await self._artifact(event.get("artifact"))
        elif kind == "result":
            return self._result(event)
        elif kind == "ask":
            return [self._ask(str(event.get("question") or ""))]
        elif kind == "error":
            self._finished = True
            raise (Rejected if events.is_rejected(event) else Failed)(events.problem_of(event))
        elif kind in ("session_exited", "session_stopped"):
            self._finished = True
            if event.get("reason"):  # stopped from outside: its answer may be incomplete
                raise Failed(f"the program was ended: {event['reason']}")
        return []

    def _text(self, text: Any) -> list[Any]:
        """Return a chunk of the answer; for a program that goes on, without the newlines left from the last answer."""
        if not isinstance(text, str):
            return []
        if self._continues_program and not self._texts and not self._ctx.artifacts:
            text = text.lstrip("\n")
        self._streamed = self._streamed or bool(text)
        self._texts.append(text)
        return [text] if text else []

    def _result(self, event: Event) -> list[Any]:
        """Return the final answer, unless it equals the text streamed so far."""
        conversation_id = event.get("remembers")
        self.remembers = conversation_id if isinstance(conversation_id, str) else self.remembers
        value: Any = event.get("result")
        if value is None or value == "" or (isinstance(value, str) and value.strip() == "".join(self._texts).strip()):
            return []
        if isinstance(value, str) and self._streamed:
            return [Replace(value)]
        return [value]

    def _ask(self, question: str) -> Ask:
        if not self._ctx.asks:
            raise Failed(f"the program asks, and cannot be answered here: {question}")
        interactive = interactive_manager(self._manager)
        pid = None if interactive is None else interactive.pid(self._session.id)
        self._finished = True  # of this turn
        return Ask(question, ref={"session": self._session.id, "pid": pid})

    async def _artifact(self, content: Any) -> None:
        fields: Mapping[str, Any] = cast("Mapping[str, Any]", content) if isinstance(content, Mapping) else {}
        name: Any = fields.get("name")
        file: Any = fields.get("file")
        folder = self._session.folder
        is_attached = isinstance(file, str) and file in self._attached
        if folder is not None and is_attached and folders.file_stamps(folder, [file]) == {file: self._attached[file]}:
            return
        try:
            value = await self._artifact_value(fields)
        except (OSError, ValueError) as error:
            self._ctx.log.warning("an artifact of the program cannot be read: %s", error)
            if fields.get("found"):  # found by the scan, not sent by the program, which may have removed it
                return
            raise Failed(
                f"the program gave an artifact that cannot be read: {name or fields.get('file') or '?'}"
            ) from error
        await self._ctx.artifact(value, name=folders.as_text(name) if isinstance(name, str) else None)

    async def _artifact_value(self, fields: Mapping[str, Any]) -> Any:
        media = fields.get("media_type")
        media = media if isinstance(media, str) else None
        name = fields.get("name")
        if isinstance(fields.get("text"), str):
            return Part(text=fields["text"], media_type=media)
        if "data" in fields:
            return Part(data=fields["data"], media_type=media)
        if isinstance(fields.get("base64"), str):
            raw = base64.b64decode(fields["base64"], validate=True)
            return File(raw, name=name if isinstance(name, str) else None, media_type=media)
        if isinstance(fields.get("file"), str):
            if self._session.folder is None:
                raise ValueError("its session has no folder")
            return await asyncio.to_thread(
                folders.file_part, self._session.folder, fields["file"], media, self._max_bytes
            )
        raise ValueError("it has neither text nor data, base64 or file")
