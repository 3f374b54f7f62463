"""Runs the skills of a function agent: chooses the skill, binds its arguments, calls it, replays it after a pause.

After a pause the function starts again from the top, and questions that were answered return at once.
"""

from __future__ import annotations

import asyncio
import copy
import difflib
import functools
import logging
import threading
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from dragoman.agents.functions.files import assign_files, read_files, takes_files
from dragoman.agents.functions.skill import FunctionKind, json_schemas
from dragoman.agents.functions.sync_context import SyncContext
from dragoman.agents.offers import check_permission, may_use, requested_skill
from dragoman.agents.timeout import DeadlineExceeded, Timeout
from dragoman.engine.execute.outputs import Ask, LoginUrl
from dragoman.engine.execute.threads import in_thread, skill_threads
from dragoman.engine.journal.replay import AnsweredQuestion
from dragoman.engine.ports.agent import Plan
from dragoman.model.error import ConfigError, Failed
from dragoman.schema.conversion import TypeMismatch, convert, is_text_type, read_answer, type_name

if TYPE_CHECKING:
    from dragoman.agents.functions.skill import Parameter, Skill
    from dragoman.engine.execute.context import Context

logger = logging.getLogger("dragoman.agent")


class PauseSignal(BaseException):
    """Raised in a function to pause its task. Not an Exception, so that `except Exception` does not swallow it."""

    def __init__(self, ask: Ask) -> None:
        super().__init__(ask.question)
        self.ask = ask


def find_pause(error: BaseException) -> PauseSignal | None:
    """Return the pause itself, or the first in an exception group that contains only pauses; else None.

    Task groups wrap what leaves them in a group.
    """
    if isinstance(error, BaseExceptionGroup):
        pauses = [find_pause(inner) for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions]
        return None if None in pauses else pauses[0]
    return error if isinstance(error, PauseSignal) else None


class QuestionReplay:
    """Answers the questions of a function that runs again: in the order they are asked, each from the journal.

    The first question without an answer pauses the task. `first_state` is the conversation state at the start of the
    first run; it is stored with the first question.
    """

    def __init__(self, answers: tuple[AnsweredQuestion, ...], first_state: dict[str, Any]) -> None:
        self._answers = answers
        self._first_state = first_state
        self._next = 0
        self._pause: PauseSignal | None = None

    @property
    def replaying(self) -> bool:
        """True until the last answered question has been asked again: outputs before it are journaled already."""
        return self._next < len(self._answers)

    async def ask(
        self,
        question: str,
        expected_type: Any,
        choices: Sequence[Any] | None,
        accepts: Sequence[str] = (),
        name: str = "answer",
    ) -> Any:
        """Return the answer; ask again when it does not fit. `accepts` are the media types of a file, for `name`.

        Raises:
            ContentTypeNotSupported: a file has another media type.
            PauseSignal: there is no answer yet.
            Failed: the question differs from the one that was answered, or the task is paused already.
        """
        text = question if choices is None else f"{question} ({', '.join(str(choice) for choice in choices)})"
        prompt = text
        schema = _answer_schema(expected_type, choices)
        while True:
            answer = self._answer(prompt, Ask(prompt, self._ref(), schema=schema))
            try:
                if takes_files(expected_type):
                    return read_files(_file_answer(answer), expected_type, answer.files, accepts, name)
                return read_answer(answer.text, answer.data, expected_type, choices)
            except TypeMismatch as problem:
                prompt = f"{text} Please answer with {problem}."

    async def ask_auth(self, text: str, url: LoginUrl) -> Any:
        """Return the data that the task was resumed with.

        Raises:
            PauseSignal: the task was not resumed yet.
            Failed: the question differs from the one that was answered, or the task is paused already.
        """
        return self._answer(text, Ask(text, self._ref(), auth=True, url=url)).data

    def check_goes_on(self) -> None:
        """Raise the PauseSignal again if a question has paused the function: it only cleans up now."""
        if self._pause is not None:
            raise self._pause

    def check_not_paused(self) -> None:
        """Raise Failed if the function goes on after a question paused it: its code has caught the PauseSignal."""
        if self._pause is not None:
            raise Failed("the pause was swallowed: let it pass through `except:`, catch Exception instead")

    def _ref(self) -> dict[str, Any] | None:
        return {"state": self._first_state} if self._next == 0 else None

    def _answer(self, question: str, ask: Ask) -> AnsweredQuestion:
        self.check_not_paused()
        if not self.replaying:
            self._pause = PauseSignal(ask)
            raise self._pause
        answer = self._answers[self._next]
        if answer.question != question:
            raise Failed(
                f"the question has changed since it was answered: it was {answer.question!r}, it is {question!r}"
            )
        self._next += 1
        return answer


