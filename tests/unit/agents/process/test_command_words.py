"""The words of a command: how a text is split, where its files are, and what callers may not choose."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman.agents.process.spec import program_spec, resolve_paths, split_command
from dragoman.errors import ConfigError

Placed = Callable[..., list[str]]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder of somebody who writes agents."""
    for name in ("agent.py", "agent.sh", "app.js", "test", "-v", "sub/data.txt", "sub/server.py", "pkg/__main__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


# -- a text --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", ["|", ">", "<", ">>", "&&", "||", ";", "&", "2>&1"])
def test_a_shell_operator_is_refused_with_what_to_use(sign: str) -> None:
    with pytest.raises(ConfigError) as caught:
        program_spec(f"wc -w {sign} sort")
    assert str(caught.value) == (f"command: no shell runs this, so `{sign}` means nothing: use sh -c '…', or a script")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("grep '|' \"&&\" a\\|b", ["grep", "|", "&&", "a|b"]),
        ("sh -c 'wc -w | sort'", ["sh", "-c", "wc -w | sort"]),
        ("say it\\'s", ["say", "it's"]),
        ("say a|b", ["say", "a|b"]),
    ],
)
def test_a_sign_in_quotes_is_a_word(command: str, words: list[str]) -> None:
    assert split_command(command) == words


def test_in_a_list_every_word_is_a_word() -> None:
    assert split_command(["say", "|", ">"]) == ["say", "|", ">"]


def test_no_word_holds_nul() -> None:
    with pytest.raises(ConfigError, match="command: no word can hold the character NUL"):
        program_spec(["say", "a\0b"])


# -- where files are -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "changed"),
    [
        ("./agent.sh x", {"./agent.sh": "agent.sh"}),
        ("sub/agent x", {"sub/agent": "sub/agent"}),
        ("python agent.py test", {"agent.py": "agent.py"}),
        ("python -u -W error agent.py test", {"agent.py": "agent.py"}),
        ("/usr/bin/python3.11 sub/server.py sub/data.txt", {"sub/server.py": "", "sub/data.txt": ""}),
        ("python pkg", {"pkg": "pkg"}),
        ("python -m pkg test", {}),
        ("python -c test agent.py", {}),
        ("python -i -q", {}),
        ("sh agent.sh test", {"agent.sh": "agent.sh"}),
        ("sh -e agent.sh test", {"agent.sh": "agent.sh"}),
        ("bash -eo pipefail agent.sh", {"agent.sh": "agent.sh"}),
        ("sh -c test agent.sh", {}),
        ("node app", {"app": "app"}),
        ("env A=1 python agent.py test", {"agent.py": "agent.py"}),
        ("uv run --with x agent.py", {"agent.py": "agent.py"}),
        ("bun run app.js", {"app.js": "app.js"}),
        ("docker run image python agent.py", {}),
        ("cat agent.py sub", {}),
        ("cat ./agent.py sub/ ./no.py", {"./agent.py": "agent.py", "sub/": "sub"}),
        ("grep -c test", {}),
        ("grep -v -f sub/data.txt", {"sub/data.txt": "sub/data.txt"}),
    ],
)
def test_only_words_that_must_be_paths_are_paths(place: Path, command: str, changed: dict[str, str]) -> None:
    words = shlex.split(command)
    expected = [str(place / (changed[word] or word)) if word in changed else word for word in words]
    assert resolve_paths(words, place) == expected


def test_no_word_of_a_command_raises(place: Path) -> None:
    words = ["cat", "a/\0", "x/" * 5000, "", "-/"]
    assert resolve_paths(words, place) == words


def test_in_a_folder_of_its_owner_only_the_program_is_meant_where_it_was_written(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place / "sub")
    recipe = program_spec("python agent.py sub/data.txt", cwd=place)
    assert (recipe.command, recipe.cwd) == (("python", "agent.py", "sub/data.txt"), place)
    assert program_spec("../agent.sh", cwd=place).command == (str(place / "sub" / ".." / "agent.sh"),)


