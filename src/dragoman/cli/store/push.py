"""`dragoman push`: lists and retries undelivered webhooks, also while the server runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.options import HELP
from dragoman.cli.printing import print_json, print_table, say, utc
from dragoman.cli.remote.task_id import MIN_PREFIX, is_uuid, match_beginning
from dragoman.cli.store.on_store import IN_MEMORY, on_store
from dragoman.model.error import ConfigError
from dragoman.server.config.settings import Settings

if TYPE_CHECKING:
    from dragoman.engine.ports.store import Push, TaskRow


def _on_store(function: Callable[..., None]) -> Callable[..., None]:
    """Add `--store` and `--config`, and pass the path of the store if it can be used."""

    @on_store(IN_MEMORY.format("webhooks"))
    @wraps(function)
    def command(path: Path, _: Settings, *args: Any, **more: Any) -> None:
        with _checked_store(path):
            function(path, *args, **more)

    return command


@contextmanager
def _checked_store(path: Path) -> Generator[None]:
    from dragoman.stores.sqlite.health import open_read_only, schema_version
    from dragoman.stores.sqlite.schema import VERSION, unusable_error

    if not path.exists():
        raise ConfigError(f"there is no store {path}: name it with --store sqlite:///FILE")
    try:
        with closing(open_read_only(path)) as reader:
            if schema_version(reader, path) < VERSION:
                raise ConfigError(
                    f"an older version of Dragoman wrote the store {path}: run `dragoman serve` once to upgrade it"
                )
        yield
    except sqlite3.Error as error:
        raise unusable_error(path, error) from None


@click.group("push", short_help="Show and retry undelivered webhooks.", context_settings=HELP)
def command() -> None:
    """Show and retry undelivered webhooks. Works while the server is running."""


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_on_store
def list_pushes(path: Path, as_json: bool) -> None:
    """List webhooks with pending, failed or refused deliveries."""
    webhooks = _listed(path)
    if as_json:
        print_json([_json(push, row) for push, row in webhooks])
        return
    print_table([_row(push, row) for push, row in webhooks], [_COLORS[_state(push)] for push, _ in webhooks])
    if not webhooks:
        say("no webhooks: everything has been delivered")


def _listed(path: Path) -> list[tuple[Push, TaskRow]]:
    from dragoman.stores.sqlite.health import open_read_only
    from dragoman.stores.sqlite.reader import undelivered_or_refused

    with closing(open_read_only(path)) as reader:
        reader.execute("PRAGMA busy_timeout = 5000")
        return undelivered_or_refused(reader)


@command.command("retry")
@click.argument("task", required=False)
@click.argument("webhook", required=False)
@_on_store
def retry(path: Path, task: str | None, webhook: str | None) -> None:
    """Retry failing and dead webhooks: all of them, those of one task, or a single one.

    TASK is a task id or its unique beginning, WEBHOOK the id of one of its webhooks.
    """
    from dragoman.stores.sqlite.file import short_write
    from dragoman.stores.sqlite.webhooks import wake

    if task is not None and len(task) >= MIN_PREFIX:
        task = match_beginning(task, (row.id for _, row in _listed(path) if is_uuid(row.id))) or task
    with short_write(path) as connection:
        woken = wake(connection, task, webhook)
    if not woken and task is not None:
        raise ConfigError("no failing or dead webhook matches: run `dragoman push list` to see them")
    say(f"retrying {woken} {'webhook' if woken == 1 else 'webhooks'}")


_COLORS = {"waiting": None, "failing": "yellow", "dead": "red", "woken": "cyan", "skipped": "yellow"}


def _state(push: Push) -> str:
    from dragoman.engine.ports.store import WOKEN, PushState

    if push.state is PushState.DEAD:
        return "dead"
    if push.state is PushState.DONE:
        return "skipped"
    if push.due_ms == WOKEN:
        return "woken"
    return "failing" if push.tries else "waiting"


def _row(push: Push, row: TaskRow) -> tuple[str, ...]:
    from dragoman.net.exchange import redact_url

    problem = f"{push.error}, {push.tries} tries since {utc(push.failing_ms)}" if push.failing_ms else push.error
    return row.id, _state(push), push.id, redact_url(push.url), problem


def _json(push: Push, row: TaskRow) -> dict[str, Any]:
    from dragoman.net.exchange import redact_url

    return {
        "task": row.id,
        "agent": row.scope.agent,
        "id": push.id,
        "url": redact_url(push.url),
        "protocol": push.dialect,
        "state": _state(push),
        "behind": row.generation - push.cursor,
        "tries": push.tries,
        "failingSince": utc(push.failing_ms) if push.failing_ms else None,
        "due": utc(push.due_ms) if push.due_ms > 0 else None,
        "error": push.error or None,
    }