def _answer_schema(expected_type: Any, choices: Sequence[Any] | None) -> dict[str, Any] | None:
    """Return the JSON Schema of an answer; None for text, and for types that have no schema."""
    if choices is not None:
        return {"enum": list(choices)} if all(isinstance(each, (str, int, float)) for each in choices) else None
    generated = None if expected_type is str else json_schemas([expected_type])
    return None if generated is None else {**generated[0][0], **generated[1]}


def _file_answer(answer: AnsweredQuestion) -> Any:
    """Return the files of an answer, else what it says: a name, a link, a data: URI, or a form with one of them."""
    if answer.files:
        return list(answer.files)
    data: Any = answer.data
    if isinstance(data, dict) and len(cast("dict[str, Any]", data)) == 1:
        return next(iter(cast("dict[str, Any]", data).values()))
    return answer.text.strip() if data is None else cast("Any", data)


_END = object()
# How long a chunk of a generator in a thread may be held back. Its end takes a change of threads, a tenth of that when
# nothing else runs; readers do not notice it.
_HOLD_SECONDS = 0.002


class Functions:
    """An agent made of functions, its skills by id. After a pause the function runs again from the top."""

    def __init__(self) -> None:
        self.skills: dict[str, Skill] = {}
        # The skill for messages that name none, where it is the same for every caller.
        self._default: Skill | None = None

    def add(self, skill: Skill) -> None:
        """Register a skill. Raises ConfigError when its id is in use."""
        if skill.id in self.skills:
            raise ConfigError(f"there is a skill `{skill.id}` already: give this one another id=")
        self.skills[skill.id] = skill
        skills = list(self.skills.values())
        first = skills[0] if skills[0].permission is None or len(skills) == 1 else None
        self._default = next((each for each in skills if each.default), first)

    def named_skill(self, ctx: Context) -> Skill | None:
        """Return the skill that the message names, if it names an existing one."""
        name, _ = requested_skill(ctx)
        return self.skills.get(name) if name else None

    def choose_skill(self, ctx: Context) -> tuple[Skill, dict[str, Any]]:
        """Return the skill that the message names, else the default, and its arguments.

        Raises:
            Failed: the named skill does not exist, or the agent has no skills.
        """
        parts = ctx.first_message.parts
        if not ctx.first_metadata and len(parts) == 1 and parts[0].text is not None:  # nearly every message
            name, arguments = None, dict[str, Any]()
        else:
            name, arguments = requested_skill(ctx)
        if name is None:
            return self._default or self._default_for(ctx), arguments
        skill = self.skills.get(name)
        if skill is None:
            # The error names only skills that the caller's card lists.
            ids = [skill.id for skill in self.skills.values() if may_use(ctx, skill)]
            near = difflib.get_close_matches(name, ids, 1)
            hint = f": did you mean `{near[0]}`?" if near else f": this agent has {', '.join(ids)}" if ids else ""
            raise Failed(f"unknown tool `{name}`{hint}")
        return skill, arguments

    def _default_for(self, ctx: Context) -> Skill:
        """Return the first skill that the caller may use, else the first. Raises Failed if there are no skills."""
        if not self.skills:
            raise Failed("this agent has no skills")
        skills = self.skills.values()
        return next((skill for skill in skills if may_use(ctx, skill)), next(iter(skills)))

    def plan(self, ctx: Context) -> Plan:
        """Return the plan to run the skill that the message asks for; for an unknown skill, the run fails."""
        try:
            skill, arguments = self.choose_skill(ctx)
        except Failed:
            return Plan(self.run)  # raises it again
        return Plan(functools.partial(self._run, skill, arguments), skill.may_reply, skill.restart)

    def run(self, ctx: Context) -> AsyncGenerator[Any, None]:
        """Run the skill that the message asks for.

        Raises:
            Failed: there is no such skill, or no skill at all.
            Rejected: the caller may not use it.
        """
        return self._run(*self.choose_skill(ctx), ctx)

    def _run(self, skill: Skill, arguments: dict[str, Any], ctx: Context) -> AsyncGenerator[Any, None]:
        ctx.message, ctx.metadata = ctx.first_message, ctx.first_metadata
        ctx.replay_followups()
        ctx.skill = skill.id
        if skill.kind is FunctionKind.GENERATOR:
            ctx.output_hold = _HOLD_SECONDS
        if skill.permission is not None:
            check_permission(ctx, skill, skill.name)
        text = ctx.text if skill.text_parameter is not None and not arguments else ""
        values = {skill.text_parameter: text} if skill.text_parameter is not None and text else None
        if values is None or skill.context_parameter is not None or ctx.answers:
            return _run_with_replay(skill, ctx, arguments, values)
        # Most messages are one text for a function that cannot ask: nothing to bind, to replay or to store.
        return _call_with_context(skill, ctx, values)


