"""The agent that followers follow: it tells a story, and waits with it where a test cuts the line."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future

from dragoman import Agent, Context, Part

EACH = 8  # words between two cuts that the agent waits for


def words_for(cuts: int) -> list[str]:
    """The words of a story with so many cuts."""
    return [f"{number} é€𝄞 " for number in range(cuts * EACH)]


class Teller:
    """Tells some words and then waits for the next cut, so that its task goes on through all of them.

    `runs` counts the runs of its skills; `canceled` is set when one was canceled.
    """

    def __init__(self, cuts: int = 0, *, words: list[str] | None = None) -> None:
        self.runs = 0
        self.words = words_for(cuts) if words is None else words
        self.canceled = threading.Event()
        self._cuts: list[Future[None]] = [Future() for _ in range(cuts)]
        self._released: Future[None] = Future()
        self.agent = Agent("teller", description="Tells a story")
        self.agent.skill(default=True)(self.story)
        self.agent.skill(self.notes)
        self.agent.skill(self.pause)

    def on_cut(self, number: int) -> None:
        """Go on after a cut: what a CuttingProxy calls."""
        if number <= len(self._cuts):
            self._cuts[number - 1].set_result(None)

    def release(self) -> None:
        """Let `pause` go on."""
        if not self._released.done():
            self._released.set_result(None)

    async def story(self, text: str = "") -> AsyncIterator[str]:
        """Tell the story; `pause` pauses in it."""
        self.runs += 1
        if text == "pause":
            async for word in self.pause():
                yield word
            return
        for number, word in enumerate(self.words):
            if self._cuts and number % EACH == EACH - 1:
                await asyncio.wrap_future(self._cuts[number // EACH])
            yield word

    async def notes(self, ctx: Context) -> AsyncIterator[str]:
        """A text beside the story, before and after it."""
        await ctx.artifact("before ", Part(data=1), name="before")
        async for word in self.story():
            yield word
        await ctx.artifact("after", name="after")

    async def pause(self) -> AsyncIterator[str]:
        """One word, then another when the test says so."""
        yield "one "
        try:
            await asyncio.wrap_future(self._released)
        except asyncio.CancelledError:
            self.canceled.set()
            raise
        yield "two"
