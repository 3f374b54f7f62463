"""The options that all calling verbs share: whom a name means, credentials, headers, TLS, and `--wire`."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvicorn

from dragoman import Agent, User
from dragoman.cli.remote.wire import WireLog
from dragoman.model.error import Unauthenticated
from dragoman.testing import served

from .conftest import Run

TOKEN = "s3cr3t-t0ken"


def echo(**card: Any) -> Agent:
    agent = Agent("echo", description="Echoes", card=card)

    @agent.skill
    def say(text: str) -> str:
        return text

    return agent


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(echo()) as url:
        yield url


async def who(request: Any) -> User | None:
    if request.headers.get("authorization") == f"Bearer {TOKEN}" or request.headers.get("x-zone") == TOKEN:
        return User("me")
    raise Unauthenticated


def bearer_card() -> dict[str, Any]:
    return {
        "securitySchemes": {"token": {"httpAuthSecurityScheme": {"scheme": "bearer"}}},
        "securityRequirements": [{"schemes": {"token": {"list": []}}}],
    }


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    with served(echo(**bearer_card()), auth=who) as url:
        yield url


def remotes(folder: Path, text: str) -> None:
    (folder / "dragoman.toml").write_text(text)


# -- names -----------------------------------------------------------------------------------------------------------


def test_a_name_under_remotes_stands_for_its_url(url: str, run: Run, tmp_path: Path):
    remotes(tmp_path, f'[remotes.echo]\nurl = "{url}"\nprotocol = "0.3"\n')
    done = run("send", "echo", "hi", "--wire")
    assert (done.returncode, done.stdout) == (0, "hi\n")
    assert '"method":"message/stream"' in done.stderr


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("calcx", "there is no remote `calcx`; did you mean `calc`?"),
        (
            "zzz",
            "there is no remote `zzz`; there are calc, trip: write an address, as in localhost:8080, or name it in",
        ),
        ("localhost", "`localhost` is not the address of an agent: add a port, as in localhost:8080, or write http://"),
        ("ftp://x", "ftp://x cannot be called: an agent's address begins with http://, https://, grpc:// or grpcs://"),
    ],
)
def test_an_argument_that_is_neither_a_url_nor_a_name_is_an_error_with_what_to_type(
    run: Run, tmp_path: Path, typed: str, says: str
):
    remotes(tmp_path, '[remotes.calc]\nurl = "http://127.0.0.1:1"\n[remotes.trip]\nurl = "http://127.0.0.1:1"\n')
    done = run("get", typed, "some-task")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"dragoman: {says}")


def test_the_shell_completes_verbs_options_and_the_names_of_remotes(run: Run, tmp_path: Path):
    remotes(tmp_path, '[remotes.calc]\nurl = "http://127.0.0.1:1"\n[remotes.trip]\nurl = "http://127.0.0.1:1"\n')

    def completed(line: str, word: int) -> list[str]:
        done = run(_DRAGOMAN_COMPLETE="bash_complete", COMP_WORDS=line, COMP_CWORD=str(word))
        return [each.partition(",")[2] for each in done.stdout.splitlines()]

    assert completed("dragoman ca", 1) == ["call", "cancel", "card"]
    assert completed("dragoman send ", 2) == ["calc", "trip"]
    assert completed("dragoman watch t", 2) == ["trip"]
    assert "--no-wait" in completed("dragoman send --n", 2)
    assert run(_DRAGOMAN_COMPLETE="bash_source").stdout.strip()


# -- credentials and headers -----------------------------------------------------------------------------------------


def test_an_agent_with_basic_authentication_gets_a_name_and_a_password(run: Run, tmp_path: Path):
    with served(echo(), auth="basic", store=f"sqlite:///{tmp_path}/tasks.db") as url:
        refused = run("send", url, "hi")
    assert refused.returncode == 5
    assert "Put a token, or USER:PASSWORD for basic, into DRAGOMAN_TOKEN" in refused.stderr


def test_the_token_is_taken_from_the_environment(guarded: str, run: Run, tmp_path: Path):
    refused = run("send", guarded, "hi")
    assert (refused.returncode, refused.stdout) == (5, "")
    assert refused.stderr.endswith("Put a token into DRAGOMAN_TOKEN, or name its variable with --token-env\n")
    assert run("send", guarded, "hi", DRAGOMAN_TOKEN=TOKEN).stdout == "hi\n"
    assert run("send", guarded, "hi", "--token-env", "MINE", MINE=TOKEN, DRAGOMAN_TOKEN="other").stdout == "hi\n"
    remotes(tmp_path, f'[remotes.echo]\nurl = "{guarded}"\ntoken_env = "MINE"\n')
    assert run("send", "echo", "hi", MINE=TOKEN).stdout == "hi\n"


def test_a_token_variable_that_is_not_set_is_an_error(guarded: str, run: Run, tmp_path: Path):
    done = run("send", guarded, "hi", "--token-env", "MINE")
    assert done.returncode == 2
    assert done.stderr == "dragoman: --token-env names the variable MINE, which is not set: run `export MINE=…`\n"
    remotes(tmp_path, f'[remotes.echo]\nurl = "{guarded}"\ntoken_env = "MINE"\n')
    assert run("send", "echo", "hi").stderr.startswith("dragoman: the remote `echo` names the variable MINE")


def test_a_header_goes_along(guarded: str, run: Run):
    assert run("send", guarded, "hi", "-H", f"Authorization: Bearer {TOKEN}", "-H", "X-Team: blue").stdout == "hi\n"


@pytest.mark.parametrize("header", ["no colon", ": x", "a b: c"])
def test_a_malformed_header_is_refused(url: str, run: Run, header: str):
    done = run("send", url, "hi", "-H", header)
    assert (done.returncode, done.stderr) == (2, "dragoman: -H needs a header, as in -H 'X-Team: blue'\n")


# -- reaching --------------------------------------------------------------------------------------------------------


def test_an_error_of_a2a_is_4(url: str, run: Run):
    done = run("get", url, "no-such-task")
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == f"dragoman: Task not found. `dragoman tasks {url}` lists your tasks\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of an authority, for --ca, beside the certificate that it has issued."""
    folder, ca = tmp_path_factory.mktemp("authority"), trustme.CA()
    ca.cert_pem.write_to_path(str(folder / "ca.pem"))
    ca.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    return folder / "ca.pem"


