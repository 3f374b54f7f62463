"""Prints the stream of a task, as it arrives or as a whole, and asks the user for the input that the agent asks for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Generator, Iterable, Sequence
from contextlib import aclosing, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from dragoman.cli.printing import (
    colored,
    interrupting,
    on_terminal,
    print_answer,
    print_closing,
    print_data,
    print_files,
    print_result,
    say,
)
from dragoman.cli.talk.progress import FRAME_SECONDS, ProgressLine, shows_progress
from dragoman.cli.talk.prompt import is_interactive, read_line
from dragoman.cli.talk.save import offer_files, save_files
from dragoman.cli.talk.text_display import TextDisplay, renders_markdown, text_printer
from dragoman.client.streams.text import PrintableText
from dragoman.model.error import CannotConnect, InputRequired, ResponseTooLarge
from dragoman.model.event import ArtifactUpdate
from dragoman.model.message import Message
from dragoman.model.operation import Operation
from dragoman.model.state import State
from dragoman.model.task import Task

if TYPE_CHECKING:
    from pathlib import Path

    from dragoman.cli.remote.session import CommandSession
    from dragoman.client.event import Event
    from dragoman.client.streams.stream import EventStream
    from dragoman.client.streams.text import TextChunk
    from dragoman.model.part import Part


class StreamPrinter:
    """Reads event streams and prints their text as it arrives, on a terminal and into a pipe.

    With `quiet`, nothing is printed before the end. With `raw`, text is printed as it comes, else Markdown is rendered
    on a terminal. Files are listed, unless they are to be saved in the folder `save`. With `once`, text that is another
    form of the data before it is not printed.
    """

    def __init__(
        self,
        session: CommandSession,
        *,
        quiet: bool = False,
        raw: bool = False,
        save: Path | None = None,
        once: bool = False,
    ) -> None:
        self.save = save
        self._session = session
        self._once = once
        self._is_live = not quiet
        # What goes to stderr stands between the lines of a terminal. A pipe gets the text alone, unbroken.
        self._shares_screen = self._is_live and on_terminal()
        # With --wire its lines come between the pieces of a text, which then is no Markdown any more.
        self._may_render = not quiet and not session.options.wire
        self._display = TextDisplay(renders=self._may_render and renders_markdown(raw=raw))
        shows_line = shows_progress() and not session.options.wire and not session.options.as_json
        self._progress = ProgressLine() if shows_line else None
        # False once there is text, until the agent reports progress.
        self._shows_progress = True
        self._is_followed = False
        self._text = PrintableText()
        self._listed_files = Counter[tuple[object, ...]]()
        self.task_id: str | None = None
        self.state: State | None = None

    @property
    def raw(self) -> bool:
        """Whether text is printed as it comes. Can be set between two streams."""
        return not self._display.renders

    @raw.setter
    def raw(self, raw: bool) -> None:
        self._display.renders = self._may_render and renders_markdown(raw=raw)

    def reset(self) -> None:
        """Reset before the stream of another task."""
        self._text = PrintableText()
        self._listed_files.clear()
        self.task_id = self.state = None

    async def read(self, stream: EventStream, state: State | None = None) -> Task | Message:
        """Read a stream until the task ends or asks for input. Raises what the client raises.

        `state` is that of a task that is only followed: it does not become the last one, to which was sent.
        """
        self._is_followed = state is not None
        self._shows_progress = True
        if self._progress is not None:
            self._progress.start(state)
        is_animated = self._shares_screen or self._progress is not None
        animation = asyncio.create_task(self._animate()) if is_animated else None
        try:
            with interrupting(self) if is_animated else nullcontext():
                async with aclosing(aiter(stream)) as events:
                    async for event in events:
                        self._handle_event(event)
                        if event.state.waiting:
                            break
                if self._is_live:
                    self._print(self._text.end())
        finally:
            if animation is not None:
                animation.cancel()
            self.end_line()
        return stream.result

    def end_line(self) -> None:
        """End the current line, so that the cursor is at the start of an empty line."""
        if self._progress is not None:
            self._progress.clear()
        self._display.end()

    # -- one event ---------------------------------------------------------------------------------------------------

    async def _animate(self) -> None:
        """Keep the screen up to date while no events come."""
        while True:
            await asyncio.sleep(FRAME_SECONDS)
            if self._shares_screen:
                self._display.flush()
            if self._progress is not None and self._shows_progress and not self._is_over:
                column = self._display.column if self._shares_screen else 0
                if column is not None:
                    self._progress.draw(column)

    @property
    def _is_over(self) -> bool:
        return self.state is not None and (self.state.final or self.state.waiting)

    def _handle_event(self, event: Event) -> None:
        raw = event.raw
        self.task_id = (raw.id if isinstance(raw, Task) else raw.task_id) or self.task_id
        self.state = event.state
        if not self._is_followed:
            self._session.remember(self.task_id or "", raw.context_id or "")
        if self._progress is not None:
            self._progress.update(event)
        if event.progress is not None:
            self._shows_progress = True
        if self._is_live and (event.text or event.replaces):
            self._print(self._text.add_event(event))
        if self._shares_screen and isinstance(raw, (Task, ArtifactUpdate)):
            self._list_files(raw.parts if isinstance(raw, Task) else raw.artifact.parts)

    def _print(self, pieces: Iterable[TextChunk]) -> None:
        for piece in pieces:
            if self._progress is not None:
                self._progress.clear()
            if piece.restarted:
                self._display.end()
                say(colored(piece.strip(), err=True, dim=True))
            else:
                self._display.add(piece)
                self._shows_progress = False

    def _list_files(self, parts: Sequence[Part]) -> None:
        """Print the files that have not been printed yet."""
        found = Counter[tuple[object, ...]]()
        for part in parts if self.save is None else ():
            if part.kind not in ("raw", "url"):
                continue
            key = (part.name, part.media_type, part.url, part.raw)
            found[key] += 1
            if found[key] > self._listed_files[key]:  # two files may be equal
                self._listed_files[key] += 1
                print_files([part])

    # -- the end -----------------------------------------------------------------------------------------------------

    @property
    def has_text(self) -> bool:
        """True when text has been printed."""
        return self._is_live and not self._text.is_empty

    def print(self, result: Task | Message) -> None:
        """Print the parts of an answer that have not been printed yet."""
        if self.has_text:
            print_data(result.parts)
            print_closing(result)
        else:
            print_answer(result, text_printer(raw=self.raw), once=self._once)
        self._list_files(result.files)


@contextmanager
def resume_hint(session: CommandSession, printer: StreamPrinter, *, cancels: bool = False) -> Generator[None]:
    """On Ctrl-C or a lost connection within the block, print how to resume the task, unless it has ended.

    With `cancels`, Ctrl-C is to cancel the task, and nothing is printed for it.
    """
    try:
        yield
    except (KeyboardInterrupt, CannotConnect, ResponseTooLarge) as error:
        printer.end_line()
        if cancels and isinstance(error, KeyboardInterrupt):
            raise
        if printer.task_id is not None and printer.state is not None and not printer.state.final:
            if isinstance(error, ResponseTooLarge):
                cancel = session.command_line("cancel", session.short_id(printer.task_id))
                say(f"the task is still running; to cancel it: {cancel}")
            else:
                runs = isinstance(error, KeyboardInterrupt)  # after a lost connection, nobody can say
                say(resume_command(session, printer.task_id, printer.state, runs=runs))
        raise


def resume_command(session: CommandSession, task_id: str, state: State, *, runs: bool = True) -> str:
    """Return the command that resumes a task, and that the task is running if `runs` says so."""
    if state is State.INPUT_REQUIRED:
        return "answer with: " + session.command_line("send", "--task", session.short_id(task_id)) + ' "…"'
    hint = "the task is still running; follow it with: " if runs else "follow the task with: "
    return hint + session.command_line("watch", session.short_id(task_id))


def converse(
    session: CommandSession, printer: StreamPrinter, reading: Coroutine[Any, Any, Task | Message]
) -> Task | Message:
    """Read a task until it ends; whenever it asks for input, ask the user, if stdin is a terminal.

    The result still asks for input when stdin is not a terminal or ends.

    Raises:
        KeyboardInterrupt: Ctrl-C. The task continues; how to resume it has been printed.
        DragomanError: what the client raises.
    """
    with resume_hint(session, printer):
        while True:
            result = session.run(reading)
            if not isinstance(result, Task) or result.state is not State.INPUT_REQUIRED or not is_interactive():
                return result
            answer = ask(result.question or "The agent is waiting for an answer.")
            if answer is None:
                return result
            reading = printer.read(session.client.stream(answer, task=result))


def ask(question: str) -> str | None:
    """Print a question to stderr and read the answer from stdin; None at the end of the input."""
    say(colored(question, "magenta", err=True))
    while (answer := read_line("> ")) is not None and not answer.strip():
        pass
    return answer


def print_outcome(session: CommandSession, printer: StreamPrinter, result: Task | Message) -> None:
    """Print the answer of a completed task, or of a message; with --json, print any result.

    The files of a task that has ended are saved in the printer's folder. Without one, the user is asked.

    Raises:
        InputRequired: the task still asks for input or for authorization.
        TaskEnded: the task failed, was rejected or canceled.
        ConfigError: a file cannot be saved.
    """
    if session.options.as_json:
        print_result(Operation.SEND, result)
    if isinstance(result, Task) and result.state.waiting:
        raise unanswered_error(session, result, is_printed=printer.has_text)
    try:
        result.raise_for_state()
        if not session.options.as_json:
            printer.print(result)
    finally:
        if printer.save is not None:
            save_files(result.files, printer.save)
    if printer.save is None and not session.options.as_json:
        offer_files(session, result)


def describe_login(session: CommandSession, task: Task) -> list[str]:
    """Say what a task in auth-required waits for: its words, its links, and how to follow it after the login."""
    parts = () if task.status.message is None else task.status.message.parts
    links = [part.url for part in parts if part.url]
    follow = session.command_line("watch", session.short_id(task.id))
    return [task.question or "the agent needs an authorization", *links, f"then continue with: {follow}"]


def unanswered_error(session: CommandSession, task: Task, *, is_printed: bool) -> InputRequired:
    """Build the error for a task that still waits for input. Its text so far is printed first, unless `is_printed`."""
    so_far = task.text if task.artifacts else ""
    if so_far and so_far != task.question and not session.options.as_json and not is_printed:
        say(so_far)
    if task.state is State.AUTH_REQUIRED:
        return InputRequired("\n".join(describe_login(session, task)), task=task)
    question = task.question or "the agent is waiting for an answer"
    return InputRequired(f"{question}\n{resume_command(session, task.id, task.state)}", task=task)
