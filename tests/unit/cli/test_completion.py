"""Completion with the Tab key: what is offered, and that shells take it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.command import clean_environment
from warm_start import write_command

from dragoman import Agent
from dragoman.cli.main import VERBS
from dragoman.cli.remote.recent import RecentTasks
from dragoman.testing import served

from .conftest import Typed

TASK = "4d1e0000-94cd-4f26-8d5b-6a0c9e1f2d74"


def calculator() -> Agent:
    agent = Agent("calculator", description="Calculates")

    @agent.skill
    def add_numbers(a: int, b: int) -> int:
        """Add two numbers, exactly."""
        return a + b

    @agent.skill
    def divide(a: int, b: int) -> float:
        """Divide\x1b[31m numbers."""
        return a / b

    return agent


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(calculator()) as url:
        yield url


@pytest.fixture
def place(url: str) -> str:
    return url.removeprefix("http://")


@pytest.fixture
def offered(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """What is offered when Tab is pressed at the end of a line: `[type,]word` for each."""

    def offered(line: str, shell: str = "bash", breaks: str = "") -> list[str]:
        monkeypatch.setenv("_DRAGOMAN_COMPLETE", f"{shell}_complete")
        monkeypatch.setenv("COMP_LINE", line)
        monkeypatch.setenv("COMP_WORDBREAKS", breaks)
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", line.rpartition(" ")[2] if shell == "fish" else str(line.count(" ")))
        done = typed()
        monkeypatch.delenv("_DRAGOMAN_COMPLETE")
        assert (done.code, done.err) == (0, "")
        return [each.removeprefix("plain,") for each in done.out.splitlines() if each]

    return offered


Offered = Callable[..., list[str]]


# -- what is offered -------------------------------------------------------------------------------------------------


def test_verbs_and_options_are_offered(offered: Offered):
    assert offered("dragoman ") == list(VERBS)
    assert offered("dragoman ca") == ["call", "cancel", "card"]
    assert offered("dragoman --v") == ["--version"]
    assert offered("dragoman send --n") == ["--no-wait"]
    assert offered("dragoman completion ") == ["bash", "zsh", "fish"]
    assert offered("dragoman users pa") == ["password"]


@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("dragoman send --transport ", ["jsonrpc", "rest", "grpc"]),
        ("dragoman send --transport=r", ["rest"]),
        ("dragoman serve --profile c", ["claude", "codex", "cursor"]),
        ("dragoman serve --log-level ", ["debug", "info", "warning", "error"]),
        ("dragoman serve --auth b", ["bearer", "basic"]),
        ("dragoman serve --input ", ["stdin", "interactive"]),
        ("dragoman serve --a2a d", ["desk"]),
        ("dragoman tasks --state input", ["input-required"]),
        ("dragoman mcp install --host cu", ["cursor"]),
        ("dragoman serve tri", ["file,tri"]),
        ("dragoman send --file a", ["file,a"]),
        ("dragoman send x --config", []),
        ("dragoman chat desk de", []),
    ],
)
def test_values_of_options_are_offered(offered: Offered, tmp_path: Path, line: str, some: list[str]):
    (tmp_path / "dragoman.toml").write_text('[remotes.desk]\nurl = "http://127.0.0.1:1"\n')
    assert offered(line) == some


def test_addresses_are_offered_by_name_those_called_last_first_and_those_of_the_settings_file(
    offered: Offered, tmp_path: Path
):
    (tmp_path / "dragoman.toml").write_text(
        '[remotes.desk]\nurl = "http://127.0.0.1:1"\n[serve]\nport = 9000\n'
        '[agents.a]\ntarget = "a.py"\n[agents.b]\ntarget = "b.py"\n'
    )
    RecentTasks().add("https://agents.example", TASK, "")
    RecentTasks().add("http://localhost:8111", TASK, "")
    configured = ["127.0.0.1:9000/agents/a", "127.0.0.1:9000/agents/b"]
    assert offered("dragoman chat ") == ["desk", "127.0.0.1:8111", "https://agents.example", *configured]
    assert offered("dragoman card 127.0.0.1:8") == ["127.0.0.1:8111"]
    assert offered("dragoman send loc") == [
        each.replace("127.0.0.1", "localhost") for each in offered("dragoman send 1")
    ]
    assert "http://127.0.0.1:8111" in offered("dragoman doctor http")


def test_bash_gets_what_comes_after_the_colon(offered: Offered):
    RecentTasks().add("http://localhost:8111", TASK, "")
    assert offered("dragoman chat localhost:8", breaks=" :=") == ["8111"]
    assert offered("dragoman chat localhost:", breaks=" :=") == ["8111"]
    assert offered("dragoman chat loc", breaks=" :=") == ["localhost:8111"]
    assert offered("dragoman send --transport=r", breaks=" :=") == ["rest"]


def test_the_skills_of_the_agent_are_offered(offered: Offered, url: str, place: str, monkeypatch: pytest.MonkeyPatch):
    assert offered(f"dragoman call {place} ") == ["add_numbers", "divide"]
    assert offered(f"dragoman call {place} d") == ["divide"]
    assert offered(f"dragoman send {url} --tool a") == ["add_numbers"]
    monkeypatch.setenv("DRAGOMAN_AGENT", url)
    assert offered("dragoman call a") == ["add_numbers"]
    assert offered("dragoman call add_numbers ") == [], "an argument of the skill"


def test_the_tasks_of_the_agent_are_offered(offered: Offered, typed: Typed, place: str):
    assert typed("call", place, "add_numbers", "a:=1", "b:=2").code == 0
    task = RecentTasks().at(f"http://{place}")[0].task_id
    for line in (f"dragoman watch {place} ", f"dragoman get {place} ", f"dragoman send {place} --task "):
        assert offered(line)[:2] == ["last", task], line
    assert offered(f"dragoman cancel {place} {task[:6]}") == [task]
    Path("state/dragoman/recent.json").unlink()
    assert task in offered(f"dragoman watch {place} "), "the agent lists it"


def test_an_agent_that_is_away_is_passed_over_in_silence(offered: Offered, monkeypatch: pytest.MonkeyPatch):
    assert offered("dragoman call 127.0.0.1:1 ") == []
    RecentTasks().add("http://127.0.0.1:1", TASK, "")
    assert offered("dragoman watch 127.0.0.1:1 ") == ["last", TASK]
    monkeypatch.setenv("DRAGOMAN_AGENT", "127.0.0.1:1")
    assert offered("dragoman watch 4d") == [TASK]
    monkeypatch.setenv("DRAGOMAN_AGENT", "nowhere")
    assert offered("dragoman watch 4d") == []


def test_a_broken_settings_file_is_passed_over_in_silence(offered: Offered, tmp_path: Path):
    (tmp_path / "dragoman.toml").write_text("[")
    assert offered("dragoman chat ") == []
    assert offered("dragoman send hello ") == []
    assert offered("dragoman watch x ") == []


def test_a_typo_in_a_verb_disturbs_no_shell(offered: Offered):
    for shell in ("bash", "zsh", "fish"):
        assert offered("dragoman sned ", shell=shell), "the verbs, and no error"


def test_words_of_an_agent_cannot_command_the_shell(offered: Offered, url: str, place: str):
    for evil in ("$(reboot)", "a;reboot", "a b", "a\nb", "\x1b[31m", "`reboot`", "--insecure"):
        RecentTasks().add(url, evil, "")
    words = offered(f"dragoman watch {place} ")
    assert words[0] == "last"
    assert not [each for each in words if set(each) & set("$;`\x1b()")]
    assert not {"a", "b", "--insecure"} & set(words)
    described = offered(f"dragoman call {place} ", shell="zsh")
    assert described == [
        "plain",
        "add_numbers",
        "Add two numbers, exactly.",
        "plain",
        "divide",
        r"Divide\x1b[31m numbers.",
    ]
    assert offered(f"dragoman call {place} a", shell="fish") == ["add_numbers\tAdd two numbers, exactly."]


def test_verbs_and_addresses_are_offered_without_the_client(tmp_path: Path):
    check = "import sys; from dragoman.cli.main import main\ntry: main([])\nfinally: print(*sys.modules)"
    for line, absent in (
        ("dragoman s", {"dragoman.cli.talk.send", "dragoman.cli.serve.command", "asyncio"}),
        ("dragoman chat ", {"aiohttp", "uvicorn", "dragoman.client.client"}),
    ):
        done = subprocess.run(
            [sys.executable, "-c", check],
            env=clean_environment(tmp_path, _DRAGOMAN_COMPLETE="bash_complete", COMP_LINE=line),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert not absent & set(done.stdout.split())


# -- the scripts -----------------------------------------------------------------------------------------------------


def test_the_script_goes_into_a_pipe_alone_and_a_terminal_shows_where_to_put_it(typed: Typed, terminal: Any):
    script = typed("completion", "bash")
    assert (script.code, script.err) == (0, "")
    assert "complete -o nosort -F _dragoman_completion dragoman" in script.out
    assert typed("completion", "zsh").out.startswith("#compdef dragoman\n")
    screen = terminal("completion", "fish")
    screen.until("complete --no-files --command dragoman")
    code, rest = screen.ended()
    assert code == 0
    assert rest.endswith(
        "To turn on completion, add this line to ~/.config/fish/config.fish:\n\n  dragoman completion fish | source\n"
    )


def test_the_help_says_how_to_complete(typed: Typed):
    assert "dragoman completion --help" in typed("--help").out
    assert 'eval "$(dragoman completion bash)"' in typed("completion", "--help").out


SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(dragoman completion bash)"'),
    "zsh": (
        ["zsh", "-f", "-i"],
        'autoload -Uz compinit && compinit -u -d "$HOME/dump" && eval "$(dragoman completion zsh)"',
    ),
    "fish": (["fish", "--no-config", "-i"], "dragoman completion fish | source"),
}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_when_tab_is_pressed(shell: str, terminal: Any, place: str, tmp_path: Path):
    program, setup = SHELLS[shell]
    for each in (shell, "setsid"):
        if shutil.which(each) is None:
            pytest.skip(f"{each} is not installed")
    commands = tmp_path / "bin"
    commands.mkdir()
    write_command(commands)
    (tmp_path / "dragoman.toml").write_text(f'[remotes.desk]\nurl = "http://{place}"\n')
    path = f"{commands}:{Path(sys.executable).parent}:/usr/bin:/bin"
    program = ["setsid", "--ctty", "--wait", *program]  # a shell at its keyboard
    screen = terminal(program=program, PATH=path, TERM="xterm", XDG_STATE_HOME=str(tmp_path / "state"))
    screen.type(f"{setup}; echo re''ady\n")
    screen.until("ready\n")
    screen.type("dragoman call des\t")
    screen.until("desk")
    screen.type("add\t")
    screen.until("add_numbers")
    screen.type("a:=20 b:=22\n")
    screen.until("42\n")
    screen.type(f"dragoman get {place[:-1]}\t")  # its last digit is missing
    screen.type("las\t; exit\n")
    assert "completed" in screen.ended()[1]
