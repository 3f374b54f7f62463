"""`dragoman serve --command`: the options of a program, by flags and in the settings file."""

from __future__ import annotations

import tomllib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.command import clean_environment
from support.server_process import ServerProcess

from dragoman.cli.main import group
from dragoman.cli.serve.options import agent_of_command_table
from dragoman.errors import ConfigError
from dragoman.model.event import ArtifactUpdate
from dragoman.sync import Client

from .conftest import refusal_of

TABLE = "dragoman.toml [agents.x]"


pytestmark = pytest.mark.usefixtures("forgotten_imports")


@contextmanager
def serving(folder: Path, *args: str) -> Generator[str]:
    """The address of a server in a process of its own."""
    with ServerProcess.serve(folder, *args, environment=clean_environment(SECRET="1")) as server:
        yield server.url


# -- flags ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--input", "stdin"], "--input is about a program: say which with --command or --profile"),
        (["--output", "jsonl"], "--output is about a program: say which with --command or --profile"),
        (["--cwd", "."], "--cwd is about a program: say which with --command or --profile"),
        (["--limit", "time=1"], "--limit is about a program: say which with --command or --profile"),
        (["--name", "mine"], "--name needs --mcp or --command"),
        (["--env", "A=1"], "--env needs --mcp or --command"),
    ],
)
def test_a_flag_of_a_program_without_a_program_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refusal_of(*flags) == says
    assert refusal_of("app.py", *flags) == says, "also beside something else to serve"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (
            ["--command", "cat", "--input", "stdn"],
            '--input: must be "stdin", "interactive", not "stdn"; did you mean "stdin"?',
        ),
        (
            ["--command", "cat", "--output", "json"],
            '--output: must be "text", "jsonl", not "json"; did you mean "jsonl"?',
        ),
        (["--command", "cat", "--limit", "time"], "--limit time: write NAME=VALUE, as in --limit time=60"),
        (["--command", "cat", "--limit", "=5"], "--limit =5: write NAME=VALUE, as in --limit time=60"),
        (
            ["--command", "cat", "--command", "tac"],
            "--command is one program: for several, write a table [agents.NAME] for each into dragoman.toml",
        ),
        (
            ["--command", "cat", "--mcp", "npx x", "--name", "mine"],
            "--name: does it name the --mcp or the --command agent? To name both, write a table [agents.NAME] for each "
            "into dragoman.toml",
        ),
    ],
)
def test_a_flag_that_cannot_be_parsed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refusal_of(*flags) == says


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--limit", "tim=60"], "limits: there is no limit `tim`; did you mean `time`?"),
        (["--limit", "time=soon"], "limits: time is a number, 0 or more, not 'soon'"),
        (["--limit", "time=1", "--limit", "files=1.5"], "limits: files is a whole number, 0 or more, not '1.5'"),
        (["--env", "NOT_SET"], "env NOT_SET: the variable is not set here: export it, or write NOT_SET=VALUE"),
        (["--cwd", "nowhere"], "cwd: there is no folder {folder}/nowhere"),
    ],
)
def test_a_wrong_option_of_a_program_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NOT_SET", raising=False)
    assert refusal_of("--command", "cat", *flags) == says.format(folder=tmp_path)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--command", ""], 'a command is a text or a list of words, as in "my-agent --flag"'),
        (["--command", "cat 'a"], "command: No closing quotation in `cat 'a`"),
        (
            ["--command", "wc -w | sort"],
            "command: no shell runs this, so `|` means nothing: use sh -c '…', or a script",
        ),
        (
            ["--command", "python agnt.py"],
            "command: `python` is to run {folder}/agnt.py, and there is no such file",
        ),
        (
            ["--command", "cat", "--env", "KEY VALUE"],
            "env: `KEY VALUE` is not the name of a variable: write KEY=VALUE, or KEY",
        ),
        (["--profile", "clade"], "there is no profile `clade`; did you mean `claude`?"),
        (
            ["--profile", "claude", "--input", "interactive"],
            "the profile `claude` knows the program's input and output: leave input and output out",
        ),
    ],
)
def test_a_command_that_cannot_be_run_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refusal_of(*flags) == says.format(folder=tmp_path)


