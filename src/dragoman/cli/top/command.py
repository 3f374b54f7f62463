"""`dragoman top`: a live view of a server."""

from __future__ import annotations

import shutil
import time
from contextlib import closing
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from dragoman.cli.top.sorting import SORTS

if TYPE_CHECKING:
    from dragoman.cli.top.scrape import Scraper
    from dragoman.cli.top.snapshot import History
    from dragoman.cli.top.view import ViewState

_DEFAULT_WIDTH = 100


def _complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from dragoman.cli.top.scrape import default_address

    name = default_address().name
    return [CompletionItem(name, help="the default")] if name.startswith(incomplete) else []


@click.command("top", short_help="Watch what a server does, live.")
@click.argument("address", metavar="[ADDRESS]", required=False, shell_complete=_complete)
@click.option(
    "--interval",
    metavar="SECONDS",
    type=click.FloatRange(0.1, 3600),
    default=1.0,
    help="Seconds between two looks.  [default: 1]",
)
@click.option("--sort", type=click.Choice(SORTS), default="rate", help="What to sort by.  [default: rate]")
@click.option("--once", is_flag=True, help="Print one snapshot and exit; so does a pipe.")
def command(address: str | None, interval: float, sort: str, once: bool) -> None:
    """Watch what a server does: tasks, rates, latencies, streams, the journal.

    \b
      dragoman serve agent.py --metrics 9464
      dragoman top

    ADDRESS is that of the server's metrics, as in 127.0.0.1:9464, :9464 or http://host:9464/metrics. The default is
    DRAGOMAN_METRICS, or else 127.0.0.1:9464.

    The keys: q quits, p pauses, s sorts by another column, ? explains. A server that goes away is waited for.
    """
    from dragoman.cli.top.live import watch
    from dragoman.cli.top.scrape import Scraper, default_address, parse_address
    from dragoman.cli.top.screen import Screen
    from dragoman.cli.top.snapshot import History
    from dragoman.cli.top.view import ViewState

    scraper = Scraper(parse_address(address) if address else default_address())
    state = ViewState(scraper.address.name, sort)
    history = History(interval)
    # What is wrong from the beginning is an error. It is read before the screen is cleared for it.
    with closing(scraper):
        history.add(scraper.scrape())
        if once or not Screen.can_open():
            _print_once(scraper, history, state, interval)
            return
    watch(scraper, history, state, interval)


def _print_once(scraper: Scraper, history: History, state: ViewState, interval: float) -> None:
    from dragoman.cli.printing import StyledText, on_terminal, out
    from dragoman.cli.top.snapshot import take_snapshot
    from dragoman.cli.top.view import View, has_unicode

    time.sleep(interval)
    history.add(scraper.scrape())
    view = View(unicode=has_unicode())
    width = shutil.get_terminal_size((_DEFAULT_WIDTH, 24)).columns
    lines = view.lines(take_snapshot(history), state, width)
    # In one write: a reader such as `head` may go before the last line.
    if on_terminal():
        out(StyledText("\n".join(view.styled(lines))))
    else:
        out("\n".join(line.plain.rstrip() for line in lines))
