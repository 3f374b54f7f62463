"""One turn of a session: a message goes in, what happens until the program ends or asks comes out."""

from __future__ import annotations

import asyncio
import base64
import inspect
from collections.abc import AsyncGenerator, Collection, Mapping
from typing import TYPE_CHECKING, Any, cast

from dragoman.agents.process import events, folders
from dragoman.agents.process.programs import stop, talk_of
from dragoman.engine.execute.outputs import Ask, Replace
from dragoman.model.error import Failed, Rejected
from dragoman.model.part import File, Part

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from dragoman.agents.process.events import Event
    from dragoman.agents.process.programs import ProcessManager, Programs
    from dragoman.agents.process.session import Session
    from dragoman.engine.execute.context import Context

GONE = "the program that asked has ended meanwhile"


class Turn:
    """Listens to a session while one task of its conversation runs."""

    def __init__(
        self, ctx: Context, manager: ProcessManager, session: Session, *, given: Collection[str] = (), most: int = 0
    ) -> None:
        self._ctx = ctx
        self._manager = manager
        self._session = session
        # Files that came with the message, as they came: what a caller has sent is no result.
        self._given = {} if session.folder is None else folders.stamps(session.folder, given)
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._waiting = events.Backlog()
        self._arrived = asyncio.Event()
        self._said: list[str] = []
        # After a question the text goes on where it was.
        self._streamed = ctx.resume is not None
        self._goes_on = False
        self._over = False
        self.remembers: str | None = None
        # What the program failed with before it had said or done anything.
        self.first_error: Event | None = None
        self._has_begun = False

    async def outputs(self, prompt: str, facts: Mapping[str, str], remembered: Any) -> AsyncGenerator[Any, None]:
        """What the agent says; ends when the program has, or with a question.

        Raises:
            Failed: the program failed, or is not there any more.
        """
        await self._end_other()
        leave = self._manager.subscribe(self._session.id, self._hear)
        try:
            await self._begin(prompt, facts, remembered)
            while not self._over:
                for output in await self._take(await self._next()):
                    yield output
        finally:
            if leave is not None:
                leave()
            left = self._waiting.take()
            talk = talk_of(self._manager)
            if not self._over:
                await stop(self._manager, self._session.id, "the task has ended")
            elif talk is not None and left:
                talk.put_back(self._session.id, left)

    async def _end_other(self) -> None:
        """End a program that waits for the answer to another task and takes nothing else.

        Before anybody listens: its end is not this task's.
        """
        talk, here = talk_of(self._manager), self._session.id
        if talk is not None and self._ctx.resume is None and talk.pid(here) is not None and not talk.goes_on(here):
            await stop(self._manager, here, "another message came")

    async def _begin(self, prompt: str, facts: Mapping[str, str], remembered: Any) -> None:
        talk = talk_of(self._manager)
        answered = self._ctx.resume
        if talk is not None and answered is not None:
            asked = cast("dict[str, Any]", answered.ref) if isinstance(answered.ref, dict) else {}
            if asked.get("pid") is None or asked["pid"] != talk.pid(self._session.id):
                self._over = True
                how = talk.ended(self._session.id)
                raise Failed(f"{GONE}: {how}" if how else GONE)
            self._say(talk, prompt)
            return
        if talk is not None and talk.goes_on(self._session.id):
            # The program is open, from an earlier message of this conversation.
            self._say(talk, prompt)
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

    def _say(self, talk: Programs, prompt: str) -> None:
        self._goes_on = True
        talk.say(self._session, prompt)

    # -- events --------------------------------------------------------------------------------------------------------

    def _hear(self, _: str, event: Event) -> Awaitable[object] | None:
        """Take an event; a program that is far ahead is asked to wait."""
        try:
            on_loop = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            on_loop = False
        if not on_loop:  # a process manager of somebody else's may call from anywhere
            self._waiting.append(event)
            self._loop.call_soon_threadsafe(self._arrived.set)
            return None
        self._arrived.set()
        return self._waiting.add(event)

    async def _next(self) -> Event:
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        event = self._waiting.next()
        kind = event.get("type")
        if kind == "error" and not self._has_begun:
            self.first_error = event
        self._has_begun = self._has_begun or kind != "session_started"
        return event

    async def _take(self, event: Event) -> list[Any]:
        """What the agent says because of an event."""
        kind = event.get("type")
        if kind == "text":
            return self._text(event.get("text"))
        elif kind == "assistant":
            said = events.content_of(event)
            if said:
                self._said = [said]
                await self._ctx.artifact(said)
        elif kind in ("thinking", "tool_status"):
            said = event.get("text") if kind == "thinking" else event.get("statusMessage")
            if isinstance(said, str) and said:
                await self._ctx.progress(said)
        elif kind == "artifact":
            await self._artifact(event.get("artifact"))
        elif kind == "result":
            return self._result(event)
        elif kind == "ask":
            return [self._ask(str(event.get("question") or ""))]
        elif kind == "error":
            self._over = True
            raise (Rejected if events.is_rejected(event) else Failed)(events.problem_of(event))
        elif kind in ("session_exited", "session_stopped"):
            self._over = True
            if event.get("reason"):  # somebody else wanted it to end: what it said may not be all
                raise Failed(f"the program was ended: {event['reason']}")
        return []

    def _text(self, said: Any) -> list[Any]:
        """A piece of the answer, which begins no task with the end of a line that an earlier one began."""
        if not isinstance(said, str):
            return []
        if self._goes_on and not self._said and not self._ctx.artifacts:
            said = said.lstrip("\n")
        self._streamed = self._streamed or bool(said)
        self._said.append(said)
        return [said] if said else []

    def _result(self, event: Event) -> list[Any]:
        """The finished answer, where it is not what was said anyway."""
        remembers = event.get("remembers")
        self.remembers = remembers if isinstance(remembers, str) else self.remembers
        value: Any = event.get("result")
        if value is None or value == "" or (isinstance(value, str) and value.strip() == "".join(self._said).strip()):
            return []
        if isinstance(value, str) and self._streamed:
            return [Replace(value)]
        return [value]

    def _ask(self, question: str) -> Ask:
        if not self._ctx.asks:
            raise Failed(f"the program asks, and cannot be answered here: {question}")
        talk = talk_of(self._manager)
        pid = None if talk is None else talk.pid(self._session.id)
        self._over = True  # for this turn
        return Ask(question, ref={"session": self._session.id, "pid": pid})

    async def _artifact(self, content: Any) -> None:
        about: Mapping[str, Any] = cast("Mapping[str, Any]", content) if isinstance(content, Mapping) else {}
        name: Any = about.get("name")
        file: Any = about.get("file")
        folder = self._session.folder
        is_given = isinstance(file, str) and file in self._given
        if folder is not None and is_given and folders.stamps(folder, [file]) == {file: self._given[file]}:
            return
        try:
            value = await self._value(about)
        except (OSError, ValueError) as error:
            self._ctx.log.warning("an artifact of the program cannot be read: %s", error)
            if about.get("found"):  # the program has not spoken of it, and may have removed it
                return
            raise Failed(
                f"the program gave an artifact that cannot be read: {name or about.get('file') or '?'}"
            ) from error
        await self._ctx.artifact(value, name=folders.as_text(name) if isinstance(name, str) else None)

    async def _value(self, about: Mapping[str, Any]) -> Any:
        media = about.get("media_type")
        media = media if isinstance(media, str) else None
        name = about.get("name")
        if isinstance(about.get("text"), str):
            return Part(text=about["text"], media_type=media)
        if "data" in about:
            return Part(data=about["data"], media_type=media)
        if isinstance(about.get("base64"), str):
            raw = base64.b64decode(about["base64"], validate=True)
            return File(raw, name=name if isinstance(name, str) else None, media_type=media)
        if isinstance(about.get("file"), str):
            if self._session.folder is None:
                raise ValueError("its session has no folder")
            return await asyncio.to_thread(folders.file_part, self._session.folder, about["file"], media, self._most)
        raise ValueError("it has neither text nor data, base64 or file")
