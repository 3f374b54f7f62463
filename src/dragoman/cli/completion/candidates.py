"""What a shell can complete: addresses, task ids, skills, values of options.

Nothing here fails or prints: without an answer in a moment, there is nothing to complete.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import redirect_stderr, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
from click.shell_completion import CompletionItem

from dragoman.model.error import ConfigError

if TYPE_CHECKING:
    from dragoman.client.client import Client
    from dragoman.model.task import Task

T = TypeVar("T")

# How long an agent may take to answer: the user waits with a finger on the key.
_SECONDS = 0.7
_MAX_TASKS = 30
_HELP_WIDTH = 60
# A shell puts a word into the command line as it is, and ids come from agents: no word may be more than a word,
# nor an option.
_PLAIN = re.compile(r"(?!-)[\w@%+=:,./-]+")


def complete_address(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete an address: a remote, a recent one, one of dragoman.toml. It may be left out: then what follows it."""
    items = [*_items(incomplete, _remotes()), *_items(incomplete, _addresses(incomplete))]
    params = ctx.command.params
    following = [each for each in params[params.index(param) + 1 :] if isinstance(each, click.Argument)]
    return items + (
        following[0].shell_complete(ctx, incomplete) if isinstance(param, click.Argument) and following else []
    )


def complete_task(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a task id: `last`, recent tasks, and those that the agent lists."""
    return _items(incomplete, _tasks(ctx))


def complete_skill(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the id of a skill on the agent's card."""
    card = _ask(ctx, lambda client: client.card())
    return _items(incomplete, ((skill.id, skill.description) for skill in (card.skills if card is not None else ())))


def complete_file(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Have the shell complete a file."""
    return [CompletionItem(incomplete, type="file")]


def complete_state(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the state of a task."""
    from dragoman.cli.printing import state_name
    from dragoman.model.state import State

    return _items(incomplete, ((state_name(each), "") for each in State if each is not State.UNSPECIFIED))


def complete_setting(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the value of an option of `serve`, where there are only a few."""
    from dragoman.cli.serve.options import choices_of

    if param.name == "a2a":
        return complete_address(ctx, param, incomplete)
    return _items(incomplete, ((each, "") for each in choices_of(param.name or "")))


# -- where they come from --------------------------------------------------------------------------------------------


def _items(incomplete: str, candidates: Iterable[tuple[str, str]]) -> list[CompletionItem]:
    """Return the candidates that go on with a word, each once, with its description in one line."""
    from dragoman.cli.printing import shorten
    from dragoman.telemetry.printable import one_line

    found = {word: text for word, text in reversed([*candidates]) if word.startswith(incomplete)}
    return [
        CompletionItem(word, help=one_line(shorten(text, _HELP_WIDTH)) or None)
        for word, text in reversed(found.items())
        if _PLAIN.fullmatch(word)
    ]


def _remotes() -> Iterator[tuple[str, str]]:
    from dragoman.server.config.remotes import load_remotes

    with suppress(ConfigError):
        for each in load_remotes(environ=os.environ, cwd=Path.cwd()).values():
            yield each.name, each.url


def _addresses(incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield the addresses that were called last and those of dragoman.toml, each in the form that was begun."""
    from dragoman.cli.remote.recent import RecentTasks

    for url in [*RecentTasks().addresses(), *_configured()]:
        short = url.removeprefix("http://")
        forms = (short, url, short.replace("127.0.0.1", "localhost", 1))
        yield next((form for form in forms if form.startswith(incomplete)), short), ""


def _configured() -> Iterator[str]:
    """Yield the addresses at which the agents of dragoman.toml are served, if there are several."""
    from dragoman.server.config.loader import find_config

    with suppress(ConfigError):
        file = find_config(None, environ=os.environ, cwd=Path.cwd())
        if file is not None and len(file.agents) > 1:
            port = file.serve.get("port", 8080)
            yield from (f"http://127.0.0.1:{port}/agents/{name}" for name in file.agents)


def _tasks(ctx: click.Context) -> Iterator[tuple[str, str]]:
    from dragoman.cli.printing import state_name
    from dragoman.cli.remote.address import default_target, resolve_target
    from dragoman.cli.remote.recent import RecentTasks
    from dragoman.cli.remote.task_id import LAST, list_newest
    from dragoman.cli.tasks.list import first_words

    listed: list[Task] = _ask(ctx, lambda client: list_newest(client, _MAX_TASKS)) or []
    about = {task.id: f"{state_name(task.state)}  {first_words(task)}".strip() for task in listed}
    with suppress(ConfigError):
        url = ctx.params.get("url")
        recent = RecentTasks().at((resolve_target(url) if url else default_target()).url)
        if recent or listed:
            yield LAST, "the last task"
        yield from ((each.task_id, about.get(each.task_id, "")) for each in recent)
    yield from about.items()


def _ask(ctx: click.Context, question: Callable[[Client], Awaitable[T]]) -> T | None:
    """Ask the agent that the command line names; None when it does not answer in time."""
    from dragoman.cli.remote.session import CommandSession, parse_options

    async def ask(client: Client) -> T:
        return await question(client)

    try:
        given = {param.name or "": ctx.params.get(param.name or "") for param in ctx.command.params}
        shared = given | {"headers": given["headers"] or ()}
        options = parse_options(given["url"], shared)._replace(timeout=_SECONDS, wire=False)
        with Path(os.devnull).open("w") as nowhere, redirect_stderr(nowhere), CommandSession(options) as session:
            return session.run(ask(session.client))
    except Exception:  # noqa: BLE001 - whatever it is, a shell that completes is no place to tell
        return None
