"""How command-line agents are called, and how a conversation goes on."""

from __future__ import annotations

import pytest

from dragoman.agents.process.profiles import PROFILES, profile
from dragoman.agents.process.spec import program_spec
from dragoman.model.error import ConfigError

SESSION = "6f1d2c7e-1b1f"


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_knows_its_program(name: str) -> None:
    known = profile(name)

    assert known.name == name
    assert known.title
    assert known.argv(None, None) == known.command
    assert known.argv([], None) == known.command
    assert known.argv(["my-wrapper", "--flag"], None) == ("my-wrapper", "--flag")


def test_a_name_that_is_no_profile_is_refused_with_a_hint() -> None:
    with pytest.raises(ConfigError, match="did you mean `claude`"):
        profile("claud")
    with pytest.raises(ConfigError, match="there are claude, codex"):
        profile("x")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("claude", "claude -p --output-format stream-json --verbose --resume 6f1d2c7e-1b1f"),
        ("codex", "codex exec --json --skip-git-repo-check resume 6f1d2c7e-1b1f -"),
        ("gemini", "gemini --output-format stream-json --resume 6f1d2c7e-1b1f"),
        ("opencode", "opencode run --format json --session 6f1d2c7e-1b1f"),
        ("cursor", "cursor-agent -p --output-format stream-json --resume 6f1d2c7e-1b1f"),
        ("amp", "amp threads continue 6f1d2c7e-1b1f --execute --stream-json"),
        ("qwen", "qwen --output-format stream-json --resume 6f1d2c7e-1b1f"),
    ],
)
def test_a_conversation_goes_on_where_the_program_looks_for_it(name: str, expected: str) -> None:
    assert profile(name).argv(None, SESSION) == tuple(expected.split())


@pytest.mark.parametrize(
    ("name", "command", "expected"),
    [
        ("claude", "claude -p --model x -- {prompt}", "claude -p --model x --resume 6f1d2c7e-1b1f -- {prompt}"),
        ("codex", "codex exec - --json -s read-only", "codex exec --json -s read-only resume 6f1d2c7e-1b1f -"),
        ("codex", "codex exec --json", "codex exec --json resume 6f1d2c7e-1b1f -"),
        ("codex", "codex exec --json -- {prompt}", "codex exec --json resume 6f1d2c7e-1b1f -- {prompt}"),
        ("codex", "codex exec --json {prompt}", "codex exec --json resume 6f1d2c7e-1b1f {prompt}"),
        (
            "amp",
            "env A=1 /opt/bin/amp -x --stream-json",
            "env A=1 /opt/bin/amp threads continue 6f1d2c7e-1b1f -x --stream-json",
        ),
        ("amp", "my-amp -x", "my-amp threads continue 6f1d2c7e-1b1f -x"),
    ],
)
def test_a_conversation_goes_on_with_a_command_of_the_user(name: str, command: str, expected: str) -> None:
    assert profile(name).argv(command.split(), SESSION) == tuple(expected.split())


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("claude", "claude -p --resume mine"),
        ("claude", "claude -p --resume=mine"),
        ("codex", "codex exec --json resume --last -"),
        ("amp", "amp threads continue T-1 -x"),
    ],
)
def test_a_command_that_names_a_conversation_keeps_it(name: str, command: str) -> None:
    assert profile(name).argv(command.split(), SESSION) == tuple(command.split())


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("bad", ["", "--dangerous", "../up", "a b", "a\n", "a;b", "é", "٣", "x" * 129, "{prompt}"])
def test_a_conversation_with_a_name_that_is_none_is_not_gone_on_with(name: str, bad: str) -> None:
    assert profile(name).argv(None, bad) == profile(name).command


@pytest.mark.parametrize("bad", ['"--dangerous"', '"a b"', "7", "null", '["a"]', '"a\\n"'])
def test_a_name_that_cannot_be_an_argument_is_not_remembered(bad: str) -> None:
    line = '{"type":"result","subtype":"success","is_error":false,"result":"ok","session_id":' + bad + "}"

    assert list(profile("claude").reader().feed(line.encode())) == [{"type": "result", "result": "ok"}]


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("claude", "ANTHROPIC_BASE_URL"),
        ("codex", "OPENAI_BASE_URL"),
        ("gemini", "GOOGLE_GEMINI_BASE_URL"),
        ("qwen", "OPENAI_BASE_URL"),
    ],
)
def test_the_address_of_another_model_server_reaches_the_program(
    name: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    assert program_spec(None, profile=name).environment({})[variable] == "http://127.0.0.1:9"
