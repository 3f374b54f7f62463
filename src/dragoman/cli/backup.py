"""`dragoman backup`: a copy of the store, also while the server runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from dragoman.cli.printing import CLEAR, out, warn
from dragoman.model.error import ConfigError
from dragoman.server.config.settings import SETTINGS, load_settings
from dragoman.server.config.store_url import parse_store


@click.command("backup", short_help="Copy the SQLite store, also while the server runs.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--store", metavar="URL", help=SETTINGS["store"].help)
@click.option("--config", metavar="FILE", type=click.Path(path_type=Path), help="File, if not ./dragoman.toml.")
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
def command(file: Path, store: str | None, config: Path | None, force: bool) -> None:
    """Copy the SQLite store to FILE, also while the server runs.

    FILE shows the store as it was at one moment, has been checked, and is a store by itself:
    `dragoman serve --store sqlite:///FILE` continues from it.
    """
    from dragoman.stores.sqlite.backup import back_up

    settings = load_settings({}, environ=os.environ, config=config, cwd=Path.cwd(), flags={"store": store}, warn=warn)
    source = parse_store(settings.store)
    if source is None:
        raise ConfigError(
            "the store is memory: it lives in the server's process, and nobody else can copy it. "
            "Serve with --store sqlite:///FILE to have one that can be"
        )
    shows = sys.stderr.isatty()
    copied = back_up(source, file, force=force, progress=_show if shows else None)
    if shows:
        out(CLEAR, nl=False, err=True)
    out(f"{file}: {copied.tasks} {'task' if copied.tasks == 1 else 'tasks'}, {copied.size} bytes")


def _show(left: int, pages: int) -> None:
    out(CLEAR, f"{100 * (pages - left) // max(pages, 1)} %", nl=False, err=True)
