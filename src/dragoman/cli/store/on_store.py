"""`--store` and `--config` for commands that administer a store, also while servers use it."""

from __future__ import annotations

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
from dragoman.server.config.settings import Settings, load_settings

Command = Callable[..., None]
store_option = click.option(
    "--store", metavar="URL", help="Where the tasks are: sqlite:///FILE or postgresql://USER@HOST/DATABASE."
)
IN_MEMORY = (
    "the store is memory: its {} live in the server's process, and nobody else can reach them. "
    "Serve with --store sqlite:///FILE to have some that last"
)


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
            administration = open_administration(settings.store)
            if administration is None:
                raise ConfigError(in_memory)
            try:
                function(administration, settings, *args, **more)
            except ServerError as error:  # of the database: no agent was asked
                raise DragomanError(str(error)) from None

        return command

    return decorate