@pytest.fixture(scope="module")
def https(authority: Path) -> Iterator[str]:
    """An agent behind a certificate that nobody has vouched for."""
    pem = authority.with_name("server.pem")
    ready = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            ready.set()

    app: Any = echo().app(store="memory:", drain=1)
    server = Server(
        uvicorn.Config(
            app, host="127.0.0.1", port=0, ssl_certfile=pem, ssl_keyfile=pem, ws="none", log_config=None,
            log_level="critical", timeout_graceful_shutdown=1, ssl_version=ssl.PROTOCOL_TLS_SERVER,
        )
    )  # fmt: skip
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert ready.wait(30)
    yield f"https://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(15)
    assert not thread.is_alive()


def test_an_untrusted_certificate_is_accepted_only_with_insecure(https: str, run: Run):
    refused = run("send", https, "hi")
    assert (refused.returncode, refused.stdout) == (3, "")
    assert "is not trusted" in refused.stderr
    assert refused.stderr.endswith("--insecure accepts any certificate\n")
    assert run("send", https, "hi", "--insecure").stdout == "hi\n"


def test_an_authority_of_ones_own_is_trusted_with_ca(https: str, authority: Path, run: Run, tmp_path: Path):
    ca = ("--ca", str(authority))
    assert run("send", https, "hi", *ca).stdout == "hi\n"
    assert "JSONRPC 1.0" in run("card", https, *ca).stdout
    doctor = run("doctor", https, *ca)
    assert doctor.returncode == 0
    assert "ok    tls " in doctor.stdout
    both = run("send", https, "hi", *ca, "--insecure")
    assert (both.returncode, both.stdout) == (2, "")
    assert "leave one of them out" in both.stderr
    missing = run("send", https, "hi", "--ca", "nothere.pem")
    assert (missing.returncode, missing.stderr) == (2, "dragoman: --ca nothere.pem: No such file or directory\n")
    (tmp_path / "empty.pem").write_text("")
    empty = run("send", https, "hi", "--ca", "empty.pem")
    assert (empty.returncode, empty.stderr) == (2, "dragoman: --ca empty.pem: no certificate in PEM format is in it\n")


