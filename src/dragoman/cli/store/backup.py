"""`dragoman backup`: a copy of the store, also while the server runs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dragoman.cli.printing import CLEAR, out, say
from dragoman.cli.store.on_store import on_store, record_change
from dragoman.server.config.settings import Settings
from dragoman.stores.administration import Administration


@click.command("backup", short_help="Back up the store, even while servers run.")
@click.argument("file", type=click.Path(path_type=Path))
@on_store(
    "a store in memory cannot be backed up, because it only exists inside the server. "
    "Serve with --store sqlite:///FILE or postgresql://… instead"
)
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
def command(store: Administration, _: Settings, file: Path, force: bool) -> None:
    """Back up the store to FILE, even while servers run.

    FILE is a consistent, verified copy. Of a SQLite store it is a store itself: to continue from it, run
    `dragoman serve --store sqlite:///FILE`. Of a PostgreSQL store it is an archive of `pg_dump`, which must be
    installed; the command prints how to restore it with `pg_restore`.
    """
    is_terminal = sys.stderr.isatty()
    result = store.back_up(file, force=force, progress=_print_progress if is_terminal else None)
    record_change("backup-made", file=str(file.absolute()))
    if is_terminal:
        out(CLEAR, nl=False, err=True)
    out(f"{file}: {result.tasks} {'task' if result.tasks == 1 else 'tasks'}, {result.size} bytes")
    for line in result.restore:
        say(line)


def _print_progress(remaining: int, pages: int) -> None:
    out(CLEAR, f"{100 * (pages - remaining) // max(pages, 1)} %", nl=False, err=True)
