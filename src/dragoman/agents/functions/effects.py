"""Finds effects that a question repeats, for the setting `dev`.

After an answer a skill starts again from the top, so whatever it did before the question happens again, except in
`ctx.once`. Found is what can be seen for sure: that the skill waits for something other than its context, or that it
writes a file, connects to something or starts a program, as Python's audit events say. Other effects are not found.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dragoman.agents.functions.skill import FunctionKind
from dragoman.engine.execute.context import Context

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from dragoman.agents.functions.run import QuestionReplay
    from dragoman.agents.functions.skill import Skill

# Audit events of Python, and what they mean. https://docs.python.org/3/library/audit_events.html
_EVENTS = {
    "open": "writes a file",
    "os.mkdir": "makes a folder",
    "os.remove": "deletes a file",
    "os.rename": "renames a file",
    "os.rmdir": "deletes a folder",
    "os.system": "starts a program",
    "shutil.rmtree": "deletes a folder",
    "socket.connect": "connects to a server",
    "socket.sendto": "sends a packet",
    "sqlite3.connect": "opens a database",
    "subprocess.Popen": "starts a program",
}
_WAITS = "waits"
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT
_OWN_METHODS = (Context.once, Context.progress, Context.artifact, Context.update_artifact, Context.messages)
_OWN_CODES = frozenset[Any](getattr(method, "__wrapped__", method).__code__ for method in _OWN_METHODS)
# The watches of running skills, by the id of the context that the skill got.
_watches: dict[int, EffectWatch] = {}
# What was warned about already, by skill and line: once is enough.
_warned: set[tuple[str, int]] = set()


class EffectWatch:
    """Records what one run of a skill does before its next question."""

    def __init__(self, skill: Skill, ctx: Context, replay: QuestionReplay) -> None:
        self._skill = skill
        self._ctx = ctx
        self._replay = replay
        self._key = 0
        self._effects: dict[int, str] = {}

    def watched_skill(self) -> Skill:
        """Return the skill with a function that is watched."""
        _install_hook()
        wrap = {
            FunctionKind.ASYNC_GENERATOR: self._generate,
            FunctionKind.COROUTINE: self._call_async,
            FunctionKind.GENERATOR: self._call,
            FunctionKind.FUNCTION: self._call,
        }[self._skill.kind]
        return msgspec.structs.replace(self._skill, fn=wrap)

    def close(self, question: str | None) -> None:
        """Stop watching, and log a warning for each effect that the answer to this question will repeat."""
        _watches.pop(self._key, None)
        if question is None:
            return
        skill = self._skill
        for line, effect in self._effects.items():
            if (skill.id, line) not in _warned:
                _warned.add((skill.id, line))
                self._ctx.log.warning(
                    "%s, line %d: `%s` %s before it asks %r, and does it again after every answer: wrap what must "
                    "happen only once in `ctx.once(key, function, ...)`",
                    Path(skill.fn.__code__.co_filename).name,
                    line,
                    skill.id,
                    effect,
                    question,
                )

    def add(self, line: int, effect: str) -> None:
        """Record an effect, unless this part of the run repeats an earlier one, whose effects were reported."""
        if not self._replay.replaying:
            self._effects.setdefault(line, effect)

    def runs(self, frame: FrameType) -> bool:
        """True when a frame is that of this run's function."""
        skill = self._skill
        return frame.f_code is skill.fn.__code__ and id(frame.f_locals.get(skill.context_parameter or "")) == self._key

    def _begin(self, values: dict[str, Any]) -> None:
        self._key = id(values.get(self._skill.context_parameter or ""))
        _watches[self._key] = self

    def _call(self, **values: Any) -> Any:
        self._begin(values)
        return self._skill.fn(**values)

    def _call_async(self, **values: Any) -> Awaitable[Any]:
        self._begin(values)
        work: Any = self._skill.fn(**values)
        return _Steps(work, partial(getattr, work, "cr_frame"), partial(getattr, work, "cr_await"), self)

    async def _generate(self, **values: Any) -> AsyncGenerator[Any, None]:
        self._begin(values)
        items: Any = self._skill.fn(**values)
        frame, awaits = partial(getattr, items, "ag_frame"), partial(getattr, items, "ag_await")
        try:
            while True:
                try:
                    value = await _Steps(items.__anext__(), frame, awaits, self)
                except StopAsyncIteration:
                    return
                yield value
        finally:
            await items.aclose()

    @property
    def once_count(self) -> int:
        """How many calls of `ctx.once` have completed."""
        return self._ctx.once_count


class _Steps(Awaitable[Any]):
    """Awaits a coroutine and records where it waits, unless it waits for its context."""

    def __init__(
        self,
        work: Awaitable[Any],
        frame: Callable[[], FrameType | None],
        awaits: Callable[[], Any],
        watch: EffectWatch,
    ) -> None:
        self._work = work
        self._frame = frame
        self._awaits = awaits
        self._watch = watch

    def __await__(self) -> Generator[Any, Any, Any]:
        """Pass on everything between the coroutine and the event loop."""
        steps: Any = self._work.__await__()
        step: Callable[[], Any] = partial(steps.send, None)
        while True:
            try:
                future = step()
            except StopIteration as stop:
                return stop.value
            line = self._line(future)
            before = self._watch.once_count
            try:
                received = yield future
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:  # noqa: BLE001 - passed on
                step = partial(steps.throw, error)
            else:
                step = partial(steps.send, received)
            # Where `once` ran meanwhile, it was what the skill waited for, as in a `gather`.
            if line is not None and self._watch.once_count == before:
                self._watch.add(line, _WAITS)

    def _line(self, future: Any) -> int | None:
        """The line of the skill that waits; None when it is for its context, or only for its turn."""
        frame = self._frame()
        if future is None or frame is None or _is_own(self._awaits()):
            return None
        return frame.f_lineno


def _is_own(awaited: Any) -> bool:
    """True when something that is awaited is a method of the context, at any depth."""
    while awaited is not None:
        for each in (awaited, *gc.get_referents(awaited)):  # the latter for `async for`, whose steps hide the generator
            if (getattr(each, "cr_code", None) or getattr(each, "ag_code", None)) in _OWN_CODES:
                return True
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return False


@cache
def _install_hook() -> None:
    # It cannot be removed, and is only installed with `dev`.
    sys.addaudithook(_audit)


def _audit(event: str, args: tuple[Any, ...]) -> None:
    effect = _EVENTS.get(event) if _watches else None
    if effect is None or (event == "open" and not _is_writing(args)):
        return
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage] - documented
    while frame is not None:
        code: CodeType = frame.f_code
        if code in _OWN_CODES or code.co_filename.startswith("<frozen importlib"):
            return
        watch = next((each for each in list(_watches.values()) if each.runs(frame)), None)
        if watch is not None:
            watch.add(frame.f_lineno, effect)
            return
        frame = frame.f_back


def _is_writing(args: tuple[Any, ...]) -> bool:
    _, mode, flags = args
    return not {*"wax+"}.isdisjoint(mode) if isinstance(mode, str) else bool(flags & _WRITING)
