"""Prints the stream of a task, as it arrives or as a whole, and asks the user for the input that the agent asks for."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Coroutine, Generator
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any

from dragoman.cli.printing import CLEAR, colored, on_terminal, out, print_answer, print_rest, print_result, say
from dragoman.model.error import CannotConnect, InputRequired, ResponseTooLarge
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.message import Message
from dragoman.model.operation import Operation
from dragoman.model.state import State
from dragoman.model.task import Task

if TYPE_CHECKING:
    from dragoman.cli.remote.session import CommandSession
    from dragoman.client.event import Event
    from dragoman.client.streams.stream import EventStream


class StreamPrinter:
    """Reads event streams and prints them: on a terminal as text arrives, in a pipe once the answer is complete.

    With `quiet`, nothing is printed before the end.
    """

    def __init__(self, session: CommandSession, *, quiet: bool = False) -> None:
        self._session = session
        session.before_log = self.end_line
        self._is_live = on_terminal() and not quiet
        # Not with --wire: its lines would mix with a progress line that is overwritten.
        self._prints_progress = on_terminal(err=True) and not session.options.wire
        self._printed_text: list[str] = []
        self._is_mid_line = False
        self._has_progress_line = False
        self.task_id: str | None = None
        self.state: State | None = None

    def reset(self) -> None:
        """Reset before the stream of another task."""
        self._printed_text.clear()
        self.task_id = self.state = None

    async def read(self, stream: EventStream) -> Task | Message:
        """Read a stream until the task ends or asks for input. Raises what the client raises."""
        try:
            async with aclosing(aiter(stream)) as events:
                async for event in events:
                    self._handle_event(event)
                    if event.state.waiting:
                        break
        finally:
            self.end_line()
        return stream.result

    def end_line(self) -> None:
        """End the current line, so that the cursor is at the start of an empty line."""
        self._clear()
        if self._is_mid_line:
            out()
            self._is_mid_line = False

    # -- one event ---------------------------------------------------------------------------------------------------

    def _handle_event(self, event: Event) -> None:
        raw = event.raw
        self.task_id = (raw.id if isinstance(raw, Task) else raw.task_id) or self.task_id
        self.state = event.state
        self._session.remember(self.task_id or "", raw.context_id or "")
        if self._is_live and (event.text or event.replaces):
            self._print(event.text, replaces=event.replaces)
        if self._prints_progress and not self._is_mid_line:
            self._print_progress(raw)

    def _print(self, text: str, *, replaces: bool) -> None:
        if replaces:
            before = "".join(self._printed_text)
            self._printed_text = [text]
            if text.startswith(before):
                text = text[len(before) :]
            elif self._is_mid_line:
                self.end_line()
        else:
            self._printed_text.append(text)
        if text:
            self._clear()
            out(text, nl=False)
            self._is_mid_line = not text.endswith("\n")

    def _print_progress(self, raw: Task | Message | StatusUpdate | ArtifactUpdate) -> None:
        if not isinstance(raw, (Task, StatusUpdate)) or raw.status.state not in (State.WORKING, State.SUBMITTED):
            return
        message = raw.status.message
        text = " ".join(message.text.split()) if message is not None else ""
        line = text or raw.status.state.name.lower()
        room = max(shutil.get_terminal_size().columns - 1, 1)
        self._clear()
        out(colored(line[:room], err=True, dim=True), nl=False, err=True)
        self._has_progress_line = True

    def _clear(self) -> None:
        if self._has_progress_line:
            out(CLEAR, nl=False, err=True)
            self._has_progress_line = False

    # -- the end -----------------------------------------------------------------------------------------------------

    def print(self, result: Task | Message) -> None:
        """Print the parts of an answer that have not been printed yet."""
        if self._is_live and self._printed_text:
            print_rest(result.parts)
        else:
            print_answer(result)


@contextmanager
def resume_hint(session: CommandSession, printer: StreamPrinter) -> Generator[None]:
    """On Ctrl-C or a lost connection within the block, print how to resume the task, unless it has ended."""
    try:
        yield
    except (KeyboardInterrupt, CannotConnect, ResponseTooLarge) as error:
        printer.end_line()
        if printer.task_id is not None and printer.state is not None and not printer.state.final:
            if isinstance(error, ResponseTooLarge):
                say("the task goes on, this ends it: " + session.command_line("cancel", printer.task_id))
            else:
                say(resume_command(session, printer.task_id, printer.state))
        raise


def resume_command(session: CommandSession, task_id: str, state: State) -> str:
    """Return the command that resumes a task."""
    if state is State.INPUT_REQUIRED:
        return "answer with: " + session.command_line("send", "--task", task_id) + ' "…"'
    return "the task goes on: " + session.command_line("watch", task_id)


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
            if not isinstance(result, Task) or result.state is not State.INPUT_REQUIRED or not sys.stdin.isatty():
                return result
            answer = ask(result.question or "The agent waits for an answer.")
            if answer is None:
                return result
            reading = printer.read(session.client.stream(answer, task=result))


def ask(question: str) -> str | None:
    """Print a question to stderr and read the answer from stdin; None at the end of the input."""
    say(colored(question, "magenta", err=True))
    while True:
        out("> ", nl=False, err=True)
        line = sys.stdin.readline()
        if not line:
            say()
            return None
        if line.strip():
            return line.rstrip("\r\n")


def print_outcome(session: CommandSession, printer: StreamPrinter, result: Task | Message) -> None:
    """Print the answer of a completed task, or of a message; with --json, print any result.

    Raises:
        InputRequired: the task still asks for input or for authorization.
        TaskEnded: the task failed, was rejected or canceled.
    """
    if session.options.as_json:
        print_result(Operation.SEND, result)
    if isinstance(result, Task) and result.state.waiting:
        raise unanswered_error(session, result)
    result.raise_for_state()
    if not session.options.as_json:
        printer.print(result)


def unanswered_error(session: CommandSession, task: Task) -> InputRequired:
    """Build the error for a task that still waits for input. Text that no terminal has shown yet is printed first."""
    so_far = task.text if task.artifacts else ""
    if so_far and so_far != task.question and not session.options.as_json and not on_terminal():
        say(so_far)
    if task.state is State.AUTH_REQUIRED:
        text = task.question or "the agent needs an authorization that it cannot ask for here"
        return InputRequired(f"{text}\nonce it is given: {session.command_line('watch', task.id)}", task=task)
    question = task.question or "the agent waits for an answer"
    return InputRequired(f"{question}\n{resume_command(session, task.id, task.state)}", task=task)
