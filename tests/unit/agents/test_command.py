"""A command: whom it runs, and the variables it is given."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from dragoman.agents.command import environment_of, is_launcher, name_of_command
from dragoman.errors import ConfigError


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("sh -e script.sh foo", "script"),
        ("sh -c 'curl https://example.com/x | tee y'", "sh"),
        ("bash -lc 'say hello'", "bash"),
        ("zsh -ic say", "zsh"),
        ("bash -eo pipefail agent.sh", "agent"),
        ("perl -w agent.pl", "agent"),
        ("node --no-warnings agent.mjs", "agent"),
        ("node -e code agent.mjs", "node"),
        ("python -Im pkg.mod", "pkg-mod"),
        ("python 'my agent.py'", "python"),
        ("sh {prompt}", "sh"),
        ("npx --mystery a b", "npx"),
        ("npx -z a b", "npx"),
        ("npx -y https://example.com/a.tgz", "npx"),
        ("npx -c 'a b'", "npx"),
        ("uvx --from git+https://example.com/a b", "b"),
        ("uvx 'a>=1'", "uvx"),
        ("docker run --gpus all image", "docker"),
        ("docker run -i --rm ghcr.io/fox/den:1.2", "den"),
        ("podman run -u 1000 -it fox/den@sha256:0f", "den"),
        ("env -i A=1 sh agent.sh", "agent"),
        ("timeout 10 agent", "timeout"),
    ],
)
def test_a_program_is_called_after_what_is_meant_and_when_in_doubt_after_itself(command: str, name: str) -> None:
    assert name_of_command(shlex.split(command)) == name


def test_launchers_and_shells_start_others() -> None:
    assert all(is_launcher(each) for each in ("npm", "/usr/bin/env", "docker", "sudo", "sh", "node", "ssh"))
    assert not any(is_launcher(each) for each in ("cat", "claude", "python3", "/opt/npm-agent"))


@pytest.mark.parametrize("env", [["=x"], ["KEY VALUE"], ["1A=x"], ["-v"], [""], {"A=B": "x"}, {"": "x"}, {"A\0": "x"}])
def test_a_name_that_no_variable_can_have_is_refused(env: Any) -> None:
    with pytest.raises(ConfigError, match="is not the name of a variable: write KEY=VALUE, or KEY"):
        environment_of(env)


@pytest.mark.parametrize("env", [["A=x\0y"], {"A": "x\0y"}])
def test_no_variable_holds_nul(env: Any) -> None:
    with pytest.raises(ConfigError, match="env A: no variable can hold the character NUL"):
        environment_of(env)