async def _run_with_replay(
    skill: Skill, ctx: Context, arguments: dict[str, Any], values: dict[str, Any] | None
) -> AsyncGenerator[Any, None]:
    """Yield the outputs of a skill that may ask, or whose arguments may be missing, without those of earlier runs."""
    loaded = first = _copy_state(ctx.state)
    if ctx.answers:
        _replace_state(ctx.state, cast("dict[str, Any]", ctx.answers[0].ref or {}).get("state", {}))
        first = _copy_state(ctx.state)
    replay = QuestionReplay(ctx.answers, first)
    ctx.ask_handler = replay
    pause: PauseSignal | None = None
    try:
        if values is None:
            values = await _bind_arguments(skill, arguments, ctx, replay)
        async with aclosing(_call_with_context(skill, ctx, values)) as outputs:
            async for value in outputs:
                replay.check_not_paused()
                if not ctx.answers or not replay.replaying:
                    yield value
        replay.check_not_paused()
        if replay.replaying:
            raise Failed("the function ended before asking what had been answered already")
    except (PauseSignal, BaseExceptionGroup) as error:
        pause = find_pause(error)
        if pause is None:
            raise
    finally:
        if pause is not None:
            # Changes to the state take effect when the task ends, not when it pauses.
            _replace_state(ctx.state, loaded)
        elif ctx.answers:
            _replace_state(ctx.state, _merge_state(loaded, first, ctx.state))
    if pause is not None:
        yield pause.ask


def _replace_state(state: dict[str, Any], other: dict[str, Any]) -> None:
    state.clear()
    state.update(_copy_state(other))


def _copy_state(state: dict[str, Any]) -> dict[str, Any]:
    return copy.deepcopy(state) if state else {}  # most conversations keep none


def _merge_state(loaded: dict[str, Any], first: dict[str, Any], last: dict[str, Any]) -> dict[str, Any]:
    """Apply this task's changes to the state that other tasks of the conversation left while this one waited."""
    remaining = {key: value for key, value in loaded.items() if key in last or key not in first}
    return remaining | {key: value for key, value in last.items() if key not in first or first[key] != value}


# -- arguments -----------------------------------------------------------------------------------------------------


async def _bind_arguments(
    skill: Skill, arguments: dict[str, Any], ctx: Context, replay: QuestionReplay
) -> dict[str, Any]:
    """Read the skill's parameters from the message: named arguments first, then the text; ask for what is missing."""
    names = {parameter.name for parameter in skill.parameters}
    unknown = sorted(set(arguments) - names)
    if unknown:
        takes = ", ".join(sorted(names)) or "no arguments"
        raise Failed(f"`{skill.id}` has no argument `{unknown[0]}`: it takes {takes}")
    if any(parameter.takes_files for parameter in skill.parameters):
        arguments = assign_files(skill.parameters, arguments, ctx.files)
    # The text of the message fills the only text parameter without an argument, or the only required one.
    text_parameters = [p for p in skill.parameters if is_text_type(p.type) and p.name not in arguments]
    if len(text_parameters) > 1:
        text_parameters = [p for p in text_parameters if p.required]
    if len(text_parameters) == 1 and ctx.text:
        arguments = {**arguments, text_parameters[0].name: ctx.text}
    values: dict[str, Any] = {}
    for parameter in skill.parameters:
        if parameter.name in arguments:
            values[parameter.name] = await _convert_or_ask(skill, parameter, arguments[parameter.name], ctx, replay)
        elif parameter.required:
            values[parameter.name] = await _ask_for_argument(skill, parameter, "", ctx, replay)
    return values