def test_an_authority_of_ones_own_is_trusted_over_grpc(authority: Path, run: Run):
    ca, pem = ("--ca", str(authority)), str(authority.with_name("server.pem"))
    with served(echo(), grpc="127.0.0.1:0", tls_cert=pem, tls_key=pem) as url:
        card = json.loads(run("card", url, "--json").stdout)
        places = {each["protocolBinding"]: each["url"] for each in card["supportedInterfaces"]}
        refused = run("send", f"grpcs://{places['GRPC']}", "hi")
        assert (refused.returncode, refused.stdout) == (3, "")
        assert run("send", f"grpcs://{places['GRPC']}", "hi", *ca).stdout == "hi\n"


def test_the_doctor_reports_an_untrusted_certificate(https: str, run: Run):
    done = run("doctor", https, "--insecure")
    assert done.returncode == 0
    (line,) = [each for each in done.stdout.splitlines() if " tls " in each]
    assert line.startswith("warn  tls          the certificate is not trusted: ")
    assert "FAIL  tls " in run("doctor", https).stdout


# -- the wire --------------------------------------------------------------------------------------------------------


def test_every_exchange_is_shown_and_no_secret(guarded: str, run: Run):
    done = run("send", guarded, "hi there", "--wire", "-H", "X-Api-Key: another", DRAGOMAN_TOKEN=TOKEN)
    assert (done.returncode, done.stdout) == (0, "hi there\n")
    lines = done.stderr.splitlines()
    assert f"> GET {guarded}/.well-known/agent-card.json" in lines
    assert f"> POST {guarded}/a2a" in lines
    assert "> Authorization: Bearer ***" in lines
    assert "> X-Api-Key: ***" in lines
    assert "< HTTP 200" in lines
    assert any(line.startswith("< data: {") and "TASK_STATE_COMPLETED" in line for line in lines)
    assert TOKEN not in done.stderr
    assert "another" not in done.stderr


def test_exchanges_over_grpc_are_shown_as_json(run: Run):
    with served(echo(**bearer_card()), auth=who, grpc=0) as guarded:
        done = run("send", guarded, "hi there", "--transport", "grpc", "--wire", DRAGOMAN_TOKEN=TOKEN)
        refused = run("send", guarded, "hi there", "--transport", "grpc", "--wire", DRAGOMAN_TOKEN="wrong-token")
    assert (done.returncode, done.stdout) == (0, "hi there\n")
    lines = done.stderr.splitlines()
    assert any(line.endswith("/lf.a2a.v1.A2AService/SendStreamingMessage") for line in lines)
    assert "> Authorization: Bearer ***" in lines
    assert any(line.startswith('> {"message":{"messageId":"') for line in lines)
    assert "< first-event-id: 1" in lines
    assert any(line.startswith('< {"statusUpdate":') and "TASK_STATE_COMPLETED" in line for line in lines)
    assert TOKEN not in done.stderr
    assert refused.returncode != 0
    assert any(line.startswith("< UNAUTHENTICATED: ") for line in refused.stderr.splitlines())
    assert "wrong-token" not in refused.stderr


def test_wire_shows_a_failed_connection(run: Run):
    done = run("send", "http://127.0.0.1:1", "hi", "--wire")
    assert done.returncode == 3
    assert "! nobody answers at http://127.0.0.1:1" in done.stderr


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://me:pw@h/x?a=1", "http://***@h/x?a=1"),
        ("http://h/x?api_key=1&page=2", "http://h/x?api_key=***&page=2"),
        ("http://h/x?access_token=1&pageToken=2", "http://h/x?access_token=***&pageToken=2"),
        (f"http://h/x?zone={TOKEN}", "http://h/x?zone=***"),
        ("http://h/x?q=a%2Fsecret%20b", "http://h/x?q=***"),
        ("http://h/x?zone=abc&author=x&key=", "http://h/x?zone=***&author=x&key=***"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str):
    assert WireLog([TOKEN, "a/secret b", "abc"]).masked_url(url) == shown


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("authorization", "Bearer abc", "Bearer ***"),
        ("Authorization", "Basic YTpi", "Basic ***"),
        ("Authorization", "abc", "***"),
        ("Proxy-Authorization", "Basic YTpi", "Basic ***"),
        ("Cookie", "a=b; c=d", "***"),
        ("Set-Cookie", "a=b", "***"),
        ("X-API-Key", "abc", "***"),
        ("X-A2A-Notification-Token", "abc", "***"),
        ("X-Zone", TOKEN, "***"),
        ("WWW-Authenticate", 'Bearer realm="x"', 'Bearer realm="x"'),
        ("Content-Type", "application/json", "application/json"),
        ("A2A-Version", "1.0", "1.0"),
    ],
)
def test_a_header_is_shown_without_its_secrets(name: str, value: str, shown: str):
    assert WireLog([TOKEN]).masked_header(name, value) == shown


