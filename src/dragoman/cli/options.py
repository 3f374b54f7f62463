"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

# Groups may be run without the main group, so they need its help options.
HELP = {"help_option_names": ["-h", "--help"]}


def with_options(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Add options to a command, in this order."""

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


config_option = click.option(
    "--config", metavar="FILE", type=click.Path(path_type=Path), help="File, if not ./dragoman.toml."
)
remote_bytes_option = click.option(
    "--limits-remote-bytes",
    metavar="BYTES",
    type=click.IntRange(0),
    help="How much one task may bring; 0 is any number.  [default: 64 MB]",
)
