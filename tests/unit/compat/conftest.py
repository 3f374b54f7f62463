"""Recording servers on real sockets, and a certificate that nobody has signed but itself."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trustme
from aiohttp import web


class Seen(NamedTuple):
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    peer: tuple[str, int]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Answer = Callable[[Seen], Any]


class Stub:
    """A server that writes down every request, and answers what `answer` gives or waits for.

    That is a body, or a tuple of body, status and perhaps headers. A body that is not bytes is written as JSON.
    """

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.seen: list[Seen] = []
        self.url = ""

    @property
    def paths(self) -> list[str]:
        return [f"{one.method} {one.path}" for one in self.seen]

    async def handle(self, request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        peer = request.transport.get_extra_info("peername")
        headers = {name.lower(): value for name, value in request.headers.items()}
        seen = Seen(request.method, request.raw_path, headers, await request.read(), peer)
        self.seen.append(seen)
        given = self.answer(seen)
        if isinstance(given, Awaitable):
            given = await given
        body, status, headers = (*given, None)[:3] if isinstance(given, tuple) else (given, 200, None)
        written = body if isinstance(body, bytes) else json.dumps(body).encode()
        return web.Response(body=written, status=status, headers=headers)


@pytest.fixture
async def stub() -> AsyncIterator[Callable[..., Awaitable[Stub]]]:
    """Open a server: `await stub(answer)`, over TLS with `certificate=`."""
    async with AsyncExitStack() as stack:

        async def opened(answer: Answer, certificate: Path | None = None) -> Stub:
            made = Stub(answer)
            runner = web.ServerRunner(web.Server(made.handle, access_log=None), shutdown_timeout=0.1)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            context = None
            if certificate is not None:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(certificate)
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
            scheme = "http" if certificate is None else "https"
            made.url = f"{scheme}://127.0.0.1:{runner.addresses[0][1]}"
            return made

        yield opened


@pytest.fixture
def refusing() -> Iterator[str]:
    """An address where nobody takes connections, and nobody will while the test runs."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a key and the certificate it has signed itself."""
    authority = trustme.CA()
    path = tmp_path_factory.mktemp("tls") / "self-signed.pem"
    path.write_bytes(authority.private_key_pem.bytes() + authority.cert_pem.bytes())
    return path
