"""`dragoman open`, and where `serve` says that its console is."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import webbrowser
from collections.abc import Callable
from html import unescape
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import httpx2
import pytest
from support.terminal import Terminal

from dragoman import Agent
from dragoman.cli.consoles import ConsoleFiles
from dragoman.console.access import ConsoleAddress
from dragoman.testing import served

from .conftest import Ended

HELLO = """
from dragoman import Agent

agent = Agent("hello", description="Greets")


@agent.skill
def greet(name: str) -> str:
    return f"Hello, {name}!"
"""
TOKEN = "the-token-of-this-test"
HTML = {"Accept": "text/html"}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that the browser was to open."""
    urls: list[str] = []

    def open_url(url: str) -> bool:
        urls.append(url)
        return True

    monkeypatch.setattr(webbrowser, "open", open_url)
    return urls


def started(url: str, folder: Path) -> ConsoleFiles:
    """The file that a server writes which was started by this user."""
    files = ConsoleFiles(folder / "state" / "dragoman" / "consoles")
    files.add(ConsoleAddress.of(TOKEN, url))
    return files


def target_of(opened: list[str]) -> str:
    """Where the page leads that the browser was to open: a file that only this user can read."""
    (page,) = opened
    assert TOKEN not in page
    path = Path(url2pathname(urlsplit(page).path))
    assert (urlsplit(page).scheme, stat.S_IMODE(path.stat().st_mode)) == ("file", 0o600)
    assert "script" not in path.read_text()
    (url,) = re.findall(r'content="0; url=([^"]+)"', path.read_text())
    return unescape(url)


# -- open --------------------------------------------------------------------------------------------------------------


def test_a_server_of_this_user_is_opened_with_its_token_which_is_not_printed(
    typed: Callable[..., Ended], opened: list[str], tmp_path: Path
) -> None:
    with served(Agent("hello"), console_token=TOKEN) as url:
        started(url, tmp_path)
        ended = typed("open", url.removeprefix("http://"))
        assert (ended.code, ended.out, ended.err) == (0, "", f"opened {url}/\n")
        assert target_of(opened) == f"{url}/?token={TOKEN}"
        printed = typed("open", url.replace("127.0.0.1", "localhost"), "--print")
        assert (printed.code, printed.out) == (0, f"{url}/?token={TOKEN}\n")
        assert len(opened) == 1
        assert typed("open", f"{url}/agents/hello", "--print").out == f"{url}/?token={TOKEN}#/agents/hello\n"


def test_the_page_that_leads_to_an_agent_is_gone_with_the_server(
    typed: Callable[..., Ended], opened: list[str], tmp_path: Path
) -> None:
    with served(Agent("hello"), console_token=TOKEN) as url:
        files = started(url, tmp_path)
        assert typed("open", f"{url}/agents/a&b").code == 0
        assert target_of(opened) == f"{url}/?token={TOKEN}#/agents/a&b"
        assert len(list((tmp_path / "state/dragoman/consoles").iterdir())) == 2
        files.close()
        assert not list((tmp_path / "state/dragoman/consoles").iterdir())


