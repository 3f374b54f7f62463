"""What a page of the console must never do, and that it does not: every test of a page ends with `Watch.verdict`.

Nothing leaves the origin of the server, no rule of the Content-Security-Policy is broken, no error is left in the
console of the browser, no dialog opens, and no script in an agent's words runs.
"""

from __future__ import annotations

import re
import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit

from playwright.async_api import BrowserContext, ConsoleMessage, Dialog, Page, Request, WebError, WebSocket

# What hostile texts call when they are carried out: `pwned(1)`. The page has no such function but this.
TRAP = "pwned"

# Runs before the page's own scripts, in every frame. A rule that is broken is reported at once, not by polling.
_WATCHER = f"""
(() => {{
  const report = window.__report;
  addEventListener("securitypolicyviolation", ({{ effectiveDirective, blockedURI, sample, sourceFile }}) =>
    report(`CSP: ${{effectiveDirective}} blocked ${{blockedURI}} ${{sample}} at ${{sourceFile}}`));
  Object.defineProperty(window, "{TRAP}", {{ value: () => report("a script of an agent ran") }});
  window.__longTasks = [];
  new PerformanceObserver((list) => {{
    for (const entry of list.getEntries()) window.__longTasks.push(entry.duration);
  }}).observe({{ type: "longtask", buffered: true }});
}})();
"""


def origin_of(url: str) -> str:
    """The origin of an address; for `blob:` addresses, of what has made them."""
    parts = urlsplit(url.removeprefix("blob:"))
    return f"{parts.scheme}://{parts.netloc}"


class Outside:
    """Stands for the hosts of the world: the browser resolves `*.example` to it, and it writes down who connects.

    It sees also what is no request that a page reports: prefetches, what a worker or a download fetches.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._connections: list[str] = []
        self._thread = threading.Thread(target=self._listen, name="outside", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                connection, _ = self._listener.accept()
                with connection:
                    connection.settimeout(0.2)
                    try:
                        head = connection.recv(2000)
                    except OSError:
                        head = b""
                    self._connections.append(_describe(head))

    def taken(self) -> list[str]:
        """What has connected since the last call."""
        connections, self._connections = self._connections, []
        return connections

    def close(self) -> None:
        """Stop."""
        with suppress(OSError):  # wakes the thread, which `close` alone does not everywhere
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)


def _describe(head: bytes) -> str:
    if head.startswith(b"\x16"):
        names = re.findall(rb"[a-z0-9-]+(?:\.[a-z0-9-]+)+", head)
        return f"TLS to {b' '.join(names).decode()}"
    lines = head.decode("latin-1").split("\r\n")
    hosts = [line for line in lines if line.lower().startswith("host:")]
    return " ".join([lines[0] or "a connection without a request", *hosts])


class Watch:
    """What the pages of one test do that they must not. `allow` what a test means to happen."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._own: set[str] = set()
        self._allowed: list[re.Pattern[str]] = []
        self.problems: list[str] = []
        self.requests: list[str] = []

    def allow(self, pattern: str) -> None:
        """Do not fail because of problems that this pattern is found in."""
        self._allowed.append(re.compile(pattern))

    async def add(self, context: BrowserContext, *origins: str) -> None:
        """Watch all pages of a context, whose requests may go to these origins."""
        self._own.update(origins)
        context.on("request", self._see_request)
        context.on("console", self._see_console)
        context.on("weberror", self._see_error)
        context.on("dialog", self._see_dialog)
        context.on("page", self._see_page)
        await context.expose_binding("__report", lambda _source, problem: self.problems.append(str(problem)))
        await context.add_init_script(_WATCHER)

    def verdict(self) -> None:
        """Fail the test if a page has done something that it must not.

        Raises:
            AssertionError: it has.
        """
        if problems := self.seen():
            raise AssertionError("the page must not do this:\n" + "\n".join(problems))

    def seen(self) -> list[str]:
        """Return what the pages have done so far that they must not."""
        self.problems += [f"outside: {connection}" for connection in self._outside.taken()]
        problems = [each for each in self.problems if not any(allowed.search(each) for allowed in self._allowed)]
        return list(dict.fromkeys(problems))

    def _see_request(self, request: Request) -> None:
        self.requests.append(request.url)
        self._check_address("request", request.url)

    def _check_address(self, what: str, url: str) -> None:
        if not url.startswith(("data:", "about:")) and origin_of(url) not in self._own:
            self.problems.append(f"{what}: {url[:300]}")

    def _see_page(self, page: Page) -> None:
        page.on("websocket", self._see_socket)

    def _see_socket(self, socket: WebSocket) -> None:
        self.problems.append(f"websocket: {socket.url}")

    def _see_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            place = message.location
            self.problems.append(f"console {message.type}: {message.text[:1000]} ({place.get('url', '')[:300]})")

    def _see_error(self, error: WebError) -> None:
        self.problems.append(f"page error: {str(error.error)[:2000]}")

    async def _see_dialog(self, dialog: Dialog) -> None:
        self.problems.append(f"dialog: {dialog.type} {dialog.message[:300]}")
        await dialog.dismiss()
