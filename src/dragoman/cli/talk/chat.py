"""`dragoman chat`: a conversation with an agent."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.remote.address import url_argument
from dragoman.cli.remote.session import CommandSession, in_session

if TYPE_CHECKING:
    from dragoman.cli.talk.conversation import StreamPrinter
    from dragoman.model.message import Message
    from dragoman.model.task import Task

QUIT = "/quit"


@click.command("chat", short_help="Talk with an agent.")
@url_argument
@in_session
def command(session: CommandSession) -> None:
    """Talk with an agent: each line is a message, in one conversation. /quit or Ctrl-D ends.

    What the agent asks is answered with the next line. Ctrl-C while it answers leaves the task running.
    """
    from dragoman.cli.printing import colored, say
    from dragoman.cli.talk.conversation import unanswered_error
    from dragoman.model.task import Task

    card = session.run(session.client.card())
    chat = _ChatLoop(session)
    if chat.interactive:
        say(colored(f"{card.name}: {card.description}", bold=True, err=True))
        say(f"{QUIT} or Ctrl-D ends")
    last = chat.run()
    if isinstance(last, Task) and last.state.waiting:
        problem = unanswered_error(session, last)
        if not chat.interactive:
            raise problem
        say(str(problem).partition("\n")[2])


class _ChatLoop:
    def __init__(self, session: CommandSession) -> None:
        from dragoman.cli.talk.conversation import StreamPrinter

        self._session = session
        self._printer: StreamPrinter = StreamPrinter(session, quiet=session.options.as_json)
        self._last: Task | Message | None = None
        self.interactive = sys.stdin.isatty()
        # With readline, input() has a history and can be edited.
        self._edits = self.interactive and sys.stdout.isatty()
        if self._edits:
            import readline as _  # noqa: F401 - absent on Windows, where the console does it

    def run(self) -> Task | Message | None:
        """Send each line as a message until the input ends. Returns the last answer."""
        while (line := self._read_line()) is not None and line.strip() != QUIT:
            if line.strip():
                self._send(line)
        return self._last

    def _read_line(self) -> str | None:
        from dragoman.cli.printing import out, say

        prompt = "? " if self._message_target().get("task") is not None else "> "
        try:
            if self._edits:
                return input(prompt)
            if self.interactive:
                out(prompt, nl=False, err=True)
            line = sys.stdin.readline()
        except EOFError:
            line = ""
        if not line and self.interactive:
            say()
        return line.rstrip("\r\n") if line else None

    def _send(self, text: str) -> None:
        from dragoman.cli.printing import say
        from dragoman.cli.talk.conversation import resume_hint
        from dragoman.model.error import DragomanError

        target = self._message_target()
        if target.get("task") is None:
            self._printer.reset()
        try:
            with resume_hint(self._session, self._printer):
                self._last = self._session.run(self._printer.read(self._session.client.stream(text, **target)))
        except KeyboardInterrupt:
            if not self.interactive:
                raise
            return
        except DragomanError as error:
            if not self.interactive:
                raise
            say(f"dragoman: {error}")
            return
        self._print(self._last)

    def _print(self, result: Task | Message) -> None:
        from dragoman.cli.printing import colored, print_result, say, state_name
        from dragoman.model.operation import Operation

        if self._session.options.as_json:
            print_result(Operation.SEND, result, compact=True)
        elif result.question is not None:
            say(colored(result.question, "magenta", err=True))
        elif result.state.final and result.state.name != "COMPLETED":
            error = result.error or ""
            say(colored(f"{state_name(result.state)}{f': {error}' if error else ''}", "red", err=True))
        else:
            self._printer.print(result)

    def _message_target(self) -> dict[str, Any]:
        from dragoman.model.task import Task

        last = self._last
        if isinstance(last, Task) and last.state.waiting:
            return {"task": last}
        return {"context": last.context_id or None} if last is not None else {}
