"""`dragoman call`: calls a skill with named arguments and prints its value."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from dragoman.cli.completion.candidates import complete_skill
from dragoman.cli.options import save_option
from dragoman.cli.remote.address import AddressCommand, misread_word, url_argument
from dragoman.cli.remote.session import CommandSession, in_session
from dragoman.model.error import ConfigError

_ARGUMENT = re.compile(r"([^=:]+)(:?=)(.*)", re.DOTALL)


@click.command("call", cls=AddressCommand, short_help="Call a skill and print the result.")
@url_argument
@click.argument("skill", shell_complete=complete_skill)
@click.argument("arguments", nargs=-1, metavar="[NAME=VALUE]...")
@save_option
@in_session
def command(session: CommandSession, skill: str, arguments: tuple[str, ...], save: Path | None) -> None:
    """Call a skill and print the result: text as it is, data as JSON.

    `name=value` passes text and `name:=value` passes JSON. If the agent publishes the types of its skills, as agents
    with MCP tools do, `a=3` passes a number too.

    \b
      dragoman call add a:=3 b:=4
      dragoman call localhost:9000 tag name=trip tags:='["x", "y"]'
    """
    from dragoman.cli.talk.conversation import StreamPrinter, converse, print_outcome
    from dragoman.client.message import fetch_schemas, parse_argument

    if session.options.target.is_default and arguments and "=" not in arguments[0] and (hint := misread_word(skill)):
        raise ConfigError(hint)
    parsed = [_parse_argument(each) for each in arguments]
    schemas = session.run(fetch_schemas(session.client)) if any(is_text for _, _, is_text in parsed) else {}
    values = {
        name: parse_argument(value, schemas, skill, name) if is_text else value for name, value, is_text in parsed
    }
    printer = StreamPrinter(session, quiet=True, save=save)
    stream = session.client.stream(tool=skill, arguments=values)
    print_outcome(session, printer, converse(session, printer, printer.read(stream)))


def _parse_argument(text: str) -> tuple[str, Any, bool]:
    """Parse `name=text` or `name:=JSON`. Returns name, value, and whether the value is text. Raises ConfigError."""
    from dragoman.cli.talk.send import parse_json

    match = _ARGUMENT.fullmatch(text)
    if match is None:
        raise ConfigError(f"`{text}` is not an argument: write name=text, or name:=JSON as in count:=3")
    name, operator, value = match.groups()
    return (name, parse_json(value, f"{name}:"), False) if operator == ":=" else (name, value, True)
