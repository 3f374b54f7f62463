"""`--store` and `--config` for commands that administer a store, also while servers use it."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from dragoman.cli.options import config_option
from dragoman.cli.printing import warn
from dragoman.model.error import ConfigError, DragomanError, ServerError
from dragoman.server.administration import open_administration
from dragoman.server.config.loader import load_settings
from dragoman.server.config.settings import Settings
from dragoman.telemetry.audit import Audit
from dragoman.telemetry.logs import configure

Command = Callable[..., None]
store_option = click.option(
    "--store", metavar="URL", help="Where the tasks are: sqlite:///FILE or postgresql://USER@HOST/DATABASE."
)
IN_MEMORY = (
    "the store is memory: its {} live in the server's process, and nobody else can reach them. "
    "Serve with --store sqlite:///FILE to have some that last"
)


def start_audit(settings: Settings) -> None:
    """Let the audit log be written to stderr where logs are JSON, for programs; people read what the command says."""
    if settings.log == "json":
        configure("json", "info")


def record_change(event: str, **fields: str) -> None:
    """Write to the audit log what was done, and who did it: the user of this machine who runs the command."""
    try:
        operator = os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):  # a container may run as a number that has no name
        operator = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    Audit().record_change(event, by=operator, **fields)


def on_store(in_memory: str) -> Callable[[Command], Command]:
    """Return a decorator that adds the options, and passes the store and the settings before other arguments.

    `in_memory` is the text of the ConfigError for a store in memory. When the store fails, the command raises
    DragomanError.
    """

    def decorate(function: Command) -> Command:
        @store_option
        @config_option
        @wraps(function)
        def command(*args: Any, store: str | None, config: Path | None, **more: Any) -> None:
            settings: Settings = load_settings(
                {}, environ=os.environ, config=config, cwd=Path.cwd(), flags={"store": store}, warn=warn
            )
            start_audit(settings)
            administration = open_administration(settings.store)
            if administration is None:
                raise ConfigError(in_memory)
            try:
                function(administration, settings, *args, **more)
            except ServerError as error:  # of the database: no agent was asked
                raise DragomanError(str(error)) from None

        return command

    return decorate