async def _convert_or_ask(skill: Skill, parameter: Parameter, value: Any, ctx: Context, replay: QuestionReplay) -> Any:
    try:
        if parameter.takes_files:
            return read_files(value, parameter.type, ctx.files, parameter.accepts, parameter.name)
        return convert(value, parameter.type)
    except TypeMismatch as problem:
        return await _ask_for_argument(skill, parameter, f" {problem.why}", ctx, replay)


async def _ask_for_argument(
    skill: Skill, parameter: Parameter, problem: str, ctx: Context, replay: QuestionReplay
) -> Any:
    argument = f"`{parameter.name}` ({type_name(parameter.type)})"
    if not ctx.asks:
        raise Failed(f"`{skill.id}` needs {argument}.{problem}")
    about = f": {parameter.help}" if parameter.help else ""
    question = f"`{skill.id}` needs {argument}{about}.{problem}"
    return await replay.ask(question, parameter.type, None, parameter.accepts, parameter.name)


# -- calling -------------------------------------------------------------------------------------------------------


async def _with_timeout(skill: Skill, ctx: Context, values: dict[str, Any]) -> AsyncGenerator[Any, None]:
    assert skill.timeout is not None
    timeout = Timeout(ctx.clock, skill.timeout)
    try:
        async with aclosing(_call(skill, values)) as outputs:
            while (value := await timeout.wait(anext(outputs, _END))) is not _END:
                yield value
                if timeout.expired:  # while the output was being consumed
                    raise DeadlineExceeded
    except DeadlineExceeded:
        raise Failed(f"timed out after {skill.timeout:g} s") from None
    finally:
        timeout.close()


def _call_with_context(skill: Skill, ctx: Context, values: dict[str, Any]) -> AsyncGenerator[Any, None]:
    if skill.context_parameter is not None:
        context = SyncContext(ctx, asyncio.get_running_loop()) if skill.takes_sync_context else ctx
        values = {**values, skill.context_parameter: context}
    return _call(skill, values) if skill.timeout is None else _with_timeout(skill, ctx, values)


def _call(skill: Skill, values: dict[str, Any]) -> AsyncGenerator[Any, None]:
    match skill.kind:
        case FunctionKind.ASYNC_GENERATOR:
            return skill.fn(**values)
        case FunctionKind.GENERATOR:
            return _generate_in_thread(skill, values)
        case _:
            return _single_output(skill, values)


async def _single_output(skill: Skill, values: dict[str, Any]) -> AsyncGenerator[Any, None]:
    if skill.kind is FunctionKind.COROUTINE:
        yield await skill.fn(**values)
    else:
        yield await in_thread(functools.partial(skill.fn, **values), pool=skill_threads(), name=skill.id)


async def _generate_in_thread(skill: Skill, values: dict[str, Any]) -> AsyncGenerator[Any, None]:
    items = _ThreadGenerator(skill.fn(**values))
    try:
        while (value := await in_thread(items.next, pool=skill_threads(), name=skill.id)) is not _END:
            yield value
    except BaseException:
        # Not awaited: it may be busy for long; it can check ctx.cancelled.
        skill_threads().submit(items.close)
        raise


class _ThreadGenerator:
    """A generator that only threads touch, one at a time: its clean-up may block too."""

    def __init__(self, items: Generator[Any, None, None]) -> None:
        self._items = items
        self._lock = threading.Lock()

    def next(self) -> Any:
        with self._lock:
            return next(self._items, _END)

    def close(self) -> None:
        with self._lock:
            try:
                self._items.close()
            except Exception:
                logger.exception("a skill failed while it was closed")
