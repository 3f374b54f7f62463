"""How a program is called."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.agents.process import events
from dragoman.agents.process.events import Event
from dragoman.agents.process.outputs import LinesOutput, TextOutput
from dragoman.agents.process.profiles.profile import Profile
from dragoman.agents.process.spec import MAX_ARGUMENT_BYTES, ProgramLimits, ProgramSpec, program_spec
from dragoman.errors import ConfigError, Failed, Rejected

# -- as a user says it -------------------------------------------------------------------------------------------------


def test_a_command_is_split_like_a_shell_does_and_never_run_by_one() -> None:
    spec = program_spec("my-agent --say 'hello you' $HOME; ls")
    assert spec.command == ("my-agent", "--say", "hello you", "$HOME;", "ls")


def test_a_list_of_words_is_taken_as_it_is() -> None:
    assert program_spec(["my-agent", "hello you", ""]).command == ("my-agent", "hello you", "")


@pytest.mark.parametrize("command", [None, "", "   ", [], ()])
def test_a_command_has_at_least_one_word(command: Any) -> None:
    with pytest.raises(ConfigError, match="a command is a text or a list of words"):
        program_spec(command)


def test_a_quote_that_does_not_end_is_refused() -> None:
    with pytest.raises(ConfigError, match="command: No closing quotation in `my-agent 'oh`"):
        program_spec("my-agent 'oh")


def test_it_is_called_by_the_program_that_is_meant() -> None:
    assert program_spec("npx -y @fox/my-agent@2 --flag").name == "my-agent"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"input": "argument"}, "input: `argument` is neither stdin nor interactive"),
        ({"output": "json"}, "output: `json` is neither text nor jsonl"),
        ({"cwd": "/no/such/folder"}, "cwd: there is no folder /no/such/folder"),
        ({"cwd": "~nobody-of-that-name/x"}, "there is no home folder for ~nobody-of-that-name/x"),
        ({"limits": {"tme": 1}}, "there is no limit `tme`; did you mean `time`?"),
        ({"env": {"A": "x\0y"}}, "env A: no variable can hold the character NUL"),
        ({"env": ["NOT_SET_ANYWHERE"]}, "env NOT_SET_ANYWHERE: the variable is not set here"),
        ({"profile": "no-such-agent"}, "no-such-agent"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_wrong_option_is_refused_with_the_reason(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        program_spec("cat", **options)
    assert reason in str(caught.value)


def test_the_home_of_an_unknown_user_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is no home folder for ~nobody-of-that-name/agent"):
        program_spec("~nobody-of-that-name/agent")


def test_an_interactive_program_has_no_place_for_a_prompt_in_its_command() -> None:
    with pytest.raises(ConfigError, match=r"leave \{prompt\} out"):
        program_spec("my-agent {prompt}", input="interactive")


def test_a_profile_brings_its_command_and_knows_input_and_output() -> None:
    spec = program_spec(None, profile="claude")
    assert spec.profile is not None
    assert spec.command == spec.profile.command
    assert spec.name == spec.profile.name
    assert program_spec("/opt/claude -p", profile="claude").command == ("/opt/claude", "-p")
    for options in ({"input": "interactive"}, {"output": "jsonl"}):
        with pytest.raises(ConfigError, match="leave input and output out"):
            program_spec(None, profile="claude", **options)


def test_limits_and_variables_are_read() -> None:
    spec = program_spec("cat", limits={"time": "5"}, env=["A=1", "B=x=y"])
    assert spec.limits == ProgramLimits(time=5.0)
    assert spec.env == {"A": "1", "B": "x=y"}


# -- the prompt --------------------------------------------------------------------------------------------------------


def test_without_a_place_for_it_the_prompt_is_no_argument() -> None:
    spec = program_spec("cat -u")
    assert spec.argv("-rf \0") == ("cat", "-u")
    assert not spec.prompt_in_argument


def test_the_prompt_is_put_wherever_it_belongs_and_stays_one_word() -> None:
    spec = program_spec(["say", "{prompt}", "--again={prompt}"])
    assert spec.prompt_in_argument
    assert spec.argv("two words; ls") == ("say", "two words; ls", "--again=two words; ls")


def test_braces_in_a_prompt_mean_nothing() -> None:
    assert program_spec("say {prompt}").argv("{prompt} {0}") == ("say", "{prompt} {0}")


@pytest.mark.parametrize(
    "command",
    [
        *("say {prompt}", "say --to x {prompt}", "say {prompt}!", "say {prompt} -- {prompt}"),
        *(
            "say -- x {prompt}",
            "npm run agent -- {prompt}",
            "docker run -i image -- {prompt}",
            "uv run say -- {prompt}",
        ),
        *("/usr/bin/env say -- {prompt}", "sudo say -- {prompt}", "sh -c code -- {prompt}"),
    ],
)
def test_a_caller_does_not_choose_the_options(command: str) -> None:
    with pytest.raises(Rejected, match="may not begin with a hyphen"):
        program_spec(command).argv("--delete-all")


@pytest.mark.parametrize("command", ["say -- {prompt}", "say --text={prompt}", "python -c code -- {prompt}"])
def test_where_no_option_can_be_a_hyphen_is_text(command: str) -> None:
    assert program_spec(command).argv("-1 degrees")[-1].endswith("-1 degrees")


@given(st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from(["", "!", " and more"]))
def test_no_prompt_ever_becomes_an_option(prompt: str, after: str) -> None:
    spec = ProgramSpec(command=("say", "-v", "{prompt}" + after))
    try:
        argv = spec.argv(prompt)
    except Rejected:
        assert prompt.startswith("-") or "\0" in prompt
    else:
        assert argv[:2] == ("say", "-v")
        assert argv[2] == prompt + after
        assert argv[2] == after or not argv[2].startswith("-")


def test_a_character_that_no_argument_can_hold_is_refused() -> None:
    with pytest.raises(Rejected, match=r"\(NUL\)"):
        program_spec("say {prompt}").argv("a\0b")


def test_a_prompt_is_as_long_as_an_argument_may_be() -> None:
    spec = program_spec(["say", "{prompt}"])
    assert len(spec.argv("x" * MAX_ARGUMENT_BYTES)[1]) == MAX_ARGUMENT_BYTES
    with pytest.raises(Rejected, match="too long for the program: it takes at most 127 KB"):
        spec.argv("x" * (MAX_ARGUMENT_BYTES + 1))
    with pytest.raises(Rejected, match="too long"):
        spec.argv("é" * (MAX_ARGUMENT_BYTES // 2 + 1))  # what counts is bytes


def test_the_length_limit_is_for_the_word_with_the_prompt() -> None:
    prompt = "x" * (MAX_ARGUMENT_BYTES - 10)
    assert program_spec(["python", "-c", "#" * 100_000, "{prompt}"]).argv(prompt)[-1] == prompt
    with pytest.raises(Rejected, match="too long"):
        program_spec(["say", "{prompt} {prompt}"]).argv(prompt)


@pytest.mark.parametrize(
    ("command", "options", "keeps"),
    [
        ("cat", {}, False),
        ("cat", {"output": "jsonl"}, False),
        ("cat", {"input": "interactive"}, True),
        ("say {prompt}", {}, False),
        ("say {prompt}", {"output": "jsonl"}, True),
    ],
)
def test_a_program_accepts_more_input_when_its_input_stays_open(command: str, options: Any, keeps: bool) -> None:
    assert program_spec(command, **options).keeps_input is keeps


# -- its surroundings --------------------------------------------------------------------------------------------------


def test_a_program_gets_little_of_the_servers_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_SERVER", "x")
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.delenv("TZ", raising=False)
    environment = program_spec("cat", env={"MY": "own"}).environment({"TASK": "t-1"})
    assert environment["PATH"] == "/bin"
    assert (environment["MY"], environment["DRAGOMAN_TASK"]) == ("own", "t-1")
    assert not {"SECRET_OF_THE_SERVER", "TZ"} & set(environment)


def test_its_owner_has_the_last_word_about_variables_but_not_about_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANG", "C")
    spec = program_spec("cat", env=["LANG=pt_PT", "DRAGOMAN_TASK=mine"])
    environment = spec.environment({"TASK": "t-1", "USER": "a\0b"})
    assert (environment["LANG"], environment["DRAGOMAN_TASK"]) == ("pt_PT", "t-1")
    assert "DRAGOMAN_USER" not in environment  # no variable can hold that


def test_a_variable_that_is_only_named_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "k")
    assert program_spec("cat", env=["MY_KEY"]).environment({})["MY_KEY"] == "k"


def test_a_profile_names_the_variables_its_program_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOX_KEY", "k")
    monkeypatch.delenv("FOX_HOME", raising=False)
    spec = ProgramSpec(command=("fox",), profile=FOX)
    environment = spec.environment({})
    assert environment["FOX_KEY"] == "k"
    assert "FOX_HOME" not in environment


def test_a_program_is_found_on_the_path_it_will_have(tmp_path: Path) -> None:
    program = tmp_path / "fox"
    program.touch(mode=0o755)
    assert program_spec("fox", env={"PATH": str(tmp_path)}).executable("fox", Path("/")) == str(program)
    assert program_spec("fox").executable("./fox", tmp_path) == str(program)
    assert program_spec("fox").executable(sys.executable, tmp_path) == sys.executable


@pytest.mark.parametrize("name", ["no-such-program-here", "./no-such", "/no/such", ""])
def test_a_missing_program_fails_with_its_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(Failed, match=f"there is no `{name}`"):
        program_spec("cat").executable(name, tmp_path)


def test_a_program_that_cannot_be_run_is_refused_before_the_first_call(tmp_path: Path) -> None:
    (tmp_path / "my agent.sh").touch(mode=0o644)
    with pytest.raises(ConfigError) as caught:
        program_spec([f"{tmp_path}/my agent.sh"]).check()
    path = tmp_path / "my agent.sh"
    assert str(caught.value) == f"the program cannot be started: {path} may not be run: chmod +x '{path}'"
    with pytest.raises(ConfigError, match=f"cannot be started: {tmp_path} is a folder"):
        program_spec([str(tmp_path)]).check()
    with pytest.raises(ConfigError, match="there is no `no-such-program-here` on PATH"):
        program_spec("no-such-program-here").check()
    path.chmod(0o755)
    program_spec([str(path)]).check()


# -- its output --------------------------------------------------------------------------------------------------------


class Reader:
    def feed(self, line: bytes) -> Iterable[Event]:
        yield events.text("read")

    def close(self) -> Iterable[Event]:
        return ()


FOX = Profile(name="fox", title="Fox", command=("fox",), reader=Reader, env=("FOX_KEY", "FOX_HOME"))


def test_every_run_is_read_by_a_fresh_reader() -> None:
    spec = program_spec("cat")
    first, second = spec.new_output(), spec.new_output()
    assert isinstance(first, TextOutput)
    assert first is not second


def test_lines_are_read_as_the_recipe_says() -> None:
    assert isinstance(program_spec("cat", output="jsonl").new_output(), LinesOutput)
    assert list(ProgramSpec(command=("fox",), profile=FOX).new_output().feed(b"x\n")) == [events.text("read")]


def test_a_profile_goes_on_with_a_conversation() -> None:
    spec = program_spec(None, profile="claude")
    assert spec.argv("hi") == spec.command
    assert "0b7a2d6e-1111-4222-8333-444455556666" in spec.argv("hi", "0b7a2d6e-1111-4222-8333-444455556666")


def test_the_systems_own_path_is_used_when_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PATH")
    found = program_spec("sh").executable("sh", Path("/"))
    assert os.access(found, os.X_OK)
