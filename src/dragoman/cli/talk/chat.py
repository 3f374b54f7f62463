"""`dragoman chat`: a conversation with an agent."""

from __future__ import annotations

import io
import re
import shlex
from contextlib import aclosing, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from dragoman.cli.options import raw_option
from dragoman.cli.remote.address import url_argument
from dragoman.cli.remote.session import CommandSession, in_session
from dragoman.cli.remote.task_id import LAST
from dragoman.model.error import A2AError, BadResponse, ConfigError, DragomanError

if TYPE_CHECKING:
    from dragoman.client.streams.stream import EventStream
    from dragoman.model.message import Message
    from dragoman.model.task import Task


class SlashCommand(NamedTuple):
    """A command that is typed in a chat."""

    arguments: str
    help: str


COMMANDS = {
    "/help": SlashCommand("", "Show this list."),
    "/file": SlashCommand("PATH [TEXT]", "Send a file, with an optional text."),
    "/cancel": SlashCommand("", "Cancel the task that is waiting for your answer."),
    "/new": SlashCommand("", "Start a new conversation."),
    "/save": SlashCommand("[DIR]", "Save the files of the last answer to this or another folder."),
    "/raw": SlashCommand("", "Turn Markdown rendering off or on."),
    "/quit": SlashCommand("", "Quit. So does Ctrl-D."),
}
KEYS = """\
End a line with \\ to continue it on the next one. Pasted text is one message.
Ctrl-C cancels the answer or clears the line; press it twice to quit.
Type //text to send /text. The arrow keys recall earlier lines."""

# `/usr/bin is full` is a message.
_COMMAND = re.compile(r"/[A-Za-z]+")


@click.command("chat", short_help="Chat with an agent.")
@url_argument
@click.option("--context", metavar="ID", help="Continue this conversation, or the `last` one.")
@raw_option
@in_session
def command(session: CommandSession, context: str | None, raw: bool) -> None:
    """Chat with an agent. Each line is a message, or the answer to the agent's question.

    On a terminal, /help lists the commands, such as /file PATH. Ctrl-C cancels the answer, a second Ctrl-C or Ctrl-D
    quits. End a line with a backslash to continue it on the next line.

    In a pipe, each line of stdin is a message or a command. If a question is still open at the end, the exit code is 6.
    """
    from dragoman.cli.printing import colored, say

    card = session.run(session.client.card())
    chat = ChatLoop(session, raw=raw)
    if chat.interactive:
        say(colored(f"{card.name}: {card.description}", bold=True, err=True))
        say(colored("Type /help for the commands, Ctrl-D to quit.", dim=True, err=True))
    try:
        if context is not None:
            chat.take_up(context)
        chat.run()
    except KeyboardInterrupt:
        if not chat.interactive:
            raise
        say()
        chat.print_return()
        raise click.exceptions.Exit(130) from None
    chat.finish()


