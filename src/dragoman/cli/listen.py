"""`dragoman listen`: a webhook receiver for development."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click

from dragoman.cli.printing import out, say
from dragoman.dialects.table import VERSION_HEADER_RECEIVED
from dragoman.model.error import CannotConnect, ConfigError, DragomanError

if TYPE_CHECKING:
    from dragoman.client.event import Event

_MAX_BODY = 64 * 1024 * 1024
_JWKS_PATH = "/.well-known/jwks.json"
_JWKS_HINT = f"Name its keys: --jwks http://HOST:PORT{_JWKS_PATH}"
_PRINTED_HEADERS = ("idempotency-key", "content-type", VERSION_HEADER_RECEIVED, "user-agent")
_WIDTH = 60


class Finding(NamedTuple):
    """The result of verifying a webhook. `verified` is None when it could not be checked; `reason` is printed."""

    verified: bool | None
    reason: str


@click.command("listen", short_help="Receive, check and print webhooks.")
@click.option(
    "--port",
    metavar="NUMBER",
    type=click.IntRange(0, 65535),
    default=9000,
    show_default=True,
    help="Port to listen on; 0 picks a free one.",
)
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--token", metavar="TEXT", help="Refuse webhooks without this token.")
@click.option(
    "--jwks",
    metavar="URL",
    help="URL of the sender's public keys.  [default: the URL in the signature]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@click.option("--count", metavar="NUMBER", type=click.IntRange(1), help="Stop after this many webhooks.")
def command(port: int, host: str, token: str | None, jwks: str | None, as_json: bool, count: int | None) -> None:
    """Receive webhooks, check their signatures, and print one line for each.

    The agent can run on any port, but must be allowed to call this address. In three terminals:

    \b
      dragoman listen
      dragoman serve agent.py --push-allow 127.0.0.1
      dragoman send "hello" --push http://127.0.0.1:9000/

    The response is 401 for a webhook with an invalid signature or token, and 204 for any other.
    """
    try:
        server = _Listener((host, port), _Verifier(token, jwks), prints_json=as_json, count=count)
    except OSError as error:
        option = "--host" if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL else "--port"
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}; use another {option}") from None
    with server:
        place = f"[{host}]" if ":" in host else host
        url = f"http://{place}:{server.server_port}/"
        say(f"listening on {url}")
        say(f'  try     dragoman send "hello" --push {url}')
        server.serve_forever(0.05)
    if server.output_error is not None:
        raise server.output_error


class _Verifier:
    def __init__(self, token: str | None, jwks: str | None) -> None:
        self._token = token
        self._jwks = jwks

    def verify(self, headers: dict[str, str], body: bytes) -> Finding:
        """Verify the token and the signature of a webhook."""
        from dragoman.client.webhook import signature_of
        from dragoman.push import BadSignature, verify

        try:
            if self._token is not None:
                verify(headers, body, token=self._token)
            if signature_of(headers) is None:
                if self._jwks is not None:
                    return Finding(False, "not signed")
                return Finding(None if self._token is None else True, "token holds" if self._token else "not signed")
            jwks_url = self._jwks_url(headers)
            verify(headers, body, jwks_url=jwks_url)
        except BadSignature as error:
            if error.reason == "UNKNOWN_KEY" and self._jwks is None:
                return Finding(None, f"not checked: the sender's key is not at this address. {_JWKS_HINT}")
            return Finding(False, str(error))
        except CannotConnect as error:
            return Finding(None, f"not checked: {error}" if self._jwks else f"not checked: {error}. {_JWKS_HINT}")
        except DragomanError as error:
            return Finding(None, str(error))
        return Finding(True, "signature and token hold" if self._token is not None else "signature holds")

    def _jwks_url(self, headers: dict[str, str]) -> str:
        """Return the URL of the sender's keys. An issuer's own URL is used only if it is public or local.

        A sender that does not know its own URL, an app behind an ASGI server, is taken for the default agent.
        """
        if self._jwks is not None:
            return self._jwks
        from dragoman.cli.remote.address import default_target
        from dragoman.client.webhook import issuer_of
        from dragoman.net.guard import AddressGuard

        issuer = issuer_of(headers)
        if not issuer.startswith(("http://", "https://")):
            return f"{default_target().url.rstrip('/')}{_JWKS_PATH}"
        url = f"{issuer.rstrip('/')}{_JWKS_PATH}"
        AddressGuard(["127.0.0.0/8", "::1", "localhost"], setting="--jwks").check_url(url)
        return url


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = os.name == "posix"  # on other systems two programs could share the port

    def __init__(self, address: tuple[str, int], verifier: _Verifier, *, prints_json: bool, count: int | None) -> None:
        self.verifier = verifier
        self.prints_json = prints_json
        self.remaining = count
        self.output_error: OSError | None = None
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self.printing = threading.Lock()
        super().__init__(address, _WebhookHandler)


class _WebhookHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "dragoman"
    sys_version = ""
    timeout = 90

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _MAX_BODY:
            self._answer(411 if not length else 413)
            self.close_connection = True
            return
        body = self.rfile.read(int(length))
        if len(body) < int(length):  # the sender disconnected in the middle
            self.close_connection = True
            return
        listener = cast("_Listener", self.server)
        headers = {name.lower(): value for name, value in self.headers.items()}
        verdict = listener.verifier.verify(headers, body)
        pieces = (
            [_format_json(headers, body, verdict)] if listener.prints_json else _format_line(headers, body, verdict)
        )
        with listener.printing:
            if listener.remaining == 0:
                self.close_connection = True
                return
            try:
                out(*pieces)
            except OSError as error:  # nobody reads the output any more, or the disk is full
                listener.output_error, listener.remaining = error, 0
                self.close_connection = True
                listener.shutdown()
                return
            self._answer(401 if verdict.verified is False else 204)
            if listener.remaining is None:
                return
            listener.remaining -= 1
        if listener.remaining == 0:
            self.close_connection = True
            listener.shutdown()

    def do_GET(self) -> None:
        """Answer health checks and validation requests."""
        self._answer(204)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: each webhook has its own line already."""


def _format_line(headers: dict[str, str], body: bytes, verdict: Finding) -> list[str]:
    from dragoman.cli.printing import colored, field, shorten, styled_state

    color = {True: "green", False: "red", None: "yellow"}[verdict.verified]
    verdict_text = colored(f"[{verdict.reason}]", color)
    event = _parse_event(headers, body)
    if event is None:
        return [shorten(body.decode(errors="replace"), _WIDTH), "  ", verdict_text]
    task = event.task
    about = "artifact" if event.kind == "artifact" else styled_state(event.state)
    message = task.status.message.text if task is not None and task.status.message is not None else ""
    text = shorten(event.text or message, _WIDTH)
    pieces = [each for each in (field(task.id if task else "-"), about, text, verdict_text) if each]
    return [each for piece in pieces for each in ("  ", piece)][1:]


def _format_json(headers: dict[str, str], body: bytes, verdict: Finding) -> str:
    try:
        content: Any = json.loads(body)
    except ValueError:
        content = body.decode(errors="replace")
    # Only these headers are printed: others may hold secrets.
    printed_headers = {name: headers[name] for name in _PRINTED_HEADERS if name in headers}
    return json.dumps(
        {"verified": verdict.verified, "why": verdict.reason, "headers": printed_headers, "body": content}
    )


def _parse_event(headers: dict[str, str], body: bytes) -> Event | None:
    from dragoman.client.webhook import parse_event

    try:
        return parse_event(body, headers.get("idempotency-key", ""))
    except DragomanError:
        return None
