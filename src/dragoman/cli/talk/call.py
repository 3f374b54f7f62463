"""`dragoman call`: calls a skill with named arguments and prints its value."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click

from dragoman.cli.completion.candidates import complete_skill
from dragoman.cli.options import save_option
from dragoman.cli.remote.address import AddressCommand, misread_word, url_argument
from dragoman.cli.remote.session import CommandSession, in_session
from dragoman.model.error import ConfigError
from dragoman.model.part import File

_ARGUMENT = re.compile(r"([^=:]+)(:?=)(.*)", re.DOTALL)


@click.command("call", cls=AddressCommand, short_help="Call a skill and print the result.")
@url_argument
@click.argument("skill", shell_complete=complete_skill)
@click.argument("arguments", nargs=-1, metavar="[NAME=VALUE]...")
@click.option(
    "--file",
    "files",
    metavar="NAME=PATH",
    multiple=True,
    help="Pass this file as an argument; repeatable, for a list too.",
)
@save_option
@in_session
def command(
    session: CommandSession, skill: str, arguments: tuple[str, ...], files: tuple[str, ...], save: Path | None
) -> None:
    """Call a skill and print the result: text as it is, data as JSON.

    `name=value` passes text and `name:=value` passes JSON. If the agent publishes the types of its skills, `a=3`
    passes a number too, and a value that does not fit is an error before anything is sent.

    \b
      dragoman call add a:=3 b:=4
      dragoman call localhost:9000 tag name=trip tags:='["x", "y"]'
      dragoman call describe --file photo=cat.png
    """
    from dragoman.cli.talk.conversation import StreamPrinter, converse, print_outcome
    from dragoman.client.skill_schema import fetch_schemas, skill_schema
    from dragoman.schema.mismatch import find_mismatch
    from dragoman.schema.outline import Outline

    if session.options.target.is_default and arguments and "=" not in arguments[0] and (hint := misread_word(skill)):
        raise ConfigError(hint)
    parsed = [_parse_argument(each) for each in arguments]
    named_files = _parse_files(files)
    schemas = session.run(fetch_schemas(session.client)) if parsed or files else {}
    values = {name: _fitting_value(value, schemas, skill, name, is_text=is_text) for name, value, is_text in parsed}
    schema = skill_schema(schemas, skill)
    outline = Outline(schema)
    for name, value in values.items():
        if isinstance(value, str) and ":" not in value and outline.is_file(outline.child(schema, name)):
            raise ConfigError(f"`{skill}`: `{name}` is a file: pass it with --file {name}=PATH")
    takes_list = {name for name in named_files if find_mismatch({name: [""]}, schema) is None}
    attached = {
        name: paths if len(paths) > 1 or (schema and name in takes_list) else paths[0]
        for name, paths in named_files.items()
    }
    # On the way, a file is its name.
    names = {name: [""] if isinstance(each, list) else "" for name, each in attached.items()}
    mismatch = find_mismatch(values | names, schema)
    if mismatch is not None:
        raise ConfigError(f"`{skill}`: {mismatch}. `{session.command_line('card')}` lists its arguments")
    printer = StreamPrinter(session, quiet=True, save=save, once=True)
    stream = session.client.stream(tool=skill, arguments=values | attached)
    print_outcome(session, printer, converse(session, printer, printer.read(stream)))


def _parse_files(files: tuple[str, ...]) -> dict[str, list[File]]:
    """Parse `name=path`; a name that is repeated has several files. Raises ConfigError."""
    found: dict[str, list[File]] = {}
    for text in files:
        name, _, path = text.partition("=")
        if not name or not path:
            raise ConfigError(f"--file {text}: write the argument and the path, as in --file photo=cat.png")
        if not Path(path).is_file():
            raise ConfigError(f"--file {name}: there is no file {path}")
        found.setdefault(name, []).append(File(Path(path)))
    return found


def _fitting_value(value: Any, schemas: dict[str, Any], skill: str, name: str, *, is_text: bool) -> Any:
    """Return the value to send: text is read by its type, and so is JSON that does not fit as it is."""
    from dragoman.client.skill_schema import parse_argument, skill_schema
    from dragoman.schema.mismatch import find_mismatch

    schema = skill_schema(schemas, skill)
    if not is_text and find_mismatch({name: value}, schema) is None:
        return value
    text = value if isinstance(value, str) else json.dumps(value)
    fitting = parse_argument(text, schemas, skill, name)
    return fitting if is_text or find_mismatch({name: fitting}, schema) is None else value


def _parse_argument(text: str) -> tuple[str, Any, bool]:
    """Parse `name=text` or `name:=JSON`. Returns name, value, and whether the value is text. Raises ConfigError."""
    from dragoman.cli.talk.send import parse_json

    match = _ARGUMENT.fullmatch(text)
    if match is None:
        raise ConfigError(f"`{text}` is not an argument: write name=text, or name:=JSON as in count:=3")
    name, operator, value = match.groups()
    return (name, parse_json(value, f"`{text}`"), False) if operator == ":=" else (name, value, True)