def test_where_no_page_can_be_written_the_token_is_no_argument_of_the_browser_either(
    typed: Callable[..., Ended], opened: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> str:
        raise OSError(28, "No space left on device", "consoles/page.html")

    monkeypatch.setattr(ConsoleFiles, "redirect", refuse)
    with served(Agent("hello"), console_token=TOKEN) as url:
        started(url, tmp_path)
        ended = typed("open", url)
        assert (ended.code, opened) == (1, [])
        assert "No space left on device" in ended.err
        assert "--print" in ended.err
        assert TOKEN not in ended.err


def test_the_default_is_the_agent_of_the_environment(
    typed: Callable[..., Ended], opened: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(Agent("hello"), console_token=TOKEN) as url:
        started(url, tmp_path)
        monkeypatch.setenv("DRAGOMAN_AGENT", url)
        assert typed("open").code == 0
        assert target_of(opened) == f"{url}/?token={TOKEN}"


def test_a_server_of_another_user_is_opened_without_a_token(typed: Callable[..., Ended], opened: list[str]) -> None:
    with served(Agent("hello"), console_token=TOKEN) as url:
        ended = typed("open", url)
        assert ended.code == 0
        assert "its token is not known here" in ended.err
        assert opened == [f"{url}/"]


def test_open_needs_a_server_that_answers(typed: Callable[..., Ended], opened: list[str], tmp_path: Path) -> None:
    with served(Agent("hello")) as url:
        pass
    started(url, tmp_path)
    ended = typed("open", url)
    assert (ended.code, opened) == (3, [])
    assert "nobody answers at" in ended.err


def test_without_a_server_at_the_default_address_open_names_the_user_s_servers(
    typed: Callable[..., Ended], opened: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_AGENT", "127.0.0.1:9")
    started("http://127.0.0.1:18081", tmp_path)
    ended = typed("open")
    assert ended.code == 3
    assert "you have a server at http://127.0.0.1:18081: try `dragoman open http://127.0.0.1:18081`" in ended.err
    assert TOKEN not in ended.err
    assert "you have a server" not in typed("open", "127.0.0.1:9").err, "it was asked for by name"
    assert opened == []


def test_a_server_whose_console_is_off_says_so(typed: Callable[..., Ended], opened: list[str]) -> None:
    with served(Agent("hello"), console="off") as url:
        ended = typed("open", url)
        assert (ended.code, opened) == (1, [])
        assert ended.err.startswith(f"dragoman: {url} has no console: it is turned off there")


def test_gRPC_has_no_page(typed: Callable[..., Ended]) -> None:
    ended = typed("open", "grpc://127.0.0.1:50051")
    assert (ended.code, "write the http:// address" in ended.err) == (2, True)


def test_without_a_browser_the_address_is_printed(
    typed: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_none(_: str) -> bool:
        return False

    monkeypatch.setattr(webbrowser, "open", find_none)
    with served(Agent("hello"), console_token=TOKEN) as url:
        started(url, tmp_path)
        ended = typed("open", url)
        assert (ended.code, ended.out) == (0, f"{url}/?token={TOKEN}\n")
        assert "there is no browser here" in ended.err


# -- the files ---------------------------------------------------------------------------------------------------------


def test_only_the_user_can_read_the_file_and_it_is_gone_at_the_end(tmp_path: Path) -> None:
    url = "http://127.0.0.1:8080"
    files = started(url, tmp_path)
    (path,) = (tmp_path / "state/dragoman/consoles").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    found = files.find("http://localhost:8080/agents/x")
    assert found is not None
    assert (found.url, found.pid) == (f"{url}/?token={TOKEN}", os.getpid())
    assert files.find("https://127.0.0.1:8080") is None
    files.close()
    assert not path.exists()


def test_the_file_of_a_server_that_was_killed_counts_for_nothing_and_is_removed(tmp_path: Path) -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    folder = tmp_path / "consoles"
    folder.mkdir()
    stale, broken = folder / "http-127.0.0.1-8080.json", folder / "http-127.0.0.1-8081.json"
    stale.write_text(json.dumps({"url": "http://127.0.0.1:8080/?token=old", "pid": child}))
    broken.write_text("{")
    files = ConsoleFiles(folder)
    assert files.find("http://127.0.0.1:8080") is None
    assert files.find("http://127.0.0.1:8081") is None
    files.add(ConsoleAddress("http://127.0.0.1:8082", "", "x"))
    assert [path.name for path in folder.iterdir()] == ["http-127.0.0.1-8082.json"]


def test_a_file_that_another_process_has_taken_over_stays(tmp_path: Path) -> None:
    files = started("http://127.0.0.1:8080", tmp_path)
    (path,) = (tmp_path / "state/dragoman/consoles").iterdir()
    path.write_text(json.dumps({"url": "x", "pid": os.getppid()}))
    files.close()
    assert path.exists()


def test_a_user_without_a_home_has_no_files_and_no_error() -> None:
    files = ConsoleFiles(Path(os.devnull) / "consoles")
    files.add(ConsoleAddress("http://127.0.0.1:8080", "", ""))
    assert files.find("http://127.0.0.1:8080") is None
    files.close()


# -- serve -------------------------------------------------------------------------------------------------------------


def address_of(server: Terminal) -> str:
    """The address of the console, as the server prints it."""
    server.until("  console ")
    return server.until("\n").strip()


def is_admin(address: str) -> bool:
    """Whether a browser that opens the address sees everything."""
    with httpx2.Client(trust_env=False, follow_redirects=True, timeout=20) as client:
        page = client.get(address, headers=HTML)
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        return client.get(page.url.join("console/api/session")).json()["admin"]


def test_serve_prints_the_address_with_a_token_that_is_gone_with_it(
    tmp_path: Path, terminal: Callable[..., Terminal]
) -> None:
    (tmp_path / "app.py").write_text(HELLO)
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    server = terminal("serve", "app.py", "--port", "0", "--store", "memory:", NO_COLOR="1", **state)
    address = address_of(server)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{32}", address)
    server.until("  try ")
    assert is_admin(address)
    assert not is_admin(f"{address[:-1]}~")
    (file,) = (tmp_path / "state/dragoman/consoles").iterdir()
    assert json.loads(file.read_text()) == {"url": address, "pid": server.process.pid}
    server.process.send_signal(signal.SIGTERM)
    server.ended()
    assert not file.exists()


def test_a_restart_for_a_change_keeps_the_token_so_that_an_open_page_goes_on(
    tmp_path: Path, terminal: Callable[..., Terminal]
) -> None:
    (tmp_path / "app.py").write_text(HELLO)
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    server = terminal("serve", "app.py", "--port", "0", "--store", "memory:", "--reload", NO_COLOR="1", **state)
    address = address_of(server)
    with httpx2.Client(trust_env=False, follow_redirects=True, timeout=20) as page:
        api = page.get(address, headers=HTML).url.join("console/api/session")
        assert page.get(api).json()["admin"]
        server.until("  try ")
        (tmp_path / "app.py").write_text(HELLO.replace("Hello", "Hi"))
        server.until("changed: app.py; restarting")
        server.until("ready")
        assert page.get(api).json()["admin"]
    (file,) = (tmp_path / "state/dragoman/consoles").iterdir()
    assert json.loads(file.read_text()) == {"url": address, "pid": server.process.pid}
    server.process.send_signal(signal.SIGTERM)
    server.ended()
    assert not file.exists()


@pytest.mark.parametrize(
    ("flags", "environ", "expected"),
    [
        (["--log", "json"], {}, r"http://127\.0\.0\.1:\d+/"),
        ([], {"DRAGOMAN_CONSOLE_TOKEN": TOKEN}, r"http://127\.0\.0\.1:\d+/"),
        (["--url", "https://agents.example.com"], {}, r"https://agents\.example\.com/\?token=[\w-]{32}"),
    ],
)
def test_a_token_that_others_chose_or_that_would_be_in_a_log_is_not_printed(
    tmp_path: Path, terminal: Callable[..., Terminal], flags: list[str], environ: dict[str, str], expected: str
) -> None:
    (tmp_path / "app.py").write_text(HELLO)
    state = {"XDG_STATE_HOME": str(tmp_path / "state"), "NO_COLOR": "1", **environ}
    server = terminal("serve", "app.py", "--port", "0", "--store", "memory:", *flags, **state)
    assert re.fullmatch(expected, address_of(server))
    server.until("  try ")
    (file,) = (tmp_path / "state/dragoman/consoles").iterdir()
    assert "?token=" in json.loads(file.read_text())["url"]
    server.process.send_signal(signal.SIGTERM)
    _, rest = server.ended()
    assert "token=" not in rest


def test_a_short_token_is_refused_and_not_shown(typed: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_CONSOLE_TOKEN", "hunter2")
    Path("app.py").write_text(HELLO)
    ended = typed("serve", "app.py")
    assert ended.code == 2
    assert "environment DRAGOMAN_CONSOLE_TOKEN: must be at least 16" in ended.err
    assert "hunter2" not in ended.err