def test_a_script_of_a_table_is_looked_for_beside_the_settings(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        agent_of_command_table(TABLE, "x", {"command": "sh agent.sh"}, tmp_path)
    missing = tmp_path / "agent.sh"
    assert str(caught.value) == f"{TABLE}: command: `sh` is to run {missing}, and there is no such file"
    missing.touch()
    assert agent_of_command_table(TABLE, "x", {"command": "sh agent.sh"}, tmp_path).name == "x"


def test_a_profile_is_enough_in_a_table(tmp_path: Path) -> None:
    agent = agent_of_command_table(TABLE, "x", {"profile": "claude"}, tmp_path)
    assert (agent.name, agent.default_project_id) == ("x", "default")


def test_the_help_says_what_a_command_is_for() -> None:
    help_text = " ".join(CliRunner().invoke(group, ["serve", "--help-all"]).output.split())
    assert 'dragoman serve --command "wc -w"' in help_text
    assert "--command COMMAND Serve a command-line program; each task runs it." in help_text
    assert "--name NAME Name of the --mcp or --command agent." in help_text


def test_a_program_becomes_an_agent(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    flags = ["--name", "teller", "--cwd", "work", "--env", "GIVEN=yes", "--limit", "time=20", "--limit", "files=64"]
    script = 'echo "$(basename "$PWD") $GIVEN ${SECRET-none} $(ulimit -n) $0 $(cat)"'
    with serving(tmp_path, "--command", f"sh -c '{script}' \"a b\"", *flags) as url, Client(url) as client:
        assert client.card().name == "teller"
        assert client.send("hello").text.strip() == "work yes none 64 a b hello"


# -- tables --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ('command = "cat"\nlimit = {}', ": there is no setting `limit` beside `command`; did you mean `limits`?"),
        (
            'profile = "claude"\noutptu = "text"',
            ": there is no setting `outptu` beside `profile`; did you mean `output`?",
        ),
        (
            'command = "cat"\nzzz = 1',
            ": there is no setting `zzz` beside `command`; there are cwd, default_project_id, description, env, input, "
            "limits, output, persona, profile, skill_bundles, tools, version",
        ),
        ("command = 5", ": command is a text or a list of texts"),
        ('command = ["cat", 5]', ": command is a text or a list of texts"),
        ("profile = true", ": profile is a text"),
        ('command = "cat"\ninput = 1', ": input is a text"),
        (
            'command = "cat"\ninput = "argument"',
            ' input: must be "stdin", "interactive", not "argument"',
        ),
        (
            'command = "cat"\noutput = "jsonlines"',
            ' output: must be "text", "jsonl", not "jsonlines"; did you mean "jsonl"?',
        ),
        ('command = "cat"\ncwd = 1', ": cwd is a text"),
        ('command = "cat"\nenv = "PATH"', ": env is a list of names or a table"),
        ('command = "cat"\nenv = [1]', ": env is a list of names or a table"),
        ('command = "cat"\nlimits = 5', ": limits is a table"),
        ('command = "cat"\ndefault_project_id = 1', ": default_project_id is a text"),
        ('command = "cat"\ntools = "read"', ": tools is a list of texts"),
        ('command = "cat"\npersona = "pirate"', ": persona is a table"),
        ('command = "cat"\nskill_bundles = ["a", 1]', ": skill_bundles is a list of texts"),
        ('command = "cat"\ndescription = 1', ": description is a text"),
        ('command = "cat"\nversion = 1.0', ": version is a text"),
    ],
)
def test_an_error_in_a_table_names_the_table(tmp_path: Path, lines: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        agent_of_command_table(TABLE, "x", tomllib.loads(lines), tmp_path)
    assert str(caught.value) == TABLE + says


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ('comand = "cat"', "there is no setting `comand`; did you mean `command`?"),
        (
            'program = "cat"',
            "there is no setting `program`; there are `target`, `a2a` and `mcp`, for programs `command` and `profile`, "
            "and for frameworks `adk`, `langgraph`, `pydantic_ai`, `openai`",
        ),
        (
            'command = "cat"\ntarget = "app.py"',
            'say what to serve, as in target = "app.py", a2a = "https://…", mcp = "npx …" or command = "my-agent", '
            "one of them",
        ),
        (
            'mcp = "npx x"\nprofile = "claude"',
            'say what to serve, as in target = "app.py", a2a = "https://…", mcp = "npx …" or command = "my-agent", '
            "one of them",
        ),
        (
            'target = "app.py"\nlimits = {}',
            "there is no setting `limits` beside `target`; there are default_project_id, persona, skill_bundles",
        ),
        (
            'target = "app.py"\nskill_bundle = []',
            "there is no setting `skill_bundle` beside `target`; did you mean `skill_bundles`?",
        ),
        ('a2a = "http://127.0.0.1:1"\npersona = 1', "persona is a table"),
        (
            'target = "app.py:server"\npersona = {}',
            'persona needs an agent, but the target is not one: name one, as in target = "app.py:agent"',
        ),
    ],
)
def test_a_table_with_too_many_or_too_few_settings_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, says: str
) -> None:
    (tmp_path / "app.py").write_text(
        'from dragoman import Agent, Server\nagent = Agent("own")\nserver = Server(agent)\n'
    )
    (tmp_path / "dragoman.toml").write_text(f"[agents.x]\n{lines}\n")
    monkeypatch.chdir(tmp_path)
    assert refusal_of() == f"{TABLE}: {says}"


