"""`dragoman open`: opens the console of a server in the browser, with its token."""

from __future__ import annotations

import asyncio
import webbrowser
from urllib.parse import urlsplit, urlunsplit

import click

from dragoman.cli.remote.address import default_target, resolve_target, url_argument
from dragoman.model.error import CannotConnect, ConfigError, DragomanError

_TIMEOUT = 10.0
_AGENTS = "/agents/"
_TOKEN = "?token="  # noqa: S105


@click.command("open", short_help="Open the console of a server in the browser.")
@url_argument
@click.option("--print", "prints", is_flag=True, help="Print the address instead, with the token.")
def command(url: str | None, prints: bool) -> None:
    """Open the console of a server in the browser.

    Of a server that you have started on this machine, with its token; of any other, you see what is public there, or
    can sign in. ADDRESS is the server's, or that of one of its agents; by default $DRAGOMAN_AGENT, else
    127.0.0.1:8080.
    """
    from dragoman.cli.consoles import ConsoleFiles
    from dragoman.cli.printing import out, say

    target = default_target() if url is None else resolve_target(url)
    parts = urlsplit(target.url)
    if parts.scheme not in ("http", "https"):
        raise ConfigError(f"{target.url}: the console is a page: write the http:// address of the server")
    path, _, agent = parts.path.rstrip("/").partition(_AGENTS)
    server = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
    try:
        page = find_console(server) + (f"#{_AGENTS}{agent}" if agent else "")
    except CannotConnect:
        if url is None and (others := ConsoleFiles().addresses()):
            say(f"you have a server at {', '.join(others)}: try `dragoman open {others[0]}`")
        raise
    if prints:
        out(page)
    elif webbrowser.open(_without_token(server, page)):
        say(f"opened {page.partition(_TOKEN)[0]}")
    else:
        say("there is no browser here: open this address in one")
        out(page)


def _without_token(server: str, page: str) -> str:
    """Return an address that leads to the page, and that other users of this machine may see."""
    from dragoman.cli.consoles import ConsoleFiles

    if _TOKEN not in page:
        return page
    try:
        return ConsoleFiles().redirect(server, page)
    except OSError as error:
        raise DragomanError(
            f"{error.filename}: {error.strerror}: no page can be written that leads to the console: open the address "
            "that `dragoman open --print` prints"
        ) from None


def find_console(server: str) -> str:
    """Return the address of the console of a server; with its token, where this user has started it.

    Raises:
        CannotConnect: nobody answers there.
        DragomanError: it has no console.
    """
    from dragoman.cli.consoles import ConsoleFiles
    from dragoman.cli.printing import say

    running = ConsoleFiles().find(server)
    try:
        has_console = asyncio.run(_has_console(f"{server}/"))
    except CannotConnect as error:
        # The browser may trust a certificate that is unknown here.
        if error.reason != "TLS":
            raise
        has_console = True
    if not has_console:
        raise DragomanError(f"{server} has no console: it is turned off there, or it is no server of Dragoman")
    if running is not None:
        return running.url
    say("its token is not known here: the server printed it at its start, if it has one")
    return f"{server}/"


async def _has_console(url: str) -> bool:
    from dragoman.net.exchange import HttpRequest
    from dragoman.net.sockets import SocketClient

    client = SocketClient()
    try:
        request = HttpRequest("GET", url, {"accept": "text/html"}, connect_timeout=_TIMEOUT, read_timeout=_TIMEOUT)
        response = await client.send(request)
        await response.read()
        policy = response.headers.get("content-security-policy", "")
        return response.status == 200 and "text/html" in response.headers.get("content-type", "") and bool(policy)
    finally:
        await client.close()
