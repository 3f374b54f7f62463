"""Pausing a function: it starts again from the top, and answered questions return at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from dragoman.engine.execute.outputs import Answered, Ask
from dragoman.model.error import Failed
from dragoman.model.part import Part
from dragoman.schema.typed import Unfit, read_answer


class Paused(BaseException):
    """The function waits for an answer. Not an Exception, so that `except Exception` lets it pass."""

    def __init__(self, ask: Ask) -> None:
        super().__init__(ask.question)
        self.ask = ask


def pause_in(error: BaseException) -> Paused | None:
    """The pause itself, or the first within a group that holds nothing else: task groups wrap what leaves them."""
    if isinstance(error, BaseExceptionGroup):
        pauses = [pause_in(inner) for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions]
        return None if None in pauses else pauses[0]
    return error if isinstance(error, Paused) else None


class Replay:
    """The questions of one task, in the order they are asked. `first_state` is kept for the runs after a pause."""

    def __init__(self, answered: tuple[Answered, ...], first_state: dict[str, Any]) -> None:
        self._answered = answered
        self._first_state = first_state
        self._next = 0
        self.paused = False

    @property
    def replaying(self) -> bool:
        """True until the last answered question has been asked again: what came before it is journaled already."""
        return self._next < len(self._answered)

    async def ask(self, question: str, wanted: Any, choices: Sequence[Any] | None) -> Any:
        """Give the answer; ask again when it does not fit. Raises Paused when there is none yet."""
        text = question if choices is None else f"{question} ({', '.join(str(choice) for choice in choices)})"
        asked = text
        while True:
            answer = self._answer(asked, Ask(asked, self._ref()))
            try:
                return read_answer(answer.text, answer.data, wanted, choices)
            except Unfit as problem:
                asked = f"{text} Please answer with {problem}."

    async def ask_auth(self, text: str, url: str | None) -> Any:
        """Give what the task was resumed with. Raises Paused when it was not yet."""
        details = () if url is None else (Part(url=url),)
        answer = self._answer(text, Ask(text, self._ref(), auth=True, details=details))
        return (answer.text or None) if answer.data is None else answer.data

    def check(self) -> None:
        """Raise Failed when the function goes on although it was paused."""
        if self.paused:
            raise Failed("the pause was swallowed: let it pass through `except:`, catch Exception instead")

    def _ref(self) -> dict[str, Any] | None:
        return {"state": self._first_state} if self._next == 0 else None

    def _answer(self, question: str, ask: Ask) -> Answered:
        self.check()
        if not self.replaying:
            self.paused = True
            raise Paused(ask)
        known = self._answered[self._next]
        if known.question != question:
            raise Failed(
                f"the question has changed since it was answered: it was {known.question!r}, it is {question!r}"
            )
        self._next += 1
        return known
