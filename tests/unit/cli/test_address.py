"""Which agent a command line means: addresses, names, and the default."""

from __future__ import annotations

import shlex
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from dragoman import Agent, Context
from dragoman.cli.remote.address import DEFAULT_URL, default_target, is_address, resolve_target
from dragoman.cli.remote.session import CommandSession, parse_options
from dragoman.model.error import ConfigError
from dragoman.testing import served

from .conftest import Typed


def echo() -> Agent:
    agent = Agent("echo", description="Echoes")

    @agent.skill(default=True)
    async def say(ctx: Context) -> AsyncIterator[str]:
        yield ctx.text

    @agent.skill
    def add(a: int, b: int) -> int:
        return a + b

    return agent


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(echo()) as url:
        yield url


@pytest.fixture
def place(url: str) -> str:
    """The host and port of the agent."""
    return url.removeprefix("http://")


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def remotes(folder: Path, **urls: str) -> None:
    (folder / "dragoman.toml").write_text("".join(f'[remotes.{name}]\nurl = "{url}"\n' for name, url in urls.items()))


# -- what an address is ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("typed")
@pytest.mark.parametrize(
    ("word", "url"),
    [
        ("http://h", "http://h"),
        ("https://h/x?y=1", "https://h/x?y=1"),
        ("localhost:8080", "http://localhost:8080"),
        (":8080", "http://127.0.0.1:8080"),
        ("127.0.0.1:8080/agents/trip", "http://127.0.0.1:8080/agents/trip"),
        ("example.com:443", "https://example.com:443"),
        ("example.com:443/path", "https://example.com:443/path"),
        ("my_agent:80", "http://my_agent:80"),
        ("[::1]:8080", "http://[::1]:8080"),
        ("calc", "http://calc.example"),
    ],
)
def test_a_scheme_or_a_port_or_a_name_makes_an_address(tmp_path: Path, word: str, url: str):
    remotes(tmp_path, calc="http://calc.example")
    assert is_address(word)
    assert resolve_target(word).url == url


@pytest.mark.usefixtures("typed")
@pytest.mark.parametrize(
    "word",
    [
        "hello",
        "",
        "localhost",
        "example.com",
        "12:30",
        "3:4",
        ":3",
        ":00",
        ":99999",
        ": 8080",
        "note:",
        "a:b",
        "a:0",
        "a:99999",
        "calc is",
        "x/y:80",
        "http://h is down",
        "localhost:8080 is down",
        "http://",
        "me@h:80",
    ],
)
def test_other_words_are_text(tmp_path: Path, word: str):
    remotes(tmp_path, calc="http://calc.example")
    assert not is_address(word)


# -- send ------------------------------------------------------------------------------------------------------------


def test_words_need_neither_an_address_nor_quotes(url: str, typed: Typed, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DRAGOMAN_AGENT", url)
    assert typed("send", "hello", "there") == (0, "hello there\n", "")
    assert typed("send", "hello there").out == "hello there\n"
    assert typed("send", "--protocol", "0.3", "hello", "--transport", "rest", "there").out == "hello there\n"
    assert typed("send", "--", "-5", "degrees").out == "-5 degrees\n"


def test_the_first_word_may_be_the_address(url: str, place: str, typed: Typed):
    assert typed("send", place, "hello", "there") == (0, "hello there\n", "")
    assert typed("send", "--json", url, "hello").code == 0
    assert typed("send", url, "localhost:1", "is", "down").out == "localhost:1 is down\n"


def test_a_text_with_blanks_that_begins_with_an_address_is_a_text(
    url: str, typed: Typed, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DRAGOMAN_AGENT", url)
    assert typed("send", "http://127.0.0.1:1 is down").out == "http://127.0.0.1:1 is down\n"


def test_a_dash_reads_stdin_with_and_without_an_address(url: str, typed: Typed, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DRAGOMAN_AGENT", url)
    for words in (["-"], [url, "-"]):
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(b"from a file\n")))
        assert typed("send", *words).out == "from a file\n"


def test_nothing_to_send_is_refused(typed: Typed):
    done = typed("send")
    assert done.code == 2
    assert "Nothing to send: add TEXT, - for stdin, --tool, --data or --file." in done.err


# -- the other verbs -------------------------------------------------------------------------------------------------


def test_every_verb_takes_the_default(url: str, place: str, typed: Typed, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DRAGOMAN_AGENT", place)
    task = typed("send", "--no-wait", "hi").out.strip()
    assert typed("watch", task).out == "hi\n"
    assert typed("get", task).out == "hi\n"
    assert typed("get", place, task).out == "hi\n"
    assert typed("cancel", task).code == 4
    assert task in typed("tasks").out
    assert task in typed("tasks", url).out
    assert typed("card").out.startswith("echo ")
    assert typed("call", "add", "a:=1", "b:=2").out == "3\n"
    assert typed("call", place, "add", "a:=1", "b:=2").out == "3\n"
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(b"good day\n")))
    assert typed("chat").out == "good day\n"


