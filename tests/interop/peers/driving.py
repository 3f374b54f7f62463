"""The frame of a driver: cases with names, each reported as one JSON line.

A driver drives an agent that has the skills of tests/interop/agents.py through a foreign client, in that client's own
environment, so this file imports nothing but the standard library.

    {"case": "send", "ok": true, "detail": "task … completed"}

A detail that begins with one of the words below says that nothing could be tried, and why.
"""

import argparse
import asyncio
import json
import queue
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CASE_TIMEOUT = 20.0
HTTP_TIMEOUT = 60.0
NOT_IN_0_3 = "not in 0.3"
UNSUPPORTED = "not supported by the peer: "  # the client has no such method
PEER_AT_FAULT = "peer at fault: "  # and the case has shown it

Case = Callable[[Any], Awaitable[str | None]]
Opened = AbstractAsyncContextManager[tuple[Any, str]]
CASES: dict[str, Case] = {}


class CaseFailed(Exception):
    """The agent's answer is not what the case asks for."""


class PeerAtFault(Exception):
    """The agent answered well, the case has seen that, and the client could not use it."""


def case(function: Case) -> Case:
    """A case, under the name of its function. It is given the peer, and tells what it saw."""
    CASES[function.__name__] = function
    return function


def expect(condition: object, complaint: str) -> None:
    """Fail the case unless the condition holds.

    Raises:
        CaseFailed: it does not.
    """
    if not condition:
        raise CaseFailed(complaint)


@contextmanager
def raising(*wanted: type[Exception], called: str = "") -> Iterator[None]:
    """The block must raise one of these.

    Raises:
        CaseFailed: it raised another, or none.
    """
    names = called or " or ".join(each.__name__ for each in wanted)
    try:
        yield
    except wanted:
        return
    except Exception as error:
        raise CaseFailed(f"raised {error!r}, wanted {names}") from error
    raise CaseFailed(f"nothing was raised, wanted {names}")


class Receiver:
    """Where webhooks arrive: `url` is where to post them, `body` waits for the next."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.received: queue.Queue[bytes] = queue.Queue()

    async def body(self) -> bytes:
        return await asyncio.to_thread(self.received.get, timeout=CASE_TIMEOUT / 2)


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver of webhooks on this machine, for as long as the block lasts."""
    receiver = Receiver("")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.received.put(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing: stdout is for cases."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_port}/"
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield receiver
        finally:
            server.shutdown()


def report(name: str, *, ok: bool, detail: str) -> None:
    """Say how a case went."""
    print(json.dumps({"case": name, "ok": ok, "detail": detail}), flush=True)


async def passes(name: str, peer: Any) -> bool:
    """Play a case and say how it went."""
    try:
        async with asyncio.timeout(CASE_TIMEOUT):
            detail = await CASES[name](peer) or ""
    except CaseFailed as failure:
        report(name, ok=False, detail=str(failure))
    except PeerAtFault as fault:
        report(name, ok=True, detail=f"{PEER_AT_FAULT}{fault}")
        return True
    except TimeoutError:
        report(name, ok=False, detail=f"no end after {CASE_TIMEOUT:g} s")
    except Exception as error:  # noqa: BLE001 - whatever the SDK trips over is a finding of this case
        report(name, ok=False, detail=repr(error))
    else:
        report(name, ok=True, detail=detail)
        return True
    return False


async def play(opened: Opened, names: list[str]) -> bool:
    """Open the peer, which reads its card, and play the cases."""
    try:
        peer, detail = await opened.__aenter__()
    except Exception as error:  # noqa: BLE001 - a card it cannot use is a finding like any other
        report("card", ok=False, detail=repr(error))
        return False
    try:
        report("card", ok=True, detail=detail)
        return all([await passes(name, peer) for name in names])
    finally:
        await opened.__aexit__(None, None, None)


def drive(open_peer: Callable[[str, str, str], Opened], transports: list[str], protocols: list[str]) -> int:
    """Read the command line (URL --transport T --protocol P [--only CASE]) and play. Exit code 1: a case failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--transport", choices=transports, required=True)
    parser.add_argument("--protocol", choices=protocols, required=True)
    parser.add_argument("--only", choices=list(CASES), metavar="CASE")
    options = parser.parse_args()
    names = [options.only] if options.only else list(CASES)
    opened = open_peer(options.url, options.transport, options.protocol)
    return 0 if asyncio.run(play(opened, names)) else 1