class ChatLoop:
    """Sends each message to the agent and prints the answer, until the input ends."""

    def __init__(self, session: CommandSession, *, raw: bool = False) -> None:
        from dragoman.cli.talk.conversation import StreamPrinter
        from dragoman.cli.talk.prompt import Prompt

        self._session = session
        self._prompt = Prompt(list(COMMANDS), [name for name, each in COMMANDS.items() if each.arguments])
        self._printer = StreamPrinter(session, quiet=session.options.as_json, raw=raw)
        self._last: Task | Message | None = None
        self._context: str | None = None
        self._was_interrupted = False
        self.interactive = self._prompt.interactive

    def take_up(self, context: str) -> None:
        """Go on with a conversation: print its last exchange if the agent has it, and answer its open question next.

        Raises:
            ConfigError: there is no last conversation.
            DragomanError: what the client raises.
        """
        from dragoman.cli.printing import colored, say, shorten

        if context == LAST:
            context = next((each.context_id for each in self._session.recent() if each.context_id), "")
            if not context:
                url = self._session.options.target.url
                raise ConfigError(f"there is no conversation with {url} yet: omit --context to start one")
        self._context = context
        is_listed, task = self._session.run(self._find_last(context))
        if task is None:
            if is_listed and self.interactive:
                say(f"the agent has no tasks in the conversation {context}: your next message starts it")
            return
        self._last = task
        if self.interactive:
            asked = next((message.text for message in reversed(task.history) if message.role.name == "USER"), "")
            say(colored(f"> {shorten(asked, 200)}", dim=True, err=True))
        if not (task.state.final or task.state.waiting):
            self._follow(self._session.client.subscribe(task))
        elif self.interactive or task.state.waiting:
            self._print(task)

    async def _find_last(self, context: str) -> tuple[bool, Task | None]:
        """Return whether the agent lists tasks, and the task of the conversation that changed last."""
        client = self._session.client
        try:
            async with aclosing(client.list_tasks(context=context, page_size=1)) as tasks:
                async for task in tasks:
                    return True, await client.get_task(task)
        except (A2AError, BadResponse):
            return False, None
        return True, None

    def run(self) -> None:
        """Send each message, and carry out each command, until the input ends.

        Raises:
            KeyboardInterrupt: the user leaves with Ctrl-C.
            DragomanError: from a pipe, whatever goes wrong. On a terminal it is printed, and the chat goes on.
        """
        from dragoman.cli.printing import say

        while (line := self._prompt.read(self._prompt_text(), interrupted=self._was_interrupted)) is not None:
            self._was_interrupted = False
            try:
                if not self._perform(line):
                    return
            except DragomanError as error:
                if not self.interactive:
                    raise
                say(f"dragoman: {error}")

    def finish(self) -> None:
        """Print how to come back. Raises InputRequired when the input of a pipe ends with an open question."""
        from dragoman.cli.talk.conversation import unanswered_error
        from dragoman.model.task import Task

        if self.interactive:
            self.print_return()
        elif isinstance(self._last, Task) and self._last.state.waiting:
            raise unanswered_error(self._session, self._last, is_printed=self._printer.has_text)

    def print_return(self, *, is_end: bool = True) -> None:
        """Print the command that comes back to the conversation, and the one that answers its open question.

        At the end of the chat the conversation is the last one, which needs no id.
        """
        from dragoman.cli.printing import on_terminal, say
        from dragoman.cli.talk.conversation import resume_command
        from dragoman.model.task import Task

        if isinstance(self._last, Task) and not self._last.state.final:
            say(resume_command(self._session, self._last.id, self._last.state))
        if self._context is not None:
            newest = next(iter(self._session.recent()), None)
            is_last = is_end and on_terminal(err=True) and newest is not None and newest.context_id == self._context
            context = LAST if is_last else self._context
            say("continue with: " + self._session.command_line("chat", "--context", context))

    # -- lines -------------------------------------------------------------------------------------------------------

    def _prompt_text(self) -> str:
        from dragoman.cli.talk.question import expected_answer

        task = self._target().get("task")
        return "> " if task is None else f"{expected_answer(task)}? "

    def _perform(self, line: str) -> bool:
        """Send a message or carry out a command. Returns False when the chat is to end. Raises DragomanError."""
        name, arguments = (*line.split(None, 1), "", "")[:2]
        if not _COMMAND.fullmatch(name):
            if line.strip():
                self._send(line.removeprefix("/") if line.startswith("//") else line)
            return True
        match name.lower():
            case "/help":
                self._print_help()
            case "/file":
                self._send_file(arguments)
            case "/cancel":
                self._cancel()
            case "/new":
                self._begin_anew()
            case "/save":
                self._save(arguments)
            case "/raw":
                self._toggle_raw()
            case "/quit":
                return False
            case _:
                near = get_close_matches(name, COMMANDS, n=1)
                hint = f"did you mean {near[0]}?" if near else "/help lists the commands."
                raise ConfigError(f"there is no command {name}: {hint} To send it as text, start with //.")
        return True

    def _print_help(self) -> None:
        from dragoman.cli.printing import say

        for name, each in COMMANDS.items():
            say(f"  {f'{name} {each.arguments}':<20}{each.help}")
        say(KEYS)

    def _send_file(self, arguments: str) -> None:
        path, text = _split_path("/file", arguments)
        if path is None:
            raise ConfigError("/file needs a path: /file report.pdf What does it say?")
        try:
            self._send(text or None, files=[path])
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from None

    def _save(self, arguments: str) -> None:
        from dragoman.cli.talk.save import HERE, save_files

        path, more = _split_path("/save", arguments)
        if more:
            raise ConfigError(f"/save takes one folder: put quotes around {arguments!r}")
        files = self._last.files if self._last is not None else []
        if not files:
            raise ConfigError("there is nothing to save: the last answer has no files")
        save_files(files, path or HERE)

    def _toggle_raw(self) -> None:
        from dragoman.cli.printing import say

        self._printer.raw = not self._printer.raw
        say("Markdown rendering is off" if self._printer.raw else "Markdown rendering is on")

    def _begin_anew(self) -> None:
        from dragoman.cli.printing import say

        if self.interactive:
            self.print_return(is_end=False)
            say("started a new conversation")
        self._last = self._context = None

    # -- messages ----------------------------------------------------------------------------------------------------

    def _target(self) -> dict[str, Any]:
        from dragoman.model.task import Task

        if isinstance(self._last, Task) and self._last.state.waiting:
            return {"task": self._last}
        return {"context": self._context}

    def _send(self, text: str | None, **content: Any) -> None:
        target = self._target()
        stream = self._session.client.stream(text, **content, **target)
        if target.get("task") is None:
            self._printer.reset()
        self._follow(stream)

    def _follow(self, stream: EventStream) -> None:
        """Print the events of a stream; Ctrl-C cancels the task. Raises DragomanError and KeyboardInterrupt."""
        from dragoman.cli.talk.conversation import resume_hint

        try:
            with resume_hint(self._session, self._printer, cancels=self.interactive):
                self._keep(self._session.run(self._printer.read(stream)))
        except KeyboardInterrupt:
            if not self.interactive:
                raise
            self._was_interrupted = True
            self._keep_unfinished(stream)
            self._cancel_answer()
            return
        except DragomanError:
            self._keep_unfinished(stream)
            raise
        if self._last is not None:
            self._print(self._last)

    def _keep(self, result: Task | Message) -> None:
        self._last = result
        self._context = result.context_id or self._context

    def _keep_unfinished(self, stream: EventStream) -> None:
        """Keep what a stream that broke off has brought: the conversation goes on, and its task can be canceled."""
        with suppress(BadResponse):  # it has brought nothing
            self._keep(stream.result)

    def _cancel_answer(self) -> None:
        from dragoman.cli.printing import say
        from dragoman.cli.talk.conversation import resume_command
        from dragoman.model.task import Task

        self._printer.end_line()
        task = self._last
        if not isinstance(task, Task) or task.state.final:
            say("stopped waiting. The agent has not named a task, so there is nothing to cancel.")
            return
        try:
            self._cancel()
        except DragomanError as error:
            say(f"dragoman: {error}")
            say(resume_command(self._session, task.id, task.state))

    def _cancel(self) -> None:
        """Cancel the task that works or waits, and print its state. Raises DragomanError."""
        from dragoman.model.task import Task

        task = self._last
        if not isinstance(task, Task) or task.state.final:
            raise ConfigError("there is nothing to cancel: no task is waiting for an answer")
        self._keep(self._session.run(self._session.client.cancel_task(task)))
        self._print(self._last or task)

    def _print(self, result: Task | Message) -> None:
        from dragoman.cli.printing import colored, print_result, say, state_name
        from dragoman.cli.talk.conversation import describe_login
        from dragoman.model.operation import Operation
        from dragoman.model.task import Task

        if self._session.options.as_json:
            print_result(Operation.SEND, result, compact=True)
        elif isinstance(result, Task) and result.state.name == "AUTH_REQUIRED":
            # No answer typed here is a login: the task goes on after it by itself.
            for line in describe_login(self._session, result):
                say(colored(line, "magenta", err=True))
        elif result.question is not None:
            say(colored(result.question, "magenta", err=True))
        elif result.state.final and result.state.name != "COMPLETED":
            error = result.error or ""
            say(colored(f"{state_name(result.state)}{f': {error}' if error else ''}", "red", err=True))
        else:
            self._printer.print(result)
            if self.interactive and any(part.raw is not None for part in result.files):
                say(colored("type /save or /save DIR to save it", dim=True, err=True))


def _split_path(command: str, arguments: str) -> tuple[Path | None, str]:
    """Split a path, which may be quoted, from the text after it. Raises ConfigError."""
    rest = io.StringIO(arguments)
    lexer = shlex.shlex(rest, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        word = lexer.get_token()
        return (Path(word).expanduser() if word else None), rest.read().strip()
    except ValueError:
        raise ConfigError(f"{command}: a quote is not closed") from None
    except RuntimeError as error:  # ~ of an unknown user
        raise ConfigError(f"{command}: {error}") from None
