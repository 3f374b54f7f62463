"""`dragoman push`: lists and retries undelivered webhooks, also while the server runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.options import HELP
from dragoman.cli.printing import print_json, print_table, say, utc
from dragoman.cli.remote.task_id import MIN_PREFIX, is_uuid, match_beginning
from dragoman.cli.store.on_store import IN_MEMORY, on_store, record_change
from dragoman.model.error import ConfigError
from dragoman.server.config.settings import Settings

if TYPE_CHECKING:
    from dragoman.engine.ports.store import Push, TaskRow
    from dragoman.stores.administration import Administration


def _on_store(function: Callable[..., None]) -> Callable[..., None]:
    """Add `--store` and `--config`, and pass the store."""

    @on_store(IN_MEMORY.format("webhooks"))
    @wraps(function)
    def command(store: Administration, _: Settings, *args: Any, **more: Any) -> None:
        function(store, *args, **more)

    return command


@click.group("push", short_help="Show and retry undelivered webhooks.", context_settings=HELP)
def command() -> None:
    """Show and retry undelivered webhooks. Works while the server is running."""


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_on_store
def list_pushes(store: Administration, as_json: bool) -> None:
    """List webhooks with pending, failed or refused deliveries."""
    webhooks = store.webhooks()
    if as_json:
        print_json([_json(push, row) for push, row in webhooks])
        return
    print_table([_row(push, row) for push, row in webhooks], [_COLORS[_state(push)] for push, _ in webhooks])
    if not webhooks:
        say("no webhooks: everything has been delivered")


@command.command("retry")
@click.argument("task", required=False)
@click.argument("webhook", required=False)
@_on_store
def retry(store: Administration, task: str | None, webhook: str | None) -> None:
    """Retry failing and dead webhooks: all of them, those of one task, or a single one.

    TASK is a task id or its unique beginning, WEBHOOK the id of one of its webhooks.
    """
    if task is not None and len(task) >= MIN_PREFIX:
        task = match_beginning(task, (row.id for _, row in store.webhooks() if is_uuid(row.id))) or task
    woken = store.retry_webhooks(task, webhook)
    if not woken and task is not None:
        raise ConfigError("no failing or dead webhook matches: run `dragoman push list` to see them")
    record_change("webhooks-retried", task=task or "", webhook=webhook or "", count=str(woken))
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
