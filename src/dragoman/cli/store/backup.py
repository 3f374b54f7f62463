"""`dragoman backup`: a copy of the store, also while the server runs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dragoman.cli.printing import CLEAR, out
from dragoman.cli.store.on_store import on_store
from dragoman.server.config.settings import Settings


@click.command("backup", short_help="Copy the SQLite store, also while the server runs.")
@click.argument("file", type=click.Path(path_type=Path))
@on_store(
    "the store is memory: it lives in the server's process, and nobody else can copy it. "
    "Serve with --store sqlite:///FILE to have one that can be"
)
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
def command(source: Path, _: Settings, file: Path, force: bool) -> None:
    """Copy the SQLite store to FILE, also while the server runs.

    FILE shows the store as it was at one moment, has been checked, and is a store by itself:
    `dragoman serve --store sqlite:///FILE` continues from it.
    """
    from dragoman.stores.sqlite.backup import back_up

    is_terminal = sys.stderr.isatty()
    result = back_up(source, file, force=force, progress=_print_progress if is_terminal else None)
    if is_terminal:
        out(CLEAR, nl=False, err=True)
    out(f"{file}: {result.tasks} {'task' if result.tasks == 1 else 'tasks'}, {result.size} bytes")


def _print_progress(remaining: int, pages: int) -> None:
    out(CLEAR, f"{100 * (pages - remaining) // max(pages, 1)} %", nl=False, err=True)