def test_a_home_folder_is_read(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(place))
    assert resolve_paths(["~/agent.sh"], Path("/")) == [str(place / "agent.sh")]
    assert resolve_paths(["sh", "~/agent.sh"], Path("/")) == ["sh", str(place / "agent.sh")]


@pytest.mark.parametrize(
    ("command", "missing"),
    [("python agnt.py", "agnt.py"), ("sh ./no.sh x", "no.sh"), ("perl sub/no.pl", "sub/no.pl"), ("node -r x no", "no")],
)
def test_a_missing_script_is_an_error_with_its_path(
    place: Path, monkeypatch: pytest.MonkeyPatch, command: str, missing: str
) -> None:
    monkeypatch.chdir(place)
    with pytest.raises(ConfigError) as caught:
        program_spec(command)
    program = command.split()[0]
    assert str(caught.value) == f"command: `{program}` is to run {place / missing}, and there is no such file"


def test_a_script_is_looked_for_where_the_program_runs(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    with pytest.raises(ConfigError, match=f"is to run {place}/sub/agent.py, and"):
        program_spec("python agent.py", cwd="sub")


def test_shells_look_for_a_script_as_for_a_program(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place / "pkg")
    (place / "agent.sh").chmod(0o755)
    assert program_spec("sh agent.sh", env={"PATH": str(place)}, cwd=place / "sub").command == ("sh", "agent.sh")


# -- what callers may not choose -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        *("sh -c 'say {prompt}'", "bash -lc '{prompt}'", "bash -e -c -x 'say \"{prompt}\"'", "zsh -ce {prompt}"),
        *("fish -c {prompt}", "fish --command={prompt}", "ksh -c {prompt}", "/bin/dash -c {prompt}"),
        *("python -c 'print(\"{prompt}\")'", "python3.12 -Ic {prompt}", "python -cprint({prompt})"),
        *("node -e {prompt}", "node --eval={prompt}", "node --print {prompt}", "perl -lne {prompt}"),
        *("perl -e 1 -e {prompt}", "ruby -e {prompt}", "php -r {prompt}", "lua -e {prompt}", "deno eval {prompt}"),
        *("ssh host say {prompt}", "ssh -p 22 me@host {prompt}", "env A=1 sh -c {prompt}", "uv run python -c {prompt}"),
        *("docker run --rm image sh -c 'say {prompt}'", "timeout 10 bash -c {prompt}", "sudo ssh host {prompt}"),
    ],
)
def test_a_caller_does_not_write_code(command: str) -> None:
    with pytest.raises(ConfigError, match=r"\{prompt\} stands in code.*sh -c '… \"\$1\"' x \{prompt\}"):
        program_spec(command)


@pytest.mark.parametrize(
    "command", ["{prompt}", "./{prompt} x", "python {prompt}", "sh -e {prompt}", "node {prompt}.js"]
)
def test_a_caller_does_not_choose_the_program(command: str) -> None:
    with pytest.raises(ConfigError, match=r"\{prompt\} stands where a program is named"):
        program_spec(command)


@pytest.mark.parametrize(
    "command",
    [
        *("sh -c 'say \"$1\"' x {prompt}", "sh -c 'say \"$1\"' sh {prompt}", "bash -c 'say \"$@\"' bash -c {prompt}"),
        *("python -c code {prompt}", "python -c code -c {prompt}", "python -m pkg -c {prompt}", "perl -e 1 {prompt}"),
        *("python agent.py -c {prompt}", "sh agent.sh -c {prompt}", "node app.js -e {prompt}", "say -c {prompt}"),
        *("say --shell bash {prompt}", "claude -p {prompt}", "ssh host"),
    ],
)
def test_an_argument_of_its_own_is_no_code(place: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.chdir(place)
    assert program_spec(command).command
