"""`dragoman serve --a2a`: a server in front of agents that are really there."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.command import clean_environment, dragoman
from support.server_process import ServerProcess

from dragoman import Agent, User
from dragoman.client.cards import CardCache
from dragoman.clock import SystemClock
from dragoman.errors import TaskFailed
from dragoman.sync import Client
from dragoman.testing import served


def refused(folder: Path, *args: str, **more: str) -> tuple[int, str]:
    """The exit code and the stderr of a server that does not start."""
    done = dragoman(folder, "serve", *args, environment=clean_environment(**more))
    return done.returncode, done.stderr


@contextmanager
def serving(folder: Path, *args: str, **more: str) -> Generator[str]:
    """The address of a server in a process of its own."""
    with ServerProcess.serve(folder, *args, environment=clean_environment(**more)) as server:
        yield server.url


def adder(name: str = "adder") -> Agent:
    agent = Agent(name, description="Adds")

    @agent.skill
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return agent


@pytest.fixture(autouse=True)
def own_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port may have been another agent's a minute ago."""
    monkeypatch.setattr("dragoman.client.connect.SHARED_CARDS", CardCache(SystemClock()))


@pytest.fixture
def behind() -> Generator[str]:
    with served(adder()) as url:
        yield url


async def with_token(request: object) -> User | None:
    headers: dict[str, str] = getattr(request, "headers")  # noqa: B009 - whatever the server hands over
    return User("front") if headers.get("authorization") == "Bearer s3cret" else None


def test_an_agent_by_its_address(tmp_path: Path, behind: str) -> None:
    with serving(tmp_path, "--a2a", behind) as url, Client(url) as client:
        card = client.card()
        assert (card.name, card.description) == ("adder", "Adds")
        assert [skill.id for skill in card.skills] == ["add"]
        assert all(interface.url.startswith(url) for interface in card.supported_interfaces)
        assert client.call("add", a=3, b=7) == 10


def test_several_agents_beside_a_file(tmp_path: Path, behind: str) -> None:
    (tmp_path / "app.py").write_text(
        'from dragoman import Agent\nagent = Agent("own")\n@agent.skill\ndef hi() -> str: return "hi"\n'
    )
    with served(adder("second one")) as other, serving(tmp_path, "app.py", "--a2a", behind, "--a2a", other) as url:
        with Client(url) as client:
            assert client.call("hi") == "hi"
        for name in ("adder", "second%20one"):
            with Client(f"{url}/agents/{name}") as client:
                assert client.call("add", a=1, b=2) == 3


def test_agents_of_the_settings_file(tmp_path: Path, behind: str) -> None:
    (tmp_path / "dragoman.toml").write_text(
        f'[agents.one]\na2a = "{behind}"\n[agents.two]\na2a = "sums"\n'
        f'[remotes.sums]\nurl = "{behind}"\nprotocol = "0.3"\n'
    )
    with serving(tmp_path) as url:
        for name in ("one", "two"):
            with Client(f"{url}/agents/{name}") as client:
                assert client.card().name == name
                assert client.call("add", a=1, b=2) == 3


def test_a_remote_of_the_file_that_is_named(tmp_path: Path, behind: str) -> None:
    (tmp_path / "other.toml").write_text(f'[remotes.sums]\nurl = "{behind}"\n')
    with serving(tmp_path, "--a2a", "sums", "--config", "other.toml") as url, Client(url) as client:
        assert client.call("add", a=1, b=2) == 3


def test_the_token_of_a_remote_is_used_and_that_of_callers_is_not(tmp_path: Path) -> None:
    with served(adder(), auth=with_token) as behind:
        (tmp_path / "dragoman.toml").write_text(f'[remotes.sums]\nurl = "{behind}"\ntoken_env = "SUMS"\n')
        with serving(tmp_path, "--a2a", "sums", SUMS="s3cret") as url, Client(url, auth="other") as client:
            assert client.call("add", a=1, b=2) == 3
        with (
            serving(tmp_path, "--a2a", behind) as url,
            Client(url, headers={"Authorization": "Bearer s3cret"}) as client,
            pytest.raises(TaskFailed) as caught,
        ):
            client.call("add", a=1, b=2)
        assert "the agent behind this one does not accept the credentials of this server" in str(caught.value)
        code, problem = refused(tmp_path, "--a2a", "sums")
        assert (code, problem) == (
            2,
            "dragoman: the remote `sums` names the variable SUMS, which is not set: run `export SUMS=…`\n",
        )


def test_an_agent_that_is_not_there(tmp_path: Path) -> None:
    code, problem = refused(tmp_path, "--a2a", "http://127.0.0.1:1")
    assert code == 3
    assert re.fullmatch(r"dragoman: .*127\.0\.0\.1:1.*\n", problem)


def test_an_address_that_is_none(tmp_path: Path) -> None:
    code, problem = refused(tmp_path, "--a2a", "localhost")
    assert (code, problem) == (
        2,
        "dragoman: `localhost` is not the address of an agent: add a port, as in localhost:8080, "
        "or write http://localhost\n",
    )
    (tmp_path / "dragoman.toml").write_text('[remotes.planner]\nurl = "http://127.0.0.1:1"\n')
    code, problem = refused(tmp_path, "--a2a", "planer")
    assert (code, problem) == (2, "dragoman: there is no remote `planer`; did you mean `planner`?\n")


def test_two_agents_of_one_name(tmp_path: Path, behind: str) -> None:
    code, problem = refused(tmp_path, "--a2a", behind, "--a2a", behind, "--port", "0")
    assert code == 2
    assert problem == (
        "dragoman: two agents are called 'adder': each needs its own name. Set it in dragoman.toml, as in\n\n"
        '[agents.adder-2]\na2a = "https://…"\n'
    )