def test_a_body_is_shown_without_its_secrets():
    text = '{"token":"a\\"b","credentials" : "c","pageToken":"kept","text":"my s3cr3t-t0ken"}'
    assert (
        WireLog([TOKEN]).masked_text(text) == '{"token":"***","credentials" : "***","pageToken":"kept","text":"my ***"}'
    )


class Chunked:
    """An answer in pieces."""

    status = 200
    headers = {"Content-Type": "text/event-stream"}  # noqa: RUF012 never changed

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces

    async def chunks(self) -> Any:
        for piece in self._pieces:
            yield piece

    async def read(self, limit: int = 0) -> bytes:
        return b"".join(self._pieces)

    async def close(self) -> None: ...


async def test_a_stream_is_shown_as_it_passes_and_a_secret_cut_in_two_is_masked(capsys: pytest.CaptureFixture[str]):
    from dragoman.net.exchange import HttpRequest

    async def answer(_: HttpRequest) -> Any:
        return Chunked(b"data: one\r\n\r\ndata: s3cr3t-", "t0ken ü".encode(), b"\n\ndata: last")

    response = await WireLog([TOKEN])(HttpRequest("GET", "http://h/"), answer)
    capsys.readouterr()
    chunks = response.chunks()
    assert (await anext(chunks)).startswith(b"data: one")
    assert capsys.readouterr().err == "<\n< data: one\n<\n"
    await anext(chunks)
    assert capsys.readouterr().err == ""
    await anext(chunks)
    assert capsys.readouterr().err == "< data: *** ü\n<\n"
    with pytest.raises(StopAsyncIteration):
        await anext(chunks)
    assert capsys.readouterr().err == "< data: last\n\n"


# -- a connection that is lost ---------------------------------------------------------------------------------------


def test_losing_and_restoring_the_connection_is_reported_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    import logging

    from dragoman.cli.remote.session import CommandSession, parse_options

    shared = dict.fromkeys(["as_json", "wire", "protocol", "transport", "token_env", "timeout", "insecure"])
    more = {"headers": (), "reconnect": None, "limits_remote_bytes": None}
    options = parse_options("http://127.0.0.1:1", {**shared, **more})
    assert options.reconnect == 60
    logger = logging.getLogger("dragoman.client.connection")
    with CommandSession(options):
        logger.warning("connection lost; retrying for %g s …", 60)
        logger.info("reconnected")
        logging.getLogger("dragoman.client").warning("an event is left out")
    logger.info("nobody reads this")
    lines = "connection lost; retrying for 60 s …\nreconnected\nwarning: an event is left out\n"
    assert capfd.readouterr() == ("", lines)


def test_a_lost_connection_need_not_be_tried_again(typed: Any) -> None:
    from dragoman import Agent
    from dragoman.testing import faults, served

    agent = Agent("test")

    @agent.skill
    async def story(topic: str) -> Any:
        for word in topic.split():
            yield word + " "

    with served(faults(agent, cut_after=2)) as url:
        assert typed("send", url, "once upon a time").out == "once upon a time \n"
        ended = typed("send", url, "--reconnect", "0", "once upon a time")
        assert (ended.code, ended.out) == (3, "")
        assert "dragoman watch" in ended.err
    assert "--reconnect" in typed("send", "http://127.0.0.1:1", "--reconnect", "-1", "x").err
