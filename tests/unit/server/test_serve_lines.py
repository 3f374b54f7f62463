"""The lines that a server says at its start."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman import Agent, Context, Server
from dragoman.auth.inbound.passwords import new_password
from dragoman.server.config.settings import Limits, Settings
from dragoman.server.http.authentication import AuthSettings
from dragoman.server.listen.startup import MAX_SKILLS, Startup
from dragoman.server.listen.trial import DEFAULT_ADDRESS, Trial
from dragoman.stores.sqlite.admin.users import SqliteUsers
from dragoman.telemetry.terminal import Style
from dragoman.testing import served

SHARED = (
    "note: without auth, all callers count as one: any of them can continue a conversation whose contextId they know"
)


def startup_warnings(servable: Any, **settings: Any) -> list[str]:
    return Startup(servable, Settings(**settings), "127.0.0.1", 8080).warnings()


def lines_of(servable: Any, port: int = 8080, host: str = "127.0.0.1", **settings: Any) -> list[str]:
    return list(Startup(servable, Settings(**settings), host, port).lines())


@pytest.mark.parametrize("options", [{"command": "bc", "input": "interactive"}, {"profile": "claude"}])
def test_serving_conversations_without_auth_prints_who_can_continue_them(options: Any) -> None:
    agent = Agent.from_command(**options)
    assert startup_warnings(agent) == [SHARED]
    assert startup_warnings(Server(Agent.from_command("cat"), agent)) == [SHARED]
    assert startup_warnings(agent, auth=lambda request: None) == []


def test_agents_without_conversations_print_no_such_note() -> None:
    assert startup_warnings(Agent.from_command("cat")) == []
    assert startup_warnings(Server(Agent.from_command("cat"))) == []


def test_a_node_that_may_have_fewer_connections_than_streams_is_warned() -> None:
    resource = pytest.importorskip("resource")
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        pytest.skip("there is no limit")
    node, agent = {"store": "postgresql://db/dragoman"}, Agent.from_command("cat")
    (warning,) = startup_warnings(agent, **node, limits=Limits(streams=files + 1))
    assert warning == (
        f"warning: only {files} files and connections may be open at once, and limits_streams is {files + 1}: raise "
        "the limit, as with `ulimit -n 65536`, or lower limits_streams"
    )
    assert startup_warnings(agent, **node, limits=Limits(streams=files)) == []
    assert startup_warnings(agent, limits=Limits(streams=files + 1)) == []


def test_an_agent_without_skills_is_warned_about_with_what_to_add() -> None:
    bare, full = Agent("bare"), Agent("full", run=lambda ctx: ctx.messages())
    warning = "warning: `bare` has no skills, so its tasks fail: put `@agent.skill` above a function"
    assert startup_warnings(bare) == [warning]
    assert startup_warnings(Server(full, bare), auth=lambda request: None) == [warning]
    assert startup_warnings(full) == []

    @bare.skill
    def echo(text: str) -> str:
        return text

    assert startup_warnings(bare) == []


def test_an_mcp_server_without_tools_is_warned_about() -> None:
    (warning,) = startup_warnings(Agent.from_mcp("./empty", name="empty"))
    assert warning.startswith("warning: `empty` has no tools, so its tasks fail: its MCP servers offer none, or")


def test_reloading_with_tasks_in_memory_warns_that_they_are_lost() -> None:
    agent = Agent.from_command("cat")
    lost = "warning: the tasks are in memory: every restart loses them"
    assert startup_warnings(agent, reload=True, store="memory:") == [lost]
    assert startup_warnings(agent, reload=True) == startup_warnings(agent, store="memory:") == []


def test_reloading_has_a_line_of_its_own() -> None:
    line = "  reload  when a Python file or the settings file changes"
    assert line in lines_of(Agent("a"), reload=True)
    assert line not in lines_of(Agent("a"))


def test_the_warning_about_an_open_address_is_the_first() -> None:
    first, second = Startup(Agent.from_command(profile="claude"), Settings(), "0.0.0.0", 80).warnings()
    assert first.startswith("warning: anyone who can reach 0.0.0.0:80")
    assert second == SHARED


def test_the_line_about_a_rate_says_how_to_turn_it_off() -> None:
    line = "  rate    100 requests a second for each caller, 1000 at once; --limits-rate 0 lifts the limit"
    assert line in lines_of(Agent("a"), limits=Limits(rate=100, burst=1000))
    assert not [line for line in lines_of(Agent("a")) if line.startswith("  rate")]


# -- agents and skills -----------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)


def calculator(name: str = "calc") -> Agent:
    agent = Agent(name, description="Adds numbers. Slowly.")

    @agent.skill
    def add(a: int, b: float) -> float:  # pyright: ignore[reportUnusedFunction]
        """Add two numbers. They may be negative."""
        return a + b

    @agent.skill(id="round_half_up")
    def rounded(number: float) -> int:  # pyright: ignore[reportUnusedFunction]
        """Round a number."""
        return round(number)

    return agent


def test_a_server_lists_its_address_its_skills_and_one_short_line_to_try() -> None:
    assert lines_of(calculator()) == [
        "serving calc at http://127.0.0.1:8080",
        "  Adds numbers.",
        "  card    http://127.0.0.1:8080/.well-known/agent-card.json",
        "  store   .dragoman/tasks.db",
        "  skills  add            Add two numbers.",
        "          round_half_up  Round a number.",
        "  try     dragoman call add a=2 b=2.5",
    ]


def test_the_line_to_try_names_the_address_where_it_is_not_the_default() -> None:
    agent = Agent.from_command("cat")
    assert lines_of(agent)[-1] == '  try     dragoman send "hello"'
    assert lines_of(agent, 8111)[-1] == '  try     dragoman send 127.0.0.1:8111 "hello"'
    assert lines_of(agent, 8111, "0.0.0.0")[-1] == '  try     dragoman send 127.0.0.1:8111 "hello"'
    assert lines_of(agent, 80, "::1")[-1] == "  try     dragoman send 'http://[::1]:80' \"hello\""
    assert lines_of(agent, tls_cert="x")[-1] == '  try     dragoman send https://127.0.0.1:8080 --insecure "hello"'
    assert lines_of(agent, url="https://a.example")[-1] == '  try     dragoman send https://a.example "hello"'


@pytest.mark.parametrize(
    ("example", "words"),
    [
        ("https://example.com/a", "127.0.0.1:8080 https://example.com/a"),
        ("localhost:80", "127.0.0.1:8080 localhost:80"),
        ("-5 degrees", '-- "-5 degrees"'),
        ("it's", "'it'\"'\"'s'"),
    ],
)
def test_the_line_to_try_sends_an_example_that_looks_like_something_else(example: str, words: str) -> None:
    agent = Agent("a")

    @agent.skill(examples=[example])
    def act(text: str) -> str:  # pyright: ignore[reportUnusedFunction]
        return text

    assert lines_of(agent)[-1] == f"  try     dragoman send {words}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("city: str", 'send "Lisbon"'),
        ("home_city: str", 'send "Lisbon"'),
        ("name: str, loud: bool = False", 'send "Ada"'),
        ("city: str, days: int", 'send "Lisbon"'),
        ("city: str, name: str, days: int", "call act city=Lisbon name=Ada days=2"),
        ("name: str = 'you'", 'send "hello"'),
        ("gizmo: str", 'send "hello"'),
    ],
)
def test_the_line_to_try_has_a_text_that_suits_the_parameter(text: str, words: str) -> None:
    agent = Agent("a")
    module: dict[str, Any] = {}
    exec(f"def act({text}) -> str: return ''", module)
    agent.skill(module["act"])
    assert lines_of(agent)[-1] == f"  try     dragoman {words}"


def test_the_line_to_try_names_the_program_where_the_shell_does_not_find_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    place = Path(sys.executable).parent
    assert lines_of(Agent("a"))[-1] == f'  try     {place}/dragoman send "hello"'
    monkeypatch.chdir(place.parent)
    assert lines_of(Agent("a"))[-1] == f'  try     {place.name}/dragoman send "hello"'


# -- credentials -----------------------------------------------------------------------------------------------------


def trial(store: Path, *names: str, agent: Agent | None = None, **settings: Any) -> list[str]:
    """The commands that a server prints, without the place of its store."""
    url = f"sqlite:///{store / 't.db'}"
    chosen = Settings(auth=AuthSettings(names) if names else None, store=url, **settings)
    commands = Trial(agent or Agent("a"), chosen, DEFAULT_ADDRESS).commands()
    return [command.replace(f" --store {url}", "") for command in commands]


def test_the_line_to_try_gets_a_credential_of_the_scheme(tmp_path: Path) -> None:
    add = "dragoman users add ada --no-password"
    with_key = 'DRAGOMAN_TOKEN="$(dragoman users key ada --for 1h)" dragoman send "hello"'
    assert trial(tmp_path) == ['dragoman send "hello"']
    assert trial(tmp_path, "basic", "bearer") == [add, with_key]
    assert trial(tmp_path, "apikey") == [add, with_key]
    assert trial(tmp_path, "cookie") == [
        add,
        'DRAGOMAN_TOKEN="$(dragoman users cookie ada)" dragoman send "hello"',
    ]
    assert trial(tmp_path, "basic") == [
        "dragoman users add ada",
        'echo Password:; read -rs P; DRAGOMAN_TOKEN="ada:$P" dragoman send "hello"',
    ]
    assert trial(tmp_path, "oidc") == ['DRAGOMAN_TOKEN=TOKEN dragoman send "hello"']
    assert trial(tmp_path, "mtls")[0].startswith(f"curl --insecure --cert CERTIFICATE {DEFAULT_ADDRESS}/message:send ")
    assert Trial(Agent("a"), Settings(auth=lambda _: None), DEFAULT_ADDRESS).commands() == trial(tmp_path, "oidc")
    assert Trial(Agent("a"), Settings(auth=AuthSettings(("cookie",)), store="memory:"), "").commands() == []


def test_the_line_to_try_takes_a_user_who_is_there_and_may_use_the_skill(tmp_path: Path) -> None:
    users = SqliteUsers(tmp_path / "t.db")
    users.prepare()
    users.add("bob", "", ())
    agent = Agent("vault")
    agent.skill(id="open", permission="admin")(lambda: "")
    assert trial(tmp_path, "bearer", agent=agent)[0] == "dragoman users grant bob admin"
    assert trial(tmp_path, agent=agent) == [
        "dragoman users grant bob admin",
        'DRAGOMAN_TOKEN="$(dragoman users cookie bob)" dragoman send "hello"',
    ]
    users.add("zoe", "", ("admin",))
    assert trial(tmp_path, agent=agent) == [
        'DRAGOMAN_TOKEN="$(dragoman users cookie zoe)" dragoman send "hello"',
    ]
    assert trial(tmp_path, "basic")[0] == "dragoman users add ada"  # nobody has a password


@pytest.mark.parametrize("scheme", ["bearer", "cookie", "basic"])
def test_the_lines_to_try_work_as_they_stand(tmp_path: Path, scheme: str) -> None:
    agent = Agent("who")

    @agent.skill
    async def whoami(ctx: Context, text: str) -> str:  # pyright: ignore[reportUnusedFunction]
        return ctx.user.id if ctx.user else "nobody"

    url, auth = f"sqlite:///{tmp_path / 't.db'}", AuthSettings((scheme,))
    with served(agent, auth=scheme, store=url) as base:
        if scheme != "bearer":  # there is somebody already
            users = SqliteUsers(tmp_path / "t.db")
            users.prepare()
            users.add("ada", new_password("correct horse battery"), ())
        commands = Trial(agent, Settings(auth=auth, store=url), base).commands()
        assert len(commands) == (2 if scheme == "bearer" else 1)
        environ = {name: value for name, value in os.environ.items() if not name.startswith("DRAGOMAN_")}
        done = subprocess.run(
            ["bash", "-ec", "\n".join(commands)],
            input="correct horse battery\n",
            env={**environ, "PYTHONPATH": str(Path(dragoman.__file__).parents[1])},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert done.stdout.splitlines()[-1:] == ["ada"], done.stderr


def test_every_card_of_several_agents_is_printed() -> None:
    lines = lines_of(Server(calculator(), calculator("two words")))
    assert lines[0] == "serving calc, two words at http://127.0.0.1:8080"
    assert "  agents  http://127.0.0.1:8080/agents" in lines
    assert [line for line in lines if line.startswith("  card")] == [
        "  card    http://127.0.0.1:8080/.well-known/agent-card.json",
        "  card    http://127.0.0.1:8080/agents/two%20words/.well-known/agent-card.json",
    ]
    assert "  two words: Adds numbers." in lines


def test_a_long_list_of_skills_is_cut() -> None:
    agent = Agent("many")
    for number in range(20):
        agent.skill(id=f"skill{number}", description="Does something " * 20)(lambda: "")
    lines = lines_of(agent)
    assert sum("Does something" in line for line in lines) == MAX_SKILLS
    assert max(map(len, lines)) <= 100
    assert "          … and 8 more, all on the card" in lines


def test_what_others_wrote_does_not_control_the_terminal() -> None:
    agent = Agent("a", description="red \x1b[31m\u202e text")
    agent.skill(id="s", description="bell \x07 and\nline")(lambda: "")
    startup = Startup(agent, Settings(), "127.0.0.1", 8080, style=Style(enabled=True))
    text = re.sub(r"\x1b\[[0-9]m", "", "".join(startup.lines()))
    assert not set("\x1b\x07\u202e") & set(text)
    assert "\x1b[1ma\x1b[0m" in next(iter(startup.lines()))


def test_a_node_says_its_name_and_its_database_without_the_password() -> None:
    store = "postgresql://me:hunter2@127.0.0.1:1/tasks"
    lines = lines_of(Agent("hello"), store=store, node="web1")
    assert lines[2:4] == ["  store   postgresql://me@127.0.0.1:1/tasks", "  node    web1"]
    assert any(re.fullmatch(r"  node    .+:8080", line) for line in lines_of(Agent("hello"), store=store))


def test_the_password_of_a_database_is_not_in_the_command_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    store = "postgresql://me:hunter2@127.0.0.1:1/tasks"
    settings = Settings(store=store, auth=AuthSettings(("bearer",)))
    add, _ = Trial(Agent("hello"), settings, DEFAULT_ADDRESS).commands()
    assert add.endswith(" users add ada --no-password --store postgresql://me@127.0.0.1:1/tasks")
    monkeypatch.setenv("DRAGOMAN_STORE", store)
    add, _ = Trial(Agent("hello"), settings, DEFAULT_ADDRESS).commands()
    assert add.endswith(" users add ada --no-password")