def test_a_table_says_of_its_agent_what_the_card_and_the_routes_show(tmp_path: Path) -> None:
    lines = """
        command = ["cat", "-"]
        description = "Repeats"
        version = "2.0"
        cwd = "."
        default_project_id = "house"
        skill_bundles = ["one", "two"]
        [persona]
        archetype = "parrot"
        [limits]
        time = 5
        [env]
        GIVEN = 1
    """
    agent = agent_of_command_table(TABLE, "x", tomllib.loads(lines), tmp_path)
    assert (agent.name, agent.description, agent.version) == ("x", "Repeats", "2.0")
    assert (agent.default_project_id, agent.persona) == ("house", {"archetype": "parrot"})
    assert tuple(agent.skill_bundles) == ("one", "two")


CONFIGURED = """
from dragoman import Agent
from dragoman.errors import ConfigError
from dragoman.model.event import ArtifactUpdate

class Configured(Agent):
    def app_for(self, settings):
        raise ConfigError(f"{self.default_project_id} {self.persona} {self.skill_bundles}")

agent = Configured("configured")
agent.default_project_id = "its own"
"""


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("", "its own None ()"),
        ('default_project_id = ""', "None None ()"),
        (
            'default_project_id = "house"\nskill_bundles = ["a", "b"]\npersona = { archetype = "parrot" }',
            "house {'archetype': 'parrot'} ('a', 'b')",
        ),
    ],
)
def test_the_settings_of_a_table_reach_an_agent_of_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, says: str
) -> None:
    (tmp_path / "configured.py").write_text(CONFIGURED)
    (tmp_path / "dragoman.toml").write_text(f'[agents.configured]\ntarget = "configured.py"\n{lines}\n')
    monkeypatch.chdir(tmp_path)
    assert refusal_of("--port", "0", "--store", "memory:") == says


def test_a_program_has_a_project_unless_its_table_says_there_is_none(tmp_path: Path) -> None:
    agents = [
        agent_of_command_table(TABLE, "x", tomllib.loads(f'command = "cat"\n{line}'), tmp_path)
        for line in ("", 'default_project_id = ""')
    ]
    assert [agent.default_project_id for agent in agents] == ["default", None]


def test_two_programs_of_the_settings_file_are_served_together(tmp_path: Path) -> None:
    etc = tmp_path / "etc"
    (etc / "work").mkdir(parents=True)
    (etc / "dragoman.toml").write_text(
        '[agents.louder]\ncommand = "tr a-z A-Z"\ndescription = "Shouts"\n'
        '[agents.where]\ncommand = ["sh", "-c", "cat; basename $PWD"]\ncwd = "work"\nlimits = { time = 20 }\n'
    )
    with serving(tmp_path, "--config", "etc/dragoman.toml") as url:
        with Client(url) as client:
            assert (client.card().name, client.card().description) == ("louder", "Shouts")
        with Client(f"{url}/agents/louder") as client:
            assert client.send("hello").text.strip() == "HELLO"
        with Client(f"{url}/agents/where") as client:
            assert client.send("at ").text.strip() == "at work"


@pytest.mark.parametrize("closing", ["whole", "last"])
def test_how_a_streamed_text_ends_is_a_flag_for_programs_too(tmp_path: Path, closing: str) -> None:
    script = tmp_path / "say.sh"
    script.write_text("""printf '{"text": "one "}\\n{"text": "two"}\\n'""")
    with serving(tmp_path, "--command", f"sh {script}", "--output", "jsonl", "--closing", closing) as url:
        with Client(url) as client:
            stream = client.stream("go")
            updates = [event.raw for event in stream if isinstance(event.raw, ArtifactUpdate)]
            texts = [update.artifact.text for update in updates]
            assert stream.task.text == "one two"
        assert updates[-1].last_chunk
        if closing == "whole":
            assert (texts[-1], updates[-1].append) == ("one two", False)
        else:
            assert "".join(texts) == "one two"


def test_a_form_that_is_none_is_refused() -> None:
    assert (
        refusal_of("--command", "true", "--closing", "half") == '--closing: must be "auto", "whole", "last", not "half"'
    )
