"""The agent whose tasks are followed. It waits for the test, so that every cut is made while its task is at work."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future

from dragoman import Agent, Context, Part

EACH = 8
QUESTION = "How many days?"


class Storyteller:
    """An agent that knows four orders.

    | order | what the agent does |
    |---|---|
    | `chapters` | says the words of each chapter once `go_on` has been called for it |
    | `notes` | the same, between an artifact with a text and the data 1, and another with a text |
    | `pause` | says "one ", waits for `finish`, says "two" |
    | `ask` | says "Well. ", asks `QUESTION`, and says "3 days" for the answer 3 |

    `runs` counts the runs. `paused`, `canceled` and `ended` are set when a run waits in its pause, was canceled, or has
    said everything.
    """

    def __init__(self, chapters: int = 1) -> None:
        self.runs = 0
        self.paused, self.canceled, self.ended = threading.Event(), threading.Event(), threading.Event()
        self._chapters: list[Future[None]] = [Future() for _ in range(chapters)]
        self._finished: Future[None] = Future()
        self.agent = Agent("storyteller", description="Tells a story")
        self.agent.skill(default=True)(self.story)

    @property
    def words(self) -> list[str]:
        """All words of all chapters."""
        return [f"{number} é€𝄞 " for number in range(len(self._chapters) * EACH)]

    @property
    def text(self) -> str:
        """The whole answer to `chapters`."""
        return "".join(self.words)

    def go_on(self, _number: int = 0) -> None:
        """Say the words of the next chapter, if there is one."""
        waiting = [chapter for chapter in self._chapters if not chapter.done()]
        if waiting:
            waiting[0].set_result(None)

    def finish(self) -> None:
        """Say all that is left to say."""
        for each in (*self._chapters, self._finished):
            if not each.done():
                each.set_result(None)

    async def story(self, ctx: Context, text: str = "") -> AsyncIterator[str]:
        """Carry out an order."""
        self.runs += 1
        match text:
            case "chapters" | "notes":
                if text == "notes":
                    await ctx.artifact("before ", Part(data=1), name="before")
                for number, word in enumerate(self.words):
                    await asyncio.wrap_future(self._chapters[number // EACH])
                    yield word
                if text == "notes":
                    await ctx.artifact("after", name="after")
            case "pause":
                yield "one "
                self.paused.set()
                try:
                    await asyncio.shield(asyncio.wrap_future(self._finished))
                except asyncio.CancelledError:
                    self.canceled.set()
                    raise
                yield "two"
            case "ask":
                yield "Well. "
                yield f"{await ctx.ask(QUESTION, type=int)} days"
            case _:
                raise AssertionError(f"an unknown order: {text}")
        self.ended.set()


async def until(event: threading.Event) -> None:
    """Wait for an event of the agent, which lives in another thread. Raises AssertionError after ten seconds."""
    assert await asyncio.to_thread(event.wait, 10)
