"""`dragoman chat`: a conversation with an agent."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.remote import Session, in_session, url_argument

if TYPE_CHECKING:
    from dragoman.cli.conversation import Reader
    from dragoman.model.message import Message
    from dragoman.model.task import Task

QUIT = "/quit"


@click.command("chat", short_help="Talk with an agent.")
@url_argument()
@in_session
def command(session: Session) -> None:
    """Talk with an agent: each line is a message, in one conversation. /quit or Ctrl-D ends.

    What the agent asks is answered with the next line. Ctrl-C while it answers leaves the task running.
    """
    from dragoman.cli.conversation import unanswered
    from dragoman.cli.printing import coloured, say
    from dragoman.model.task import Task

    card = session.run(session.client.card())
    chatting = _Chatting(session)
    if chatting.interactive:
        say(coloured(f"{card.name}: {card.description}", bold=True, err=True))
        say(f"{QUIT} or Ctrl-D ends")
    last = chatting.loop()
    if isinstance(last, Task) and last.state.waiting:
        problem = unanswered(session, last)
        if not chatting.interactive:
            raise problem
        say(str(problem).partition("\n")[2])


class _Chatting:
    def __init__(self, session: Session) -> None:
        from dragoman.cli.conversation import Reader

        self._session = session
        self._reader: Reader = Reader(session, quiet=session.options.as_json)
        self._last: Task | Message | None = None
        self.interactive = sys.stdin.isatty()
        # With it, input() has a history and can be edited.
        self._edits = self.interactive and sys.stdout.isatty()
        if self._edits:
            import readline as _  # noqa: F401 - absent on Windows, where the console does it

    def loop(self) -> Task | Message | None:
        """Take lines until there are no more; gives the last answer."""
        while (line := self._line()) is not None and line.strip() != QUIT:
            if line.strip():
                self._turn(line)
        return self._last

    def _line(self) -> str | None:
        from dragoman.cli.printing import out, say

        prompt = "? " if self._place().get("task") is not None else "> "
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

    def _turn(self, text: str) -> None:
        from dragoman.cli.conversation import leaving
        from dragoman.cli.printing import say
        from dragoman.model.error import DragomanError

        place = self._place()
        if place.get("task") is None:
            self._reader.begin()
        try:
            with leaving(self._session, self._reader):
                self._last = self._session.run(self._reader.read(self._session.client.stream(text, **place)))
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
        from dragoman.cli.printing import coloured, print_result, say, state_name
        from dragoman.model.operation import Operation

        if self._session.options.as_json:
            print_result(Operation.SEND, result, compact=True)
        elif result.question is not None:
            say(coloured(result.question, "magenta", err=True))
        elif result.state.final and result.state.name != "COMPLETED":
            said = result.error or ""
            say(coloured(f"{state_name(result.state)}{f': {said}' if said else ''}", "red", err=True))
        else:
            self._reader.print(result)

    def _place(self) -> dict[str, Any]:
        from dragoman.model.task import Task

        last = self._last
        if isinstance(last, Task) and last.state.waiting:
            return {"task": last}
        return {"context": last.context_id or None} if last is not None else {}
