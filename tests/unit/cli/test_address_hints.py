"""What a command says to try when an address cannot be called: another scheme, or to start an agent there."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import pytest
import trustme

from dragoman import Agent, Client
from dragoman.errors import CannotConnect, ConfigError
from dragoman.testing import served

from .conftest import Typed


def echo() -> Agent:
    agent = Agent("echo")

    @agent.skill
    def say(text: str) -> str:
        return text

    return agent


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(path))
    return str(path)


def listening(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """Listen on a port and handle each connection; a connection that breaks is over."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with suppress(OSError), closing(connection):
                    answer(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(30)
    assert not thread.is_alive()


@pytest.fixture
def tls_port(pem: str) -> Iterator[int]:
    """A port that speaks TLS, and closes what does not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    yield from listening(lambda connection: context.wrap_socket(connection, server_side=True).close())


@pytest.fixture
def alerting_port() -> Iterator[int]:
    """A port that answers what is not TLS with an alert of TLS, as many servers do."""

    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"\x15\x03\x01\x00\x02\x02\x46")

    yield from listening(answer)


def test_https_to_a_plain_port_says_that_it_speaks_http(typed: Typed) -> None:
    with served(echo()) as url:
        ended = typed("send", url.replace("http:", "https:"), "hi")
        assert ended.code == 3
        assert ended.err.endswith(f": this server speaks http: try {url}\n")


def test_http_to_a_port_with_tls_says_to_try_https(typed: Typed, tls_port: int) -> None:
    ended = typed("send", f"http://127.0.0.1:{tls_port}", "hi")
    assert ended.code == 3
    assert ended.err.endswith(f"This server speaks https: try https://127.0.0.1:{tls_port}\n")


async def test_an_alert_of_tls_is_read_as_what_it_is(alerting_port: int) -> None:
    async with Client(f"http://127.0.0.1:{alerting_port}", retries=0) as client:
        with pytest.raises(CannotConnect, match=f"speaks https: try https://127.0.0.1:{alerting_port}"):
            await client.card()


def test_grpc_says_the_same(typed: Typed, pem: str) -> None:
    def place(url: str) -> str:
        card = json.loads(typed("card", url, "--json").out)
        return next(each["url"] for each in card["supportedInterfaces"] if each["protocolBinding"] == "GRPC")

    with served(echo(), grpc="127.0.0.1:0") as url:
        plain = place(url)
        ended = typed("send", f"grpcs://{plain}", "hi")
        assert ended.err.endswith(f": try grpc://{plain}\n")
    with served(echo(), grpc="127.0.0.1:0", tls_cert=pem, tls_key=pem) as url:
        secure = place(url)
        ended = typed("send", f"grpc://{secure}", "hi")
        assert ended.err.endswith(f": try grpcs://{secure}\n")


def test_a_refused_connection_says_how_to_start_an_agent(typed: Typed) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    ended = typed("send", f"127.0.0.1:{port}", "hi")
    assert (ended.code, ended.out) == (3, "")
    assert ended.err.startswith(f"dragoman: nobody answers at http://127.0.0.1:{port}")
    assert ended.err.count("\n") == 1
    assert ended.err.endswith(f"If your agent belongs there, start it with `dragoman serve --port {port}`\n")


# -- words that are nearly right ---------------------------------------------------------------------------------------


def test_an_unknown_keyword_of_an_agent_is_answered_with_the_nearest() -> None:
    wrong = "description".replace("ti", "t")
    with pytest.raises(ConfigError, match=rf"^Agent\(\) has no keyword `{wrong}`; did you mean `description`\?$"):
        Agent("x", **{wrong: "x"})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^Agent\(\) has no keyword `zzz`; there are description, version, "):
        Agent("x", **{"zzz": 1})  # type: ignore[arg-type]


@pytest.mark.parametrize("verb", ["card", "get", "chat"])
def test_an_option_that_is_not_similar_is_not_suggested(typed: Typed, verb: str) -> None:
    ended = typed(verb, "--file", "x")
    assert ended.code == 2
    assert ended.err.endswith("Error: No such option '--file'.\n")
    assert "Did you mean '--json'?" in typed(verb, "--jsn").err