def test_doctor_without_an_address_is_for_this_machine(url: str, typed: Typed, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DRAGOMAN_AGENT", url)
    assert "sqlite" in typed("doctor").out


def test_a_name_of_a_remote_may_be_the_default(url: str, typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    remotes(tmp_path, calc=url)
    assert typed("send", "calc", "hi", "there").out == "hi there\n"
    monkeypatch.setenv("DRAGOMAN_AGENT", "calc")
    assert typed("send", "hi").out == "hi\n"


# -- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("typed")
def test_the_default_address_is_port_8080_of_this_machine(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DRAGOMAN_URL", "https://public.example")
    assert default_target().url == DEFAULT_URL == "http://127.0.0.1:8080"


def test_no_agent_at_the_default_address_is_an_error_with_what_to_do(
    typed: Typed, nobody: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("dragoman.cli.remote.address.DEFAULT_URL", f"http://{nobody}")
    done = typed("send", "hello")
    assert (done.code, done.out) == (3, "")
    assert done.err == (
        f"dragoman: no agent answers at http://{nobody}: start one with `dragoman serve`, or name an address, "
        "as in `dragoman send localhost:9000 hello`\n"
    )
    monkeypatch.setenv("DRAGOMAN_AGENT", nobody)
    assert typed("tasks").err == (
        f"dragoman: no agent answers at http://{nobody} (from DRAGOMAN_AGENT): correct it, or name another address\n"
    )


def test_a_default_agent_that_does_not_exist_is_an_error(typed: Typed, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DRAGOMAN_AGENT", "nowhere")
    done = typed("send", "hello")
    assert done.code == 2
    assert done.err.startswith("dragoman: environment DRAGOMAN_AGENT: there is no remote `nowhere`: write an address")


def test_a_misspelt_remote_is_answered_with_the_nearest(
    url: str, typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DRAGOMAN_AGENT", url)
    remotes(tmp_path, calculator="http://127.0.0.1:1")
    hint = "there is no remote `calculater`; did you mean `calculator`?"
    assert typed("chat", "calculater") == (2, "", f"dragoman: {hint}\n")
    assert typed("get", "calculater", "x") == (2, "", f"dragoman: {hint}\n")
    assert typed("call", "calculater", "add", "a:=1") == (2, "", f"dragoman: {hint}\n")
    assert typed("send", "calculater", "hi") == (0, "calculater hi\n", f"warning: {hint}\n")
    assert typed("send", "localhost", "hi").err == (
        "warning: `localhost` is not taken as an address: add a port, as in localhost:8080\n"
    )


# -- hints -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("typed")
def test_a_line_to_come_back_has_no_address_where_that_is_the_default(monkeypatch: pytest.MonkeyPatch):
    def line(address: str | None, *words: str) -> str:
        shared = dict.fromkeys(["as_json", "wire", "protocol", "transport", "token_env", "timeout", "insecure"])
        options = parse_options(address, {**shared, "headers": (), "reconnect": None, "limits_remote_bytes": None})
        with CommandSession(options) as session:
            return session.command_line("watch", *words)

    assert line(None, "x") == line("127.0.0.1:8080", "x") == line(DEFAULT_URL, "x") == "dragoman watch x"
    assert line("localhost:8111", "x") == "dragoman watch localhost:8111 x"
    assert line(None, "a:1") == "dragoman watch http://127.0.0.1:8080 a:1", "an id that looks like an address"
    monkeypatch.setenv("DRAGOMAN_AGENT", "localhost:9000")
    assert line(None, "x") == "dragoman watch x"
    assert line(DEFAULT_URL, "x") == "dragoman watch http://127.0.0.1:8080 x"
    assert shlex.split(line("h:1", "a b"))[-1] == "a b"
    monkeypatch.setenv("DRAGOMAN_AGENT", "nowhere")
    assert line("h:1", "x") == "dragoman watch h:1 x"
    with pytest.raises(ConfigError):
        line(None, "x")
