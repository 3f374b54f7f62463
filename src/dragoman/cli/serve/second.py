"""The command line that starts a second server beside one that has the port or the store."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dragoman.model.error import ConfigError
from dragoman.net.postgres import is_postgres_url
from dragoman.server.config.store_url import parse_store
from dragoman.server.listen.port import PortInUse, free_port, is_free
from dragoman.server.listen.trial import program
from dragoman.stores.sqlite.file import StoreInUse, is_in_use

if TYPE_CHECKING:
    from pathlib import Path

    from dragoman.server.config.settings import Settings

_NAMES = ("two", "three", "four", "five", "six", "seven", "eight", "nine")


def with_command(error: ConfigError, settings: Settings) -> ConfigError:
    """Return the error with a command line that works, if the port or the store of a server is in use.

    It stays as it is where nobody typed a command line, as in a process that another one has started.
    """
    typed = sys.argv[1:]
    if typed[:1] != ["serve"]:
        return error
    options: dict[str, str] = {}
    if isinstance(error, PortInUse):
        if error.flag == "--port":
            options["--port"] = str(free_port(settings.host, settings.port))
        if settings.grpc is not None and (error.flag == "--grpc" or not _has_free_grpc(settings)):
            host = settings.grpc.host or settings.host
            options["--grpc"] = str(settings.grpc._replace(port=free_port(host, settings.grpc.port)))
        metrics = settings.metrics
        if metrics is not None and (error.flag == "--metrics" or not is_free(*metrics)):
            options["--metrics"] = str(metrics._replace(port=free_port(*metrics)))
    path = None if is_postgres_url(settings.store) else parse_store(settings.store)
    if path is not None and (isinstance(error, StoreInUse) or (options and is_in_use(path))):
        options["--store"] = f"sqlite:///{_unused(path).as_posix()}"
    if not options:
        return error
    added = [word for option in options.items() for word in option]
    command = shlex.join([*_without(typed, tuple(options)), *added])
    return ConfigError(f"{error}\n\n  {program()} {command}")


def _has_free_grpc(settings: Settings) -> bool:
    return settings.grpc is None or is_free(settings.grpc.host or settings.host, settings.grpc.port)


def _unused(path: Path) -> Path:
    """Return a file beside `path` that no server uses."""
    beside = (path.with_name(f"{name}.db") for name in _NAMES)
    return next((each for each in beside if not is_in_use(each)), path.with_name("another.db"))


def _without(words: Sequence[str], options: tuple[str, ...]) -> list[str]:
    """Return a command line without these options and their values."""
    kept: list[str] = []
    skips = False
    for word in words:
        if skips:
            skips = False
        elif word in options:
            skips = True
        elif word.partition("=")[0] not in options:
            kept.append(word)
    return kept
